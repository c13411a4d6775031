"""Trains federated models with the settings of a config file.

  python launch/main.py [--config=configs/X.py] [--workdir=W] [--config.key=value ...]

  --config         a Python file with get_config(), by default configs/one_digit.py, or the
                   config.json of a run, whose settings are used again
  --workdir        the run's folder; by default runs/<config>-<algorithm>-<hash of the settings>,
                   with the data's name if --config.data.name gives one
  --config.k=v     changes a setting: --config.rounds=20 --config.client.lr=0.01
                   --config.seeds=0,1,2 (one seed needs a comma: --config.seeds=3,).
                   --config.compare=A,B first trains A and B, for the same figure and table;
                   --config.compare='A,B(client.lr=0.1)' gives B settings of its own.
                   --config.algorithm=A, if the config compares with A, trains only A, with the
                   settings that A has in `compare`
  --coordinator    host:port of process 0, with --processes=N and --process=K (0 to N-1): N
                   processes train as one. SLURM (several tasks) and TPU pods need no flags
  --list=KIND      lists algorithms, datasets, models, partitions, or fields (all settings, with
                   those of a method of your own if --config.algorithm names it)

Your own images: --config=configs/own_images.py --config.data.dir=D (D/CLIENT/CLASS/IMAGE)
--config.data.clients=<how many>; your own network: --config.model.name=my_module:MyNet (a Flax
module). Afterwards: launch/report.py, launch/export.py, launch/inspect_run.py.

The same command continues an interrupted run from its last checkpoint. Exit status: 0 finished, 2
refused (one line gives the reason), 3 all seeds diverged, 74 the disk is full (saved work is good),
75 interrupted and saved (use the same command), 76 another process of the run has ended (use the
same commands), 130 interrupted before the flags were read. Compiled programs are kept in
$JAX_COMPILATION_CACHE_DIR, or in ~/.cache/fedjax_syn/jax without this variable.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import exit_status, paths, stopping


def _field_line(rules: Mapping[str, Any]) -> str:
  """What a field is, and its choices where that does not name them."""
  choices = [repr(choice) for choice in rules['choices'] or ()]
  named = all(choice in rules['help'] for choice in choices)
  return rules['help'] + ('' if named else f': {", ".join(choices)}')


def print_list(kind: str, settings: Iterable[str] = ()) -> None:
  """Prints what exists of a kind, one line each.

  Args:
    kind: of `cli.flags.KINDS`.
    settings: the fields of a method of one's own are listed if they name it.
  """
  from fedjax_syn import config as config_lib
  from fedjax_syn.config import files

  if kind == 'fields':
    outside = files.load_config(cli.CONFIG.value, settings).outside
    rows = {
      f'{k}={leaf.default!r}': _field_line(leaf.rules)
      for k, leaf in config_lib.leaves(*outside).items()
    }
  else:
    rows = config_lib.names(kind)
  width = max(map(len, rows), default=0)
  for name, line in rows.items():
    print(f'{name:{width}}  {line}')


def main(argv: Sequence[str]) -> int:
  """Runs one experiment; returns the exit status."""
  settings = cli.parse(argv, __doc__)
  with cli.refusals():
    if cli.LIST.value:
      print_list(cli.LIST.value, settings)
      return exit_status.FINISHED
    from fedjax_syn.runs import display

    with display.loading():
      from fedjax_syn import config as config_lib
      from fedjax_syn.config import files
      from fedjax_syn.runs import default_folder
    config = files.load_config(cli.CONFIG.value, settings)
    resolved = config_lib.check(config)
    name = files.name_of(cli.CONFIG.value)
    default = cli.WORKDIR.value or default_folder.default_workdir(config, name, settings)
    workdir = paths.given(default, '--workdir')
    from fedjax_syn.core import processes

    # Of several processes only process 0 uses the folder, and all refuse together in the run.
    alone = not cli.COORDINATOR.value and not processes.environment_is_distributed()
    stopping.flags_read(alone)
    if alone:
      default_folder.check_paths(resolved, workdir)
    from fedjax_syn.cli import jax_setup

    distributed = cli.COORDINATOR.value, cli.PROCESSES.value, cli.PROCESS.value
    with display.loading('starting JAX'):
      jax_setup.prepare_jax(resolved.layout.devices, *distributed)
      from fedjax_syn.runs import experiment  # only now, so that refusals are quick

  return experiment.run_experiment(config, workdir, config_name=name)
