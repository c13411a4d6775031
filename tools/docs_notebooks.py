"""The notebooks as pages of the documentation: ordinary Markdown, so that they look, search and check like any page.

MkDocs calls `on_files` (`hooks` in mkdocs.yml). Without more the pages have no outputs; the environment variable
FEDJAX_SYN_NOTEBOOKS names a folder with executed copies, see `tools/notebooks.py`.
"""

import os
import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / 'notebooks'
VARIABLE = 'FEDJAX_SYN_NOTEBOOKS'
# A figure's alternative text is what its cell says: metadata {"alt": "..."}.
TEMPLATE = """{%- extends 'markdown/index.md.j2' -%}
{% block data_png %}
![{{ cell.metadata.alt or 'figure' }}]({{ output.metadata.filenames['image/png'] }})
{% endblock data_png %}
{% block stream %}
{%- if output.name == 'stdout' %}
```text
{{ output.text | trim }}
```
{%- endif %}
{% endblock stream %}
{% block data_text scoped %}
```text
{{ output.data['text/plain'] | trim }}
```
{% endblock data_text %}
"""
UNEXECUTED = ' The outputs are not shown here: run it to see them.'


def folder() -> pathlib.Path:
  """Where the notebooks are read from: executed copies if there are any.

  Raises:
    FileNotFoundError: if the folder of copies lacks a notebook.
  """
  named = os.environ.get(VARIABLE)
  if not named:
    return SOURCE
  missing = sorted(
    {p.name for p in SOURCE.glob('*.ipynb')} - {p.name for p in pathlib.Path(named).glob('*.ipynb')}
  )
  if missing:
    raise FileNotFoundError(
      f'{VARIABLE}={named}: {", ".join(missing)} is not there; python -m tools.notebooks {named}'
    )
  return pathlib.Path(named)


def for_site(words: str) -> str:
  """Rewrites the Markdown of a notebook as that of a page: formulas, and links that start at notebooks/."""
  words = re.sub(r'\$\$(.+?)\$\$', r'\\[\1\\]', words, flags=re.DOTALL)
  words = re.sub(r'\$([^$\n]+)\$', r'\\(\1\\)', words)
  words = words.replace('](../docs/', '](../')
  return re.sub(r'\]\((\w+)\.ipynb\)', r'](\1.md)', words)


def page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
  """Turns a notebook into a page.

  Args:
    path: the notebook.

  Returns:
    Markdown, with the notebook itself to download beneath its title, and the pictures by name.
  """
  import nbformat  # here: the list of pages needs no extra
  from nbconvert import MarkdownExporter

  notebook = nbformat.read(path, as_version=4)
  for cell in notebook.cells:
    if cell.cell_type == 'markdown':
      cell.source = for_site(cell.source)
  exporter = MarkdownExporter(raw_template=TEMPLATE)
  text, resources = exporter.from_notebook_node(notebook, {'unique_key': path.stem})
  title, _, rest = text.lstrip().partition('\n')
  note = f'This page is a notebook: [{path.name}]({path.name}).'
  note += '' if path.parent != SOURCE else UNEXECUTED
  return f'{title}\n\n*{note}*\n{rest}', dict(resources['outputs'])


def on_files(files: Any, config: Any) -> Any:
  """MkDocs: all files of the site; adds a page for each notebook, its pictures and the notebook without outputs."""
  from mkdocs.structure.files import File

  here = folder()
  for source in sorted(SOURCE.glob('*.ipynb')):
    text, pictures = page(here / source.name)
    added = {f'{source.stem}.md': text, source.name: source.read_text(), **pictures}
    for name, content in added.items():
      files.append(File.generated(config, f'notebooks/{name}', content=content))
  return files
