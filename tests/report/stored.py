"""Changes to what a run stored."""

import json

HOSTILE = '</script><img src=x onerror="document.title=1">'


def edit(folder, change):
  """Changes a stored config.json."""
  path = folder / 'config.json'
  stored = json.loads(path.read_text())
  change(stored)
  path.write_text(json.dumps(stored))
