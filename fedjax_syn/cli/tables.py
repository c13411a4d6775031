"""Makes the tables and figures of the papers: runs what is missing, prints ours beside theirs.

  python launch/tables.py --list
  python launch/tables.py --table=dynafed/table5 --scale=smoke|cpu|paper [--rows=fedavg,dynafed]
      [--cols=mlp-0.01] [--seeds=3] [--workdir=W] [--budget_minutes=N] [--config.key=value ...]

  --list            names every table and figure
  --table           which one
  --scale           smoke (tiny nets on digits, that everything runs), cpu (the largest honest setting for
                    two cores) or paper
  --rows, --cols    what to run, by name, separated by commas; columns in the order given. Without them all
  --seeds           seeds 0..N-1; each is a run folder W/<table>/<row>/<column>/seed<k>
  --workdir         W; without it runs/tables-<scale>. Tables that share runs find them in the same W
  --budget_minutes  begins no run that is not expected to end in time and interrupts what still runs then;
                    0 runs nothing and prints what is there
  --config.k=v      changes a setting of every run, after the table's own

Finished runs are not run again, and the same command goes on with one that was interrupted; a run that
fails or diverges says so in its cell. Calls at the same time, in the same W, share the runs: each waits for
those that another is at. Leaves W/<table>/table.md, table.json and, for figures, figure.png. Exit status: 0
finished, 1 a cell failed, 2 refused, 3 all diverged, 74 the disk is full, 75 interrupted or out of time (start
it again).
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

from absl import app, flags

from fedjax_syn import papers
from fedjax_syn.cli import flags as cli
from fedjax_syn.core import exit_status, paths, stopping
from fedjax_syn.tables import spec

# Not absl's global flags: launch/main.py calls some of its own by the same names.
FLAGS = flags.FlagValues()
flags.DEFINE_bool('list', False, 'name every table and figure', flag_values=FLAGS)
flags.DEFINE_string('table', None, 'which one', flag_values=FLAGS)
flags.DEFINE_enum('scale', None, list(spec.SCALES), 'how large', flag_values=FLAGS)
flags.DEFINE_list('rows', [], 'rows by name', flag_values=FLAGS)
flags.DEFINE_list('cols', [], 'columns by name', flag_values=FLAGS)
flags.DEFINE_integer('seeds', 1, 'seeds 0..N-1', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_string('workdir', None, 'where results go', flag_values=FLAGS)
flags.DEFINE_float('budget_minutes', None, 'minutes', lower_bound=0, flag_values=FLAGS)

OWN = ('algorithm', 'compare', 'seeds', 'start_from')  # settings that the table decides


def parse(argv: Sequence[str]) -> list[str]:
  """Reads the flags; returns the settings (`--config.key=value`) as they were written.

  Raises:
    absl.flags.Error, absl.app.UsageError, ValueError: if a flag cannot be read.
  """
  settings = [a for a in argv[1:] if a.startswith(('--config.', '-config.'))]
  FLAGS.unparse_flags()
  for name in FLAGS:
    FLAGS[name].unparse()
  written = [a.replace('--budget-minutes', '--budget_minutes') for a in argv if a not in settings]
  rest = FLAGS(written)[1:]
  if rest:
    raise app.UsageError(f'{rest[0]!r}: unexpected; settings are written --config.key=value')
  for setting in settings:
    key = setting.lstrip('-').removeprefix('config.').partition('=')[0]
    if key in OWN:
      raise ValueError(f'{setting}: the table decides this; choose with --rows and --seeds')
  return settings


def print_list(entries: Mapping[str, spec.Entry]) -> None:
  """Prints one line per table and figure."""
  width = max(map(len, entries))
  for name, entry in entries.items():
    print(f'{name:{width}}  {entry.title}')


def write(path: pathlib.Path, text: str) -> None:
  """Replaces a file in one step; two calls may write the same one at the same time."""
  paths.write_whole(path, text.encode())


def publish(table, results, selected) -> str:
  """Writes table.md, table.json and the figure; returns the Markdown.

  Args:
    table: a `fedjax_syn.tables.cells.Table`.
    results: what its runs came to, by row, column and seed.
    selected: the runs that were asked for.
  """
  from fedjax_syn.tables import draw, render

  content = render.make(table, results, selected)
  folder = table.workdir / table.entry.name
  folder.mkdir(parents=True, exist_ok=True)
  text = render.markdown(content)
  write(folder / 'table.md', text)
  write(folder / 'table.json', json.dumps(render.as_json(content, table), indent=1) + '\n')
  finished = {key: result for key, result in results.items() if result.state == 'finished'}
  if table.entry.draw and finished:
    scale = table.scale
    heading = table.entry.title if scale.comparable else f'{scale.name}: not comparable'
    numbers = {(c.row, c.column): (c.mean, c.std or 0.0) for c in content.cells if c.mean}
    folders = {run.key: run.folder for run in table.existing()}
    names = table.entry.draw(
      draw.Drawing(table.entry, content.rows, content.columns, finished, folders, numbers, heading),
      folder,
    )
    text += ''.join(f'- {folder / name}\n' for name in names)
  return text


def main(argv: Sequence[str]) -> int:
  """Makes one table; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  entries = papers.entries()
  with cli.refusals():
    settings = parse(argv)
    stopping.flags_read()
    if FLAGS.list:
      print_list(entries)
      return 0
    if not FLAGS.table or not FLAGS.scale:
      missing = 'scale' if FLAGS.table else 'table'
      raise ValueError(
        f'--{missing}: say which (--list names the tables; scales: smoke, cpu, paper)'
      )
    entry = spec.find(entries, FLAGS.table)
    rows = spec.select(entry.rows, FLAGS.rows, '--rows')
    columns = spec.select(entry.columns, FLAGS.cols, '--cols')
    workdir = paths.given(FLAGS.workdir or f'runs/tables-{FLAGS.scale}', '--workdir')
    from fedjax_syn.cli import jax_setup
    from fedjax_syn.runs import default_folder
    from fedjax_syn.tables import (  # only now, so that most refusals are quick
      cells,
      progress,
      runner,
    )

    table = cells.Table(entry, spec.SCALES[FLAGS.scale], workdir, tuple(settings), entries)
    runs = cells.plan(table, rows, columns, FLAGS.seeds)
    # Where a run begins in another one, that one may have to be run first.
    written = [f'{entry.name}/{name}' for name in ('table.md', 'table.json')]
    default_folder.check_paths(dataclasses.replace(runs[0].config, start_from=''), workdir, written)
    jax_setup.prepare_jax(runs[0].config.layout.devices)
  import jax

  from fedjax_syn.runs import experiment

  # Many small runs use the same small programs; JAX alone keeps those that took a second to compile.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  here = {run.key: run for run in table.existing()}
  known = {key: cells.read(run, entry.without_phase) for key, run in here.items()}
  seconds = {k: r.summary['seconds']['total'] for k, r in known.items() if r.summary}
  budget = math.inf if FLAGS.budget_minutes is None else 60 * FLAGS.budget_minutes
  with progress.make(len(runs)) as show:
    done = runner.run_missing(
      runs, experiment.run_experiment, show, entry.without_phase, seconds, budget
    )
  # Another process may have ended meanwhile what was left to it; why a run failed stands in no folder.
  present = table.existing()
  there = {run.key: cells.read(run, entry.without_phase) for run in present}
  failed = {key: result for key, result in done.failures.items() if result.state == 'failed'}
  results = {**done.failures, **there, **failed}
  if not done.stopped:
    runner.look_after(present, entry, table.scale, results)
  selected = [run.key for run in runs]
  print(publish(table, results, selected), end='')
  if done.stopped:
    print(f'{done.stopped}: {done.left} of {len(runs)} runs are left; the same command goes on')
  return status_of([results.get(key) for key in selected], done.stopped)


def status_of(results, stopped: str) -> int:
  """Returns the exit status of a call by what its runs came to."""
  states = [result.state for result in results if result]
  if stopped or 'elsewhere' in states or not all(results):
    return exit_status.INTERRUPTED  # a table of a part of its runs is not finished
  if 'failed' in states:
    return exit_status.FAILED
  return exit_status.DIVERGED if set(states) == {'diverged'} else exit_status.FINISHED
