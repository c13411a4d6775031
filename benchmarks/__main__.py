"""Measures the library on fixed work: seconds, against a plain PyTorch loop, and against this machine's floor.

  python launch/benchmark.py --suite=cpu [--only=w1,w4] [--peer=torch] [--json=FILE]

  --suite        cpu (w1 w2 w3 w3x w4 w4conv w4c seeds) or gpu (g1 g2 g3 seeds)
  --only         names out of the suite, separated by commas
  --peer         torch: the same work as a plain PyTorch loop, in turn with ours
  --peer_python  the Python that has PyTorch; without it this one
  --json         a list of results, written anew after each of them
  --data_dir     where data sets lie; what is not there is replaced by random pixels
  --scale        smoke: a tiny version of everything, to see that it runs
  --budget       seconds after which nothing new is begun; gpu: 480, cpu: no limit

  w1      a round on Fashion-MNIST: 32 of 80 clients of 750, one epoch, batch 32, Adam; MLP 784-128-128-10
  w2      w1 with the ConvNet of width 32
  w3 w3x  w1 on a Dirichlet split, alpha 0.1 and 0.01
  w4      an iteration of trajectory matching: 20 steps on 150 images of 28x28; MLP
  w4conv  w4 with the ConvNet of width 32
  w4c     w4 with the ConvNet of width 128 on 32x32x3
  g1      a round on CIFAR-10: 32 of 80 clients of 625; ConvNet of width 128
  g2      1,500 rounds on CIFAR-10: 50 of 1,000 clients of 50, batch 10, SGD; CNN; evaluated every 10
  g3      1,000 iterations of w4c
  seeds   a round of w1 for each of three seeds, one seed after the other or side by side

Seconds are medians of 5 after a warm-up; of "/all" lines one run from nothing to the end, compilation
included. The floor is the time for the operations at the speed of a large matrix product, or for
the bytes at that of a large copy, whichever is longer. Exit status: 0, 1 if something failed, 2 refused.
"""

import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from absl import app, flags

from benchmarks import timing
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.core import paths

BUDGET = {'cpu': 1e6, 'gpu': 480.0}  # seconds; on a CPU in effect no limit
RESERVE = 60.0  # seconds that the compilations of one job may take

# Not absl's global flags: another launcher in the same process may call its own by the same names.
FLAGS = flags.FlagValues()
flags.DEFINE_enum('suite', 'cpu', list(BUDGET), 'which work', flag_values=FLAGS)
flags.DEFINE_list('only', [], 'names out of the suite', flag_values=FLAGS)
flags.DEFINE_enum('peer', None, ['torch'], 'what to compare with', flag_values=FLAGS)
flags.DEFINE_string('peer_python', sys.executable, 'the peer runs in it', flag_values=FLAGS)
flags.DEFINE_string('json', None, 'a file for the results', flag_values=FLAGS)
flags.DEFINE_string('data_dir', '', 'where data sets lie', flag_values=FLAGS)
flags.DEFINE_enum('scale', 'full', ['full', 'smoke'], 'how large', flag_values=FLAGS)
flags.DEFINE_float('budget', None, 'seconds', lower_bound=0, flag_values=FLAGS)


class Result(NamedTuple):
  """One line of the output, and one object of the JSON."""

  name: str
  seconds: float  # median
  spread: tuple[float, float]  # smallest and largest
  peer_seconds: float | None  # median
  ratio: float | None  # median of peer / ours in a pair
  floor_seconds: float
  peak_memory_bytes: int | None  # temporary arrays of the program


class Setting(NamedTuple):
  """How the suite is run."""

  peer: list[str]  # the command; empty: none
  data_dir: str
  smoke: bool
  deadline: float  # of time.monotonic()
  rates: Callable[[str], timing.Rates]  # by precision
  record: Callable[[Result], None]


