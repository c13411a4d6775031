"""Timing for `launch/benchmark.py`: medians, pairs with a peer process, and the machine's own speed."""

import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

REPEATS = 5


QUIET = 0.3  # seconds after which the threads of the other side have stopped spinning


class Rates(NamedTuple):
  """What this machine does, all devices together."""

  operations: float  # a second, in a large matrix product
  bytes: float  # a second, read and written by a large copy


def floor_seconds(operations: float, bytes_moved: float, rates: Rates) -> float:
  """Returns the least time in which the machine can do some work."""
  return max(operations / rates.operations, bytes_moved / rates.bytes)


def _best(run: Callable[[], Any]) -> float:
  run()
  seconds = []
  for _ in range(REPEATS):
    began = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - began)
  return min(seconds)


def measure_rates(precision: str, small: bool) -> Rates:
  """Times a large matrix product and a large copy on all devices at once."""
  import jax
  import jax.numpy as jnp

  devices = jax.local_devices()
  gpu = devices[0].platform != 'cpu'
  side = 128 if small else 8192 if gpu else 2048
  length = 1 << (12 if small else 28 if gpu else 26)  # 1 GiB on a GPU, 256 MiB on a CPU
  mesh = jax.sharding.Mesh(devices, ('lanes',))
  spec = jax.sharding.PartitionSpec('lanes')
  on_all = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))
  spread = lambda *shape: jax.device_put(
    jnp.ones((len(devices), *shape)), jax.sharding.NamedSharding(mesh, spec)
  )
  with jax.default_matmul_precision(precision):
    a, product, calls = spread(side, side), on_all(lambda a: a @ a), 5 if gpu else 1
    # Several products in one go hide the launch; they wait for one another on the device.
    seconds = _best(lambda: [product(a) for _ in range(calls)][-1].block_until_ready()) / calls
  v, copy = spread(length), on_all(lambda v: -v)
  copying = _best(lambda: copy(v).block_until_ready())
  return Rates(len(devices) * 2 * side**3 / seconds, len(devices) * 2 * 4 * length / copying)


@contextlib.contextmanager
def peer_process(command: Sequence[str], job, data_dir: str) -> Iterator[Callable[..., dict]]:
  """Starts the peer on a job's work; yields (clients) -> its answer to one unit.

  Raises:
    ValueError: if it does not start.
  """
  import numpy as np

  from benchmarks import programs, workloads

  with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('w+') as errors:
    work = dataclasses.asdict(job.work) | {'kind': type(job.work).__name__, 'data': ''}
    if isinstance(job.work, workloads.Rounds):
      data = programs.load_data(job.work, data_dir)[0]
      work['data'] = str(pathlib.Path(folder) / 'data.npz')
      there = {k: np.asarray(v) for k, v in data._asdict().items() if v is not None}
      np.savez(work['data'], **there)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:

      def ask(message):
        with contextlib.suppress(BrokenPipeError):
          print(json.dumps(message), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
          errors.seek(0)
          said = errors.read().strip().splitlines() or ['nothing']
          raise ValueError(f'--peer: {" ".join(command)} ended; the last it said: {said[-1]}')
        return json.loads(answer)

      try:
        print('  peer:', ask(work), flush=True)
        yield lambda clients: ask({'clients': clients})
      finally:
        process.kill()


def timed(program, state, units: int) -> tuple[Any, float]:
  """Runs some units; returns the new state and the seconds of one unit."""
  began = time.perf_counter()
  state = program.advance(state, units)
  return state, (time.perf_counter() - began) / units


def measure(program, state, units: int) -> tuple[Any, list[float]]:
  """Times the program alone, after the warm-up that preparing it was."""
  seconds = []
  for _ in range(REPEATS):
    state, one = timed(program, state, units)
    seconds.append(one)
  return state, seconds


def measure_pairs(
  program, state, first: int, units: int, ask
) -> tuple[Any, list[float], list[float], int]:
  """Times the program and the peer in turn on the same clients.

  Args:
    program: ours, warm.
    state: after `first - 1` units.
    first: number of the first unit.
    units: in one of a pair.
    ask: (clients) -> the peer's answer.

  Returns:
    The state, our seconds of one unit, the peer's, and the most memory that the peer took.
  """
  last = first + REPEATS * units - 1
  cohorts = program.cohorts(first - 1, last) or [[]] * (last - first + 2)
  answer = ask(cohorts[0])  # its warm-up is ours: the unit before the first
  ours, theirs = [], []
  for start in range(1, len(cohorts), units):
    time.sleep(QUIET)
    state, one = timed(program, state, units)
    time.sleep(QUIET)
    answers = [ask(clients) for clients in cohorts[start : start + units]]
    answer = answers[-1]
    ours.append(one)
    theirs.append(statistics.fmean(a['seconds'] for a in answers))
  return state, ours, theirs, answer['peak_bytes']
