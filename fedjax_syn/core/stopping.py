"""How a run is asked to stop, how a launcher hears of it at once, and how its process ends.

A run in Python (`stoppable`) takes the first SIGINT or SIGTERM as a request to stop after the step
at hand; a second one acts as if the run were not there. A launcher (`watch`, `run`) hears of
signals in a thread of its own: its main thread may be inside a compiler for a minute, and Python
calls handlers only between two of its instructions. This module is a launcher's first import: it
needs no other of the package.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from fedjax_syn.core import exit_status, failures, standard_streams

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ASKED = 'stopping after this step; once more to stop now'
GOES_ON = 'interrupted ({}); the same command continues from what was saved'
BACKGROUND = 'fedjax_syn background'  # begins the names of threads that may be inside a compiler
CURSOR = '\x1b[?25h'  # shows it: a bar of rich hides it
FLUSH_SECONDS = 0.5


class StopRequest:
  """Whether the run was asked to stop, and by what; as a signal's handler it takes one request."""

  def __init__(self):
    self.signal = ''  # its name, or another reason
    self.unsaved = False  # leaving now would lose work that a wait of seconds can save
    self.before: dict[int, Any] = {}  # handlers by signal

  def __bool__(self) -> bool:
    return bool(self.signal)

  def __call__(self, number: int, frame: Any = None) -> None:
    """Takes one request, as the handler of a signal."""
    self.signal = signal.Signals(number).name
    say(ASKED)
    self.restore()

  def pause(self) -> None:
    """States that all is saved and something follows: a launcher that heard a signal ends here."""
    self.unsaved = False

  def restore(self) -> None:
    """Puts the handlers back that there were before."""
    for number, handler in self.before.items():
      signal.signal(number, handler)


@contextlib.contextmanager
def stoppable() -> Iterator[StopRequest]:
  """Turns the first SIGTERM or SIGINT into a request; a second one acts as if this were not here.

  Those that are nested share one request: whoever runs several runs begins no other. Under a
  launcher's watch the request is the watch's.
  """
  outer = signal.getsignal(signal.SIGTERM)
  if isinstance(outer, Watch):
    outer.install()  # JAX's own handler may have been put over it by a run of several processes
    yield outer.request
  elif isinstance(outer, StopRequest):
    yield outer
  elif threading.current_thread() is not threading.main_thread():
    yield StopRequest()  # only the main thread may set handlers
  else:
    request = StopRequest()
    request.before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
      signal.signal(number, request)
    try:
      yield request
    finally:
      request.restore()


class _Heard(StopRequest):
  """The request of a watch."""

  def __init__(self, watch: 'Watch'):
    super().__init__()
    self.watch = watch

  def pause(self) -> None:
    with self.watch.lock:  # a signal that is being taken has been answered after this
      super().pause()
      asked = self.watch.heard and self.watch.alone
    if asked:
      say(GOES_ON.format(self.signal))
      sys.exit(exit_status.INTERRUPTED)


class Watch:
  """A launcher's handler of signals; it acts in its own thread, also during a compilation."""

  def __init__(self):
    self.request = _Heard(self)
    self.flags_read = False
    self.alone = True  # whether no other process would wait for this one
    self.heard = 0
    self.lock = threading.Lock()  # held while one signal is taken

  def __call__(self, number: int, frame: Any = None) -> None:
    """Does nothing as Python's handler: the thread hears of the signal by itself, and sooner."""

  def install(self) -> None:
    """Sets the handlers; only the main thread may."""
    if threading.current_thread() is threading.main_thread():
      for number in SIGNALS:
        signal.signal(number, self)

  def take(self, number: int) -> None:
    """Acts on one signal: asks the run to stop if that saves something, else ends the process."""
    with self.lock:
      self._take(number)

  def _take(self, number: int) -> None:
    self.heard += 1
    name = signal.Signals(number).name
    if not self.flags_read:
      leave(exit_status.ABORTED, f'interrupted ({name})')
    elif self.heard > 1 or (self.alone and not self.request.unsaved):
      leave(exit_status.INTERRUPTED, GOES_ON.format(name))
    else:
      say(ASKED)  # before the run may answer
      self.request.signal = name


