"""The documentation: every method has a page, the nav lists every page, tables follow the code."""

import dataclasses
import itertools
import json
import pathlib
import re
import shlex
import sys

import pytest
import yaml

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.core import paths
from fedjax_syn.tables import sweep
from tools import docs_hooks as hooks

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs'
OWN = ROOT / 'notebooks' / '02_write_your_own_method.ipynb'


def blocks(text, language):
  """The code blocks of a Markdown text."""
  return re.findall(rf'^```{language}\n(.*?)^```', text, re.DOTALL | re.MULTILINE)


def words_of(path):
  """The text of a page, or of a notebook's Markdown cells."""
  if path.suffix == '.md':
    return path.read_text()
  cells = json.loads(path.read_text())['cells']
  return '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')


def commands_of(path, program='main'):
  """Calls of `launch/main.py` or another program in the code blocks, as lists of words."""
  lines = '\n'.join(blocks(words_of(path), 'bash')).replace('\\\n', ' ').splitlines()
  for line in lines:
    _, found, rest = line.partition(f'python launch/{program}.py')
    if found:
      yield shlex.split(rest.split('"')[0].split('&')[0], comments=True)


PAGES = [ROOT / 'README.md', *sorted(DOCS.rglob('*.md')), *sorted(OWN.parent.glob('*.ipynb'))]
COMMANDS = [(path, words) for path in PAGES for words in commands_of(path)]
SWEEPS = [(path, words) for path in PAGES for words in commands_of(path, 'sweep')]


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
    if name != algorithms.BASE and not dataclasses.fields(algorithms.layer_class(name)):
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


def test_a_section_of_readme_is_a_part_of_a_page():
  """Links lead to pages of the site; what the site lacks is no link."""
  text = """# A

First.

## B c

[one](docs/tour.md#x), ![picture](docs/report.png), [two](configs/one_digit.py), [web](https://x.y).

```bash
# a comment
```

## D

[n](notebooks/)
"""
  body = """[one](tour.md#x), ![picture](report.png), two, [web](https://x.y).

```bash
# a comment
```"""
  assert hooks.readme_section('A', text) == 'First.'
  assert hooks.readme_section('B c', text) == body
  assert hooks.readme_section('D', text) == '[n](notebooks/index.md)'
  with pytest.raises(ValueError, match='README has no such section'):
    hooks.readme_section('B', text)


def test_links_to_notebooks_work_in_the_repository_and_on_the_site():
  assert hooks.notebook_links('[a](../notebooks/01_a.ipynb)') == '[a](notebooks/01_a.md)'
  assert hooks.notebook_links('[a](../../notebooks/01_a.ipynb)') == '[a](../notebooks/01_a.md)'
  found = [
    path.parent / link
    for path in DOCS.rglob('*.md')
    for link in re.findall(r'\]\(([^)#]*notebooks/[^)#]*)', path.read_text())
  ]
  assert found and all(path.exists() for path in found)


def test_formulas_become_mathml():
  pytest.importorskip('latex2mathml')  # in the extras test and docs
  page = hooks.formulas('a <span class="arithmatex">\\(x &lt; 1\\)</span> b')
  assert page.startswith('a <math') and page.endswith('</math> b')
  assert '<mi>x</mi>' in page and '&#x0003C;' in page and 'display="inline"' in page
  with pytest.raises(ValueError, match='bigsum'):
    hooks.formulas('<div class="arithmatex">\\[\\bigsum x\\]</div>')


def test_comments_of_a_field_are_those_above_it_and_beside_it():
  docs_comments = pytest.importorskip('tools.docs_comments')  # griffe comes with the extra docs
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


def own_method(path):
  """The example of an own method on a page, as the file that a reader saves."""
  if path != OWN:
    (code,) = [code for code in blocks(words_of(path), 'python') if 'class Proximal' in code]
    return code
  (imports,) = blocks(words_of(path), 'python')  # the class is in a cell
  cells = [''.join(cell['source']) for cell in json.loads(path.read_text())['cells']]
  return imports + '\n\n' + next(text for text in cells if text.startswith('class ClientMomentum'))


