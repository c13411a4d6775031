"""The documentation: nothing that exists is without a page, no page is out of reach, tables come from the code."""

import pathlib
import re

import pytest
import yaml

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from launch import docs_hooks as hooks

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs'


def pages_of(nav):
  """Paths in MkDocs's `nav`: a list of paths, titles to paths, and titles to lists of the same."""
  for entry in nav:
    value = next(iter(entry.values())) if isinstance(entry, dict) else entry
    if isinstance(value, list):
      yield from pages_of(value)
    else:
      yield value


@pytest.fixture(scope='module')
def nav():
  return list(pages_of(yaml.safe_load((ROOT / 'mkdocs.yml').read_text())['nav']))


def test_every_algorithm_has_a_page_that_the_nav_lists(nav):
  missing = {f'algorithms/{name}.md' for name in algorithms.names()} - set(nav)
  assert not missing, f'add to docs/ and to the nav of mkdocs.yml: {sorted(missing)}'


def test_the_nav_lists_every_page_once_and_nothing_else(nav):
  pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob('*.md')]
  pages += [f'notebooks/{path.stem}.md' for path in (ROOT / 'notebooks').glob('*.ipynb')]
  assert sorted(nav) == sorted(pages)


def test_an_algorithms_page_shows_its_fields_and_what_they_cost():
  for name in algorithms.names():
    text = (DOCS / 'algorithms' / f'{name}.md').read_text()
    shown = re.findall(r'<!-- fields: (\w+) -->', text)
    wanted = ['client', 'server'] if name == algorithms.BASE else [name]
    if name != algorithms.BASE and algorithms.config_class(name) is None:
      wanted = []
    assert shown == wanted, f'{name}.md: tables of {shown}, expected {wanted}'
    assert '## Cost' in text and '## Deviations' in text, f'{name}.md: a section is missing'


def test_a_table_of_fields_has_every_field_with_its_default():
  table = hooks.fields_table('fedprox')
  # One field: header, rule, row; mu is 0.01 and may not be negative.
  assert table.splitlines()[2:] == [
    '| `mu` | `0.01` | weight of the proximal term mu/2 &#124;&#124;w - w^t&#124;&#124;^2 | ≥ 0 |'
  ]
  rows = hooks.fields_table('dynafed').splitlines()[2:]
  keys = [key for key in config_lib.leaves() if key.startswith('dynafed.')]
  assert ['dynafed.' + re.match(r'\| `(\w+)`', row)[1] for row in rows] == keys
  with pytest.raises(ValueError, match='fedporx'):
    hooks.fields_table('fedporx')


def test_formulas_become_mathml():
  pytest.importorskip('latex2mathml')  # in the extras test and docs
  page = hooks.formulas('a <span class="arithmatex">\\(x &lt; 1\\)</span> b')
  assert page.startswith('a <math') and page.endswith('</math> b')
  assert '<mi>x</mi>' in page and '&#x0003C;' in page and 'display="inline"' in page
  with pytest.raises(ValueError, match='bigsum'):
    hooks.formulas('<div class="arithmatex">\\[\\bigsum x\\]</div>')


def test_comments_of_a_field_are_those_above_it_and_beside_it():
  docs_comments = pytest.importorskip('launch.docs_comments')  # griffe comes with the extra docs
  lines = [
    'class A:\n',
    '  x: int = 1  # [], one\n',
    '  # above: of y\n',
    '  y: int = (\n',
    '    2  # [n], two # hashes\n',
    '  )\n',
    '  z: str = "# no comment"\n',
  ]
  assert docs_comments.comments_of(lines, 2, 2) == '[], one'
  assert docs_comments.comments_of(lines, 4, 6) == 'above: of y [n], two # hashes'
  assert docs_comments.comments_of(lines, 7, 7) == ''
