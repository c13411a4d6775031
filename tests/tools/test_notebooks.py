"""The notebooks as files: outputs, format, pages of the documentation; .ci/run executes them."""

import ast
import importlib
import json
import re
import types

import pytest

from tools import docs_notebooks, run_notebooks

PNG = 'image/png'
PATHS = sorted(docs_notebooks.SOURCE.glob('*.ipynb'))


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def notebook(request):
  return json.loads(request.param.read_text())


def test_there_are_five():
  assert [path.stem[:2] for path in PATHS] == ['01', '02', '03', '04', '05']


RENEW = 'python -m tools.run_notebooks renews the outputs'


def test_the_stored_outputs_are_those_of_one_execution_of_this_code(notebook):
  code = [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']
  assert notebook['metadata']['fedjax_syn'] == {'executed': run_notebooks.digest(notebook)}, RENEW
  assert [cell['execution_count'] for cell in code] == list(range(1, len(code) + 1)), RENEW
  assert code[-1]['outputs'] and sum(bool(cell['outputs']) for cell in code) > len(code) / 2


def test_another_code_has_another_digest(notebook):
  stored = run_notebooks.digest(notebook)
  notebook['cells'][0]['source'] = ['# Another title']  # words are free
  assert run_notebooks.digest(notebook) == stored
  next(cell for cell in notebook['cells'] if cell['cell_type'] == 'code')['source'][0] += ' '
  assert run_notebooks.digest(notebook) != stored


def test_outputs_are_small_and_show_neither_errors_nor_the_machine(request, notebook):
  path = request.node.callspec.params['notebook']
  assert path.stat().st_size < 400_000
  outputs = [out for cell in notebook['cells'] for out in cell.get('outputs', [])]
  kinds = {'stream', 'display_data', 'execute_result'}
  assert {out['output_type'] for out in outputs} <= kinds, 'an error'
  assert all(out.get('name', 'stdout') == 'stdout' for out in outputs), 'warnings'
  texts = [''.join(out.get('text', ())) for out in outputs]
  texts += [
    ''.join(value) for out in outputs for kind, value in out.get('data', {}).items() if kind != PNG
  ]
  for text in texts:
    assert not re.search(r'(?i)(^|[\s\'"(=])/\w+/|\bat 0x|warning|traceback|\x1b', text), text
  for out in outputs:
    assert set(out.get('data', {})) <= {PNG, 'text/markdown', 'text/plain', 'text/html'}
  for cell in notebook['cells']:
    assert set(cell['metadata']) <= {'alt'}, f'{cell["id"]}: metadata of the editor'
    if any(PNG in out.get('data', {}) for out in cell.get('outputs', [])):
      assert cell['metadata'].get('alt'), f'{cell["id"]}: "alt" of its figure in the metadata'


def test_what_depends_on_the_machine_is_removed():
  outputs = [
    {'output_type': 'stream', 'name': 'stderr', 'text': 'a warning'},
    {'output_type': 'display_data', 'data': {'text/plain': 'fedavg ━━━ 30/30 0:00:05'}},
    {'output_type': 'stream', 'name': 'stdout', 'text': 'seen'},
    {
      'output_type': 'display_data',
      'data': {PNG: 'AAAA', 'text/plain': '<Figure size 600x400 with 1 Axes>'},
      'metadata': {PNG: {'width': 600}},
    },
  ]
  metadata = {'alt': 'a line', 'execution': {'iopub.execute_input': '2000-01-01'}}
  cell = {'cell_type': 'code', 'source': 'draw()', 'metadata': metadata, 'outputs': outputs}
  notebook = {'cells': [cell], 'metadata': {'language_info': {'version': '3.11.1'}}}
  run_notebooks.strip(notebook)
  assert 'version' not in notebook['metadata']['language_info']
  assert cell['metadata'] == {'alt': 'a line'}
  assert cell['outputs'] == [
    outputs[2],
    {'output_type': 'display_data', 'data': {PNG: 'AAAA'}, 'metadata': {}},
  ]


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
  code = v4.new_code_cell('draw()', outputs=[words, picture, value], metadata={'alt': 'a line'})
  cells = [v4.new_markdown_cell('# Title\n\n[x](../docs/tour.md)'), code]
  notebook = v4.new_notebook(cells=cells, metadata={'language_info': {'name': 'python'}})
  nbformat.write(notebook, tmp_path / '09_x.ipynb')
  text, pictures = docs_notebooks.page(tmp_path / '09_x.ipynb')
  assert text.startswith('# Title\n\n*This page is a notebook: [09_x.ipynb](09_x.ipynb).*')
  assert '[x](../tour.md)' in text and '```python\ndraw()\n```' in text
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
