"""Bars that move in a terminal or a notebook, and below them what is done and for how long."""

import contextlib
import io
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.text import Text

from fedjax_syn.core import texts

SHOWN_AFTER = 0.5  # seconds; what takes less would flicker
NOTEBOOK_SECONDS = 0.5  # between two pictures in a notebook
NOTEBOOK_WIDTH = 100
LINE_SECONDS = 20.0  # of one activity, before a pipe or a log gets a line that names it


class Display(Progress):
  """Bars of tasks, and a line of what is being done; it needs no widgets in a notebook."""

  def __init__(self, *columns: ProgressColumn, console: Console, redirect: bool = True):
    """Prepares a display; `start` shows it.

    Args:
      columns: of a bar.
      console: a terminal's or a notebook's.
      redirect: whether what others print meanwhile is put above it.
    """
    self.doing, self.since = '', 0.0
    self.ended: threading.Event | None = None  # of a notebook, while it is shown
    self.placed = False  # whether a notebook has a place for it
    errors = sys.stderr is not None and sys.stderr.isatty()  # else they go where they are sent
    super().__init__(
      *columns,
      console=console,
      redirect_stdout=redirect,
      redirect_stderr=redirect and errors,
    )

  @property
  def shown(self) -> bool:
    """Whether it is on the screen."""
    return self.live.is_started or self.ended is not None

  def tell(self, doing: str) -> None:
    """States what begins now; '' for nothing."""
    self.doing, self.since = texts.printable(doing), time.monotonic()

  def get_renderables(self) -> Iterable[RenderableType]:
    """Yields the bars, and the line below them."""
    if self.tasks:
      yield self.make_tasks_table(self.tasks)
    waited = time.monotonic() - self.since
    if self.doing and waited >= SHOWN_AFTER:
      yield Text(f'{self.doing}, {waited:.0f} s', style='dim', overflow='ellipsis', no_wrap=True)

  def start(self) -> None:
    """Shows it until `stop`."""
    if self.shown:
      return
    if not self.console.is_jupyter:
      super().start()
      return
    self.ended, self.name, self.placed = threading.Event(), uuid.uuid4().hex, False
    self._show()
    threading.Thread(target=self._watch, args=(self.ended,), daemon=True).start()

  def stop(self) -> None:
    """Leaves the bars as they are, and takes the line away."""
    self.doing = ''
    if self.ended is not None:
      self.ended.set()
      self.ended = None
      self._show()
    elif self.live.is_started:
      self.live.stop()

  def _watch(self, ended: threading.Event) -> None:
    while not ended.wait(NOTEBOOK_SECONDS):
      self._show()

  def _show(self) -> None:
    """Shows text and no HTML: it looks alike in every notebook's viewer."""
    from IPython.display import display

    picture = Console(
      file=io.StringIO(), width=NOTEBOOK_WIDTH, force_jupyter=False, color_system=None, emoji=False
    )
    picture.print(self.get_renderable())
    file: Any = picture.file
    text = file.getvalue().rstrip()
    if text or self.placed:  # what was short leaves no empty line
      display({'text/plain': text or ' '}, raw=True, display_id=self.name, update=self.placed)
      self.placed = True


class Heartbeat:
  """Prints a line at intervals while something takes long, in pipes and logs."""

  def __init__(self, say: Callable[[str], None], every: float = LINE_SECONDS):
    """Prints nothing yet.

    Args:
      say: shows a line.
      every: seconds without a line before one is shown. After a minute the intervals grow: a round
        of an hour gives a dozen lines.
    """
    self.say, self.every = say, every
    self.doing, self.since, self.last = '', 0.0, 0.0
    self.ended: threading.Event | None = None  # set when the display ends

  def tell(self, doing: str) -> None:
    """States what begins now."""
    self.doing, self.since = doing, time.monotonic()
    self.last = self.since
    if self.ended is None:
      self.ended = threading.Event()
      threading.Thread(target=self._watch, args=(self.ended,), daemon=True).start()

  def heard(self) -> None:
    """Is told of a line that was shown."""
    self.last = time.monotonic()

  def due(self) -> float:
    """Returns the seconds until the next line; 0 or less if it is due."""
    now = time.monotonic()
    return self.last + max(self.every, (self.last - self.since) / 3) - now

  def stop(self) -> None:
    """Ends it, until `tell` is called again."""
    if self.ended is not None:
      self.ended.set()
      self.ended = None

  def beat(self) -> None:
    """Shows a line if it is due."""
    if self.due() <= 0:
      self.say(f'{self.doing}, {time.monotonic() - self.since:.0f} s so far')
      self.last = time.monotonic()

  def _watch(self, ended: threading.Event) -> None:
    while not ended.wait(max(self.due(), 0.01)):
      self.beat()


def moves(console: Console) -> bool:
  """Returns whether bars can move on a console."""
  return console.is_terminal or console.is_jupyter


@contextlib.contextmanager
def loading(what: str = 'loading JAX') -> Iterator[None]:
  """States what is being loaded, before imports that take seconds; in a pipe, if they take long."""
  texts.forgive()
  console = Console(emoji=False)
  if not moves(console):
    heartbeat = Heartbeat(lambda text: console.print(text, highlight=False, soft_wrap=True))
    heartbeat.tell(what)
    try:
      yield
    finally:
      heartbeat.stop()
    return
  display = Display(console=console, redirect=False)  # loggers keep the streams that they find
  display.tell(what)
  display.start()
  try:
    yield
  finally:
    display.stop()
