"""Kills runs at random moments and compares what they come to with undisturbed ones.

  python -m tools.kill_runs --workdir=W [--kills=50] [--writes=5] [--synthesis=10]
      [--algorithms=fedavg,scaffold+dynafed] [--seed=0]

  --kills       SIGKILLs in all, at least one for every algorithm
  --writes      of them, while a checkpoint is being written
  --synthesis   of them, in the work between DynaFed's rounds
  --algorithms  which; without it every one of the library
  --seed        of the moments

Every algorithm runs a small job on the embedded digits undisturbed, and killed and started again until its
kills are used up (in a further folder where a run ended before its kill). Metrics (but for seconds), the
last model and the learned set must be equal byte for byte, and every killed folder must be one that the
same command goes on with. Prints a line for each algorithm and a summary; W/kills.json holds them. Exit
status: 0, or 1 if anything differs or a kill's moment never came.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

ROOT = pathlib.Path(__file__).resolve().parent.parent

FLAGS = flags.FlagValues()
flags.DEFINE_string('workdir', None, 'where runs go', flag_values=FLAGS)
flags.DEFINE_integer('kills', 50, 'in all', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer('writes', 5, 'in a checkpoint write', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('synthesis', 10, 'in synthesis', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_list('algorithms', [], 'which', flag_values=FLAGS)
flags.DEFINE_integer('seed', 0, 'of the moments', flag_values=FLAGS)

POLL = 0.002  # seconds between two looks at a folder
LIMIT = 600.0  # seconds that one session may take
ATTEMPTS = 5  # folders an algorithm's kills may take: a run that ends before its kill cannot be killed any more
SERVER_DATA = ('abavg', 'fedbe', 'feddf')
PHASE = 4  # DynaFed's L
SMALL = {
  'rounds': '10',
  'checkpoint_every': '1',
  'compare': '',
  'data.clients': '6',
  'model.width': '8',
  'layout.devices': '1',
  'dynafed.length': str(PHASE),
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


class Kill(NamedTuple):
  """When to kill."""

  kind: str  # 'any', 'write' or 'synthesis'
  after: float  # share of the time that the undisturbed run took from its first line on, or seconds


def command(algorithm: str, folder: pathlib.Path) -> list[str]:
  """Returns the command of an algorithm's small job."""
  from fedjax_syn import config as config_lib
  from fedjax_syn.config import schema

  known = schema.flatten(config_lib.get_default().to_dict())
  settings = {k: v for k, v in SMALL.items() if k in known} | {'algorithm': algorithm}
  if any(part in SERVER_DATA for part in algorithm.split('+')):
    settings['data.proxy'] = 'held_out'
  if 'fednova' in algorithm.split('+'):
    settings |= {'client.optimizer': 'sgd', 'client.lr': '0.1'}  # it counts steps of SGD
  launcher = [sys.executable, str(ROOT / 'launch' / 'main.py'), f'--workdir={folder}']
  return launcher + [f'--config.{key}={value}' for key, value in settings.items()]


def plan(algorithms: Sequence[str], kills: int, writes: int, synthesis: int, rng: random.Random):
  """Deals the kills out: one for every algorithm, those in synthesis to DynaFed, the others in turn.

  Returns:
    A list of kills for every algorithm.
  """
  learning = [a for a in algorithms if 'dynafed' in a.split('+')]
  dealt = {algorithm: [] for algorithm in algorithms}
  for i in range(synthesis if learning else 0):
    dealt[learning[i % len(learning)]].append(Kill('synthesis', rng.uniform(0.0, 1.0)))
  for i in range(writes):
    dealt[algorithms[i % len(algorithms)]].append(Kill('write', rng.uniform(0.0, 0.02)))
  position = 0
  while sum(map(len, dealt.values())) < kills or not all(dealt.values()):
    short = [a for a in algorithms if not dealt[a]]
    chosen = short[0] if short else algorithms[position % len(algorithms)]
    position += not short
    dealt[chosen].append(Kill('any', rng.uniform(0.0, 1.0)))
  return dealt


def moment(kill: Kill, folder: pathlib.Path, running, took: float, first: int) -> bool:
  """Waits for the moment of a kill; returns False if the run ends before.

  Args:
    kill: which moment.
    folder: of the run.
    running: () -> is it running still.
    took: seconds of the undisturbed run after its first line.
    first: for a write, how many checkpoints there were at the start of the session.
  """
  there = {
    'any': lambda: (folder / 'metrics.jsonl').exists(),
    'write': lambda: any((folder / 'checkpoints').glob('.tmp-*/*')) and checkpoints(folder) > first,
    'synthesis': lambda: (folder / 'checkpoints' / str(PHASE)).is_dir(),
  }[kill.kind]
  while not there():
    if not running():
      return False
    time.sleep(POLL)
  until = time.monotonic() + (kill.after if kill.kind != 'any' else kill.after * took)
  while time.monotonic() < until and running():
    time.sleep(POLL)
  return running()


