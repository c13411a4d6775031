"""What a run shows: bars on a terminal or in a notebook, lines elsewhere, a table at the end."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
  BarColumn,
  MofNCompleteColumn,
  ProgressColumn,
  TaskID,
  TextColumn,
  TimeRemainingColumn,
)
from rich.text import Text

from fedjax_syn.core import texts
from fedjax_syn.runs import result_texts
from fedjax_syn.runs.display import Display, moves

PLAIN_SECONDS = 10.0


class Reporter:
  """Says nothing: processes other than the first, and calls from Python."""

  def say(self, text: str) -> None:
    """Shows one line."""

  def read(self, text: str) -> None:
    """Shows what data were read, before a run of its own; not between a table's cells."""

  def doing(self, text: str) -> None:
    """Shows what is being done, with its seconds, until the next is shown."""

  def compiling(self, program: str) -> None:
    """Shows that a program is compiled and runs for the first time, until the next is shown."""

  def begin(self, label: str, rounds: int, done: int) -> None:
    """Starts one seed of one algorithm, `done` of `rounds` being done already."""

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    """Shows how many rounds are done, and the accuracy if the report has one."""

  def server_work(self, report: Mapping[str, float]) -> None:
    """Shows how far the work between rounds is."""

  def end(self) -> None:
    """Ends what `begin` started."""

  def summary(
    self, rows: Sequence[tuple[str, Mapping[str, Any]]], folder: Path, note: str = ''
  ) -> None:
    """Shows the results, and a note on them."""

  def close(self) -> None:
    """Ends the display, whatever comes after it."""


class Steps:
  """Tells a reporter what a loop does: what is done for the first time is compiled before."""

  def __init__(self, show: Reporter):
    """Knows no program."""
    self.show, self.compiled = show, set[str]()

  def __call__(self, text: str, program: str = '') -> None:
    """Tells what begins now.

    Args:
      text: what is done.
      program: the compiled program that does it; '' for one of little size.
    """
    if program in self.compiled or not program:
      self.show.doing(text)
    else:
      self.compiled.add(program)
      self.show.compiling(program)


class Plain(Reporter):
  """Lines for logs and pipes, at most one in `PLAIN_SECONDS` while training."""

  def __init__(self, console: Console):
    """Writes to a console."""
    self.console = console
    self.label, self.total, self.done = '', 0, 0
    self.began = self.shown = time.monotonic()
    # Rounds done, and when, as rounds were first told of.
    self.first: tuple[int, float] | None = None
    self.accuracy = ''

  def say(self, text: str) -> None:
    text = texts.printable(text)
    self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

  def read(self, text: str) -> None:
    self.say(text)

  def compiling(self, program: str) -> None:
    self.say(f'{self.label}: compiling {program}')

  def begin(self, label: str, rounds: int, done: int) -> None:
    self.label, self.total, self.first, self.done = label, rounds, None, done
    self.began = self.shown = time.monotonic()
    self.say(f'{label}: {_going_on(done, rounds) if done else f"{rounds} rounds"}')

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    self.done = done
    self.first = self.first or (done, time.monotonic())  # what was compiled before is not pace
    self.accuracy = _accuracy(report) or self.accuracy
    if self._time_to_speak():
      self.say(f'{self.label}: round {done} of {self.total}{self.accuracy}{self._pace(done)}')

  def _pace(self, done: int) -> str:
    first, when = self.first or (done, 0.0)
    rate = (done - first) / max(time.monotonic() - when, 1e-9)
    left = (self.total - done) / rate if rate else 0
    return f', {rate:.3g} rounds/s, {_duration(left)} left' if rate else ''

  def server_work(self, report: Mapping[str, float]) -> None:
    if report and self._time_to_speak():
      values = ', '.join(f'{name} {value:.4g}' for name, value in report.items())
      self.say(f'{self.label}: after round {self.done}: {values}')

  def _time_to_speak(self) -> bool:
    now = time.monotonic()
    if now - self.shown < PLAIN_SECONDS:
      return False
    self.shown = now
    return True

  def end(self) -> None:
    took = _duration(time.monotonic() - self.began)
    self.say(f'{self.label}: round {self.done} of {self.total}{self.accuracy}, after {took}')

  def summary(
    self, rows: Sequence[tuple[str, Mapping[str, Any]]], folder: Path, note: str = ''
  ) -> None:
    self.console.print(result_texts.summary_panel(rows, folder, note))


