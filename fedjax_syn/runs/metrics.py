"""Metrics: one JSON line per evaluated round and seed, and the summary of these lines."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedjax_syn.config import Resolved
from fedjax_syn.core import texts
from fedjax_syn.runs import work_folder

Line = dict[str, Any]
# What is measured with several labels per sample: means over labels (c_) and over all (o_).
OF_LABELS = ('test/c_', 'test/o_', 'validation/c_', 'validation/o_')
COLLAPSED_AFTER = 5  # evaluations in a row
DOMAIN = 'test/domain/'  # 'test/domain/NAME/accuracy', of the test rows of one domain


read = work_folder.lines


def append(path: Path, line: Line) -> bytes:
  """Appends one line to a metrics file; the line is with the operating system on return.

  Args:
    path: the metrics.jsonl.
    line: finite numbers by name; what was not measured is left out.

  Returns:
    What was written.

  Raises:
    ValueError: if a number is not finite.
  """
  content = (json.dumps(line, allow_nan=False) + '\n').encode()
  with path.open('ab') as file:
    file.write(content)
  return content


def length(path: Path) -> int:
  """Returns a metrics file's length in bytes, all of them on disk."""
  if not path.exists():
    return 0
  with path.open('rb') as file:
    os.fsync(file.fileno())
    return os.fstat(file.fileno()).st_size


def truncate(path: Path, size: int) -> None:
  """Cuts a metrics file back to what it held when a checkpoint was taken.

  Args:
    path: the metrics.jsonl; created if it does not exist.
    size: bytes to keep.
  """
  with path.open('ab') as file:
    file.truncate(size)


def statistics(per_seed: Sequence[float | None]) -> dict[str, Any]:
  """Mean and standard deviation (ddof 1) over seeds.

  Args:
    per_seed: one number for every seed, None for a seed that has none (it diverged).

  Returns:
    'mean' (None if a seed has no number), 'std' (None too for a single seed) and 'per_seed'.
  """
  mean = std = None
  known = [value for value in per_seed if value is not None]
  if known and len(known) == len(per_seed):
    mean = float(np.mean(known))
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
  return {'mean': mean, 'std': std, 'per_seed': list(per_seed)}


def accuracy_summary(
  lines: Sequence[Line],
  seeds: Sequence[int],
  rounds: int,
  diverged: Sequence[int],
  key: str,
  ends: Mapping[int, int] = MappingProxyType({}),
) -> dict[str, Any]:
  """Last, mean of the last five rounds, and best, by name.

  Args:
    lines: metrics lines of all seeds.
    seeds: the run's seeds, in order.
    rounds: how many rounds the run has.
    diverged: seeds that have no result.
    key: the accuracy, for example 'test/accuracy'.
    ends: by seed that stopped early, its last round.

  Returns:
    `statistics` under 'last', 'mean_last_5' (the last five rounds, without w^0) and 'best' (over
    all evaluated rounds).
  """
  last, mean_last_5, best = [], [], []
  for seed in seeds:
    values = {m['round']: m[key] for m in lines if m['seed'] == seed and key in m}
    end = ends.get(seed, rounds)
    final = [v for r, v in sorted(values.items()) if max(end - 5, 0) < r <= end]
    ok = seed not in diverged and end in values
    last.append(values[end] if ok else None)
    mean_last_5.append(float(np.mean(final)) if ok and final else None)
    best.append(max(values.values()) if ok else None)
  named = {'last': last, 'mean_last_5': mean_last_5, 'best': best}
  return {name: statistics(per_seed) for name, per_seed in named.items()}


def rounds_in_mean(rounds: Iterable[int]) -> int:
  """Returns how many rounds `mean_last_5` is a mean of: fewer than five if no run has as many.

  Args:
    rounds: of the runs.
  """
  return max(min(max(rounds, default=5), 5), 1)


