"""The notebooks as files: stripped, valid, each a page of the documentation; .ci/run runs them."""

import ast
import importlib
import json
import re
import types

import pytest

from tools import docs_notebooks

PATHS = sorted(docs_notebooks.SOURCE.glob('*.ipynb'))


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def notebook(request):
  return json.loads(request.param.read_text())


def test_there_are_five():
  assert [path.stem[:2] for path in PATHS] == ['01', '02', '03', '04', '05']


def test_no_output_is_stored(notebook):
  for cell in notebook['cells']:
    if cell['cell_type'] == 'code':
      assert cell['outputs'] == [] and cell['execution_count'] is None, cell['id']
    assert set(cell['metadata']) <= {'alt'}, f'{cell["id"]}: metadata of the editor'


def test_cells_have_ids_and_the_format_is_valid(notebook):
  assert notebook['nbformat'] == 4 and notebook['nbformat_minor'] >= 5
  ids = [cell['id'] for cell in notebook['cells']]
  assert len(set(ids)) == len(ids) and all(re.fullmatch('[a-zA-Z0-9_-]{1,64}', i) for i in ids)
  nbformat = pytest.importorskip('nbformat')  # in the extras notebooks and docs
  nbformat.validate(notebook)


def test_it_begins_with_a_title_and_every_code_cell_follows_words(notebook):
  first, *rest = notebook['cells']
  assert first['cell_type'] == 'markdown' and ''.join(first['source']).startswith('# ')
  for before, cell in zip([first, *rest], rest, strict=False):
    assert 'markdown' in (before['cell_type'], cell['cell_type']), f'{cell["id"]}: no word before'


def test_a_page_has_outputs_with_their_alternative_text(tmp_path):
  pytest.importorskip('nbconvert')
  nbformat = pytest.importorskip('nbformat')
  v4 = nbformat.v4
  picture = v4.new_output('display_data', {'image/png': 'AAAA'})
  words = v4.new_output('stream', text='seen\n', name='stdout')
  value = v4.new_output('execute_result', {'text/plain': '42'})
  noise = v4.new_output('stream', text='of the machine\n', name='stderr')
  code = v4.new_code_cell(
    'draw()', outputs=[noise, words, picture, value], metadata={'alt': 'a line'}
  )
  cells = [v4.new_markdown_cell('# Title\n\n[x](../docs/tour.md)'), code]
  notebook = v4.new_notebook(cells=cells, metadata={'language_info': {'name': 'python'}})
  nbformat.write(notebook, tmp_path / '09_x.ipynb')
  text, pictures = docs_notebooks.page(tmp_path / '09_x.ipynb')
  assert text.startswith('# Title\n\n*This page is a notebook: [09_x.ipynb](09_x.ipynb).*')
  assert '[x](../tour.md)' in text and '```python\ndraw()\n```' in text
  assert 'of the machine' not in text
  assert '```text\nseen\n```' in text and '```text\n42\n```' in text
  assert list(pictures.values()) == [b'\0\0\0'] and f'![a line]({list(pictures)[0]})' in text


def test_what_it_uses_of_the_library_exists(notebook):
  cells = (''.join(c['source']) for c in notebook['cells'] if c['cell_type'] == 'code')
  tree = ast.parse('\n'.join(cells).replace('%matplotlib inline', ''))
  modules = {'fs': importlib.import_module('fedjax_syn')}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.module.startswith('fedjax_syn'):
      for alias in node.names:
        value = getattr(importlib.import_module(node.module), alias.name, None)
        value = value or importlib.import_module(f'{node.module}.{alias.name}')
        if isinstance(value, types.ModuleType):
          modules[alias.asname or alias.name] = value
  used = [
    n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
  ]
  missing = [n for n in used if n.value.id in modules and not hasattr(modules[n.value.id], n.attr)]
  assert not missing, [f'{n.value.id}.{n.attr}' for n in missing]


def test_links_lead_to_pages_of_the_site():
  words = '[a](02_x.ipynb) [b](../docs/privacy.md)'
  assert docs_notebooks.site_links(words) == '[a](02_x.md) [b](../privacy.md)'
