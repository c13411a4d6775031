"""What the cells of a table show."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_syn.runs import metrics, stored_files
from fedjax_syn.tables.spec import Measure, Result

FIRST, FINAL, LAST_FIVE = slice(0, 1), slice(-1, None), slice(-5, None)


def left(path: pathlib.Path, shape: Any) -> Any:
  """Reads what `fedjax_syn.papers.post_run` left; None without it, or if it is damaged (it is made again)."""
  try:
    return stored_files.read_json(path, shape)
  except stored_files.DamagedError:
    return None


def _accuracy(result: Result, base: Result | None) -> float | None:
  mean = result.summary['test_accuracy']['mean_last_5']['mean']
  return None if mean is None else 100 * mean


def _rounds(result: Result, base: Result | None) -> float | None:
  targets = metrics.best_running_mean(base.lines) if base else {}
  (rounds,) = metrics.rounds_to_running_mean(result.lines, targets).values()
  return rounds


def _from_scratch(result: Result, base: Result | None) -> float | None:
  found = left(result.folder / 'from_scratch.json', {'accuracy': [float]})
  return 100 * found['accuracy'][-1] if found else None


def _local_seconds(result: Result, base: Result | None) -> float | None:
  config = result.described['config']
  visits = config['client']['participation'] * config['data']['clients']  # in a round
  return result.summary['seconds']['rounds'] / visits


def logged(
  key: str, which: slice, scale: float = 100.0
) -> Callable[[Result, Result | None], float | None]:
  """Returns the mean over some of the lines of a run's metrics that have a number of this name."""

  def value(result: Result, base: Result | None) -> float | None:
    found = [line[key] for line in result.lines if key in line][which]
    return scale * float(np.mean(found)) if found else None

  return value


def generation_seconds(what: str) -> Measure:
  """Returns the measure that reads one of the times that `fedjax_syn.papers.post_run.generation_times` leaves."""

  def value(result: Result, base: Result | None) -> float | None:
    found = left(result.folder / 'generation.json', {'seconds': {what: float}})
    return found['seconds'][what] if found else None

  return Measure('seconds for one client, alone on the machine', value, 'seconds', 3, best=min)


ACCURACY = Measure('mean test accuracy of the last five rounds, per cent', _accuracy, 'accuracy, %')

LAST = Measure(
  'test accuracy after the last round, per cent', logged('test/accuracy', FINAL), 'accuracy, %'
)

ROUNDS = Measure(
  'the first round whose running mean of five evaluated rounds reaches the best such mean of FedAvg',
  _rounds,
  'rounds',
  digits=1,
  best=min,
  base='fedavg',
  absent='not reached',
)

FROM_SCRATCH = Measure(
  'test accuracy of a new network trained on the synthetic set alone, per cent',
  _from_scratch,
  'accuracy, %',
)

LOCAL_SECONDS = Measure(
  'seconds of all rounds, generation included, divided by the clients that take part in one',
  _local_seconds,
  'seconds',
  digits=1,
  best=min,
)

PERSONAL = Measure(
  "after the last round, mean over clients of the accuracy of a client's own model on test rows in the proportions"
  " of the client's labels, per cent",
  logged('personal/test/accuracy', FINAL),
  'accuracy, %',
)


def of_local_models(name: str, caption: str, axis: str, scale: float = 100.0) -> Measure:
  """Returns a measure of the clients' models of round T0 + 1, mean over clients; the first that was logged."""
  value = logged(f'personal/{name}', FIRST, scale)
  return Measure(f'{caption}, of the local models of round T0 + 1, mean over clients', value, axis)


def of_labels(name: str, last: bool = False) -> Measure:
  """Returns a measure of a multi-label problem, 'c_f1' say: of the last round, or a mean over the last five."""
  caption = (
    f'{name} {"after the last round" if last else "as a mean of the last five rounds"}, per cent'
  )
  return Measure(caption, logged(f'test/{name}', FINAL if last else LAST_FIVE), f'{name}, %')


def of_domain(name: str) -> Measure:
  """Returns the measure of one domain of a data set of several."""
  return Measure(
    'mean accuracy of the last five rounds on the test rows of the domain, per cent',
    logged(f'test/domain/{name}/accuracy', LAST_FIVE),
    'accuracy, %',
  )


def _epsilon(result: Result, base: Result | None) -> float | None:
  return result.summary.get('epsilon_per_seed', result.summary.get('epsilon'))


EPSILON = Measure(
  'epsilon of one seed at its delta; several give away more',
  _epsilon,
  'epsilon',
  best=min,
  absent='no guarantee',
)


def traffic(which: str) -> Measure:
  """Returns the measure of the bytes of a round, 'bytes_up' or 'bytes_down', in millions."""

  def value(result: Result, base: Result | None) -> float | None:
    total = result.summary.get(which)
    before = result.summary.get('bytes_before', 0) if which == 'bytes_up' else 0
    return None if total is None else (total - before) / result.summary['rounds'] / 1e6

  return Measure('millions of bytes in a round, all clients together', value, 'MB', 3, best=min)


def of_sets(name: str, axis: str) -> Measure:
  """Returns the measure that reads one of the numbers that `fedjax_syn.papers.post_run.client_sets` leaves."""

  def value(result: Result, base: Result | None) -> float | None:
    found = left(result.folder / 'client_sets.json', {name: float})
    return found[name] if found else None

  return Measure('measured on the sets of the round after the last', value, axis, 3, best=min)
