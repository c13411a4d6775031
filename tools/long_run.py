"""Measures whether long runs and many clients cost more memory, compilation or time a round.

  python -m tools.long_run --workdir=W [--mode=rounds] [--rounds=1000]
  python -m tools.long_run --workdir=W --mode=clients [--clients=10000] [--rounds=60]
      [--data=fashion_mnist] [--data_dir=DIR]

  --mode      rounds: FedAvg on the embedded digits, 32 of 80 clients, evaluated every 10 rounds and
              saved ten times
              clients: the same with 80 and with --clients registered clients, 32 of them in a round
  --rounds    how many
  --clients   registered clients, for --mode=clients
  --data      a data set (--list=datasets of launch/main.py), for --mode=clients
  --data_dir  folder of data sets

After each evaluation of a complete run it measures the resident memory of the process, the bytes of
all arrays on devices, the programs compiled so far, and the processor's seconds a round. The first
fifth of the rounds is warm-up. Prints one line for each run; W/long_run.json has all samples. Exit
status: 0, 1 if something grew, 2 refused.
"""

import gc
import itertools
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

from fedjax_syn import config as config_lib
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.runs import experiment, progress

FLAGS = flags.FlagValues()
flags.DEFINE_string('workdir', None, 'where results go', flag_values=FLAGS)
flags.DEFINE_enum('mode', 'rounds', ['rounds', 'clients'], 'what is long', flag_values=FLAGS)
flags.DEFINE_integer('rounds', None, 'how many', lower_bound=20, flag_values=FLAGS)
flags.DEFINE_integer('clients', 10_000, 'registered', lower_bound=80, flag_values=FLAGS)
flags.DEFINE_string('data', 'fashion_mnist', 'data set', flag_values=FLAGS)
flags.DEFINE_string('data_dir', '', 'where data sets lie', flag_values=FLAGS)

SAMPLED, FEW = 32, 80  # clients in a round; registered in short runs
GROWTH = {'resident_bytes': 1.05, 'live_bytes': 1.0, 'seconds': 1.25}  # last against first, at most
COMPILED = '/jax/core/compile/backend_compile_duration'


class Sample(NamedTuple):
  """Measurements after some rounds."""

  round: int
  resident_bytes: int  # of the process
  live_bytes: int  # of all arrays; an array on several devices counts once
  compiled: int  # programs so far, in all threads
  seconds: float  # of the processor, so far


class Probe(progress.Reporter):
  """Measures when rounds are done; a run calls it as its progress bar."""

  def __init__(self, before: int):
    """Begins; `before` are the bytes of arrays of other owners."""
    self.samples: list[Sample] = []
    self.compiled, self.before, self.own_seconds = 0, before, 0.0

  def listen(self, event: str, duration: float, **_: Any) -> None:
    """Counts compilations."""
    self.compiled += event == COMPILED

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    """Adds a sample; a later one of the same round replaces it."""
    start = time.process_time()
    gc.collect()
    live = sum(array.nbytes for array in jax.live_arrays()) - self.before
    if self.samples and self.samples[-1].round == done:
      self.samples.pop()
    self.samples.append(Sample(done, resident(), live, self.compiled, start - self.own_seconds))
    self.own_seconds += time.process_time() - start

  def say(self, text: str) -> None:
    """Prints a warning."""
    print(text, file=sys.stderr)


