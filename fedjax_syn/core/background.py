"""Compilation in background threads: it begins now, and its result is waited for later."""

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from fedjax_syn.core.stopping import BACKGROUND

Result = TypeVar('Result')

WAITED = '/fedjax_syn/waited_for_compilation'  # an event of jax.monitoring, in seconds
_HERE = threading.local()
_WORKS: weakref.WeakSet['Background'] = weakref.WeakSet()
_ONE_BY_ONE = threading.Lock()  # in order, and leaving the other cores to the run itself


def in_background() -> bool:
  """Returns whether the calling thread is one of these."""
  return getattr(_HERE, 'background', False)


def under_same_settings(work: Callable[[], Result]) -> Callable[[], Result]:
  """Returns work that another thread does under this thread's precision and width of numbers."""
  precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
  wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]

  def run():
    with jax.default_matmul_precision(precision), jax.enable_x64(wide):
      return work()

  return run


class Background:
  """Work in a background thread; works are done one after the other, in their order."""

  def __init__(self, work: Callable[[], Any]):
    """Begins the work.

    Args:
      work: called in another thread, under this thread's matrix-unit precision.
    """
    self.future: Future[Any] = Future()
    work = under_same_settings(work)

    def run():
      _HERE.background = True
      with _ONE_BY_ONE:
        if not self.future.set_running_or_notify_cancel():
          return
        try:
          self.future.set_result(work())
        except Exception as error:
          self.future.set_exception(error)

    # A daemon: a run that was interrupted does not wait for a program that it will not need.
    self.thread = threading.Thread(target=run, daemon=True, name=f'{BACKGROUND}: compilation')
    _WORKS.add(self)
    self.thread.start()

  def result(self) -> Any:
    """Waits for the work; returns what it returned, or raises what it raised."""
    began = time.perf_counter()
    try:
      return self.future.result()
    finally:
      jax.monitoring.record_event_duration_secs(WAITED, time.perf_counter() - began)


@atexit.register
def wait() -> None:
  """Waits for the work in progress and begins no other.

  A thread inside a compiler must not outlive the interpreter.
  A launcher does not wait: see `fedjax_syn.core.stopping.end`.
  """
  works = list(_WORKS)
  for work in works:
    work.future.cancel()
  for work in works:
    work.thread.join()