def save_own_method(path, folder, monkeypatch):
  (folder / 'my_method.py').write_text(own_method(path))
  monkeypatch.syspath_prepend(folder)
  monkeypatch.delitem(sys.modules, 'my_method', raising=False)  # another page's


@pytest.mark.parametrize(
  ('path', 'words'),
  [pytest.param(*case, id=f'{case[0].name}: {" ".join(case[1])}') for case in COMMANDS],
)
def test_a_command_of_the_documentation_is_not_refused(path, words, tmp_path, monkeypatch):
  if any('my_method' in word for word in words):
    save_own_method(path, tmp_path, monkeypatch)
  flags = dict(word.lstrip('-').split('=', 1) for word in words if '=' in word)
  settings = [word for word in words if word.startswith('--config.')]
  config = files.load_config(ROOT / flags.get('config', paths.DEFAULT_CONFIG), settings)
  config_lib.check(config)


@pytest.mark.parametrize(
  ('path', 'words'),
  [pytest.param(*case, id=f'{case[0].name}: {" ".join(case[1])}') for case in SWEEPS],
)
def test_a_sweep_of_the_documentation_is_not_refused(path, words, tmp_path):
  grid = [value for flag, value in itertools.pairwise(words) if flag == '--grid']
  flags = dict(word.lstrip('-').split('=', 1) for word in words if word.startswith('--config='))
  settings = [word for word in words if word.startswith('--config.')]
  config = files.load_config(ROOT / flags['config'], [*settings, '--config.compare='])
  if not sweep.has_validation(config):
    config.data.validation = 0.1
  cells = sweep.choose(sweep.read_grid(grid), 0, 0)
  assert len(cells) > 2
  for values in cells:
    sweep.make_cell(config, values, tmp_path)


def test_commands_are_found():
  found = {path.name for path, _ in COMMANDS}
  assert {'README.md', 'compose.md', 'data.md', 'tour.md', OWN.name} <= found
  assert any('--config.data.name=folder' in words for _, words in COMMANDS)
  assert {'data.md', 'results.md', 'tour.md'} <= {path.name for path, _ in SWEEPS}


@pytest.mark.parametrize(
  ('path', 'setting'),
  [
    (ROOT / 'README.md', 'Proximal.mu'),
    (DOCS / 'compose.md', 'Proximal.mu'),
    (OWN, 'ClientMomentum.share'),
  ],
  ids=lambda value: getattr(value, 'name', value),
)
def test_an_own_method_gets_its_setting(path, setting, tmp_path, monkeypatch):
  save_own_method(path, tmp_path, monkeypatch)
  cls, _, name = setting.partition('.')
  block = cls.lower()
  words = [f'--config.algorithm=my_method:{cls}', f'--config.{block}.{name}=0.25']
  resolved = config_lib.check(files.load_config(paths.DEFAULT_CONFIG, words))
  *_, own = algorithms.create(resolved.algorithm, resolved)
  assert own.name == block and getattr(own, name) == 0.25


def test_figures_of_the_default_job_come_from_its_results():
  """README, the pages and the config repeat what `results/one_digit.json` says."""
  results = json.loads((ROOT / 'results/one_digit.json').read_text())
  shown = {
    'README.md': '{0:.4f} ± {1:.4f}',
    'docs/tour.md': '{0:.4f} ± {1:.4f}',
    'docs/results.md': '{2:.2f} ± {3:.2f}',
    'configs/one_digit.py': '{2:.2f} +- {3:.2f}',
  }
  for path, form in shown.items():
    text = ' '.join((ROOT / path).read_text().split())
    for method, run in results['test']['methods'].items():
      last = run['test_accuracy']['mean_last_5']
      mean, std = last['mean'], last['std']
      figure = form.format(mean, std, 100 * mean, 100 * std)
      assert figure in text, f'{path}: {method} {figure}'
  for method, tuning in results['tuning'].items():
    best = max(tuning['cells'], key=lambda cell: cell['held_out_mean'] or 0)
    figure = f'{100 * best["held_out_mean"]:.2f} ± {100 * best["std"]:.2f}'
    assert figure in (ROOT / 'docs/results.md').read_text(), f'{method} {figure}'