def show(result: Result, operations: float, moved: float, note: str = '') -> str:
  """Returns a result as one line."""
  low, high = result.spread
  line = f'{result.name:34} {result.seconds:9.4g} s ({low:.4g} .. {high:.4g})'
  if result.ratio is not None:
    line += f'  {result.ratio:.2f} times as fast as the peer ({result.peer_seconds:.4g} s)'
  line += f'  {operations / 1e9:.4g} GFLOP, {moved / 1e6:.4g} MB'
  line += f', floor {result.floor_seconds:.3g} s = {result.floor_seconds / result.seconds:.1%}'
  if result.peak_memory_bytes is not None:
    line += f', memory {result.peak_memory_bytes / 2**20:.0f} MiB'
  return line + note


def finish(setting: Setting, precision: str, name, seconds, program, span, theirs=(), note=''):
  """Makes a result of measured seconds, shows and records it.

  Args:
    setting: how the suite is run.
    precision: of the matrix products.
    name: of the result.
    seconds: ours, each for an equal share of the span.
    program: what was measured.
    span: number of the first and of the last unit that the seconds are for.
    theirs: the peer's seconds, paired with ours.
    note: appended to the line.
  """
  units = span[1] - span[0] + 1
  share = (
    1 if len(seconds) == 1 else units
  )  # a single run is the whole; otherwise seconds are a unit's
  operations, moved = (value / share for value in program.cost(*span))
  pairs = zip(theirs, seconds, strict=False)
  result = Result(
    name,
    statistics.median(seconds),
    (min(seconds), max(seconds)),
    statistics.median(theirs) if theirs else None,
    statistics.median(b / a for b, a in pairs) if theirs else None,
    timing.floor_seconds(operations, moved, setting.rates(precision)),
    program.peak_bytes,
  )
  print(show(result, operations, moved, note), flush=True)
  setting.record(result)
  return result


def run_job(job, setting: Setting) -> bool:
  """Compiles the variants of a job side by side, then times one after the other.

  Returns:
    Whether all went well.
  """
  import jax

  from benchmarks import programs

  prepare, fine, done = programs.PREPARE[type(job.work)], True, []
  pool = ThreadPoolExecutor(min(len(job.variants), os.cpu_count() or 1))
  futures = {v: pool.submit(prepare, job.work, v, setting.data_dir) for v in job.variants}
  for variant, future in futures.items():
    name = '/'.join(filter(None, (job.name, variant.label())))
    try:
      program = future.result(max(setting.deadline - time.monotonic(), 0.1))
      # A sole variant with a peer is timed below, in turn with it.
      if len(job.variants) > 1 or job.whole or not setting.peer:
        with jax.default_matmul_precision(variant.precision):
          state, seconds = timing.measure(program, program.state, job.units)
        span = 2, 1 + timing.REPEATS * job.units
        compiled = f', compiled in {program.compile_seconds:.1f} s'
        finish(setting, variant.precision, name, seconds, program, span, note=compiled)
        done.append((statistics.median(seconds), span[1], variant, program._replace(state=state)))
      else:
        done.append((0.0, 1, variant, program))
    except TimeoutError:
      print(f'{name}: not compiled before the budget was spent', flush=True)
      fine = False
    except Exception as error:  # out of memory, say: the others are still worth knowing
      reason = str(error).strip().splitlines() or ['']
      print(f'{name}: {type(error).__name__}: {reason[0][:200]}', flush=True)
      fine = False
  pool.shutdown(wait=False, cancel_futures=True)  # what still runs is behind the deadline
  futures.clear()
  if not done:
    return False
  seconds, last, variant, program = min(done, key=lambda entry: entry[0])
  done.clear()  # the other programs and their memory
  with jax.default_matmul_precision(variant.precision):
    if setting.peer:
      with timing.peer_process(setting.peer, job, setting.data_dir) as ask:
        state, ours, theirs, peak = timing.measure_pairs(
          program, program.state, last + 1, job.units, ask
        )
      program = program._replace(state=state)
      name = '/'.join(filter(None, (job.name, variant.label())))
      note = f', the peer {peak / 2**20:.0f} MiB'
      span = last + 1, last + timing.REPEATS * job.units
      finish(setting, variant.precision, name, ours, program, span, theirs, note)
      last = span[1]
    if job.whole:
      fine &= _whole(job, setting, variant, program, seconds, last)
  return fine


