"""Executes the notebooks and stores their outputs: `python -m tools.run_notebooks [01 02 ...]`.

The repository and the documentation show these outputs, so only what a reader needs is stored:
no times, versions and settings of the machine, no progress bars, nothing of stderr.
"""

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / 'notebooks'


def digest(notebook: Any) -> str:
  """Returns SHA-256 of the code of a notebook, 16 digits: whether its outputs belong to it."""
  code = [''.join(c['source']) for c in notebook['cells'] if c['cell_type'] == 'code']
  return hashlib.sha256('\n\0'.join(code).encode()).hexdigest()[:16]


def passing(output: Any) -> bool:
  """Whether an output is a progress bar, which is text that is displayed, or a warning."""
  bar = output['output_type'] == 'display_data' and set(output['data']) == {'text/plain'}
  return bar or output.get('name') == 'stderr'


def strip(notebook: Any) -> None:
  """Removes from an executed notebook what depends on the machine, in place."""
  kernel = {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'}
  notebook['metadata'] = {'kernelspec': kernel, 'language_info': {'name': 'python'}}
  notebook['metadata']['fedjax_syn'] = {'executed': digest(notebook)}
  for cell in notebook['cells']:
    cell['metadata'] = {key: cell['metadata'][key] for key in ('alt',) if key in cell['metadata']}
    if cell['cell_type'] == 'code':
      cell['outputs'] = [out for out in cell['outputs'] if not passing(out)]
      for output in cell['outputs']:
        output.get('metadata', {}).clear()
        if len(output.get('data', {})) > 1:  # '<Figure size 600x400 with 1 Axes>'
          output['data'].pop('text/plain', None)


def main(names: list[str]) -> None:
  """Executes the notebooks whose names begin so; all of them by default."""
  import nbformat  # with the extra `notebooks`
  from nbclient import NotebookClient

  for path in sorted(NOTEBOOKS.glob('*.ipynb')):
    if names and not path.name.startswith(tuple(names)):
      continue
    began = time.time()
    notebook = nbformat.read(path, as_version=4)
    where = {'metadata': {'path': path.parent}}
    NotebookClient(notebook, timeout=600, resources=where, coalesce_streams=True).execute()
    strip(notebook)
    nbformat.write(notebook, path)
    print(f'{path.name}: {path.stat().st_size / 1000:.0f} kB, {time.time() - began:.0f} s')


if __name__ == '__main__':
  main(sys.argv[1:])
