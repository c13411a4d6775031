"""What a benchmark prints and writes: lines, JSON and the table of docs/speed.md."""

import json
import os
import pathlib
import platform
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.timing import Side


class Result(NamedTuple):
  """One line of the output, and one object of the JSON."""

  name: str
  seconds: float  # median
  spread: tuple[float, float]  # smallest and largest
  peer_seconds: float | None  # median
  ratio: float | None  # median of peer / ours of each pair
  floor_seconds: float | None
  peak_memory_bytes: int | None  # temporary arrays of the program
  peer: str = ''
  ratio_low: float | None = None  # lower quartile of the pairs
  cpu_ratio: float | None = None  # median of the pairs' processor seconds, all threads
  peer_peak_bytes: int | None = None
  peer_spread: tuple[float, float] | None = None
  compile_seconds: float | None = None


def lower_quartile(values: Sequence[float]) -> float:
  """Returns the lower quartile; of five values the second smallest."""
  if len(values) == 1:
    return values[0]
  return statistics.quantiles(values, n=4, method='inclusive')[0]


def compare(
  name: str,
  ours: Side,
  *,
  floor: float | None = None,
  peak: int | None = None,
  peer: str = '',
  theirs: Side | None = None,
  compile_seconds: float | None = None,
) -> Result:
  """Summarises measurements of one or two sides.

  Args:
    name: of the result.
    ours: our side.
    floor: the least seconds.
    peak: bytes of our program's temporary arrays.
    peer: the other side's name.
    theirs: its measurements, in pairs with ours.
    compile_seconds: of our program.
  """
  median, ends = statistics.median, lambda values: (min(values), max(values))
  result = Result(name, median(ours.seconds), ends(ours.seconds), None, None, floor, peak, peer)
  result = result._replace(compile_seconds=compile_seconds)
  if theirs is None:
    return result
  divided = lambda a, b: [theirs / ours for ours, theirs in zip(a, b, strict=True)]
  ratios = divided(ours.seconds, theirs.seconds)
  cpu = divided(ours.cpu_seconds, theirs.cpu_seconds) if theirs.cpu_seconds else None
  return result._replace(
    peer_seconds=median(theirs.seconds),
    peer_spread=ends(theirs.seconds),
    peer_peak_bytes=theirs.peak_bytes,
    ratio=median(ratios),
    ratio_low=lower_quartile(ratios),
    cpu_ratio=median(cpu) if cpu else None,
  )


def show(result: Result, operations: float = 0, bytes_moved: float = 0, note: str = '') -> str:
  """Returns a result as one line."""
  low, high = result.spread
  line = f'{result.name:34} {result.seconds:9.4g} s ({low:.4g} .. {high:.4g})'
  if result.ratio is not None:
    line += f'  {result.ratio:.2f} times as fast as {result.peer or "the peer"}'
    line += f' ({result.peer_seconds:.4g} s; lower quartile {result.ratio_low:.2f}'
    line += f', processor seconds {result.cpu_ratio:.2f})' if result.cpu_ratio else ')'
  if result.floor_seconds is not None:
    line += f'  {operations / 1e9:.4g} GFLOP, {bytes_moved / 1e6:.4g} MB'
    line += f', floor {result.floor_seconds:.3g} s = {result.floor_seconds / result.seconds:.1%}'
  if result.peak_memory_bytes is not None:
    line += f', memory {result.peak_memory_bytes / 2**20:.0f} MiB'
  return line + note


def machine() -> dict[str, Any]:
  """Describes the machine: processor, cores, devices, versions."""
  import jax

  named = [line for line in _lines('/proc/cpuinfo') if line.startswith('model name')]
  devices = jax.local_devices()
  return {
    'processor': named[0].partition(':')[2].strip() if named else platform.processor(),
    'cores': os.cpu_count(),
    'devices': f'{len(devices)} x {devices[0].device_kind}',
    'jax': jax.__version__,
    'python': platform.python_version(),
  }


def _lines(path: str) -> list[str]:
  try:
    return pathlib.Path(path).read_text().splitlines()
  except OSError:
    return []


def finished(file: pathlib.Path, described: dict[str, Any]) -> list[Result] | None:
  """Returns the results of a file that this commit wrote for the same peers and sizes, or None.

  Args:
    file: may not exist.
    described: what the file must say: commit, peers, scale.
  """
  try:
    read = json.loads(file.read_text())
    same = all(read[key] == value for key, value in described.items())
    return [Result(**result) for result in read['results']] if same and read['complete'] else None
  except (OSError, ValueError, KeyError, TypeError):
    return None
