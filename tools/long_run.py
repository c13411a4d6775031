"""Shows that long runs and many clients cost no more memory, compilation or time a round than short runs and few.

  python -m tools.long_run --workdir=W [--mode=rounds] [--rounds=1000]
  python -m tools.long_run --workdir=W --mode=clients [--clients=10000] [--rounds=60] [--data=fashion_mnist]

  --mode     rounds: FedAvg on the embedded digits, 32 of 80 clients, evaluated every 10 rounds and saved ten times
             clients: the same with 80 and then with --clients registered clients, of which 32 take part
  --rounds   how many
  --clients  registered ones, for --mode=clients
  --data     a data set (--list=datasets of launch/main.py), for --mode=clients
  --data_dir where data sets lie

Measured after every stretch of rounds, through the whole outer loop: resident memory of the process, bytes of all arrays on
devices, programs compiled so far, and the processor's seconds a round. The first fifth is warm-up. Writes
W/long_run.json and W/long_run.png; prints a line for each run. Exit status: 0, 1 if something grew, 2 refused.
"""

import gc
import json
import os
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.runs import progress

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
  """What is there after a stretch of rounds."""

  round: int
  resident_bytes: int  # of the process
  live_bytes: int  # of all arrays; one that several devices hold counts once
  compiled: int  # programs so far, in all threads
  seconds: float  # of the processor, so far


class Probe(progress.Reporter):
  """In the place of a progress bar: measures whenever rounds are done, and shows nothing."""

  def __init__(self, before: int):
    """Begins; `before` are the bytes of arrays that are not the run's."""
    self.samples: list[Sample] = []
    self.compiled, self.before, self.own = 0, before, 0.0

  def listen(self, event: str, duration: float, **_) -> None:
    """Counts compilations."""
    self.compiled += event == COMPILED

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    """Takes a sample."""
    import jax

    start = time.process_time()
    gc.collect()
    live = sum(array.nbytes for array in jax.live_arrays())
    sample = Sample(done, resident(), live - self.before, self.compiled, start - self.own)
    self.own += time.process_time() - start
    if self.samples and self.samples[-1].round == done:
      self.samples[-1] = sample
    else:
      self.samples.append(sample)

  def say(self, text: str) -> None:
    """Keeps what is wrong."""
    print(text, file=sys.stderr)


def resident() -> int:
  """Returns the resident memory of this process in bytes; its peak where the present one is not to be had."""
  statm = pathlib.Path('/proc/self/statm')
  if statm.exists():
    return int(statm.read_text().split()[1]) * resource.getpagesize()
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def config_of(rounds: int, **settings: Any) -> Any:
  """Returns the config of a run: FedAvg, an MLP, 32 clients in a round."""
  from fedjax_syn import config as config_lib

  config = config_lib.get_default()
  chosen = {
    'algorithm': 'fedavg',
    'rounds': rounds,
    'eval_every': 10,
    'checkpoint_every': max(1, rounds // 10),  # the first, which loads what writes them, is warm-up
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
  """Runs a config and returns what was measured on the way.

  Raises:
    ValueError: if the run did not finish.
  """
  import jax

  from fedjax_syn.runs import experiment

  gc.collect()  # an engine's functions know each other: what an earlier run held goes now
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
  """Compares what is after the first fifth of the rounds with the end.

  Args:
    samples: in order.

  Returns:
    By name the 'first' and the 'last' (bytes at these moments; seconds of a round in the second and in the last
    fifth: the lower quartile, as other work on the machine only adds, of stretches of equal length, as each
    ends with an evaluation), programs 'compiled' after the warm-up, and what has 'grown' beyond `GROWTH`.
  """
  total = samples[-1].round
  settled = [s for s in samples if s.round >= total / 5]
  pairs = list(zip(settled, settled[1:], strict=False))
  longest = max(b.round - a.round for a, b in pairs)
  pairs = [(a, b) for a, b in pairs if b.round - a.round == longest]
  rates = [
    ((a.round + b.round) / 2, (b.seconds - a.seconds) / (b.round - a.round)) for a, b in pairs
  ]
  early = [rate for round, rate in rates if round <= 0.4 * total] or [rates[0][1]]
  late = [rate for round, rate in rates if round >= 0.8 * total] or [rates[-1][1]]
  first = {name: getattr(settled[0], name) for name in ('resident_bytes', 'live_bytes')}
  last = {name: getattr(settled[-1], name) for name in ('resident_bytes', 'live_bytes')}
  first['seconds'], last['seconds'] = quartile(early), quartile(late)
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
  return statistics.quantiles(values, n=4, method='inclusive')[0] if len(values) > 1 else values[0]


def draw(runs: Mapping[str, Sequence[Sample]], path: pathlib.Path) -> None:
  """Draws memory, compilations and seconds over rounds, a line for each run."""
  from matplotlib.figure import Figure

  from fedjax_syn.plotting import figures

  figure = Figure(figsize=(9, 6), layout='constrained')
  axes = figure.subplots(2, 2, sharex=False).flat
  panels = ('resident memory, MiB', 'arrays on devices, MiB', 'programs compiled', 'CPU seconds')
  for axis, title, name in zip(axes, panels, Sample._fields[1:], strict=True):
    scale = 2**-20 if 'bytes' in name else 1
    for label, samples in runs.items():
      values = [scale * getattr(s, name) for s in samples]
      axis.plot([s.round for s in samples], values, label=label, linewidth=1)
    axis.set(title=title, xlabel='round', ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
  figures.save(figure, path)


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
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv)
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
  draw(runs, workdir / 'long_run.png')
  return 1 if any(result['grown'] for result in results.values()) else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
