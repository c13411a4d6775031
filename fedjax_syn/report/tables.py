"""The tables of a report: rows of texts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.plotting.numbers import curve
from fedjax_syn.plotting.style import plain_title
from fedjax_syn.report.runs import ABSENT, Run, differences
from fedjax_syn.runs.metrics import rounds_in_mean

NONE = '–'
CURVE_ROWS = 11
"""Of the table beside the curves."""
MADE_ON = ('versions', 'devices', 'host', 'commit')
"""Parts of config.json that a result may depend on."""


class Table(NamedTuple):
  """A table with a header row; the first cell of a row is its header."""

  head: list[str]
  rows: list[list[str]]


def protocol(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
  """Returns data, model and training by name: one text, or several that say whose they are."""
  of_runs = [_protocol(run) for run in runs]
  sized = _with_parameters([texts['Model'] for texts in of_runs], runs)
  of_runs = [{**texts, 'Model': model} for texts, model in zip(of_runs, sized, strict=True)]
  out = []
  for name in of_runs[0]:
    whose: dict[str, list[str]] = {}
    for run, texts in zip(runs, of_runs, strict=True):
      whose.setdefault(texts[name], []).append(run.label)
    alike = len(whose) == 1
    out.append((name, [t if alike else f'{t} ({", ".join(who)})' for t, who in whose.items()]))
  return out


def _with_parameters(models: Sequence[str], runs: Sequence[Run]) -> list[str]:
  """Adds the number of parameters; an unfinished run has it from others of the same network."""
  counts = [(run.summary or {}).get('parameters', 0) for run in runs]
  known: dict[str, set[int]] = {}
  for model, count in zip(models, counts, strict=True):
    known.setdefault(model, set()).update({count} - {0})
  own = [
    count or (sum(known[model]) if len(known[model]) == 1 else 0)
    for model, count in zip(models, counts, strict=True)
  ]
  return [f'{m}; {n:,} parameters' if n else m for m, n in zip(models, own, strict=True)]


def _protocol(run: Run) -> dict[str, str]:
  d, get = run.stored['dataset'], lambda key: run.settings.get(key, NONE)
  rows, counts = d.get('rows', {}), run.counts
  train = rows.get('train', NONE if counts is None else counts.sum())
  partition, share = get('data.partition'), get('client.participation')
  alpha = f' (alpha {get("data.alpha")})' if 'dirichlet' in partition else ''
  if partition == 'labels_per_client' and (labels := get('data.labels')) != NONE:
    alpha = f' ({labels} class{"es" * (labels != 1)} each)'
  part = NONE if share == NONE else 'all' if share == 1 else f'{100 * share:.3g} %'
  points = f' (one is {100 / test:.2g} points)' if 0 < (test := rows.get('test', 0)) < 1000 else ''
  given = {key: get(f'model.{key}') for key in ('width', 'depth')}
  size = ', '.join(
    f'{key} {value}' for key, value in given.items() if value
  )  # 0: the network's own
  steps, epochs = get('client.steps'), get('client.epochs')
  work = f'{steps} steps' if steps not in (0, NONE) else f'{epochs} epoch{"s" * (epochs != 1)}'
  seeds = ', '.join(map(str, run.seeds))
  added = lambda key, form: form.format(v) if (v := get(key)) not in ('', 'none', 0, NONE) else ''
  momentum = added('client.momentum', ' with momentum {}')
  schedule = added('client.schedule', ' ({})')
  augment = added('client.augment', ', {} augmentation')
  return {
    'Data': f'{plain_title(d["title"])}: {train} training and {test or NONE} test rows{points}',
    'Clients': f'{get("data.clients")}, partition {partition}{alpha}; {part} in a round',
    'Model': f'{get("model.name")}{f" ({size})" if size else ""}',
    'Optimizer': f'{get("client.optimizer")}{momentum}, learning rate {get("client.lr")}{schedule}',
    'Local training': f'{work} a round, batches of {get("client.batch_size")}{augment}',
    'Rounds': f'{get("rounds")}; seed{"s" * (len(run.seeds) > 1)} {seeds}',
  }


def results(runs: Sequence[Run]) -> Table:
  """Returns accuracies, rounds to targets, seconds, bytes, epsilon and the end of each run."""
  targets = sorted({t for run in runs for t in (run.summary or {}).get('rounds_to_accuracy', {})})
  mean = f'mean of last {rounds_in_mean(run.settings["rounds"] for run in runs)}'
  head = ['run', 'last', mean, 'best']
  head += [f'rounds to {100 * float(t):g} %' for t in targets]
  head += ['seconds', 'sent up', 'sent down', 'epsilon', 'how it ended']
  rows = [_result(run, targets) for run in runs]
  if all(row[-2] == NONE for row in rows):  # of runs without noise
    del head[-2]
    rows = [[*row[:-2], row[-1]] for row in rows]
  return Table(head, rows)


def _result(run: Run, targets: Sequence[str]) -> list[str]:
  s = run.summary
  if s is None:
    return [run.label, *[NONE] * (len(targets) + 7), _unfinished(run)]
  accuracies = [percent(s['test_accuracy'][name]) for name in ('last', 'mean_last_5', 'best')]
  rounds = [_rounds(s['rounds_to_accuracy'].get(t)) for t in targets]
  epsilon = NONE if s.get('epsilon') is None else f'{s["epsilon"]:.3g}'
  if epsilon != NONE and 'epsilon_per_seed' not in s and len(s['seeds']) > 1:
    epsilon += ' (one seed)'  # written before seeds were counted
  seconds = f'{s["seconds"]["total"]:,.1f}'
  sent = [size(s.get('bytes_up')), size(s.get('bytes_down'))]
  return [run.label, *accuracies, *rounds, seconds, *sent, epsilon, _ended(run, s)]


def percent(value: Mapping[str, Any]) -> str:
  """Writes `metrics.statistics` of fractions: '84.4 ± 2.5', or each seed if one has no number."""
  if value['mean'] is None:
    return ', '.join(NONE if v is None else f'{100 * v:.2f}' for v in value['per_seed'])
  deviation = '' if value['std'] is None else f' ± {100 * value["std"]:.2f}'
  return f'{100 * value["mean"]:.2f}{deviation}'


def _rounds(value: Mapping[str, Any] | None) -> str:
  if value is None:
    return NONE
  if all(v is None for v in value['per_seed']):
    return 'not reached'
  if value['mean'] is None:
    return ', '.join('not reached' if v is None else f'{v:g}' for v in value['per_seed'])
  std = value['std']
  if std is None:
    return f'{value["mean"]:.4g}'
  digits = 0 if std >= 9.95 else 1
  return f'{value["mean"]:.{digits}f} ± {std:.{digits}f}'


def size(count: float | None) -> str:
  """Writes bytes with three digits: '1.23 MB'."""
  if count is None:
    return NONE
  for unit in ('B', 'kB', 'MB', 'GB'):
    if count < 999.5:
      return f'{count:.3g} {unit}'
    count /= 1000
  return f'{count:,.3g} TB'


def _ended(run: Run, summary: Mapping[str, Any]) -> str:
  ends = []
  for seed, status in summary['status'].items():
    if status['status'] == 'diverged':
      client = status.get('client')
      where = '' if client is None else f', client {run.client_name(client)}'
      ends.append(f'seed {seed} diverged in round {status["round"]}{where}')
    elif status['status'] == 'stopped':
      best = f'best round on held-out rows {status["best_round"]}'
      ends.append(f'seed {seed} stopped after round {status["round"]} ({best})')
  return '; '.join(ends) or 'finished'


def _unfinished(run: Run) -> str:
  reached = {line['seed']: line['round'] for line in run.lines}
  if not reached:
    return 'interrupted before the first evaluation'
  last = ', '.join(f'{round} (seed {seed})' for seed, round in reached.items())
  return f'interrupted after round {last} of {run.settings["rounds"]}'


def settings(runs: Sequence[Run]) -> tuple[Table, Table]:
  """Returns the fields in which all runs differ, and those that only some have."""
  head = ['setting', *(run.label for run in runs)]
  shared: list[list[str]] = []
  others: list[list[str]] = []
  for key, values in differences(runs).items():
    rows = others if ABSENT in values else shared
    rows.append([key, *map(show, values)])
  return Table(head, shared), Table(head, others)


def made_on(runs: Sequence[Run]) -> Table:
  """Returns versions, devices and commit of each run."""
  flat: list[dict[str, str]] = []
  for run in runs:
    row = {'folder': str(run.folder)}
    for part in MADE_ON:
      value = run.stored.get(part)
      items = value.items() if isinstance(value, Mapping) else [(part, value)]
      row |= {name: show(item) for name, item in items}
    flat.append(row)
  keys = dict.fromkeys(key for row in flat for key in row)
  rows = [[key, *(row.get(key, NONE) for row in flat)] for key in keys]
  return Table(['', *(run.label for run in runs)], rows)


def show(value: Any) -> str:
  """Writes a setting the way a reader wants it: lists without brackets, '' as a word."""
  if isinstance(value, list):
    return ', '.join(map(str, value)) or '(none)'
  return NONE if value is None else '(empty)' if value == '' else str(value)


def client_accuracy(runs: Sequence[Run]) -> Table:
  """Returns statistics over clients of the accuracy, means over seeds."""
  head = ['run', 'model', 'clients', 'mean', 'standard deviation', 'worst tenth', 'worst', 'best']
  rows = []
  for run in runs:
    for key, name in (('global_accuracy', 'global'), ('personal_accuracy', 'personal')):
      values = client_values(run, key)
      if values:
        measured = np.mean([_statistics(v) for v in values.values()], axis=0)
        count = len(next(iter(values.values())))
        rows.append([run.label, name, f'{count}', *(f'{100 * m:.2f}' for m in measured)])
  return Table(head, rows)


def client_values(run: Run, key: str) -> dict[int, np.ndarray]:
  """Returns finite measurements of clients by seed."""
  kept = {s: a[key][np.isfinite(a[key])] for s, a in run.clients.items() if key in a}
  return {seed: v for seed, v in kept.items() if v.size}


def _statistics(values: np.ndarray) -> list[float]:
  ordered = np.sort(values)
  worst_tenth = ordered[: -(-ordered.size // 10)].mean()
  return [ordered.mean(), ordered.std(), worst_tenth, ordered[0], ordered[-1]]


def accuracy_over_rounds(runs: Sequence[Run], key: str = 'test/accuracy') -> Table:
  """Returns the curves as numbers, at about ten rounds: means over seeds, per cent."""
  curves = [curve(run.lines, key) for run in runs]
  by_run = [dict(zip(c.rounds.tolist(), c.mean, strict=True)) for c in curves]
  rounds = sorted({r for values in by_run for r in values})
  picked = {round(i) for i in np.linspace(0, len(rounds) - 1, min(CURVE_ROWS, len(rounds)))}
  text = lambda mean: NONE if mean is None else f'{100 * mean:.2f}'
  shown = [rounds[i] for i in sorted(picked)]
  rows = [[f'{r}', *(text(values.get(r)) for values in by_run)] for r in shown]
  return Table(['round', *(run.label for run in runs)], rows)
