"""The command that trains a run again: a config file, and every setting in which the run differs from it."""

import shlex
from collections.abc import Mapping
from typing import Any

from fedjax_syn.report.runs import Run, used


def command(run: Run, base: Mapping[str, Any], path: str) -> str:
  """Writes a run's command line.

  Args:
    run: the run.
    base: the config that a file gives, as nested dicts.
    path: of that file, as it is written behind `--config=`.

  Returns:
    For a POSIX shell, a setting a line. It gives the run's settings whatever the file says of them: what differs from
    the file now is written out, what a newer version added keeps its default.
  """
  wanted = run.settings | {'compare': run.stored['config']['compare']}
  same_blocks = {**base, 'algorithm': wanted['algorithm']}
  given = used(same_blocks) | {key: base[key] for key in ('algorithm', 'compare')}
  changed = {k: v for k, v in wanted.items() if k not in given or given[k] != v}
  flags = [f'--config.{key}={text(value)}' for key, value in changed.items()]
  program = shlex.join(['python', 'launch/main.py', f'--config={path}'])
  return ' \\\n    '.join([program, *map(shlex.quote, flags)])


def text(value: Any) -> str:
  """Writes a value as `--config.key=` reads it: a tuple of one with its comma."""
  return str(tuple(value)) if isinstance(value, list | tuple) else str(value)