def checkpoints(folder: pathlib.Path) -> int:
  """Counts a run's checkpoints."""
  return sum(1 for _ in (folder / 'checkpoints').glob('*/seed_*'))


def session(arguments: list[str], folder: pathlib.Path, kill: Kill | None, took: float) -> str:
  """Starts a run, and kills it if it lives that long.

  Returns:
    'finished', 'killed', or what went wrong.
  """
  first = checkpoints(folder)
  with subprocess.Popen(
    arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
  ) as run:
    if kill and moment(kill, folder, lambda: run.poll() is None, took, first):
      os.kill(run.pid, signal.SIGKILL)
      run.wait()
      return 'killed'
    said = run.communicate(timeout=LIMIT)[1]
  return 'finished' if run.returncode == 0 else f'exit status {run.returncode}: {said[-300:]}'


def outcome(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns what must not depend on interruptions: lines without seconds, the last state, the learned set."""
  import numpy as np

  from fedjax_syn.core import trees
  from fedjax_syn.runs import checkpoint, metrics

  lines = metrics.read(folder / 'metrics.jsonl')
  timeless = [{k: v for k, v in line.items() if k != 'seconds'} for line in lines]
  parts = {'metrics.jsonl': json.dumps(timeless).encode()}
  last = checkpoint.read(checkpoint.found(folder / 'checkpoints')[-1])
  parts |= {k: v.tobytes() for k, v in trees.encode(last.tree)[0].items()}
  for path in sorted((folder / 'synthetic').glob('*.npz')):
    with np.load(path, allow_pickle=False) as file:
      parts |= {f'{path.name}/{k}': v.tobytes() for k, v in file.items()}
  return parts


def torment(algorithm: str, kills: Sequence[Kill], workdir: pathlib.Path) -> dict:
  """Runs an algorithm undisturbed and with kills; returns what came out."""
  name = algorithm.replace('+', '_')
  whole = workdir / 'whole' / name
  result = {'algorithm': algorithm, 'kills': {}, 'missed': 0, 'unusable': '', 'different': []}
  said = session(command(algorithm, whole), whole, None, 0.0)
  if said != 'finished':
    return result | {'unusable': f'undisturbed: {said}'}
  seconds = [line['seconds'] for line in _lines(whole)]
  took = max(seconds) - min(seconds)
  one = outcome(whole)
  left = list(kills)
  for attempt in range(1, ATTEMPTS + 1):
    killed = workdir / 'killed' / f'{name}-{attempt}'
    late, said = [], ''
    while said != 'finished':
      kill = left.pop(0) if left else None
      said = session(command(algorithm, killed), killed, kill, took)
      if said == 'killed':
        result['kills'][kill.kind] = result['kills'].get(kill.kind, 0) + 1
      elif said != 'finished':
        return result | {'unusable': said}
      elif kill:
        # The run ended before its moment came, as less had to be compiled: another one is killed sooner.
        late = [kill._replace(after=kill.after / 2)]
    other = outcome(killed)
    result['different'] += [k for k in sorted({*one, *other}) if one.get(k) != other.get(k)]
    left = late + left
    if not left:
      break
  return result | {'missed': len(left)}


def _lines(folder: pathlib.Path) -> list[dict]:
  from fedjax_syn.runs import metrics

  return metrics.read(folder / 'metrics.jsonl')


def main(argv: Sequence[str]) -> int:
  """Kills what it is told to; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  from fedjax_syn.cli import flags as cli

  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv)
    from fedjax_syn import config as config_lib

    words = FLAGS.algorithms or config_lib.names('algorithms')
    for word in words:
      config_lib.check_algorithm('--algorithms', word)
  dealt = plan(list(words), FLAGS.kills, FLAGS.writes, FLAGS.synthesis, random.Random(FLAGS.seed))
  results = []
  for word, kills in dealt.items():
    results.append(torment(word, kills, workdir))
    print(json.dumps(results[-1]), flush=True)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / 'kills.json').write_text(json.dumps(results, indent=1))
  total: dict[str, int] = {}
  for result in results:
    for kind, count in result['kills'].items():
      total[kind] = total.get(kind, 0) + count
  bad = [r['algorithm'] for r in results if r['unusable'] or r['different']]
  missed = sum(r['missed'] for r in results)
  print(
    f'{sum(total.values())} kills {total}, {missed} missed; '
    f'algorithms with a difference or an unusable folder: {bad}'
  )
  return 1 if bad or missed else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