def resident() -> int:
  """Returns the resident memory of this process in bytes; outside Linux, its peak."""
  statm = pathlib.Path('/proc/self/statm')
  if statm.exists():
    return int(statm.read_text().split()[1]) * resource.getpagesize()
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def config_of(rounds: int, **settings: Any) -> Any:
  """Returns the config of a run: FedAvg, an MLP, 32 clients in a round."""
  config = config_lib.get_default()
  chosen = {
    'algorithm': 'fedavg',
    'rounds': rounds,
    'eval_every': 10,
    'checkpoint_every': max(1, rounds // 10),  # the first one is warm-up
    'data.partition': 'iid',
    'data.clients': FEW,
    'model.name': 'mlp',
    **settings,
  }
  for key, value in chosen.items():
    config_lib.override(config, key, str(value))
  config.client.participation = SAMPLED / config.data.clients
  return config


def measure(config: Any, folder: pathlib.Path) -> list[Sample]:
  """Runs a config and returns the measurements.

  Raises:
    ValueError: if the run did not finish.
  """
  gc.collect()  # frees the engine of an earlier run, which has cycles of references
  probe = Probe(sum(array.nbytes for array in jax.live_arrays()))
  jax.monitoring.register_event_duration_secs_listener(probe.listen)
  try:
    status = experiment.run_experiment(config, folder, show=probe)
  finally:
    jax.monitoring.unregister_event_duration_listener(probe.listen)
  if status or not probe.samples:
    raise ValueError(f'--workdir={folder}: no new run came to its end here (exit status {status})')
  return probe.samples


def summarise(samples: Sequence[Sample]) -> dict[str, Any]:
  """Compares the state after the first fifth of the rounds with the end.

  Args:
    samples: in order.

  Returns:
    'first' and 'last': bytes at these moments, and seconds of a round in the second and in the last
    fifth (the lower quartile, since other work on the machine only adds; all intervals have equally
    many rounds, since each ends with an evaluation). 'compiled': programs after the warm-up.
    'grown': names of quantities that exceed `GROWTH`.
  """
  total = samples[-1].round
  settled = [s for s in samples if s.round >= total / 5]
  pairs = list(itertools.pairwise(settled))
  longest = max(b.round - a.round for a, b in pairs)
  rates = [
    ((a.round + b.round) / 2, (b.seconds - a.seconds) / longest)
    for a, b in pairs
    if b.round - a.round == longest
  ]
  early = [rate for round, rate in rates if round <= 0.4 * total] or [rates[0][1]]
  late = [rate for round, rate in rates if round >= 0.8 * total] or [rates[-1][1]]
  first, last = (
    {**{name: getattr(s, name) for name in GROWTH if name != 'seconds'}, 'seconds': quartile(of)}
    for s, of in ((settled[0], early), (settled[-1], late))
  )
  compiled = settled[-1].compiled - settled[0].compiled
  grown = [name for name, most in GROWTH.items() if last[name] > most * first[name]]
  return {
    'rounds': total,
    'first': first,
    'last': last,
    'compiled': compiled,
    'grown': grown + ['compiled'] * (compiled > 0),
  }


def quartile(values: Sequence[float]) -> float:
  """Returns the lower quartile."""
  return float(np.quantile(values, 0.25))


def plan(mode: str, rounds: int | None, clients: int, data: str, data_dir: str) -> dict[str, Any]:
  """Returns the configs to run, by label."""
  if mode == 'rounds':
    return {'digits': config_of(rounds or 1000, **{'data.name': 'digits'})}
  settings = {'data.name': data, 'data.dir': data_dir}
  return {
    f'{number} clients': config_of(rounds or 60, **{**settings, 'data.clients': number})
    for number in (FEW, clients)
  }


def main(argv: Sequence[str]) -> int:
  """Runs what is asked for; returns the exit status."""
  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv, __doc__)
    jax_setup.prepare_jax()
    configs = plan(FLAGS.mode, FLAGS.rounds, FLAGS.clients, FLAGS.data, FLAGS.data_dir)
    runs, results = {}, {}
    for label, config in configs.items():
      runs[label] = measure(config, workdir / label.replace(' ', '_'))
      results[label] = summarise(runs[label])
      print(f'{label}: {json.dumps(results[label])}', flush=True)
  samples = {label: [s._asdict() for s in run] for label, run in runs.items()}
  report = {'cores': os.cpu_count(), 'results': results, 'samples': samples}
  (workdir / 'long_run.json').write_text(json.dumps(report, indent=1))
  return 1 if any(result['grown'] for result in results.values()) else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
