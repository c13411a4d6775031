"""What the cells of a table show."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_syn.runs import metrics, stored_files
from fedjax_syn.tables.spec import Result, TableMeasure

Value = Callable[[Result, Result | None], float | None]
FIRST, FINAL, LAST_FIVE = slice(0, 1), slice(-1, None), slice(-5, None)
"""Of the lines that have a number."""


def left(path: pathlib.Path, shape: Any) -> Any:
  """Reads what a `PostRun` left; None if it is not there or damaged."""
  try:
    return stored_files.read_json(path, shape)
  except stored_files.DamagedError:
    return None


def logged(key: str, which: slice, scale: float = 100.0) -> Value:
  """Returns the mean over some of the lines of a run's metrics that have a number of this name."""

  def value(result: Result, base: Result | None) -> float | None:
    numbers = [line[key] for line in result.lines if key in line][which]
    return scale * float(np.mean(numbers)) if numbers else None

  return value


def computed(file: str, *keys: str) -> Value:
  """Returns a number in a JSON file that a `PostRun` left, under keys in keys."""

  def value(result: Result, base: Result | None) -> float | None:
    shape: Any = float
    for key in reversed(keys):
      shape = {key: shape}
    number = left(result.folder / file, shape)
    for key in keys if number else ():
      number = number[key]
    return number

  return value


def _accuracy(result: Result, base: Result | None) -> float | None:
  mean = result.summary['test_accuracy']['mean_last_5']['mean']
  return None if mean is None else 100 * mean


def _rounds(result: Result, base: Result | None) -> float | None:
  targets = metrics.best_running_mean(base.lines) if base else {}
  (rounds,) = metrics.rounds_to_running_mean(result.lines, targets).values()
  return rounds


def _from_scratch(result: Result, base: Result | None) -> float | None:
  curve = left(result.folder / 'from_scratch.json', {'accuracy': [float]})
  return 100 * curve['accuracy'][-1] if curve else None


def _local_seconds(result: Result, base: Result | None) -> float | None:
  config = result.described['config']
  clients = config['client']['participation'] * config['data']['clients']  # in a round
  return result.summary['seconds']['rounds'] / clients


def _epsilon(result: Result, base: Result | None) -> float | None:
  return result.summary.get('epsilon_per_seed', result.summary.get('epsilon'))


ACCURACY = TableMeasure(
  'mean test accuracy of the last five rounds, per cent', _accuracy, 'accuracy, %'
)
LAST = TableMeasure(
  'test accuracy after the last round, per cent', logged('test/accuracy', FINAL), 'accuracy, %'
)
ROUNDS = TableMeasure(
  'the first round whose running mean of five evaluated rounds reaches the best such mean of'
  ' FedAvg',
  _rounds,
  'rounds',
  digits=1,
  best=min,
  base='fedavg',
  absent='not reached',
)
FROM_SCRATCH = TableMeasure(
  'test accuracy of a new network trained on the synthetic set alone, per cent',
  _from_scratch,
  'accuracy, %',
)
LOCAL_SECONDS = TableMeasure(
  'seconds of all rounds, generation included, divided by the clients that take part in one',
  _local_seconds,
  'seconds',
  digits=1,
  best=min,
)
PERSONAL = TableMeasure(
  "after the last round, mean over clients of the accuracy of a client's own model on test rows in"
  " the proportions of the client's labels, per cent",
  logged('personal/test/accuracy', FINAL),
  'accuracy, %',
)
EPSILON = TableMeasure(
  'epsilon of one seed at its delta; several reveal more',
  _epsilon,
  'epsilon',
  best=min,
  absent='no guarantee',
)


def of_local_models(name: str, caption: str, axis: str, scale: float = 100.0) -> TableMeasure:
  """Returns a measure of the clients' models of round T0 + 1, the first that was logged."""
  caption = f'{caption}, of the local models of round T0 + 1, mean over clients'
  return TableMeasure(caption, logged(f'personal/{name}', FIRST, scale), axis)


def of_labels(name: str, last: bool = False) -> TableMeasure:
  """Returns a measure of a multi-label problem, 'c_f1' say: of the last round or the last five."""
  when = 'after the last round' if last else 'as a mean of the last five rounds'
  value = logged(f'test/{name}', FINAL if last else LAST_FIVE)
  return TableMeasure(f'{name} {when}, per cent', value, f'{name}, %')


def of_domain(name: str) -> TableMeasure:
  """Returns the accuracy in one domain of a data set of several."""
  return TableMeasure(
    'mean accuracy of the last five rounds on the test rows of the domain, per cent',
    logged(f'test/domain/{name}/accuracy', LAST_FIVE),
    'accuracy, %',
  )


def communication(which: str) -> TableMeasure:
  """Returns the measure of the bytes of a round, 'bytes_up' or 'bytes_down', in millions."""

  def value(result: Result, base: Result | None) -> float | None:
    total = result.summary.get(which)
    before = result.summary.get('bytes_before', 0) if which == 'bytes_up' else 0
    return None if total is None else (total - before) / result.summary['rounds'] / 1e6

  return TableMeasure('millions of bytes in a round, all clients together', value, 'MB', 3, min)


def generation_seconds(what: str) -> TableMeasure:
  """Returns one of the times of FedCOG's `GENERATION_TIMES`."""
  value = computed('generation.json', 'seconds', what)
  return TableMeasure('seconds for one client, alone on the machine', value, 'seconds', 3, min)


def of_client_sets(name: str, axis: str) -> TableMeasure:
  """Returns one of the numbers of FedDualMatch's `CLIENT_SETS`."""
  value = computed('client_sets.json', name)
  return TableMeasure('measured on the sets of the round after the last', value, axis, 3, min)
