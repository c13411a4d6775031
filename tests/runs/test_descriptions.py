"""What a run says of its training and of its figures, beside what was read."""

import pathlib

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.runs import assemble, descriptions

THREE = ' (--config.seeds=0,1,2 trains three)'
ROWS = 'NOTE: one of 92 test rows is 1.1 points of accuracy'


def line_of(**settings):
  base = {'algorithm': 'fedavg', 'rounds': 3, 'data.clients': 4, 'model.name': 'mlp'}
  resolved = config_lib.check({**base, 'model.width': 16, 'model.depth': 1, **settings})
  (job,) = assemble.jobs(resolved, pathlib.Path('nowhere'), assemble.load(resolved), None)
  return descriptions.training(resolved, job.engine)


def test_the_line_of_training_names_model_optimizer_rate_batch_and_seeds():
  """An MLP of 16 units on 64 pixels and ten classes: 64 16 + 16 + 16 10 + 10 parameters."""
  assert line_of() == (
    'mlp with 1,210 parameters, trained by adam: rate 0.001, batches of 32, 1 epoch a round;'
    ' 3 rounds, seed 0'
  )
  given = {'client.optimizer': 'sgd', 'client.momentum': 0.9, 'client.schedule': 'cosine'}
  steps = {'client.epochs': 0, 'client.steps': 5, 'seeds': (1, 2)}
  assert line_of(**given, **steps).endswith(
    ', trained by sgd with momentum 0.9: rate 0.001 (cosine), batches of 32, 5 steps a round;'
    ' 3 rounds, seeds 1, 2'
  )
  sets = {'algorithm': 'feddm', 'feddm.iterations': 1}
  assert line_of(**sets) == 'mlp with 1,210 parameters; 3 rounds, seed 0'


@pytest.mark.parametrize(
  ('rows', 'seeds', 'methods', 'note'),
  [
    (92, (0,), ('fedavg',), ROWS),
    (201, (0,), ('fedavg',), ''),
    (92, (0, 1), ('fedavg', 'dynafed'), ROWS),
    (
      92,
      (0,),
      ('fedavg', 'dynafed'),
      f'{ROWS}; one seed is compared, and seeds can differ by several points{THREE}',
    ),
    (
      599,
      (7,),
      ('fedavg', 'dynafed'),
      f'NOTE: one seed is compared, and seeds can differ by several points{THREE}',
    ),
    (0, (0,), ('fedavg',), ''),  # not known
  ],
)
def test_caution_before_a_run(rows, seeds, methods, note):
  assert descriptions.caution(rows, seeds, dict.fromkeys(methods)) == note


@pytest.mark.parametrize(
  ('seeds', 'results', 'note'),
  [
    ((0,), {'fedavg': 0.5, 'dynafed': 0.61}, ROWS),
    (
      (0,),
      {'fedavg': 0.85, 'dynafed': 0.5, 'scaffold': 0.875},
      f'{ROWS}; scaffold and fedavg differ by 2.5 points in the mean of the last 5 rounds,'
      f' with one seed each{THREE}',
    ),
    ((0,), {'fedavg': 0.85, 'dynafed': None}, ROWS),  # diverged
    ((0, 1), {'fedavg': 0.85, 'dynafed': 0.85}, ROWS),
  ],
)
def test_caution_beside_the_results(seeds, results, note):
  assert descriptions.caution(92, seeds, results, over=True) == note
