"""Interrupts runs at random moments and compares their results with those of uninterrupted runs.

  python -m tools.interrupt_runs --workdir=W [--kills=50] [--algorithms=fedavg,scaffold+dynafed]
      [--stops=30] [--others=10] [--per_folder=2] [--settings=rounds=20,dynafed.iterations=50]
      [--seed=0]

  --kills       SIGKILLs of small runs, at least one for each algorithm; a tenth of them while a
                checkpoint is written, a fifth in the work between DynaFed's rounds; 0: none
  --algorithms  which; without it all algorithms of the library
  --stops       of the default run, by Ctrl-C in a terminal and by SIGTERM in turn; half of them
                while the first programs are compiled
  --others      stops of a small sweep and of a small table
  --per_folder  stops in one folder before its command runs to its end
  --settings    changes the default run
  --seed        of the moments

A killed run shares the cache of compiled programs; a stopped one compiles all of its programs. A
stop must end with status 75 (130 before the flags are read, the signal's own status before Python
reads the launcher), without a traceback or a stack of C++. The same command must then reach the
metrics (without seconds), last states and learned sets of an uninterrupted run, byte for byte.
Prints one line for each interruption; W/interruptions.json has them all. Exit status: 0, or 1 if a
result differs, a stop went wrong, or a moment never came.
"""

import collections
import json
import pathlib
import random
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from fedjax_syn import config as config_lib
from fedjax_syn.cli import flags as cli
from fedjax_syn.config import files
from fedjax_syn.core import paths
from tools import _sessions
from tools._sessions import Command, Interruption

