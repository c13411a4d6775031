"""What becomes of a call that is given something bad: it works, it is refused in one line, or it is a finding."""

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
MEMORY = 1 << 30  # bytes that a single call may add to what the process ever held
# What is wrong in itself, whatever was given.
FINDINGS = ('traceback', 'hang', 'memory', 'several lines', 'unnamed', 'silent')


class Outcome(NamedTuple):
  """What became of one call."""

  kind: str  # 'accepted', 'refused', or one of FINDINGS
  text: str  # the refusal, or what was found
  seconds: float
  value: Any = None  # what an accepted call returned


class Hang(BaseException):
  """Raised in a call that takes too long; nothing that catches exceptions catches it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
  """Ends what runs inside after so many seconds."""

  def stop(*_):
    raise Hang

  before = signal.signal(signal.SIGALRM, stop)
  signal.setitimer(signal.ITIMER_REAL, seconds, 5)  # again, should it wait for a thread then
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def peak() -> int:
  """Returns the most bytes that the process ever held."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
    1 if sys.platform == 'darwin' else 1024
  )


def outcome(
  call: Callable[[], Any], *, refusals: tuple = (ValueError, OSError), hang: float = HANG
) -> Outcome:
  """Calls, and says what became of it.

  Args:
    call: returns an exit status (2 after one line on stderr is a refusal), or anything else.
    refusals: exceptions that are shown as one line by whoever calls.
    hang: seconds.

  Returns:
    The outcome; a refusal of several lines, a warning on stderr and much memory are findings.
  """
  start, before = time.monotonic(), peak()
  out, err = io.StringIO(), io.StringIO()
  value, kind, text = None, 'accepted', ''
  with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
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
      where = traceback.extract_tb(error.__traceback__)[-1]
      text = (
        f'{type(error).__name__}: {str(error)[:300]} ({Path(where.filename).name}:{where.lineno})'
      )
      kind = 'traceback'
  if kind == 'accepted' and err.getvalue() and not err.getvalue().startswith('WARNING'):
    kind, text = 'several lines', err.getvalue()
  if kind == 'refused' and (len(text.strip().splitlines()) != 1 or len(text) > 5000):
    kind = 'several lines'
  if (grown := peak() - before) > MEMORY:
    kind, text = 'memory', f'{grown >> 20} MiB more; {kind}: {text}'
    gc.collect()
  return Outcome(kind, text.strip(), time.monotonic() - start, value)


class Tally:
  """Counts outcomes, and keeps the findings."""

  def __init__(self):
    self.counts: Counter[str] = Counter()
    self.found: list[str] = []
    self.slowest = (0.0, '')
    self.began = time.monotonic()

  def add(self, what: str, done: Outcome) -> None:
    """Takes one outcome of what is described."""
    self.counts[done.kind] += 1
    self.slowest = max(self.slowest, (done.seconds, what))
    if done.kind in FINDINGS:
      self.found.append(f'{done.kind}: {what[:200]!r}: {done.text[:400]!r}')

  def report(self, title: str) -> list[str]:
    """Returns the counts and, below them, every finding."""
    counts = ', '.join(f'{n} {kind}' for kind, n in self.counts.most_common())
    zeros = ', '.join(f'0 {kind}' for kind in FINDINGS if not self.counts[kind])
    return [
      f'{title}: {sum(self.counts.values())} in {time.monotonic() - self.began:.0f} s: {counts}'
      + (f'; {zeros}' if zeros else ''),
      f'slowest: {self.slowest[0]:.1f} s, {self.slowest[1][:100]!r}',
      *self.found,
    ]


def names(text: str, words: Sequence[str]) -> bool:
  """Says whether a refusal names what was given: one of these words, or the beginning of one."""
  return any(word and word[:20] in text for word in words)
