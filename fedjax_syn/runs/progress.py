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
)
from rich.text import Text

from fedjax_syn.core import texts
from fedjax_syn.runs import result_texts
from fedjax_syn.runs.display import Display, Heartbeat, moves
from fedjax_syn.runs.pace import Pace, duration

PLAIN_SECONDS = 10.0
COMPILED_SECONDS = 1.0  # what was compiled in less is not worth a line


class Reporter:
  """Shows nothing: for processes other than the first, and for calls from Python."""

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
    self,
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    folder: Path,
    note: str = '',
    dataset: str = '',
  ) -> None:
    """Shows the results on a data set of this title, and a note on them."""

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
    self.pace = Pace()
    self.accuracy = ''
    self.compiled_since: float | None = None  # while a program is compiled and runs first
    self.heartbeat = Heartbeat(self.say)

  def say(self, text: str) -> None:
    self.heartbeat.heard()
    text = texts.printable(text)
    self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

  def read(self, text: str) -> None:
    self.say(text)

  def doing(self, text: str) -> None:
    self._compiled()
    self.heartbeat.tell(self._of_label(text))

  def compiling(self, program: str) -> None:
    self._compiled()
    self.pace = Pace()  # another program has a pace of its own
    self.say(text := self._of_label(f'compiling {program}'))
    self.compiled_since = time.monotonic()
    self.heartbeat.tell(text)

  def _of_label(self, text: str) -> str:
    return f'{self.label}: {text}' if self.label else text

  def _compiled(self) -> None:
    """States how long the last program took to compile and run once."""
    since, self.compiled_since = self.compiled_since, None
    if since is not None and (took := time.monotonic() - since) >= COMPILED_SECONDS:
      self.say(self._of_label(f'compiled and run for the first time in {duration(took)}'))

  def begin(self, label: str, rounds: int, done: int) -> None:
    self.label, self.total, self.done, self.pace = label, rounds, done, Pace()
    self.began = self.shown = time.monotonic()
    self.say(f'{label}: {_going_on(done, rounds) if done else f"{rounds} rounds"}')

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    self._compiled()
    self.done = done
    self.pace.reached(done)
    self.accuracy = _accuracy(report) or self.accuracy
    if self._time_to_speak():
      rate = self.pace.per_second()
      left = f', {rate:.3g} rounds/s, {duration((self.total - done) / rate)} left' if rate else ''
      self.say(f'{self.label}: round {done} of {self.total}{self.accuracy}{left}')

  def server_work(self, report: Mapping[str, float]) -> None:
    self._compiled()
    self.pace.pause()
    if report and self._time_to_speak():
      self.say(f'{self.label}: {_work(report, self.done)}')

  def _time_to_speak(self) -> bool:
    now = time.monotonic()
    if now - self.shown < PLAIN_SECONDS:
      return False
    self.shown = now
    return True

  def end(self) -> None:
    took = duration(time.monotonic() - self.began)
    self.say(f'{self.label}: round {self.done} of {self.total}{self.accuracy}, after {took}')
    self.label = ''  # what follows may be the next method's

  def summary(
    self,
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    folder: Path,
    note: str = '',
    dataset: str = '',
  ) -> None:
    self.heartbeat.stop()
    self.console.print(result_texts.summary_panel(rows, folder, note, dataset))

  def close(self) -> None:
    """Ends the lines of what takes long."""
    self.heartbeat.stop()


class Bar(Plain):
  """A bar of rounds, one of iterations during work between rounds, and a line of what is done."""

  def __init__(self, console: Console):
    """Shows nothing yet."""
    super().__init__(console)
    self.progress = self._new()

  def _new(self) -> Display:
    self.inner: TaskID | None = None
    self.inner_pace = Pace()
    return Display(
      TextColumn('{task.description}', markup=False),
      BarColumn(),
      MofNCompleteColumn(),
      _Rate(),
      _Left(),
      TextColumn('{task.fields[note]}', markup=False),
      console=self.console,
    )

  def doing(self, text: str) -> None:
    self.progress.tell(text)
    self.progress.start()

  def compiling(self, program: str) -> None:
    self.pace, self.inner_pace = Pace(), Pace()  # another program has a pace of its own
    self.doing(f'compiling {program}')

  def begin(self, label: str, rounds: int, done: int) -> None:
    self.pace = Pace()
    if done:
      self.say(f'{label}: {_going_on(done, rounds)}')
    name = texts.printable(label)
    self.task = self.progress.add_task(name, total=rounds, completed=done, note='', rate=0.0)
    self.progress.start()

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    self.accuracy = _accuracy(report) or self.accuracy
    self.pace.reached(done)
    note, rate = self.accuracy.lstrip(', '), self.pace.per_second()
    self.progress.update(self.task, completed=done, note=note, rate=rate)
    self._end_inner()

  def server_work(self, report: Mapping[str, float]) -> None:
    self.pace.pause()
    named = _named(report)
    if self.inner is None:
      total, self.inner_pace = named.get('iterations'), Pace()
      self.inner = self.progress.add_task(_kind(report), total=total, note='', rate=0.0)
    done = named.get('iteration', 0)
    self.inner_pace.reached(done)
    note = f'loss {named["loss"]:.4g}' if 'loss' in named else ''
    rate = self.inner_pace.per_second()
    self.progress.update(self.inner, completed=done, note=note, rate=rate)

  def _end_inner(self) -> None:
    if self.inner is not None:
      self.progress.remove_task(self.inner)
      self.inner = None

  def end(self) -> None:
    self._end_inner()
    self.accuracy = ''
    self.close()

  def summary(
    self,
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    folder: Path,
    note: str = '',
    dataset: str = '',
  ) -> None:
    self.close()
    super().summary(rows, folder, note, dataset)

  def close(self) -> None:
    """Leaves the bars where they are; what follows has others."""
    self.progress.stop()
    self.progress = self._new()


class _Rate(ProgressColumn):
  """Rounds or iterations a second."""

  def render(self, task) -> Text:
    rate = task.fields['rate']
    return Text(f'{rate:.3g}/s' if rate else '')


class _Left(ProgressColumn):
  """The time that the rest takes at this pace; nothing while it is not known."""

  def render(self, task) -> Text:
    rate, rest = task.fields['rate'], task.remaining
    return Text(f'{duration(rest / rate)} left' if rate and rest else '')


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
  """States what is at work: 'dynafed, seed 1 (2 of 3)'.

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


def _kind(report: Mapping[str, float]) -> str:
  """Names work between rounds: 'synthesis' of 'synthesis/loss'."""
  return next(iter(report), 'synthesis').partition('/')[0]


def _named(report: Mapping[str, float]) -> dict[str, float]:
  return {name.rpartition('/')[2]: value for name, value in report.items()}


def _work(report: Mapping[str, float], round: int) -> str:
  """States the progress between rounds: 'synthesis after round 3: iteration 9 of 20, loss 0.5'."""
  named = _named(report)
  of = f' of {named.pop("iterations"):.0f}' if 'iterations' in named else ''
  done = [f'iteration {named.pop("iteration"):.0f}{of}'] if 'iteration' in named else []
  values = [f'{name.replace("_", " ")} {value:.4g}' for name, value in named.items()]
  return f'{_kind(report)} after round {round}: {", ".join(done + values)}'
