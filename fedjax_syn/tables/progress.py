"""Progress over the cells of a table: two bars on a terminal, one line per cell elsewhere."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from fedjax_syn.core import texts
from fedjax_syn.runs import progress
from fedjax_syn.runs.display import Display, Heartbeat, moves


class Watch(progress.Reporter):
  """Counts cells and reports on their runs, a line per cell: for pipes and logs."""

  def __init__(self, total: int, console: Console):
    """Begins.

    Args:
      total: runs in all.
      console: what to write to.
    """
    self.total, self.number, self.console = total, 0, console
    self.label, self.heartbeat = '', Heartbeat(self.say)

  def __enter__(self) -> 'Watch':
    return self

  def __exit__(self, *_) -> None:
    self.heartbeat.stop()

  def say(self, text: str) -> None:
    """Shows one line."""
    self.heartbeat.heard()
    text = texts.printable(text)
    self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

  def start(self, label: str, rounds: int) -> None:
    """Is told that a run begins."""
    self.label = label

  def doing(self, text: str) -> None:
    """Shows what is being done, if it takes long."""
    self.heartbeat.tell(f'{self.label}: {text}')

  def compiling(self, program: str) -> None:
    """Shows what is compiled, if it takes long."""
    self.doing(f'compiling {program}')

  def skip(self) -> None:
    """Counts a run that was finished before or is not begun."""
    self.number += 1

  def done(self, label: str, outcome: str) -> None:
    """Shows what a run came to."""
    self.number += 1
    self.heartbeat.stop()
    self.say(f'[{self.number}/{self.total}] {label}: {outcome}')


class Bars(Watch):
  """A bar of cells, and one of the rounds of the cell at work."""

  def __enter__(self) -> 'Watch':
    self.bars = Display(
      TextColumn('{task.description}', markup=False),
      BarColumn(),
      MofNCompleteColumn(),
      TimeElapsedColumn(),
      TextColumn('{task.fields[note]}', markup=False),
      console=self.console,
    )
    self.cells = self.bars.add_task('cells', total=self.total, note='')
    self.rounds_bar = self.bars.add_task('', total=None, note='')
    self.bars.start()
    return self

  def __exit__(self, *_) -> None:
    self.bars.stop()

  def start(self, label: str, rounds: int) -> None:
    """Shows the run's bar."""
    self.bars.reset(self.rounds_bar, total=rounds, description=label, note='')

  def doing(self, text: str) -> None:
    """Shows what is being done, with its seconds."""
    self.bars.tell(text)

  def compiling(self, program: str) -> None:
    """Shows what is compiled."""
    self.bars.tell(f'compiling {program}')

  def begin(self, label: str, rounds: int, done: int) -> None:
    """Shows the rounds that are done already."""
    self.bars.update(self.rounds_bar, completed=done)

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    """Shows the rounds that are done, and the accuracy."""
    self.bars.update(self.rounds_bar, completed=done)
    if 'test/accuracy' in report:
      note = f'test accuracy {report["test/accuracy"]:.4f}'
      self.bars.update(self.rounds_bar, note=note)

  def server_work(self, report: Mapping[str, float]) -> None:
    """Shows the numbers of the work between rounds."""
    note = ', '.join(f'{name.rpartition("/")[2]} {value:.4g}' for name, value in report.items())
    self.bars.update(self.rounds_bar, note=note)

  def skip(self) -> None:
    """Moves the bar of cells on."""
    super().skip()
    self.bars.update(self.cells, completed=self.number)

  def done(self, label: str, outcome: str) -> None:
    """Shows what a run came to, and moves the bar of cells on."""
    super().done(label, outcome)
    self.bars.update(self.cells, completed=self.number)


def make(total: int) -> Watch:
  """Returns bars on a terminal, and lines elsewhere."""
  texts.forgive()
  console = Console(emoji=False)
  plain = Console(width=110, emoji=False)
  return Bars(total, console) if moves(console) else Watch(total, plain)
