"""The outcome of a call: accepted, refused in one line, or a finding."""

import contextlib
import io
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Outcome(NamedTuple):
  """The outcome of one call."""

  kind: str
  """'accepted', 'refused', or a finding: 'traceback', 'hang', 'several lines' or 'silent'."""
  text: str
  """The refusal, or what is wrong."""
  value: Any = None
  """Of an accepted call."""


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


def outcome(call: Callable[[], Any], hang: float) -> Outcome:
  """Calls a function and classifies what happens.

  Args:
    call: returns anything; exit status 2 after one line on stderr is a refusal, as is an exception
      that callers show as one line.
    hang: seconds.

  Returns:
    The outcome; a refusal of several lines and a warning on stderr are findings.
  """
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
    except (ValueError, OSError) as error:
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
  return Outcome(kind, text.strip(), value)
