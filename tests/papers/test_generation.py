"""Generating again for a finished run: what the run itself generated, and how long it takes."""

import json

import jax
import numpy as np
import pytest

from fedjax_syn.cli import jax_setup
from fedjax_syn.core import paths
from fedjax_syn.papers import post_run
from fedjax_syn.papers.fedcog import generation
from fedjax_syn.runs import experiment, stored_files
from fedjax_syn.tables import spec
from fedjax_syn.tables.post_run import compute
from tests.plotting.test_figures import assert_picture
from tests.run_helpers import config_of, lines_of
from tools import generation_cost

CHANGES = {
  'algorithm': 'fedprox+fedcog',
  'rounds': 3,
  'seeds': (0,),
  'keep_checkpoints': 'phases',
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
  """The global model recognises the share of them that the run logged, over all clients."""
  run = generation.open_run(folder, 0)
  generate = generation.generator(run)
  shares = []
  for client in range(5):
    made = generate(generation.context_of(run, client), run.problem.data)
    shares.append(np.mean(np.argmax(made.log_p, axis=-1) == made.y))
  (line,) = [line for line in lines_of(folder) if line['round'] == 3]
  assert line['fedcog/recognised'] == pytest.approx(np.mean(shares), abs=1e-6)
  assert line['fedcog/recognised'] > 0


def test_layers_that_send_something_down_are_there_too(tmp_path):
  """SCAFFOLD's control variates come down."""
  config = config_of(**CHANGES)
  config.algorithm = 'scaffold+fedcog'
  run = generation.begin_run(config)
  client, data = generation.context_of(run, 1), run.problem.data
  begin, step, _ = generation.distilling(run)
  assert np.isfinite(step(begin(client, data), data).loss_sum)


def test_more_steps_move_the_same_noise_further(folder):
  run = generation.open_run(folder, 0)
  client, data = generation.context_of(run, 1), run.problem.data
  made = [
    generation.generator(generation.with_fields(run, steps=n))(client, data) for n in (0, 2, 40)
  ]
  loss = [
    -np.take_along_axis(np.asarray(m.log_p), np.asarray(m.y)[:, None], 1).mean() for m in made
  ]
  assert loss[0] > loss[1] > loss[2]
  assert np.abs(made[1].x - made[0].x).max() < 0.7 < np.abs(made[2].x - made[0].x).max()


def test_pictures_and_times_are_left_once(folder, monkeypatch):
  monkeypatch.setattr(post_run, 'SAMPLES', (16, 32))
  monkeypatch.setattr(post_run, 'GENERATION', {False: (0, 2)})
  scale = spec.SCALES['smoke']
  compute(post_run.GENERATED_IMAGES, folder, 0, scale)
  assert_picture(folder / 'figures' / 'generated.png')
  compute(post_run.GENERATION_TIMES, folder, 0, scale)
  found = json.loads((folder / 'generation.json').read_text())
  assert list(found['seconds']) == ['16', '32', 'training']
  assert all(value > 0 for value in found['seconds'].values())
  assert found['machine'].startswith(jax.devices()[0].platform)
  before = (folder / 'generation.json').stat().st_mtime_ns
  compute(post_run.GENERATION_TIMES, folder, 0, scale)
  assert (folder / 'generation.json').stat().st_mtime_ns == before


WIDE = {
  **CHANGES,
  'algorithm': 'fedcog',
  'model.width': 128,
  'client.optimizer': 'sgd',
  'client.batch_size': 16,
  'client.steps': 5,
  'fedcog.samples': 40,
  'fedcog.steps': 7,
  'fedcog.kd_batch': 16,
}
LAYERS = 2 * 64 * 128, 2 * 128 * 10  # operations of an image forward, 64 pixels -> 128 -> 10


def test_operations_are_those_that_the_formulas_need():
  """The counts exceed those of the formulas by less than a tenth, for elementwise operations.

  A step of generation runs two models forward, and back to the images: 4 products a layer for
  each of 40 images. A step of training runs forward, back to the weights, and back to the hidden
  layer, for 16 + 16 images. The teacher predicts the 40 images once, in the end.
  """
  run = generation.begin_run(config_of(**WIDE))
  counted = generation_cost.operations(run, 1)
  forward = sum(LAYERS)
  generating = 7 * 4 * 40 * forward + 40 * forward
  training = 5 * 32 * (3 * forward - LAYERS[0])
  assert 1 < counted.generation / generating < 1.1
  assert 1 < counted.training / training < 1.1
  assert counted.ratio == counted.generation / counted.training
  alone = generation_cost.operations(generation.with_fields(run, source='global'), 1)
  assert 1 < alone.generation / (7 * 2 * 40 * forward + 40 * forward) < 1.1
  noise = generation_cost.operations(generation.with_fields(run, source='noise'), 1)
  # Drawing a pixel of noise takes some 80 operations.
  assert 1 < noise.generation / (40 * forward) < 1.5 and noise.training == counted.training


def test_cost_is_printed_for_a_run_and_for_a_config(folder, monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda devices: None)
  assert generation_cost.main(['', str(folder), '--client=4', '--repeats=1']) == 0
  head, names, generated, trained, ratio, both = capsys.readouterr().out.splitlines()
  assert head.endswith('client 4: 4 steps on 10 samples, and 3 steps on 32 + 4')
  assert names.split() == ['operations', 'seconds']
  a, b, c = ([float(v) for v in line.split()[-2:]] for line in (generated, trained, ratio))
  assert c == pytest.approx([a[0] / b[0], a[1] / b[1]], rel=5e-3, abs=1e-3) and min(a + b) > 0
  assert float(both.split()[-1]) == pytest.approx(c[1] / c[0], rel=2e-2, abs=1e-2)
  written = tmp_path / 'tiny.py'
  written.write_text(
    'from tests.papers.test_generation import CHANGES\nfrom tests.run_helpers import config_of\n'
    'def get_config():\n  return config_of(**CHANGES).lock()\n'
  )
  assert generation_cost.main(['', str(written), '--repeats=1']) == 0
  assert 'client 0: 4 steps on 10 samples' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('arguments', 'said'),
  [
    ([], 'name the folder of one run, or one config file'),
    (['nowhere'], 'nowhere: neither the folder of a run nor a config file'),
    (['FOLDER', '--client=5'], '--client=5: there are clients 0 .. 4'),
    (['FOLDER', '--seed=3'], 'no checkpoint checkpoints/2/seed_3'),
    (['configs/dynafed_digits.py'], "algorithm='dynafed' generates nothing"),
  ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
  arguments, said, folder, monkeypatch, capsys
):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda devices: None)
  arguments = [
    {'FOLDER': str(folder)}.get(a, a).replace('configs/', f'{paths.CONFIGS.parent}/configs/')
    for a in arguments
  ]
  with pytest.raises(SystemExit) as stopped:
    generation_cost.main(['', *arguments])
  assert stopped.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert said in line


@pytest.mark.parametrize(
  ('algorithm', 'said'),
  [('fedprox', 'generates nothing'), ('fedcog', 'no checkpoint checkpoints/2')],
)
def test_runs_that_generated_nothing_are_refused(algorithm, said, folder, tmp_path):
  stored = json.loads((folder / 'config.json').read_text())
  stored['config']['algorithm'] = algorithm
  stored_files.write_json(tmp_path / 'config.json', stored)
  with pytest.raises(ValueError, match=said):
    generation.open_run(tmp_path, 0)