def comparison(histories: Mapping[str, Sequence[Line]], key: str = 'test/accuracy') -> str:
  """Lays out the results of several runs as a Markdown table, mean ± standard deviation over seeds.

  Args:
    histories: metrics lines by label; a seed without a line of its run's last round has diverged.
    key: an accuracy.

  Returns:
    A line for each run with `accuracy_summary`'s numbers; '-' where a seed diverged.
  """

  def cell(value):
    if value['mean'] is None:
      return '-'
    return f'{value["mean"]:.3f}' + ('' if value['std'] is None else f' ± {value["std"]:.3f}')

  reached = (line['round'] for lines in histories.values() for line in lines)
  table = [f'| | last | mean of last {rounds_in_mean(reached)} | best |', '|---|---|---|---|']
  for label, lines in histories.items():
    seeds = list(dict.fromkeys(line['seed'] for line in lines))
    rounds = max(line['round'] for line in lines)
    named = accuracy_summary(lines, seeds, rounds, [], key)
    table.append(
      f'| {texts.cell(label)} | ' + ' | '.join(cell(value) for value in named.values()) + ' |'
    )
  return '\n'.join(table)


def rounds_to_accuracy(
  lines: Sequence[Line], seeds: Sequence[int], targets: Sequence[float], key: str = 'test/accuracy'
) -> dict[str, Any]:
  """The first evaluated round at which each target is reached; None where it is not.

  Args:
    lines: metrics lines of all seeds.
    seeds: the run's seeds, in order.
    targets: accuracies as fractions.
    key: the accuracy's name.

  Returns:
    `statistics` of the rounds by target.
  """

  def first(seed, target):
    reached = [m['round'] for m in lines if m['seed'] == seed and m.get(key, -math.inf) >= target]
    return min(reached, default=None)

  return {f'{t:g}': statistics([first(seed, t) for seed in seeds]) for t in targets}


def collapsed_since(lines: Sequence[Line], seed: int) -> int | None:
  """Returns since when a seed's model predicts one class for all test rows; None if it does not.

  A model that has not learned yet, or that follows its clients' few classes for some rounds, may do
  so too: only `COLLAPSED_AFTER` evaluations in a row up to the last line count, without the initial
  model. Test rows of one class are no collapse.

  Args:
    lines: metrics lines, in the order of rounds for each seed.
    seed: which.

  Returns:
    The first round of the row of evaluations, or None.
  """
  since, evaluations = None, 0
  for line in reversed(lines):
    if line['seed'] != seed or line['round'] == 0 or 'test/accuracy' not in line:
      continue
    if line.get('test/top_prediction', 0.0) < 1 or line['test/accuracy'] == 1:
      break
    if 'collapsed_since' in line:
      return line['collapsed_since']
    since, evaluations = line['round'], evaluations + 1
  return since if evaluations >= COLLAPSED_AFTER else None


def running_means(
  lines: Sequence[Line], window: int = 5, key: str = 'test/accuracy'
) -> dict[int, dict[int, float]]:
  """Means over the last `window` evaluations, by seed and by the round of the last of them.

  w^0 and the beginning, with fewer evaluations, are left out. If not every round is evaluated, a
  window spans as many evaluations, that is more rounds, and results are as coarse as `widest_gap`.

  Args:
    lines: metrics lines of all seeds.
    window: evaluations in a mean.
    key: what is averaged.

  Returns:
    {seed: {round: mean}}.
  """
  by_seed: dict[int, dict[int, float]] = {}
  for line in lines:
    values = by_seed.setdefault(line['seed'], {})
    if line['round'] > 0 and key in line:
      values[line['round']] = line[key]
  out = {}
  for seed, values in by_seed.items():
    rounds = sorted(values)
    last = range(window - 1, len(rounds))
    out[seed] = {
      rounds[i]: float(np.mean([values[r] for r in rounds[i - window + 1 : i + 1]])) for i in last
    }
  return out


def best_running_mean(
  lines: Sequence[Line], window: int = 5, key: str = 'test/accuracy'
) -> dict[int, float | None]:
  """The highest mean over `window` evaluations in a row, by seed; None with fewer evaluations.

  Of a run of FedAvg it is the target of DynaFed's Table 4; see `running_means` for runs that are
  not evaluated in every round.
  """
  means = running_means(lines, window, key)
  return {seed: max(values.values(), default=None) for seed, values in means.items()}


