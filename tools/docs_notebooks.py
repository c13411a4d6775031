"""The notebooks as Markdown pages of the documentation, with search and checked links.

MkDocs calls `on_files` (`hooks` in mkdocs.yml). Pages show the outputs that the notebooks store.
"""

import pathlib
import re
from typing import Any

SOURCE = pathlib.Path(__file__).resolve().parent.parent / 'notebooks'
# The cell's metadata {"alt": "..."} is the alternative text of its figure.
TEMPLATE = """{%- extends 'markdown/index.md.j2' -%}
{% block data_png %}
![{{ cell.metadata.alt or 'figure' }}]({{ output.metadata.filenames['image/png'] }})
{% endblock data_png %}
{% block stream %}
```text
{{ output.text | trim }}
```
{% endblock stream %}
{% block data_text scoped %}
```text
{{ output.data['text/plain'] | trim }}
```
{% endblock data_text %}
"""


def site_links(text: str) -> str:
  """Turns links that start at notebooks/ into links that start at the site's notebooks/."""
  return re.sub(r'\]\((\w+)\.ipynb\)', r'](\1.md)', text.replace('](../docs/', '](../'))


def page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
  """Converts a notebook to a page.

  Args:
    path: of the notebook.

  Returns:
    Markdown with a link to the notebook below the title, and the PNG files by name.
  """
  import nbformat  # tests list the notebooks without the extra `docs`
  from nbconvert import MarkdownExporter

  notebook = nbformat.read(path, as_version=4)
  for cell in notebook.cells:
    if cell.cell_type == 'markdown':
      cell.source = site_links(cell.source)
  exporter = MarkdownExporter(raw_template=TEMPLATE)
  text, resources = exporter.from_notebook_node(notebook, {'unique_key': path.stem})
  title, _, rest = text.lstrip().partition('\n')
  note = f'This page is a notebook: [{path.name}]({path.name}).'
  return f'{title}\n\n*{note}*\n{rest}', dict(resources['outputs'])


def on_files(files: Any, config: Any) -> Any:
  """Adds a page, its figures and the file for each notebook; MkDocs calls it."""
  from mkdocs.structure.files import File

  for source in sorted(SOURCE.glob('*.ipynb')):
    text, figures = page(source)
    contents = {f'{source.stem}.md': text, source.name: source.read_text(), **figures}
    for name, content in contents.items():
      files.append(File.generated(config, f'notebooks/{name}', content=content))
  return files
