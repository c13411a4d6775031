"""Generating again for a finished run: what the run itself generated, and how long it takes."""

import json

import jax
import numpy as np
import pytest

from fedjax_syn import experiment
from launch import after, generation, spec
from tests.runs import config_of, lines_of
from tests.test_figures import assert_picture

CHANGES = {
  'algorithm': 'fedprox+fedcog',
  'rounds': 3,
  'seeds': (0,),
  'data.partition': 'labels_per_client',
  'data.clients': 5,
  'client.participation': 1.0,
  'client.epochs': 0,
  'client.steps': 3,
  'fedcog.start': 2,
  'fedcog.samples': 10,
  'fedcog.steps': 4,
  'fedcog.lr': 0.3,
  'fedcog.kd_batch': 4,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A tiny run."""
  folder = tmp_path_factory.mktemp('run')
  assert experiment.run_experiment(config_of(**CHANGES), folder) == 0
  return folder


def test_the_run_s_own_data_are_generated_again(folder):
  """The share of them that the global model recognises, over all clients, is the one that the run logged."""
  subject = generation.open_subject(folder, 0)
  generate = generation.generator(subject)
  shares = []
  for client in range(5):
    made = generate(generation.visit_of(subject, client), subject.problem.data)
    shares.append(np.mean(np.argmax(made.log_p, axis=-1) == made.y))
  (line,) = [line for line in lines_of(folder) if line['round'] == 3]
  assert line['fedcog/recognised'] == pytest.approx(np.mean(shares), abs=1e-6)
  assert line['fedcog/recognised'] > 0


def test_more_steps_move_the_same_noise_further(folder):
  subject = generation.open_subject(folder, 0)
  visit, data = generation.visit_of(subject, 1), subject.problem.data
  made = [
    generation.generator(generation.with_fields(subject, steps=n))(visit, data) for n in (0, 2, 40)
  ]
  loss = [
    -np.take_along_axis(np.asarray(m.log_p), np.asarray(m.y)[:, None], 1).mean() for m in made
  ]
  assert loss[0] > loss[1] > loss[2]
  assert np.abs(made[1].x - made[0].x).max() < 0.7 < np.abs(made[2].x - made[0].x).max()


def test_pictures_and_times_are_left_once(folder, monkeypatch):
  monkeypatch.setattr(after, 'SAMPLES', (16, 32))
  monkeypatch.setattr(after, 'GENERATION', {False: (0, 2)})
  scale = spec.SCALES['smoke']
  after.generated_images(folder, 0, scale)
  assert_picture(folder / 'figures' / 'generated.png')
  after.generation_times(folder, 0, scale)
  found = json.loads((folder / 'generation.json').read_text())
  assert list(found['seconds']) == ['16', '32', 'training']
  assert all(value > 0 for value in found['seconds'].values())
  assert found['machine'].startswith(jax.devices()[0].platform)
  before = (folder / 'generation.json').stat().st_mtime_ns
  after.generation_times(folder, 0, scale)
  assert (folder / 'generation.json').stat().st_mtime_ns == before


@pytest.mark.parametrize(
  ('algorithm', 'said'),
  [('fedprox', 'generates nothing'), ('fedcog', 'no checkpoint checkpoints/2')],
)
def test_runs_that_generated_nothing_are_refused(algorithm, said, folder, tmp_path):
  stored = json.loads((folder / 'config.json').read_text())
  stored['config']['algorithm'] = algorithm
  (tmp_path / 'config.json').write_text(json.dumps(stored))
  with pytest.raises(ValueError, match=said):
    generation.open_subject(tmp_path, 0)
