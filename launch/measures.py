"""What the cells of a table show."""

from fedjax_syn import metrics
from fedjax_syn import workdir as workdir_lib
from launch.spec import Measure, Result


def _accuracy(result: Result, base: Result | None) -> float | None:
  mean = result.summary['test_accuracy']['mean_last_5']['mean']
  return None if mean is None else 100 * mean


def _rounds(result: Result, base: Result | None) -> float | None:
  targets = metrics.best_running_mean(base.lines) if base else {}
  (rounds,) = metrics.rounds_to_running_mean(result.lines, targets).values()
  return rounds


def _from_scratch(result: Result, base: Result | None) -> float | None:
  found = workdir_lib.read_json(result.folder / 'from_scratch.json')
  return 100 * found['accuracy'][-1] if found else None


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

FROM_SCRATCH = Measure(
  'test accuracy of a new network trained on the synthetic set alone, per cent',
  _from_scratch,
  'accuracy, %',
)