def watch() -> None:
  """Hears of SIGINT and SIGTERM from now on: a launcher's first statement.

  Until its flags are read (`flags_read`) a signal ends the process with one line and 130. After
  that it is 75: at once where nothing is unsaved, else after the step at hand, and at once at a
  second signal.
  """
  heard = Watch()
  reading, writing = os.pipe()
  os.set_blocking(writing, False)

  def listen():
    while number := os.read(reading, 1):
      if number[0] in SIGNALS:
        heard.take(number[0])

  def forked():  # a worker of another library: the pipe is its parent's
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
      signal.signal(number, signal.SIG_DFL)

  threading.Thread(target=listen, daemon=True, name='signals').start()
  signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
  heard.install()
  os.register_at_fork(after_in_child=forked)
  standard_streams.outlive_readers()


def watched() -> Watch | None:
  """Returns the watch of this process's launcher; None without one."""
  handler = signal.getsignal(signal.SIGTERM)
  return handler if isinstance(handler, Watch) else None


def flags_read(alone: bool = True) -> None:
  """States that a launcher whose command continues where it was stopped has read its flags.

  Args:
    alone: whether no other process trains with this one.
  """
  if heard := watched():
    heard.flags_read, heard.alone = True, alone


def run(main: Callable[[], Any], goes_on: bool = False) -> NoReturn:
  """Calls a launcher's main function and ends the process with its status.

  Args:
    main: returns the exit status, or raises SystemExit.
    goes_on: whether the same command continues from what was saved; `main` calls `flags_read`.
      If not, a signal does from here on what it does to any Python program, so that what is half
      done is tidied up.
  """
  if not goes_on and watched():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    status = main()
  except SystemExit as error:
    status = error.code
    if isinstance(status, str):
      print(status, file=sys.stderr)
      status = 1
  except KeyboardInterrupt:
    say('interrupted')
    status = exit_status.ABORTED
  except BaseException as error:
    if full := failures.no_space(error):
      say(full)
      status = exit_status.DISK_FULL
    else:
      sys.excepthook(*sys.exc_info())
      status = 1
  heard = watched()
  end(exit_status.INTERRUPTED if heard and heard.heard and not status else status or 0)


def end(status: int) -> NoReturn:
  """Ends the process from its main thread; a program that is being compiled is not waited for.

  Python 3.11 ends a thread that wants the interpreter after it has begun to end; inside a compiler
  that is a crash.
  """
  # JAX's own end would wait for the process that is gone, and abort; trackers' own would write to a
  # full disk.
  if status in (exit_status.PEER_LOST, exit_status.DISK_FULL):
    leave(status)
  compiling = any(thread.name.startswith(BACKGROUND) for thread in threading.enumerate())
  if not compiling and not watched():
    sys.exit(status)
  if not compiling:
    threading._shutdown()  # type: ignore[attr-defined]
  # Under a watch too: Python's own end would give signals back to the system, and one would kill a
  # finished run.
  if wait := getattr(sys.modules.get('fedjax_syn.core.background'), 'wait', None):
    atexit.unregister(wait)
  atexit._run_exitfuncs()  # JAX's among them, which leaves the other processes of a run
  leave(status)


def leave(status: int, text: str = '') -> NoReturn:
  """Ends the process at once, from any thread; files stay as after a kill."""
  if text:
    say(text)

  def flush():
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(Exception):
        stream.flush()

  flushing = threading.Thread(target=flush, daemon=True)  # another thread may hold a stream's lock
  flushing.start()
  flushing.join(FLUSH_SECONDS)
  with contextlib.suppress(OSError):
    if os.isatty(1):
      os.write(1, CURSOR.encode())
  os._exit(status)


def say(text: str) -> None:
  """Writes a line to stderr from any thread or handler: it takes no lock."""
  with contextlib.suppress(OSError):
    start = '\n' if os.isatty(2) else ''  # below a bar, or the ^C of a terminal
    os.write(2, f'{start}{text}\n'.encode())
