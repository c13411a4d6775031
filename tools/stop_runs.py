"""Stops runs at random moments, by Ctrl-C in a terminal and by SIGTERM, and compares what they come to.

  python -m tools.stop_runs --workdir=W [--stops=30] [--compiling=15] [--others=10] [--per_folder=2] [--seed=0]
      [--settings=rounds=20,dynafed.iterations=50]

  --stops       of the default job of launch/main.py
  --compiling   of them, while its first programs are compiled
  --others      of a small sweep and a small table, in turn
  --per_folder  stops that one folder sees before its command runs to its end
  --seed        of the moments
  --settings    changes the default job

Nothing is compiled before a session begins: each has its own cache of programs. A stop must end with 75 (130 before
the flags are read, and the signal itself before Python comes to the launcher) without a traceback or a stack of C++,
and the same command must then come to the metrics, models and learned sets of an undisturbed run. Prints a line for
each stop and W/stops.json holds them. Exit status: 0, or 1 if anything was otherwise.
"""

import collections
import fcntl
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from fedjax_syn.core import exit_status

ROOT = pathlib.Path(__file__).resolve().parent.parent

FLAGS = flags.FlagValues()
flags.DEFINE_string('workdir', None, 'where runs go', flag_values=FLAGS)
flags.DEFINE_integer('stops', 30, 'of the default job', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('compiling', 15, 'while compiling', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('others', 10, 'of sweep and table', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('per_folder', 2, 'before it ends', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer('seed', 0, 'of the moments', flag_values=FLAGS)
flags.DEFINE_list('settings', [], 'of the default job', flag_values=FLAGS)

LIMIT = 900.0  # seconds that one session may take
POLL = 0.005
START, EARLY = 0.3, 3.0  # seconds in which Python begins, and flags are read
BAD = ('Traceback', 'terminate called', 'Fatal Python error', 'Aborted', 'Segmentation', 'Error:')
SMALL = ('rounds=12', 'model.width=8', 'data.clients=6', 'client.participation=1.0')
SMALL_DYNAFED = ('dynafed.length=4', 'dynafed.segment=2', 'dynafed.iterations=10')


class Command(NamedTuple):
  """What is stopped."""

  name: str
  words: tuple[str, ...]  # after the interpreter; the folder is added


class Stop(NamedTuple):
  """When and how to stop."""

  terminal: bool  # Ctrl-C in a terminal; else SIGTERM without one
  compiling: (
    bool  # counted from config.json on, within the time that compilation took; else from the start
  )
  share: float  # of that time


class Told(NamedTuple):
  """What a session came to."""

  status: int
  text: str
  after: float  # seconds from its start to the signal; nan if it ended before
  waited: float  # seconds from the signal to the end
  phase: str  # what the folder held at the signal


class Times(NamedTuple):
  """Seconds of an undisturbed run, from its start on."""

  config: float  # until config.json
  compiled: float  # until the line of round 1
  whole: float


def commands(settings: Sequence[str]) -> dict[str, Command]:
  """Returns the jobs by name."""
  write = lambda pairs: tuple(f'--config.{pair}' for pair in pairs)
  small = write((*SMALL, *SMALL_DYNAFED))
  table = ('--table=dynafed/table5', '--scale=smoke', '--rows=fedavg,dynafed', '--cols=mlp-0.01')
  return {
    'main': Command('main', ('launch/main.py', *write(settings))),
    'sweep': Command('sweep', ('launch/sweep.py', '--grid=client.lr=0.001,0.003', *small)),
    'tables': Command('tables', ('launch/tables.py', *table)),
  }


def runs_in(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders of runs below a folder, by the files that each has from its beginning."""
  return sorted(path.parent for path in folder.rglob('metrics.jsonl'))


def phase_of(folder: pathlib.Path) -> str:
  """Says how far a command is, by what its folder holds."""
  if not any(folder.rglob('config.json')):
    return 'before config.json'
  lines = sum(path.read_bytes().count(b'\n') for path in folder.rglob('metrics.jsonl'))
  if lines < 2:
    return 'first programs'
  return 'a later run' if any(folder.rglob('summary.json')) else 'first run'


def session(command: Command, folder: pathlib.Path, stop: Stop | None, times: Times | None) -> Told:
  """Starts a command with no program compiled before, stops it if it lives that long, and waits for its end."""
  cache = folder.with_name(f'{folder.name}-programs')
  shutil.rmtree(cache, ignore_errors=True)
  environment = os.environ | {'JAX_COMPILATION_CACHE_DIR': str(cache), 'PYTHONUNBUFFERED': '1'}
  words = [sys.executable, *command.words, f'--workdir={folder}']
  terminal = stop is not None and stop.terminal
  if terminal:
    reading, writing = pty.openpty()
    take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
  else:
    reading, writing = os.pipe()
    take = None
  began = time.monotonic()
  process = subprocess.Popen(
    words,
    cwd=ROOT,
    env=environment,
    stdin=writing if terminal else subprocess.DEVNULL,
    stdout=writing,
    stderr=writing,
    start_new_session=True,
    preexec_fn=take,
  )
  os.close(writing)
  said = bytearray()

  def listen():
    try:
      while part := os.read(reading, 1 << 16):
        said.extend(part)
    except OSError:  # how a terminal ends
      pass

  listening = threading.Thread(target=listen, daemon=True)
  listening.start()
  after, phase = float('nan'), ''
  try:
    if stop and moment(stop, times, began, folder, process):
      after, phase = time.monotonic() - began, phase_of(folder)
      if terminal:
        os.write(reading, b'\x03')
      else:
        process.send_signal(signal.SIGTERM)
    process.wait(LIMIT)
  finally:
    if process.poll() is None:
      process.kill()
      process.wait()
  waited = time.monotonic() - began - after
  listening.join(5)
  os.close(reading)
  shutil.rmtree(cache, ignore_errors=True)
  return Told(process.returncode, said.decode(errors='replace'), after, waited, phase)


def moment(stop: Stop, times: Times, began: float, folder: pathlib.Path, process) -> bool:
  """Waits for the moment of a stop; returns False if the command ends before."""
  alive = lambda: process.poll() is None
  until = began + stop.share * times.whole
  if stop.compiling:
    while alive() and not any(folder.rglob('config.json')):
      time.sleep(POLL)
    until = time.monotonic() + stop.share * (times.compiled - times.config)
  while alive() and time.monotonic() < until:
    time.sleep(POLL)
  return alive()


def undisturbed(command: Command, folder: pathlib.Path) -> tuple[Times, dict]:
  """Runs a command to its end; returns how long its parts took, and what it came to.

  Raises:
    ValueError: if it does not end well.
  """
  began, marks = time.monotonic(), {}

  def look():
    while 'end' not in marks:
      if 'config' not in marks and any(folder.rglob('config.json')):
        marks['config'] = time.monotonic() - began
      if 'compiled' not in marks and phase_of(folder) not in (
        'before config.json',
        'first programs',
      ):
        marks['compiled'] = time.monotonic() - began
      time.sleep(0.02)

  looking = threading.Thread(target=look, daemon=True)
  looking.start()
  told = session(command, folder, None, None)
  marks['end'] = time.monotonic() - began
  looking.join()
  if told.status:
    raise ValueError(f'{command.name}: undisturbed, exit status {told.status}: {told.text[-300:]}')
  return Times(marks['config'], marks['compiled'], marks['end']), outcome(folder)


def outcome(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns what must not depend on stops, of every run below a folder."""
  from tools import kill_runs

  return {
    f'{run.relative_to(folder)}/{key}': value
    for run in runs_in(folder)
    for key, value in kill_runs.outcome(run).items()
  }


def judge(told: Told) -> str:
  """Says what is wrong with a stopped session; '' if nothing is."""
  if bad := next((word for word in BAD if word in told.text), ''):
    return f'{bad!r} in its output: {told.text[-300:]}'
  if told.status == exit_status.INTERRUPTED or (
    told.status == exit_status.ABORTED and told.after < EARLY
  ):
    return ''
  if told.status in (-signal.SIGTERM, -signal.SIGINT) and told.after < START and not told.text:
    return ''  # Python had not come to the launcher's first line
  return f'exit status {told.status}: {told.text[-300:]}'


def torment(
  command: Command, stops: Sequence[Stop], times: Times, one: dict, workdir: pathlib.Path, per: int
) -> list[dict]:
  """Stops a command again and again; returns a record for each stop."""
  records = []
  left = list(stops)
  number = 0
  while left:
    folder = workdir / command.name / str(number)
    number += 1
    ended, mine = False, []
    while left and len(mine) < per and not ended:
      stop = left.pop(0)
      told = session(command, folder, stop, times)
      ended = told.after != told.after
      if ended:  # a run that goes on has less to do: the next folder is stopped sooner
        left.insert(0, stop._replace(share=stop.share * 0.7))
        break
      mine.append(
        {
          'command': command.name,
          'by': 'Ctrl-C' if stop.terminal else 'SIGTERM',
          'after': round(told.after, 2),
          'compiling': stop.compiling,
          'phase': told.phase,
          'status': told.status,
          'waited': round(told.waited, 2),
          'wrong': judge(told),
        }
      )
      print(json.dumps(mine[-1]), flush=True)
    said = None if ended else session(command, folder, None, None)
    if (ended and told.status) or (said and said.status):
      wrong = (
        f'the same command then: exit status {(said or told).status}: {(said or told).text[-300:]}'
      )
    else:
      other = outcome(folder)
      different = [k for k in sorted({*one, *other}) if one.get(k) != other.get(k)]
      wrong = f'different: {", ".join(different)}' if different else ''
    print(f'{folder}: {wrong or "as undisturbed"}', flush=True)
    for record in mine:
      record['wrong'] = record['wrong'] or wrong
    records += mine
    shutil.rmtree(folder, ignore_errors=True)
  return records


def plan(stops: int, compiling: int, rng: random.Random) -> list[Stop]:
  """Returns stops in an order by chance; Ctrl-C and SIGTERM in turn, so many of them while compiling."""
  kinds = [i < compiling for i in range(stops)]
  planned = [Stop(i % 2 == 0, kind, rng.uniform(0.0, 0.95)) for i, kind in enumerate(kinds)]
  rng.shuffle(planned)
  return planned


def main(argv: Sequence[str]) -> int:
  """Stops what it is told to; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  from fedjax_syn.cli import flags as cli

  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv)
    jobs = commands(FLAGS.settings)
    rng = random.Random(FLAGS.seed)
    others = FLAGS.others // 2
    wanted = {
      'main': plan(FLAGS.stops, min(FLAGS.compiling, FLAGS.stops), rng),
      'sweep': plan(FLAGS.others - others, (FLAGS.others - others) // 2, rng),
      'tables': plan(others, others // 2, rng),
    }
    records = []
    for name, stops in wanted.items():
      if not stops:
        continue
      times, one = undisturbed(jobs[name], workdir / name / 'whole')
      print(f'{name}: undisturbed {times}', flush=True)
      records += torment(jobs[name], stops, times, one, workdir, FLAGS.per_folder)
      (workdir / 'stops.json').write_text(json.dumps(records, indent=1))
  counts = collections.Counter((r['command'], r['by'], r['phase'], r['status']) for r in records)
  for key, count in sorted(counts.items()):
    print(f'{count} x {", ".join(map(str, key))}')
  wrong = [r for r in records if r['wrong']]
  print(f'{len(records)} stops, {len(wrong)} of them wrong')
  return 1 if wrong else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
