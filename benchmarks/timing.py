"""Timing for `launch/benchmark.py`: medians, pairs with a peer process, and the machine's speed."""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import workloads

ROOT = pathlib.Path(__file__).resolve().parents[1]
REPEATS = 5
QUIET = 0.3  # seconds after which the threads of the other process sleep

Ask = Callable[[Sequence[int]], dict[str, Any]]  # (clients) -> the peer's answer to one unit


class Side(NamedTuple):
  """What one side needed for one unit, measured several times."""

  seconds: list[float]
  cpu_seconds: list[float]  # of all threads; [] where processes of others did the work
  peak_bytes: int | None = None


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


def environment() -> dict[str, str]:
  """Returns the environment of processes that import from this checkout."""
  path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
  return {**os.environ, 'PYTHONPATH': path}


@contextlib.contextmanager
def peer_process(command: Sequence[str], job: workloads.Job) -> Iterator[tuple[Ask, str]]:
  """Starts the peer with a job's work.

  Args:
    command: of the peer's process.
    job: its work.

  Yields:
    A function (clients) -> the peer's answer to one unit; what the peer is, as 'PyTorch 2.14.0'.

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
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': errors}
    with subprocess.Popen(command, **pipes, text=True, env=environment()) as process:

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
        described = ask(work)
        print('  peer:', described, flush=True)
        yield lambda clients: ask({'clients': clients}), str(described.get('version', ''))
      finally:
        process.stdin.close()  # the peer ends, and ends what it started
        try:
          process.wait(30)
        except subprocess.TimeoutExpired:
          process.kill()


def run_units(program: Program, units: int) -> tuple[Program, float, float]:
  """Runs some units; returns the program after them, and seconds and CPU seconds of one unit."""
  began, cpu = time.perf_counter(), time.process_time()
  state = program.advance(program.state, units)
  seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
  return program._replace(state=state, done=program.done + units), seconds / units, cpu / units


def measure(program: Program, units: int) -> tuple[Program, Side]:
  """Times a program; returns it after all units, and REPEATS times the seconds of one unit."""
  side = Side([], [])
  for _ in range(REPEATS):
    program, seconds, cpu = run_units(program, units)
    side.seconds.append(seconds)
    side.cpu_seconds.append(cpu)
  return program, side


def measure_beside(
  program: Program, units: int, asks: Mapping[str, Ask]
) -> tuple[Program, Side, dict[str, Side]]:
  """Times the program and the peers, alternating, on the same clients.

  Args:
    program: ours.
    units: of each side in one turn.
    asks: of `peer_process`, by peer.

  Returns:
    The program after all units, our side, and that of each peer.
  """
  count = REPEATS * units
  cohorts = program.cohorts(program.done, program.done + count) or [[]] * (count + 1)
  for ask in asks.values():
    ask(cohorts[0])  # the peer's warm-up is our last unit
  ours, peers = Side([], []), {name: Side([], []) for name in asks}
  for start in range(1, count + 1, units):
    time.sleep(QUIET)
    program, seconds, cpu = run_units(program, units)
    ours.seconds.append(seconds)
    ours.cpu_seconds.append(cpu)
    for name, ask in asks.items():
      time.sleep(QUIET)
      answers = [ask(clients) for clients in cohorts[start : start + units]]
      side, mean = peers[name], lambda key: statistics.fmean(a[key] for a in answers)
      side.seconds.append(mean('seconds'))
      if 'cpu_seconds' in answers[-1]:
        side.cpu_seconds.append(mean('cpu_seconds'))
      peers[name] = side._replace(peak_bytes=answers[-1].get('peak_bytes'))
  return program, ours, peers


def measure_whole(
  commands: Mapping[str, Callable[[str], list[str]]], pairs: int
) -> tuple[dict[str, Side], dict[str, str]]:
  """Times whole processes, alternating, each in an empty folder and with nothing compiled before.

  Args:
    commands: folder -> the command, by side.
    pairs: how often.

  Returns:
    By side: what it needed, and the first line that it printed.

  Raises:
    ValueError: a process failed.
  """
  sides, printed = {name: Side([], []) for name in commands}, {}
  for _ in range(pairs):
    for name, command in commands.items():
      with tempfile.TemporaryDirectory() as folder:
        words = command(folder)
        env = environment() | {'JAX_COMPILATION_CACHE_DIR': f'{folder}/compiled'}
        before, began = os.times(), time.perf_counter()
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        seconds, after = time.perf_counter() - began, os.times()
      if done.returncode:
        lines = done.stderr.strip().splitlines() or ['nothing']
        raise ValueError(f'{" ".join(words)} ended with {done.returncode}: {lines[-1]}')
      sides[name].seconds.append(seconds)
      used = lambda t: t.children_user + t.children_system
      sides[name].cpu_seconds.append(used(after) - used(before))
      printed[name] = done.stdout.partition('\n')[0]
  return sides, printed