FLAGS = flags.FlagValues()
flags.DEFINE_string('workdir', None, 'folder of the runs', flag_values=FLAGS)
flags.DEFINE_integer('kills', 50, 'SIGKILLs', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_list('algorithms', [], 'to kill', flag_values=FLAGS)
flags.DEFINE_integer('stops', 30, 'of the default run', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('others', 10, 'of sweep and table', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('per_folder', 2, 'stops', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_list('settings', [], 'of the default run', flag_values=FLAGS)
flags.DEFINE_integer('seed', 0, 'of the moments', flag_values=FLAGS)

RETRIES = 5  # further folders for interruptions that come too late
SMALL = {
  'rounds': '10',
  'checkpoint_every': '1',
  'compare': '',
  'data.clients': '10',
  'model.width': '8',
  'layout.devices': '1',
  'dynafed.length': str(_sessions.PHASE),
  'dynafed.segment': '2',
  'dynafed.iterations': '3000',
  'dynafed.inner_steps': '4',
  'dynafed.finetune_steps': '3',
  'fedcog.start': '4',
  'fedcog.steps': '5',
  'fedcog.samples': '32',
  'fedgen.steps': '5',
  'feddf.steps': '5',
  'fedbe.steps': '8',
  'feddm.iterations': '3',
  'feddm.server_steps': '5',
  'feddualmatch.iterations': '3',
  'feddualmatch.server_steps': '5',
  'dp.noise_multiplier': '0.5',
}
# What methods require of the other settings; the first entry with which a config is valid is used.
REQUIREMENTS: tuple[dict[str, str], ...] = (
  {},
  {'client.optimizer': 'sgd', 'client.lr': '0.1'},
  {'data.proxy': 'held_out'},
  {'data.proxy': 'held_out', 'client.optimizer': 'sgd'},
  {'client.participation': '1.0', 'krum.share': '0'},
)
SWEEP = ('rounds=12', 'model.width=8', 'data.clients=10', 'client.participation=1.0')
SWEEP += ('dynafed.length=4', 'dynafed.segment=2', 'dynafed.iterations=10')
TABLE = ('--table=dynafed/table5', '--scale=smoke', '--rows=fedavg,dynafed', '--cols=mlp-0.01')


def interrupt(
  command: Command, planned: Sequence[Interruption], workdir: pathlib.Path, per_folder: int
) -> list[dict[str, Any]]:
  """Interrupts a command as planned, in as many folders as that takes.

  Args:
    command: which.
    planned: its interruptions, in order.
    workdir: parent of all folders.
    per_folder: interruptions of one folder, at most.

  Returns:
    One record for each interruption, with its 'fault' ('' for none).
  """
  whole = workdir / command.name / 'whole'
  session = _sessions.run_session(command, whole)
  if session.status:
    fault = f'uninterrupted: exit status {session.status}: {session.text[-300:]}'
    return [{'command': command.name, 'fault': fault}]
  expected, records, left = _sessions.outcome(whole), [], list(planned)
  spans = {
    interruption.event: _sessions.span(interruption.event, session.seconds) for interruption in left
  }
  for number in range(len(left) + RETRIES):
    if not left:
      break
    folder, here = workdir / command.name / str(number), []
    while left and len(here) < per_folder:
      interruption = left.pop(0)
      after = interruption.share * spans[interruption.event]
      session = _sessions.run_session(command, folder, interruption, after)
      killed = interruption.kind == 'SIGKILL'
      if 'signal' not in session.seconds or (killed and not session.status):
        # It came too late: a continued run is shorter. Another folder is interrupted sooner.
        left.insert(0, interruption._replace(share=interruption.share / 2))
        break
      record = {'command': command.name, **interruption._asdict(), 'status': session.status}
      record['seconds'] = session.seconds
      here.append(record | {'fault': '' if killed else _sessions.stop_fault(session)})
    else:
      session = _sessions.run_session(command, folder)
    fault = _sessions.end_fault(session, folder, expected)
    here = here or [{'command': command.name, 'fault': fault}] * bool(fault)
    for record in here:
      record['fault'] = record['fault'] or fault
      print(json.dumps(record), flush=True)
    records += here
    if not any(record['fault'] for record in here):
      shutil.rmtree(folder, ignore_errors=True)
  late = [{'command': command.name, **i._asdict(), 'fault': 'came too late'} for i in left]
  return records + late


def plan_kills(
  algorithms: Sequence[str], kills: int, rng: random.Random
) -> dict[str, list[Interruption]]:
  """Plans kills of the algorithms in turn, at least one each; in synthesis only of DynaFed."""
  planned: dict[str, list[Interruption]] = {algorithm: [] for algorithm in algorithms}
  learning = [a for a in algorithms if 'dynafed' in a.split('+')]

  def add(event, among, count):
    for i in range(count):
      planned[among[i % len(among)]].append(Interruption('SIGKILL', event, rng.random()))

  add('synthesis', learning, kills // 5 if learning else 0)
  add('write', algorithms, kills // 10)
  missing = [a for a in algorithms if not planned[a]]
  add('metrics', missing, len(missing))
  add('metrics', algorithms, kills - sum(map(len, planned.values())))
  return planned


def plan_stops(stops: int, rng: random.Random) -> list[Interruption]:
  """Plans stops in random order, by Ctrl-C and by SIGTERM in turn, half of them while compiling."""
  kinds, events = ('Ctrl-C', 'SIGTERM'), ('config', 'start')
  planned = [
    Interruption(kinds[i % 2], events[i >= stops // 2], rng.uniform(0.0, 0.95))
    for i in range(stops)
  ]
  rng.shuffle(planned)
  return planned


def small_run(algorithm: str) -> Command:
  """Returns the command of an algorithm's small run.

  Raises:
    ValueError: no entry of REQUIREMENTS makes its config valid.
  """
  for required in REQUIREMENTS:
    wanted = {**SMALL, **required, 'algorithm': algorithm}
    settings = [f'--config.{key}={value}' for key, value in wanted.items()]
    try:
      config_lib.check(files.load_config(str(paths.DEFAULT_CONFIG), settings))
    except ValueError as error:
      refusal = error
    else:
      return Command(algorithm.replace('+', '_'), ('launch/main.py', *settings), cached=True)
  raise ValueError(f'{algorithm}: no settings of REQUIREMENTS are accepted ({refusal})')


def main(argv: Sequence[str]) -> int:
  """Interrupts what the command line says; returns the exit status."""
  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv, __doc__)
    algorithms = FLAGS.algorithms or list(config_lib.names('algorithms'))
    for algorithm in algorithms:
      config_lib.check_algorithm('--algorithms', algorithm)
  workdir.mkdir(parents=True)
  rng, jobs = random.Random(FLAGS.seed), []
  if FLAGS.kills:
    for algorithm, planned in plan_kills(algorithms, FLAGS.kills, rng).items():
      jobs.append((small_run(algorithm), planned, len(planned)))
  overrides = lambda pairs: [f'--config.{pair}' for pair in pairs]
  for name, words, stops in (
    ('main', overrides(FLAGS.settings), FLAGS.stops),
    ('sweep', ['--grid=client.lr=0.001,0.003', *overrides(SWEEP)], (FLAGS.others + 1) // 2),
    ('tables', TABLE, FLAGS.others // 2),
  ):
    command = Command(name, (f'launch/{name}.py', *words))
    jobs.append((command, plan_stops(stops, rng), FLAGS.per_folder))
  records: list[dict[str, Any]] = []
  for command, planned, per_folder in jobs:
    if planned:
      records += interrupt(command, planned, workdir, per_folder)
      (workdir / 'interruptions.json').write_text(json.dumps(records, indent=1))
  keys = ('command', 'kind', 'event', 'status')
  counts = collections.Counter(tuple(str(r.get(key, '')) for key in keys) for r in records)
  for key, count in sorted(counts.items()):
    print(f'{count} x {", ".join(key)}')
  faults = sum(bool(record['fault']) for record in records)
  print(f'{len(records)} interruptions, {faults} with a fault')
  return 1 if faults else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
