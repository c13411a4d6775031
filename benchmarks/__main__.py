"""Measures the library on fixed work: seconds, against a PyTorch loop and this machine's floor.

  python launch/benchmark.py --suite=cpu [--only=w1,w4] [--peer=torch] [--json=FILE]

  --suite        cpu (w1 w2 w3 w3x w4 w4conv w4c seeds) or gpu (g1 g2 g3 seeds)
  --only         names of the suite, separated by commas
  --peer         torch: the same work as a plain PyTorch loop, alternating with ours
  --peer_python  the Python that has PyTorch; this one by default
  --json         a file for the list of results, rewritten after each of them
  --scale        smoke: a tiny version of everything, which shows only that it runs

  w1      one round on data of Fashion-MNIST's size: 32 of 80 clients of 750, one epoch, batch 32,
          Adam; MLP 784-128-128-10
  w2      w1 with the ConvNet of width 32
  w3 w3x  w1 on a Dirichlet split, alpha 0.1 and 0.01
  w4      one iteration of trajectory matching: 20 steps on 150 images of 28x28; MLP
  w4conv  w4 with the ConvNet of width 32
  w4c     w4 with the ConvNet of width 128 on 32x32x3
  g1      one round on data of CIFAR-10's size: 32 of 80 clients of 625; ConvNet of width 128
  g2      1,500 rounds on data of CIFAR-10's size: 50 of 1,000 clients of 50, batch 10, SGD; CNN;
          evaluated every 10 rounds
  g3      1,000 iterations of w4c
  seeds   one round of w1 for each of three seeds, one seed after the other or side by side

Pixels and labels are random; their values do not change the speed. Seconds are medians of 5 after a
warm-up; lines with "/all" measure one complete run with compilation.
The floor is the longer of two times: for the operations at the speed of a large matrix product, and
for the bytes at the speed of a large copy. Exit status: 0, 1 if something failed, 2 refused.
"""

import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from absl import app, flags

from benchmarks import timing, workloads
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.core import paths

# Not absl's global flags, whose names another launcher in the same process may use.
FLAGS = flags.FlagValues()
flags.DEFINE_enum('suite', 'cpu', list(workloads.SUITES), 'which work', flag_values=FLAGS)
flags.DEFINE_list('only', [], 'names out of the suite', flag_values=FLAGS)
flags.DEFINE_enum('peer', None, ['torch'], 'what to compare with', flag_values=FLAGS)
flags.DEFINE_string('peer_python', sys.executable, 'the peer runs in it', flag_values=FLAGS)
flags.DEFINE_string('json', None, 'a file for the results', flag_values=FLAGS)
flags.DEFINE_enum('scale', 'full', ['full', 'smoke'], 'how large', flag_values=FLAGS)


class Result(NamedTuple):
  """One line of the output, and one object of the JSON."""

  name: str
  seconds: float  # median
  spread: tuple[float, float]  # smallest and largest
  peer_seconds: float | None  # median
  ratio: float | None  # median of peer / ours of each pair
  floor_seconds: float
  peak_memory_bytes: int | None  # temporary arrays of the program


def show(result: Result, operations: float, bytes_moved: float, note: str = '') -> str:
  """Returns a result as one line."""
  low, high = result.spread
  line = f'{result.name:34} {result.seconds:9.4g} s ({low:.4g} .. {high:.4g})'
  if result.ratio is not None:
    line += f'  {result.ratio:.2f} times as fast as the peer ({result.peer_seconds:.4g} s)'
  line += f'  {operations / 1e9:.4g} GFLOP, {bytes_moved / 1e6:.4g} MB'
  line += f', floor {result.floor_seconds:.3g} s = {result.floor_seconds / result.seconds:.1%}'
  if result.peak_memory_bytes is not None:
    line += f', memory {result.peak_memory_bytes / 2**20:.0f} MiB'
  return line + note


