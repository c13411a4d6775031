"""Changes to what a run stored, and names that it stores."""

import json

from fedjax_syn.runs import stored_files

HOSTILE = '</script><img src=x onerror="document.title=1">'
# Names of classes; ten, as a fake engine learns ten.
KINDS = ('<i>dog', 'ant', 'bee', 'cat', 'cow', 'elk', 'fox', 'gnu', 'hen', 'yak')


def edit(folder, change):
  """Changes a stored config.json."""
  path = folder / 'config.json'
  stored = json.loads(path.read_text())
  change(stored)
  stored_files.write_json(path, stored)
