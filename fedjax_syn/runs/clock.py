"""The seconds of a run by part, compilation apart, and its peak memory.

Compilation counts where the run waits for it, not where it happens in the background.
"""

import contextlib
import resource
import sys
import time
from collections.abc import Iterator

import jax

from fedjax_syn.core.background import WAITED, in_background

PARTS = ('rounds', 'synthesis', 'finetune', 'evaluation')
COMPILE_EVENTS = (
  WAITED,
  '/jax/core/compile/jaxpr_trace_duration',
  '/jax/core/compile/jaxpr_to_mlir_module_duration',
  '/jax/core/compile/backend_compile_duration',
)


class Spans:
  """The length of a union of time spans, reported when they end, inner before outer ones."""

  def __init__(self) -> None:
    self.spans: list[tuple[float, float]] = []

  def add(self, start: float, end: float) -> None:
    """Adds one span; what it shares with earlier ones counts once."""
    while self.spans and self.spans[-1][1] > start:
      start = min(start, self.spans.pop()[0])
    self.spans.append((start, end))

  def total(self) -> float:
    """Returns the seconds covered so far."""
    return sum(end - start for start, end in self.spans)


class Clock:
  """Adds up the wall-clock seconds of the parts of a run, over all its sessions.

  Use it as a context manager: it listens to JAX's compilation events inside. `finetune` stays 0
  where fine-tuning happens in the rounds.
  """

  def __init__(self, before: dict[str, float] | None = None):
    """Starts the clock.

    Args:
      before: what `seconds()` returned when the run was last saved.
    """
    self.before = before or {}
    self.parts = {name: self.before.get(name, 0.0) for name in PARTS}
    self.start = time.perf_counter()
    self.compiling = Spans()

  def __enter__(self) -> 'Clock':
    jax.monitoring.register_event_duration_secs_listener(self._listen)
    return self

  def __exit__(self, *_) -> None:
    jax.monitoring.unregister_event_duration_listener(self._listen)

  def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
    if event in COMPILE_EVENTS and not in_background():
      now = time.perf_counter()
      self.compiling.add(now - duration_secs, now)

  @contextlib.contextmanager
  def part(self, name: str) -> Iterator[None]:
    """Counts the seconds spent inside under a name, but those of compilation."""
    start, compiled = time.perf_counter(), self.compiling.total()
    try:
      yield
    finally:
      compiled = self.compiling.total() - compiled
      self.parts[name] += time.perf_counter() - start - compiled

  def seconds(self) -> dict[str, float]:
    """Returns seconds by part, and 'total', which also holds what belongs to no part."""
    total = self.before.get('total', 0.0) + time.perf_counter() - self.start
    compiled = self.before.get('compile', 0.0) + self.compiling.total()
    seconds = {'total': total, 'compile': compiled, **self.parts}
    return {name: round(value, 3) for name, value in seconds.items()}


def peak_memory_bytes() -> int:
  """Returns the most memory in use so far: of the fullest device, or of the process on a CPU."""
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  on_device = max((s.get('peak_bytes_in_use', 0) for s in stats), default=0)
  unit = 1 if sys.platform == 'darwin' else 1024  # getrusage counts in KiB, but not there
  return int(on_device or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
