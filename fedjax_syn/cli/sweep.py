"""Tunes settings by accuracy on held-out training rows; test accuracy never selects.

  python launch/sweep.py --config=X --grid fedprox.mu=0.001,0.01 [--grid key=v,v] [--budget=N]
      [--workdir=W] [--config.key=value ...]

  --grid     values of one setting, separated by commas (not those within parentheses); one --grid
             for each setting. 'client.momentum=0,0.9 if client.optimizer=sgd' applies only with
             this value of the other setting. client.lr='log(1e-4,1e-1)' or 'uniform(0,1)' draws
             --budget values
  --budget   the largest number of cells, drawn at random with data.seed; all by default
  --select   'clients' selects by the clients' own models, for personalised methods: the mean over
             clients of the accuracy on their held-out rows, after the last round, which
             personal_every measures
  --workdir  W, with a run in W/<key=value,...> for each cell; without it
             runs/sweep-<config>-<algorithm>-<hash>

If data.validation is 0, a tenth of the training rows is held out (FLAIR has validation rows of its
own). The best mean over seeds of the last five evaluations is selected. The sweep writes
W/sweep.json, W/sweep.md and W/sweep.png, and prints the command that runs the selected settings on
all training rows. The same command continues an interrupted sweep. Several sweeps at the same time
in the same W share the cells. Exit status: 0 finished, 2 refused, 3 no cell has a result, 74 the
disk is full, 75 interrupted and saved.
"""

import shlex
from collections.abc import Mapping, Sequence

from absl import flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import train
from fedjax_syn.core import exit_status, paths

GRID = flags.DEFINE_multi_string('grid', [], 'key=value,value')
BUDGET = flags.DEFINE_integer('budget', 0, 'at most so many cells; 0 is all', lower_bound=0)
SELECT = flags.DEFINE_enum(
  'select', 'global', ['global', 'clients'], "the global model decides, or the clients' own models"
)
VALIDATION = 0.1


def command(config_path: str, settings: Sequence[str], values: Mapping[str, str]) -> str:
  """Returns the command line that runs the chosen values, on all training rows."""
  path, root = paths.given(config_path, '--config'), paths.CONFIGS.parent
  path = path.relative_to(root) if path.is_relative_to(root) else path
  kept = [s for s in settings if not s.lstrip('-').startswith('config.data.validation=')]
  chosen = [f'--config.{key}={text}' for key, text in values.items()]
  words = ['python', 'launch/main.py', f'--config={path}', *kept, *chosen]
  return shlex.join([*words, '--config.data.validation=0'])


def main(argv: Sequence[str]) -> int:
  """Runs a sweep; returns the exit status."""
  settings = cli.parse(argv, __doc__)
  with cli.refusals():
    if cli.LIST.value:
      train.print_list(cli.LIST.value, settings)
      return exit_status.FINISHED
    from fedjax_syn.runs import display

    with display.loading():
      from fedjax_syn import config as config_lib
      from fedjax_syn.cli import jax_setup
      from fedjax_syn.config import files
      from fedjax_syn.runs import default_folder
      from fedjax_syn.tables import sweep

    grid = sweep.read_grid(GRID.value)
    config = files.load_config(cli.CONFIG.value, settings)
    config_lib.check(config)
    if SELECT.value == sweep.CLIENTS and not config.personal_every:
      raise ValueError(
        '--select=clients: personal_every=0 does not measure the models of clients; '
        f'--config.personal_every={config.rounds} does after the last round'
      )
    config.compare = ''  # what is compared with has no part in the choice
    name = files.name_of(cli.CONFIG.value)
    default = default_folder.default_workdir(config, f'sweep-{name}')
    workdir = paths.given(cli.WORKDIR.value or default, '--workdir')
    if not sweep.has_validation(config):
      config.data.validation = VALIDATION
      print(
        f'data.validation was 0: {VALIDATION:.0%} of the training rows are held out to select'
        ' settings'
      )
    chosen = sweep.choose(grid, BUDGET.value, config.data.seed)
    cells = [sweep.make_cell(config, values, workdir) for values in chosen]
    pattern = f'{default.name[:-8]}{default_folder.HASH}'
    others = [p for p in default.parent.glob(pattern) if p != default]
    if not cli.WORKDIR.value and (other := sweep.begun_in(cells, others)):
      workdir = other
      cells = [sweep.make_cell(config, values, workdir) for values in chosen]
    default_folder.check_paths(cells[0].config, workdir, ('sweep.json', 'sweep.md'))
    drawn = any(sweep.DRAWN.fullmatch(value) for values in grid.values() for value in values)
    total = len(cells) if drawn else len(sweep.choose(grid, 0, 0))
    if len(cells) < total:
      print(f'{len(cells)} of {total} cells, chosen at random by data.seed={config.data.seed}')
    jax_setup.prepare_jax(config.layout.devices)
  records = sweep.sweep(cells, workdir, name, SELECT.value)
  from fedjax_syn.runs import final_files

  statuses = {record['status'] for record in records}
  if exit_status.DISK_FULL in statuses:
    return exit_status.DISK_FULL
  if not records:
    return exit_status.INTERRUPTED
  interrupted = exit_status.INTERRUPTED in statuses or len(records) < len(cells)
  report, best = sweep.table(records), sweep.best(records)
  if best and not interrupted:
    report += f'\n\n{command(cli.CONFIG.value, settings, best["values"])}'
  print(report)
  sweep.write(workdir / 'sweep.md', report)
  final_files.draw(print, lambda _: sweep.draw_scores(records, workdir / 'sweep.png'))
  if interrupted:
    return exit_status.INTERRUPTED
  return exit_status.FINISHED if best else exit_status.DIVERGED