class Bar(Plain):
  """A bar of rounds, one of iterations during work between rounds, and a line of what is done."""

  def __init__(self, console: Console):
    """Shows nothing yet."""
    super().__init__(console)
    self.progress = self._new()

  def _new(self) -> Display:
    self.inner: TaskID | None = None
    return Display(
      TextColumn('{task.description}', markup=False),
      BarColumn(),
      MofNCompleteColumn(),
      _Rate(),
      TimeRemainingColumn(),
      TextColumn('{task.fields[note]}', markup=False),
      console=self.console,
    )

  def doing(self, text: str) -> None:
    self.progress.tell(text)
    self.progress.start()

  def compiling(self, program: str) -> None:
    self.doing(f'compiling {program}')

  def begin(self, label: str, rounds: int, done: int) -> None:
    if done:
      self.say(f'{label}: {_going_on(done, rounds)}')
    name = texts.printable(label)
    self.task = self.progress.add_task(name, total=rounds, completed=done, note='')
    self.progress.start()

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    self.accuracy = _accuracy(report) or self.accuracy
    self.progress.update(self.task, completed=done, note=self.accuracy.lstrip(', '))
    self._end_inner()

  def server_work(self, report: Mapping[str, float]) -> None:
    named = {name.rpartition('/')[2]: value for name, value in report.items()}
    if self.inner is None:
      name = next(iter(report), 'synthesis').partition('/')[0]
      self.inner = self.progress.add_task(name, total=named.get('iterations'), note='')
    note = f'loss {named["loss"]:.4g}' if 'loss' in named else ''
    self.progress.update(self.inner, completed=named.get('iteration', 0), note=note)

  def _end_inner(self) -> None:
    if self.inner is not None:
      self.progress.remove_task(self.inner)
      self.inner = None

  def end(self) -> None:
    self._end_inner()
    self.accuracy = ''
    self.close()

  def summary(
    self, rows: Sequence[tuple[str, Mapping[str, Any]]], folder: Path, note: str = ''
  ) -> None:
    self.close()
    super().summary(rows, folder, note)

  def close(self) -> None:
    """Leaves the bars where they are; what follows has others."""
    self.progress.stop()
    self.progress = self._new()


class _Rate(ProgressColumn):
  """Rounds or iterations a second."""

  def render(self, task) -> Text:
    return Text(f'{task.speed:.3g}/s' if task.speed else '')


def make(write: bool = True) -> Reporter:
  """Returns a bar on a terminal, lines elsewhere, and silence in all processes but the first."""
  if not write:
    return Reporter()
  texts.forgive()
  console = Console(emoji=False)
  return Bar(console) if moves(console) else Plain(Console(width=110, emoji=False))


def of_python(wanted: bool) -> Reporter:
  """Returns a bar on a terminal and in a notebook, and silence elsewhere: for calls from Python."""
  show = make(wanted)
  return show if isinstance(show, Bar) else Reporter()


def label(algorithm: str, seeds: Sequence[int], all_seeds: Sequence[int]) -> str:
  """Says what is at work: 'dynafed, seed 1 (2 of 3)'.

  Args:
    algorithm: its word.
    seeds: those that are trained side by side.
    all_seeds: of the run.
  """
  if len(seeds) > 1:
    return f'{algorithm}, seeds {", ".join(map(str, seeds))} side by side'
  of = len(all_seeds)
  several = f' ({all_seeds.index(seeds[0]) + 1} of {of})' if of > 1 else ''
  return f'{algorithm}, seed {seeds[0]}{several}'


def _going_on(done: int, rounds: int) -> str:
  return f'going on from round {done} of {rounds}'


def _accuracy(report: Mapping[str, float]) -> str:
  return f', test accuracy {report["test/accuracy"]:.4f}' if 'test/accuracy' in report else ''


def _duration(seconds: float) -> str:
  minutes, rest = divmod(int(seconds), 60)
  return f'{minutes // 60}:{minutes % 60:02}:{rest:02}' if minutes else f'{seconds:.1f} s'