def _whole(job, setting: Setting, variant, program, seconds: float, last: int) -> bool:
  """Times the job from nothing to its last unit."""
  name = f'{job.name}/{variant.precision}/all'
  left = setting.deadline - time.monotonic()
  if left < seconds * job.work.units:
    estimate = program.compile_seconds + seconds * job.work.units
    print(f'{name}: not run, {left:.0f} s are left; {estimate:.1f} s by the lines above')
    return False
  _, one = timing.timed(program, program.state, job.work.units)
  total = one * job.work.units + program.compile_seconds
  note = f', {variant.label()}, of which {program.compile_seconds:.1f} s compilation'
  span = last + 1, last + job.work.units
  finish(setting, variant.precision, name, [total], program, span, note=note)
  return True


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


def write_json(path: str, results: Sequence[Result]) -> None:
  """Writes all results so far; a reader never sees half a file."""
  file = paths.given(path, '--json')
  partial = file.with_name(f'{file.name}.partial')
  partial.write_text(json.dumps([result._asdict() for result in results], indent=1) + '\n')
  partial.replace(file)


def main(argv: list[str]) -> int:
  """Runs a suite; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  began = time.monotonic()
  with cli.refusals():
    FLAGS.unparse_flags()
    rest = FLAGS(argv)[1:]
    if rest:
      raise app.UsageError(f'{rest[0]!r}: unexpected')
    if FLAGS.json and not paths.given(FLAGS.json, '--json').absolute().parent.is_dir():
      raise ValueError(f'--json={FLAGS.json}: there is no such folder')
    import jax

    from benchmarks import programs, workloads

    jobs = choose(workloads.SUITES[FLAGS.suite](), [n.lower() for n in FLAGS.only], FLAGS.suite)
    jax_setup.prepare_jax()
  # Compilation is a part of what is measured.
  jax.config.update('jax_enable_compilation_cache', False)
  small = FLAGS.scale == 'smoke'
  jobs = [workloads.smoke(job) for job in jobs] if small else jobs
  budget = BUDGET[FLAGS.suite] if FLAGS.budget is None else FLAGS.budget
  known: dict[str, timing.Rates] = {}

  def rates(precision):
    if precision not in known:
      known[precision] = timing.measure_rates(precision, small)
      speed, copied = known[precision]
      print(f'{precision}: {speed / 1e12:.4g} TFLOP/s in a matrix product, {copied / 1e9:.4g} GB/s')
    return known[precision]

  results: list[Result] = []

  def record(result):
    results.append(result)
    if FLAGS.json:
      write_json(FLAGS.json, results)

  devices = jax.local_devices()
  kind = f'{len(devices)} x {devices[0].device_kind}, {os.cpu_count()} cores'
  print(f'jax {jax.__version__}, {kind}{", smoke: the numbers mean nothing" if small else ""}')
  peer = (
    [FLAGS.peer_python, str(pathlib.Path(__file__).with_name(f'peer_{FLAGS.peer}.py'))]
    if FLAGS.peer
    else []
  )
  setting = Setting(peer, FLAGS.data_dir, small, began + budget, rates, record)
  data = {job.work.shape: job.work for job in jobs if isinstance(job.work, workloads.Rounds)}
  for shape, work in data.items():
    print(f'images {shape}: {programs.load_data(work, FLAGS.data_dir)[2]}', flush=True)
  fine = True
  for job in jobs:
    left = setting.deadline - time.monotonic()
    if left < (0 if small else RESERVE):
      print(f'{job.name}: not begun, {left:.0f} s are left of --budget={budget:g}', flush=True)
      fine = False
      continue
    try:
      fine &= run_job(job, setting)
    except ValueError as error:
      print(f'{job.name}: {error}', flush=True)
      fine = False
  print(f'{time.monotonic() - began:.0f} s in all', flush=True)
  return 0 if fine else 1


if __name__ == '__main__':
  status = main(sys.argv)
  sys.stdout.flush()
  os._exit(status)  # a compilation that ran out of time would otherwise be waited for