def rounds_to_running_mean(
  lines: Sequence[Line],
  target: float | Mapping[int, float | None],
  window: int = 5,
  key: str = 'test/accuracy',
) -> dict[int, int | None]:
  """The first round at which the mean of `window` evaluations reaches a target (DynaFed, Table 4).

  Args:
    lines: metrics lines of all seeds.
    target: one for all seeds, or one for each (`best_running_mean` of another run); a seed without
      a target has no result.
    window: evaluations in a mean; the round is that of the last of them.
    key: what is averaged.

  Returns:
    {seed: round}, None where the target is not reached. With evaluations `widest_gap` rounds apart
    the mean may have reached it up to so many rounds before.
  """

  def first(seed, means):
    goal = target.get(seed) if isinstance(target, Mapping) else target
    reached = [r for r, mean in means.items() if goal is not None and mean >= goal]
    return min(reached, default=None)

  return {seed: first(seed, m) for seed, m in running_means(lines, window, key).items()}


def widest_gap(lines: Sequence[Line], key: str = 'test/accuracy') -> int:
  """Returns the most rounds between two evaluations of any seed; 0 without evaluations."""
  gaps = [0]
  for seed in {line['seed'] for line in lines}:
    rounds = sorted({0, *(m['round'] for m in lines if m['seed'] == seed and key in m)})
    gaps += np.diff(rounds).tolist()
  return max(gaps)


def ends_of(status: Mapping[str, Mapping[str, Any]]) -> dict[int, int]:
  """Returns the last rounds of the seeds that stopped early, by seed."""
  return {int(s): v['round'] for s, v in status.items() if v['status'] == 'stopped'}


def summarise(
  lines: Sequence[Line], config: Resolved, status: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
  """What a run's metrics lines come to.

  Args:
    lines: metrics lines of all seeds.
    config: the run's; `best` and `rounds_to_accuracy` see no rounds but those of `eval_every`.
    status: by seed, 'status' ('finished', 'stopped' early or 'diverged') and details.

  Returns:
    'test_accuracy', 'validation_accuracy' (with a validation split), means such as 'test_o_f1'
    (with several labels per sample), 'test_domain_accuracy' (by domain, if there are several),
    'personal' and 'unseen' (if measured: `statistics` of the last round, by name without them),
    'rounds_to_accuracy', 'eval_every', 'padding_efficiency' (mean over the lines that have one) and
    'status'.
  """
  seeds, rounds = config.seeds, config.rounds
  diverged = [seed for seed in seeds if status[str(seed)]['status'] == 'diverged']
  ends = ends_of(status)
  of = lambda key: accuracy_summary(lines, seeds, rounds, diverged, key, ends)
  keys = dict.fromkeys(key for line in lines for key in line)
  result: dict[str, Any] = {'test_accuracy': of('test/accuracy')}
  if 'validation/accuracy' in keys:
    result['validation_accuracy'] = of('validation/accuracy')
  result |= {key.replace('/', '_'): of(key) for key in keys if key.startswith(OF_LABELS)}
  domains = [k for k in keys if k.startswith(DOMAIN) and k.endswith('/accuracy')]
  if domains:
    named = {key.removeprefix(DOMAIN).removesuffix('/accuracy'): of(key) for key in domains}
    result['test_domain_accuracy'] = named
  last = {m['seed']: m for m in lines if m['round'] == ends.get(m['seed'], rounds)}
  ended = [{} if seed in diverged else last.get(seed, {}) for seed in seeds]
  for kind in ('personal', 'unseen'):
    if names := [k for k in keys if k.startswith(f'{kind}/')]:
      result[kind] = {
        name.partition('/')[2]: statistics([line.get(name) for line in ended]) for name in names
      }
  result['rounds_to_accuracy'] = rounds_to_accuracy(lines, seeds, config.targets)
  result['eval_every'] = config.eval_every
  efficiency = [line['padding_efficiency'] for line in lines if 'padding_efficiency' in line]
  result['padding_efficiency'] = float(np.mean(efficiency)) if efficiency else None
  result['status'] = dict(status)
  return result
