"""Timing for `launch/benchmark.py`: medians, pairs with a peer process, and the machine's speed."""

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

from benchmarks import workloads

REPEATS = 5
QUIET = 0.3  # seconds after which the threads of the other process sleep

Ask = Callable[[Sequence[int]], dict[str, Any]]  # (clients) -> the peer's answer to one unit


class Program(NamedTuple):
  """Compiled work. A unit is a round or an outer iteration; units are counted from 1."""

  state: Any
  advance: Callable[[Any, int], Any]  # (state, units) -> state, when it is computed
  compile_seconds: float
  peak_bytes: int | None  # temporary arrays of the compiled program
  cohorts: Callable[[int, int], list[list[int]]]  # (first, last unit) -> clients of each unit
  cost: Callable[[int, int], tuple[float, float]]  # (first, last unit) -> operations, bytes of all
  done: int = 1  # units so far; the first one is the warm-up


class Rates(NamedTuple):
  """Speed of this machine, all devices together."""

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
  """Times a large matrix product and a large copy on all devices at once.

  Args:
    precision: of the matrix product.
    small: uses small arrays, for which the rates mean nothing.
  """
  import jax
  import jax.numpy as jnp

  devices = jax.local_devices()
  gpu = devices[0].platform != 'cpu'
  side = 128 if small else 8192 if gpu else 2048
  length = 1 << (12 if small else 28 if gpu else 26)  # 1 GiB on a GPU, 256 MiB on a CPU
  mesh = jax.sharding.Mesh(devices, ('lanes',))
  spec = jax.sharding.PartitionSpec('lanes')
  on_all = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))
  ones = lambda *shape: jax.device_put(
    jnp.ones((len(devices), *shape)), jax.sharding.NamedSharding(mesh, spec)
  )
  with jax.default_matmul_precision(precision):
    a, product, calls = ones(side, side), on_all(lambda a: a @ a), 5 if gpu else 1
    # Several products hide the time of a launch; the device computes them one after the other.
    seconds = _best(lambda: [product(a) for _ in range(calls)][-1].block_until_ready()) / calls
  v, copy = ones(length), on_all(lambda v: -v)
  copying = _best(lambda: copy(v).block_until_ready())
  return Rates(len(devices) * 2 * side**3 / seconds, len(devices) * 2 * 4 * length / copying)


@contextlib.contextmanager
def peer_process(command: Sequence[str], job: workloads.Job) -> Iterator[Ask]:
  """Starts the peer with a job's work.

  Args:
    command: of the peer's process.
    job: its work.

  Yields:
    A function (clients) -> the peer's answer to one unit.

  Raises:
    ValueError: the peer's process ended.
  """
  import numpy as np

  from benchmarks import programs

  with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('w+') as errors:
    work = dataclasses.asdict(job.work) | {'kind': type(job.work).__name__, 'data': ''}
    if isinstance(job.work, workloads.Rounds):
      data = programs.make_data(job.work)[0]
      work['data'] = str(pathlib.Path(folder) / 'data.npz')
      arrays = {k: np.asarray(v) for k, v in data._asdict().items() if v is not None}
      np.savez(work['data'], **arrays)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:

      def ask(message):
        with contextlib.suppress(BrokenPipeError):
          print(json.dumps(message), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
          errors.seek(0)
          lines = errors.read().strip().splitlines() or ['nothing']
          raise ValueError(f'--peer: {" ".join(command)} ended; its last line: {lines[-1]}')
        return json.loads(answer)

      try:
        print('  peer:', ask(work), flush=True)
        yield lambda clients: ask({'clients': clients})
      finally:
        process.kill()


def run_units(program: Program, units: int) -> tuple[Program, float]:
  """Runs some units; returns the program after them and the seconds of one unit."""
  began = time.perf_counter()
  state = program.advance(program.state, units)
  seconds = (time.perf_counter() - began) / units
  return program._replace(state=state, done=program.done + units), seconds


def measure(program: Program, units: int) -> tuple[Program, list[float]]:
  """Times a program; returns it after all units, and REPEATS times the seconds of one unit."""
  seconds = []
  for _ in range(REPEATS):
    program, unit = run_units(program, units)
    seconds.append(unit)
  return program, seconds


def measure_pairs(
  program: Program, units: int, ask: Ask
) -> tuple[Program, list[float], list[float], int]:
  """Times the program and the peer, alternating, on the same clients.

  Args:
    program: ours.
    units: of each side in a pair.
    ask: of `peer_process`.

  Returns:
    The program after all units, our seconds of one unit, the peer's, and the peer's peak memory in
    bytes.
  """
  count = REPEATS * units
  cohorts = program.cohorts(program.done, program.done + count) or [[]] * (count + 1)
  answer = ask(cohorts[0])  # the peer's warm-up is our last unit
  ours, peer = [], []
  for start in range(1, count + 1, units):
    time.sleep(QUIET)
    program, unit = run_units(program, units)
    ours.append(unit)
    time.sleep(QUIET)
    answers = [ask(clients) for clients in cohorts[start : start + units]]
    peer.append(statistics.fmean(a['seconds'] for a in answers))
    answer = answers[-1]
  return program, ours, peer, answer['peak_bytes']
