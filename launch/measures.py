"""What the cells of a table show."""

from fedjax_syn import metrics
from launch.spec import Measure, Result


def _accuracy(result: Result, base: Result | None) -> float | None:
  mean = result.summary['test_accuracy']['mean_last_5']['mean']
  return None if mean is None else 100 * mean


def _rounds(result: Result, base: Result | None) -> float | None:
  target = metrics.best_running_mean(base.lines) if base else None
  return None if target is None else metrics.rounds_to_running_mean(result.lines, target)


ACCURACY = Measure('mean test accuracy of the last five rounds, per cent', _accuracy, 'accuracy, %')

ROUNDS = Measure(
  'the first round whose running mean of five evaluated rounds reaches the best such mean of FedAvg',
  _rounds,
  'rounds',
  digits=1,
  best=min,
  base='fedavg',
  absent='not reached',
)
