"""The command that trains a run again."""

import shlex
from typing import Any

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.core import paths
from fedjax_syn.report.runs import Run, used


def command_of(run: Run) -> str:
  """Returns a run's command line for a POSIX shell, with its folder, a setting a line.

  It names the run's config file if the package has it, else the default one, and every setting in
  which the run differs from what the file says now; what a newer version added keeps its default.
  """
  # The file is executed, so only one of the package is read.
  file = paths.shipped_configs().get(run.stored.get('config_name', ''), paths.DEFAULT_CONFIG)
  base = config_lib.to_dict(files.load_config(str(file)))
  wanted = run.settings | {'compare': run.stored['config']['compare']}
  given = used({**base, 'algorithm': wanted['algorithm']})
  given |= {key: base[key] for key in ('algorithm', 'compare')}
  changed = {k: v for k, v in wanted.items() if k not in given or given[k] != v}
  flags = [shlex.quote(f'--config.{key}={_text(value)}') for key, value in changed.items()]
  flags.append(f'--workdir={shlex.quote(str(run.folder))}')
  return ' \\\n    '.join([f'python launch/main.py --config=configs/{file.name}', *flags])


def _text(value: Any) -> str:
  """Writes a value as `--config.key=` reads it: a tuple of one with its comma."""
  return str(tuple(value)) if isinstance(value, list | tuple) else str(value)
