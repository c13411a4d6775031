"""What a run shows: a bar on a terminal, some lines elsewhere, a table at the end."""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import (
  BarColumn,
  MofNCompleteColumn,
  Progress,
  ProgressColumn,
  TaskID,
  TextColumn,
  TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fedjax_syn.core import texts

PLAIN_SECONDS = 10.0


class Reporter:
  """Says nothing: processes other than the first, and calls from Python."""

  def say(self, text: str) -> None:
    """Shows one line."""

  def read(self, text: str) -> None:
    """Shows what data were read, before a run of its own; not between a table's cells."""

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

  def begin(self, label: str, rounds: int, done: int) -> None:
    self.label, self.total, self.first, self.done = label, rounds, None, done
    self.began = self.shown = time.monotonic()
    self.say(
      f'{label}: {f"resuming after round {done} of {rounds}" if done else f"{rounds} rounds"}'
    )

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
    self.console.print(summary_panel(rows, folder, note))


class Bar(Plain):
  """A bar of rounds on a terminal, and one of iterations below it during work between rounds."""

  def begin(self, label: str, rounds: int, done: int) -> None:
    self.done = done
    self.progress = Progress(
      TextColumn('{task.description}', markup=False),
      BarColumn(),
      MofNCompleteColumn(),
      _Rate(),
      TimeRemainingColumn(),
      TextColumn('{task.fields[note]}', markup=False),
      console=self.console,
    )
    self.task = self.progress.add_task(
      texts.printable(label), total=rounds, completed=done, note=''
    )
    self.inner: TaskID | None = None
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
    self.progress.stop()


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
  return Bar(console) if console.is_terminal else Plain(Console(width=110, emoji=False))


def summary_panel(
  rows: Sequence[tuple[str, Mapping[str, Any]]], folder: Path, note: str = ''
) -> Panel:
  """Lays out the results of a run and of what it is compared with.

  Args:
    rows: label and summary of each.
    folder: where the files lie.
    note: on the results, a line.

  Returns:
    A panel for a rich console.
  """
  first = rows[0][1]
  table = Table(box=None, padding=(0, 2, 0, 0))
  every = first['eval_every']
  best = 'best' if every == 1 else f'best of every {every} rounds'
  for name in ('test accuracy', 'last', 'mean of last 5', best, 'seconds'):
    table.add_column(name, overflow='fold')
  for label, summary in rows:
    values = [_statistics(summary['test_accuracy'][k]) for k in ('last', 'mean_last_5', 'best')]
    table.add_row(_text(label), *values, f'{summary["seconds"]["total"]:.1f}')
  notes = []
  for label, summary in rows:
    for seed, status in summary['status'].items():
      if status['status'] == 'diverged':
        notes.append(_text(f'{label}: {diverged_text(seed, status)}'))
      elif 'collapsed_round' in status:
        notes.append(_text(f'{label}: {collapsed_text(seed, status["collapsed_round"])}'))
    if any(empty := summary.get('empty_rounds', ())):
      notes.append(
        _text(f'{label}: rounds without a sample, by seed: {", ".join(map(str, empty))}')
      )
    if 'test/accuracy' in summary.get('personal', {}):
      own = _statistics(summary['personal']['test/accuracy'])
      notes.append(_text(f'{label}: accuracy of personal models {own}'))
    if summary.get('epsilon') is not None:
      notes.append(_text(f'{label}: {epsilon_text(summary)}'))
  if note:
    notes.append(_text(note))
  parts = ', '.join(f'{k} {v:.1f}' for k, v in first['seconds'].items() if k != 'total' and v)
  notes.append(_text(f'seconds: {parts}'))
  notes.append(_text(f'{folder}/: summary.json, metrics.jsonl, figures/, checkpoints/'))
  notes.append(_text(f'on a page: python launch/report.py {shlex.quote(str(folder))}'))
  title = (
    f'{first["algorithm"]} on {first["dataset"]}, {first["rounds"]} rounds, seeds {first["seeds"]}'
  )
  return Panel(Group(table, *notes), title=_text(title), expand=False)


def _text(text: str) -> Text:
  return Text(texts.printable(text), overflow='fold')


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


def diverged_text(seed: int | str, status: Mapping[str, Any]) -> str:
  """Says in one line where a seed diverged, and from where one could go on."""
  number = status.get('client')
  client = '' if number is None else f', client {status.get("client_name", number)}'
  reason = f' ({status["reason"]})' if 'reason' in status else ''
  good = status.get('last_good_checkpoint') or 'none was saved yet'
  return (
    f'seed {seed} diverged in round {status["round"]}{client}{reason}; last good checkpoint: {good}'
  )


def epsilon_text(summary: Mapping[str, Any]) -> str:
  """Says in one line what epsilon a run states, and of what."""
  private, seeds = summary['privacy'], len(summary['seeds'])
  at = f'at delta {private["delta"]:g}, for one {private["unit"]}'
  if seeds == 1:
    of = ''
  elif 'epsilon_per_seed' in summary:
    of = f' over {seeds} seeds ({summary["epsilon_per_seed"]:.3f} each)'
  else:  # written before seeds were counted
    of = f' of one of {seeds} seeds, which together give away more'
  return f'epsilon {summary["epsilon"]:.3f}{of} {at}'


def collapsed_text(seed: int | str, since: int) -> str:
  """Says in one line that a model gives all test rows one class."""
  return f'seed {seed}: every test row has been given one class since round {since}'


def _statistics(value: Mapping[str, Any]) -> str:
  if value['mean'] is None:
    return ', '.join('-' if v is None else f'{v:.4f}' for v in value['per_seed'])
  return f'{value["mean"]:.4f}' + ('' if value['std'] is None else f' ± {value["std"]:.4f}')


def _accuracy(report: Mapping[str, float]) -> str:
  return f', test accuracy {report["test/accuracy"]:.4f}' if 'test/accuracy' in report else ''


def _duration(seconds: float) -> str:
  minutes, rest = divmod(int(seconds), 60)
  return f'{minutes // 60}:{minutes % 60:02}:{rest:02}' if minutes else f'{seconds:.1f} s'
