"""Calls with bad arguments: each is accepted, refused in one line, or is a finding."""

import contextlib
import gc
import io
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HANG = 30.0  # seconds
MEMORY = 1 << 30  # bytes that a call may add to the largest memory of the process
FINDINGS = ('traceback', 'hang', 'memory', 'several lines', 'unnamed', 'silent')


class Outcome(NamedTuple):
  """The outcome of one call."""

  kind: str  # 'accepted', 'refused', or one of FINDINGS
  text: str  # the refusal, or what is wrong
  seconds: float
  value: Any = None  # of an accepted call


class Hang(BaseException):
  """Raised in a call that takes too long; no handler of exceptions catches it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
  """Raises Hang inside after so many seconds."""

  def stop(*_):
    raise Hang

  before = signal.signal(signal.SIGALRM, stop)
  signal.setitimer(signal.ITIMER_REAL, seconds, 5)  # again, if it waits for a thread then
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def peak_bytes() -> int:
  """Returns the largest resident memory of the process so far."""
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def outcome(
  call: Callable[[], Any],
  *,
  refusals: tuple[type[BaseException], ...] = (ValueError, OSError),
  hang: float = HANG,
) -> Outcome:
  """Calls a function and classifies what happens.

  Args:
    call: returns an exit status (2 after one line on stderr is a refusal), or anything else.
    refusals: exceptions that callers show as one line.
    hang: seconds.

  Returns:
    The outcome; a refusal of several lines, a warning on stderr and much memory are findings.
  """
  start, before = time.monotonic(), peak_bytes()
  err = io.StringIO()
  value, kind, text = None, 'accepted', ''
  with (
    warnings.catch_warnings(),
    contextlib.redirect_stdout(io.StringIO()),
    contextlib.redirect_stderr(err),
  ):
    warnings.simplefilter('ignore', DeprecationWarning)
    try:
      with limited(hang):
        value = call()
    except Hang:
      kind, text = 'hang', f'more than {hang:g} s'
    except refusals as error:
      kind, text = 'refused', str(error)
    except SystemExit as end:
      kind, text = 'refused', err.getvalue()
      if end.code != 2:
        kind, text = 'traceback', f'exit status {end.code}: {text}'
    except BaseException as error:
      at = traceback.extract_tb(error.__traceback__)[-1]
      text = f'{type(error).__name__}: {str(error)[:300]} ({Path(at.filename).name}:{at.lineno})'
      kind = 'traceback'
  if kind == 'accepted' and err.getvalue() and not err.getvalue().startswith('WARNING'):
    kind, text = 'several lines', err.getvalue()
  if kind == 'refused' and (len(text.strip().splitlines()) != 1 or len(text) > 5000):
    kind = 'several lines'
  if (grown := peak_bytes() - before) > MEMORY:
    kind, text = 'memory', f'{grown >> 20} MiB more; {kind}: {text}'
    gc.collect()
  return Outcome(kind, text.strip(), time.monotonic() - start, value)


class Tally:
  """Counts outcomes, and prints each finding at once."""

  def __init__(self, title: str):
    self.title = title
    self.counts: Counter[str] = Counter()
    self.slowest = (0.0, '')
    self.began = time.monotonic()

  def add(self, what: str, result: Outcome) -> None:
    """Adds the outcome of a described call."""
    self.counts[result.kind] += 1
    self.slowest = max(self.slowest, (result.seconds, what))
    if result.kind in FINDINGS:
      print(f'{result.kind}: {what[:200]!r}: {result.text[:400]!r}', flush=True)

  def findings(self) -> int:
    """Returns the number of findings."""
    return sum(self.counts[kind] for kind in FINDINGS)

  def report(self) -> str:
    """Returns the counts and the slowest call."""
    counts = [f'{n} {kind}' for kind, n in self.counts.most_common()]
    counts += [f'0 {kind}' for kind in FINDINGS if not self.counts[kind]]
    seconds, what = self.slowest
    return (
      f'{self.title}: {self.counts.total()} in {time.monotonic() - self.began:.0f} s: '
      f'{", ".join(counts)}\nslowest: {seconds:.1f} s, {what[:100]!r}'
    )


def names(text: str, words: Sequence[str]) -> bool:
  """Does a refusal contain one of these words, or the first 20 characters of one?"""
  return any(word and word[:20] in text for word in words)