class Suite:
  """Runs jobs, shows each result, and keeps them all in a file."""

  def __init__(self, peer: list[str], file: pathlib.Path | None, smoke: bool):
    """Prepares a suite.

    Args:
      peer: its command; empty for none.
      file: for the results, or None.
      smoke: measures the machine's speed with small arrays.
    """
    self.peer, self.file, self.smoke = peer, file, smoke
    self.results: list[Result] = []
    self.known: dict[str, timing.Rates] = {}

  def rates(self, precision: str) -> timing.Rates:
    """Returns the machine's speed with a precision, measured once."""
    if precision not in self.known:
      self.known[precision] = rates = timing.measure_rates(precision, self.smoke)
      speed, copied = rates.operations / 1e12, rates.bytes / 1e9
      print(f'{precision}: {speed:.4g} TFLOP/s in a matrix product, {copied:.4g} GB/s')
    return self.known[precision]

  def add(
    self,
    name: str,
    precision: str,
    program: timing.Program,
    seconds: Sequence[float],
    units: int,
    peer: Sequence[float] = (),
    note: str = '',
  ) -> Result:
    """Shows and keeps a result.

    Args:
      name: of the result.
      precision: of the matrix products.
      program: that was measured, after its last unit.
      seconds: ours, for one unit each; or for all units, if there is one value.
      units: measured units.
      peer: the peer's seconds, as ours.
      note: end of the line.
    """
    share = 1 if len(seconds) == 1 else units
    operations, bytes_moved = (
      value / share for value in program.cost(program.done - units + 1, program.done)
    )
    result = Result(
      name,
      statistics.median(seconds),
      (min(seconds), max(seconds)),
      statistics.median(peer) if peer else None,
      statistics.median(b / a for a, b in zip(seconds, peer, strict=True)) if peer else None,
      timing.floor_seconds(operations, bytes_moved, self.rates(precision)),
      program.peak_bytes,
    )
    print(show(result, operations, bytes_moved, note), flush=True)
    self.results.append(result)
    if self.file:
      objects = [result._asdict() for result in self.results]
      self.file.write_text(json.dumps(objects, indent=1) + '\n')
    return result

  def run(self, job: workloads.Job) -> bool:
    """Compiles the variants of a job in parallel, then times one after the other.

    Returns:
      Did all of them succeed?
    """
    import jax

    from benchmarks import programs

    prepare, count = programs.PREPARE[type(job.work)], timing.REPEATS * job.units
    timed = []
    with ThreadPoolExecutor(min(len(job.variants), os.cpu_count() or 1)) as pool:
      futures = {v: pool.submit(prepare, job.work, v) for v in job.variants}
    for variant in job.variants:
      name, precision, seconds = job.label(variant), variant.precision, [0.0]
      try:
        program = futures.pop(variant).result()
        # A single variant is timed below if there is a peer, alternating with it.
        if len(job.variants) > 1 or job.whole or not self.peer:
          with jax.default_matmul_precision(precision):
            program, seconds = timing.measure(program, job.units)
          note = f', compiled in {program.compile_seconds:.1f} s'
          self.add(name, precision, program, seconds, count, note=note)
        timed.append((statistics.median(seconds), variant, program))
      except Exception as error:  # out of memory, for example: the others can still be timed
        reason = str(error).strip().splitlines() or ['']
        print(f'{name}: {type(error).__name__}: {reason[0][:200]}', flush=True)
    succeeded = len(timed) == len(job.variants)
    if not timed:
      return False
    _, variant, program = min(timed, key=lambda entry: entry[0])
    timed.clear()  # frees the other programs and their memory
    name, precision, units = job.label(variant), variant.precision, job.work.units
    with jax.default_matmul_precision(precision):
      if self.peer:
        with timing.peer_process(self.peer, job) as ask:
          program, ours, peer, peak = timing.measure_pairs(program, job.units, ask)
        note = f', the peer {peak / 2**20:.0f} MiB'
        self.add(name, precision, program, ours, count, peer, note)
      if job.whole:
        program, unit = timing.run_units(program, units)
        total = unit * units + program.compile_seconds
        note = f', {variant.label()}, of which {program.compile_seconds:.1f} s compilation'
        self.add(f'{job.name}/{precision}/all', precision, program, [total], units, note=note)
    return succeeded


def choose(jobs: Sequence, only: Sequence[str], suite: str) -> list:
  """Returns the jobs that are asked for.

  Raises:
    ValueError: if a name is not in the suite.
  """
  known = list(dict.fromkeys(job.name for job in jobs))
  for name in only:
    if name not in known:
      raise ValueError(f'--only={name}: not in --suite={suite}, which has {", ".join(known)}')
  return [job for job in jobs if job.name in (only or known)]


def main(argv: list[str]) -> int:
  """Runs a suite; returns the exit status."""
  began = time.monotonic()
  with cli.refusals():
    if words := cli.read(FLAGS, argv, __doc__):
      raise app.UsageError(f'{words[0]!r}: unexpected')
    file = paths.given(FLAGS.json, '--json') if FLAGS.json else None
    if file and not file.absolute().parent.is_dir():
      raise ValueError(f'--json={FLAGS.json}: there is no such folder')
    jobs = choose(workloads.SUITES[FLAGS.suite](), [n.lower() for n in FLAGS.only], FLAGS.suite)
    jax_setup.prepare_jax()
  import jax

  jax.config.update('jax_enable_compilation_cache', False)  # compilation is measured too
  smoke = FLAGS.scale == 'smoke'
  devices = jax.local_devices()
  kind = f'{len(devices)} x {devices[0].device_kind}, {os.cpu_count()} cores'
  print(f'jax {jax.__version__}, {kind}{", smoke: the numbers mean nothing" if smoke else ""}')
  script = pathlib.Path(__file__).with_name(f'peer_{FLAGS.peer}.py')
  suite = Suite([FLAGS.peer_python, str(script)] if FLAGS.peer else [], file, smoke)
  succeeded = True
  for job in jobs:
    try:
      succeeded &= suite.run(workloads.smoke(job) if smoke else job)
    except ValueError as error:
      print(f'{job.name}: {error}', flush=True)
      succeeded = False
  print(f'{time.monotonic() - began:.0f} s in all', flush=True)
  return 0 if succeeded else 1


if __name__ == '__main__':
  sys.exit(main(sys.argv))
