"""A run's results as a panel, and a line on each seed that diverged or collapsed."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedjax_syn.core import texts
from fedjax_syn.runs import metrics


def summary_panel(
  rows: Sequence[tuple[str, Mapping[str, Any]]], folder: Path, note: str = '', dataset: str = ''
) -> Panel:
  """Lays out the results of a run and of what it is compared with.

  Args:
    rows: label and summary of each.
    folder: where the files lie.
    note: on the results, a line.
    dataset: its title; '' is its name in the config.

  Returns:
    A panel for a rich console.
  """
  first = rows[0][1]
  table = Table(box=None, padding=(0, 2, 0, 0))
  every, mean = first['eval_every'], f'mean of last {metrics.rounds_in_mean([first["rounds"]])}'
  best = 'best' if every == 1 else f'best of every {every} rounds'
  for name in ('test accuracy', 'last', mean, best, 'seconds'):
    table.add_column(name, overflow='fold')
  for label, summary in rows:
    values = [_statistics(summary['test_accuracy'][k]) for k in ('last', 'mean_last_5', 'best')]
    table.add_row(_text(label), *values, f'{summary["seconds"]["total"]:.1f}')
  notes = []
  for label, summary in rows:
    for seed, status in summary['status'].items():
      if status['status'] == 'diverged':
        notes.append(_text(f'{label}: {diverged_text(seed, status)}'))
      elif status['status'] == 'stopped':
        notes.append(_text(f'{label}: {stopped_text(seed, status)}'))
      elif 'collapsed_round' in status:
        notes.append(_text(f'{label}: {collapsed_text(seed, status["collapsed_round"])}'))
    if any(empty := summary.get('empty_rounds', ())):
      notes.append(
        _text(f'{label}: rounds without a sample, by seed: {", ".join(map(str, empty))}')
      )
    if 'selected' in summary:
      reached = _statistics(summary['selected']['test_accuracy'])
      notes.append(
        _text(f'{label}: test accuracy in the round selected on held-out rows {reached}')
      )
    if 'test/accuracy' in summary.get('personal', {}):
      own = _statistics(summary['personal']['test/accuracy'])
      notes.append(_text(f'{label}: accuracy of personal models {own}'))
    if 'test/accuracy' in summary.get('unseen', {}):
      unseen, worst = (
        _statistics(summary['unseen'][f'test/accuracy{end}']) for end in ('', '_worst_decile')
      )
      notes.append(_text(f'{label}: accuracy on unseen clients {unseen}, worst tenth {worst}'))
    if summary.get('epsilon') is not None:
      notes.append(_text(f'{label}: {epsilon_text(summary)}'))
  if note:
    notes.append(_text(note))
  parts = ', '.join(f'{k} {v:.1f}' for k, v in first['seconds'].items() if k != 'total' and v)
  whose = f' of {rows[0][0]}' if len(rows) > 1 else ''
  notes.append(_text(f'seconds{whose}: {parts}'))
  notes.append(_text(f'{folder}/: summary.json, metrics.jsonl, figures/, checkpoints/'))
  notes.append(_text(f'report: python launch/report.py {shlex.quote(str(folder))}'))
  rounds, seeds = first['rounds'], ', '.join(map(str, first['seeds']))
  which = f'seed{"s" * (len(first["seeds"]) > 1)} {seeds}'
  title = f'{dataset or first["dataset"]}, {rounds} round{"s" * (rounds > 1)}, {which}'
  return Panel(Group(table, *notes), title=_text(title), expand=False)


def _text(text: str) -> Text:
  return Text(texts.printable(text), overflow='fold')


def diverged_text(seed: int | str, status: Mapping[str, Any]) -> str:
  """States in one line where a seed diverged, and from where one could continue."""
  number = status.get('client')
  client = '' if number is None else f', client {status.get("client_name", number)}'
  reason = f' ({status["reason"]})' if 'reason' in status else ''
  good = status.get('last_good_checkpoint') or 'none was saved yet'
  return (
    f'seed {seed} diverged in round {status["round"]}{client}{reason}; last good checkpoint: {good}'
  )


def stopped_text(seed: int | str, status: Mapping[str, Any]) -> str:
  """States in one line when a seed ended early, and where its best model is."""
  return (
    f'seed {seed} stopped early, after round {status["round"]}; its best round on held-out rows:'
    f' {status["best_round"]}, kept as best/seed_{seed}.npz'
  )


def epsilon_text(summary: Mapping[str, Any]) -> str:
  """States in one line what epsilon a run states, and of what."""
  private, seeds = summary['privacy'], len(summary['seeds'])
  at = f'at delta {private["delta"]:g}, for one {private["unit"]}'
  if seeds == 1:
    of = ''
  elif 'epsilon_per_seed' in summary:
    of = f' over {seeds} seeds ({summary["epsilon_per_seed"]:.3f} each)'
  else:  # written before seeds were counted
    of = f' of one of {seeds} seeds, which together reveal more'
  return f'epsilon {summary["epsilon"]:.3f}{of} {at}'


def collapsed_text(seed: int | str, since: int) -> str:
  """States in one line that a model gives all test rows one class."""
  return f'seed {seed}: since round {since} the model gives all test rows one class'


def _statistics(value: Mapping[str, Any]) -> str:
  if value['mean'] is None:
    return ', '.join('-' if v is None else f'{v:.4f}' for v in value['per_seed'])
  return f'{value["mean"]:.4f}' + ('' if value['std'] is None else f' ± {value["std"]:.4f}')
