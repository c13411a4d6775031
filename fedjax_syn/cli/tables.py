"""Makes the tables and figures of the papers: runs missing cells, prints our figures and theirs.

  python launch/tables.py --list
  python launch/tables.py --table=dynafed/table5 --scale=smoke|cpu|paper [--rows=fedavg,dynafed]
      [--cols=mlp-0.01] [--seeds=3] [--workdir=W] [--budget_minutes=N] [--config.key=value ...]

  --list            names every table and figure
  --table           its name
  --scale           smoke (tiny networks on digits, a test that everything runs), cpu (the largest
                    comparable setting for two cores) or paper (the paper's setting)
  --rows, --cols    names of rows and columns to run, separated by commas, columns in this order;
                    all by default
  --seeds           seeds 0..N-1; each is a run folder W/<table>/<row>/<column>/seed<k>
  --workdir         W, by default runs/tables-<scale>; tables that share runs find them there
  --budget_minutes  begins no run that will probably take longer, and interrupts a run that does; 0
                    runs nothing and prints what is there
  --config.k=v      changes a setting of every run, after the table's own

Finished runs are not run again, and the same command continues an interrupted one. The cell of a
run that failed or diverged says so. Several calls at the same time in the same W share the runs.
The command writes W/<table>/table.md, table.json and, for figures, figure.png and figure.svg. Exit
status: 0 finished, 1 a cell failed, 2 refused, 3 all diverged, 74 the disk is full, 75 interrupted
or out of time (use the same command).
"""

import dataclasses
import math
from collections.abc import Sequence

from absl import flags

from fedjax_syn import papers
from fedjax_syn.cli import flags as cli
from fedjax_syn.core import exit_status, paths
from fedjax_syn.tables import spec

FLAGS = cli.own_flags()
flags.DEFINE_bool('list', False, 'name every table and figure', flag_values=FLAGS)
flags.DEFINE_string('table', None, 'which one', flag_values=FLAGS)
flags.DEFINE_enum('scale', None, list(spec.SCALES), 'how large', flag_values=FLAGS)
flags.DEFINE_list('rows', [], 'rows by name', flag_values=FLAGS)
flags.DEFINE_list('cols', [], 'columns by name', flag_values=FLAGS)
flags.DEFINE_integer('seeds', 1, 'seeds 0..N-1', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_string('workdir', None, 'where results go', flag_values=FLAGS)
flags.DEFINE_float('budget_minutes', None, 'minutes', lower_bound=0, flag_values=FLAGS)

OWN = ('algorithm', 'compare', 'seeds', 'start_from')
"""Settings that the table decides."""


def parse(argv: Sequence[str]) -> list[str]:
  """Reads the flags; returns the settings (`--config.key=value`) as they were written.

  Raises:
    absl.flags.Error, absl.app.UsageError, ValueError: if a flag cannot be read.
  """
  written = [a.replace('--budget-minutes', '--budget_minutes') for a in argv]
  settings = cli.read_settings(FLAGS, written, __doc__)
  for setting in settings:
    key = setting.lstrip('-').removeprefix('config.').partition('=')[0]
    if key in OWN:
      raise ValueError(f'{setting}: the table decides this; choose with --rows and --seeds')
  if not FLAGS.list and not (FLAGS.table and FLAGS.scale):
    missing = 'scale' if FLAGS.table else 'table'
    raise ValueError(f'--{missing}: say which (--list names the tables; scales: smoke, cpu, paper)')
  return settings


def main(argv: Sequence[str]) -> int:
  """Makes one table; returns the exit status."""
  with cli.refusals():
    settings = parse(argv)
    entries = papers.entries()
    if FLAGS.list:
      width = max(map(len, entries))
      for name, entry in entries.items():
        print(f'{name:{width}}  {entry.title}')
      return exit_status.FINISHED
    entry = spec.find(entries, FLAGS.table)
    rows = spec.select(entry.rows, FLAGS.rows, '--rows')
    columns = spec.select(entry.columns, FLAGS.cols, '--cols')
    workdir = paths.given(FLAGS.workdir or f'runs/tables-{FLAGS.scale}', '--workdir')
    # Only now, so that most refusals are quick.
    from fedjax_syn.cli import jax_setup
    from fedjax_syn.runs import default_folder
    from fedjax_syn.tables import cells, output, runner

    table = cells.Table(entry, spec.SCALES[FLAGS.scale], workdir, tuple(settings), entries)
    runs = table.plan(rows, columns, FLAGS.seeds)
    # Where a run begins in another one, that one may have to be run first.
    written = [f'{entry.name}/{name}' for name in ('table.md', 'table.json')]
    default_folder.check_paths(dataclasses.replace(runs[0].config, start_from=''), workdir, written)
    jax_setup.prepare_jax(runs[0].config.layout.devices)
  import jax

  # Many small runs use the same small programs; by default JAX keeps those that took a second.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  budget = math.inf if FLAGS.budget_minutes is None else 60 * FLAGS.budget_minutes
  results, stopped = runner.run_table(table, runs, budget)
  selected = [run.key for run in runs]
  print(output.write(table, results, selected), end='')
  if stopped:
    print(f'{stopped}; the same command continues')
  return status_of([results.get(key) for key in selected], stopped)


def status_of(results: Sequence[spec.Result | None], stopped: str) -> int:
  """Returns the exit status of a call by the results of its runs."""
  states = [result.state for result in results if result]
  if stopped or 'elsewhere' in states or not all(results):
    return exit_status.INTERRUPTED  # a table of a part of its runs is not finished
  if 'failed' in states:
    return exit_status.FAILED
  return exit_status.DIVERGED if set(states) == {'diverged'} else exit_status.FINISHED
