"""The library from Python; here the engine is the real one."""

import json
import re

import chex
import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms, models
from fedjax_syn import config as config_lib
from fedjax_syn.core import contexts, privacy
from fedjax_syn.data import datasets
from fedjax_syn.engine import Layout
from fedjax_syn.runs import api, checkpoint, experiment, progress
from tests.fake_engine import ITERATIONS, PHASE, Fake
from tests.run_helpers import REAL, config_of, lines_of

pytest_plugins = ['tests.run_fixtures']


def test_load_opens_what_a_run_left(whole, whole_folder, tmp_path):
  loaded = api.load(whole_folder, seed=1)
  assert loaded.variables.params['w'].tobytes() == whole['states'][1]['params/w']
  assert api.load(whole_folder).variables.params['w'].tobytes() == whole['states'][0]['params/w']
  assert loaded.synthetic['x'].shape == (3, 10, 8, 8, 1)
  np.testing.assert_allclose(loaded.synthetic['std'], loaded.synthetic['std'])
  with pytest.raises(FileNotFoundError, match='seed 5.*0, 1'):
    api.load(whole_folder, seed=5)
  with pytest.raises(FileNotFoundError, match='config.json'):
    api.load(tmp_path)


@pytest.mark.parametrize(
  ('algorithm', 'block', 'added'),
  [('vhl', {}, {'extra'}), ('moon', {'projection': 16}, {'projection'}), ('fedavg', {}, set())],
)
def test_a_method_that_changes_the_model_can_be_opened(algorithm, block, added):
  """VHL adds classes, MOON a projection behind the features; both look at the images' shape."""
  changes = {f'{algorithm}.{key}': value for key, value in block.items()}
  config = config_lib.check(config_of(algorithm=algorithm, **changes))
  model = api.model_of(config, {'shape': [8, 8, 1], 'num_classes': 10})
  x = np.zeros((2, 8, 8, 1), np.float32)
  variables = model.init(jax.random.key(0))
  assert set(variables.params) == {'body', 'head', *added}
  assert model.apply(variables, x).logits.shape == (2, 10)


def test_load_skips_a_seed_that_diverged_unless_asked(fake, tmp_path):
  fake(diverge={0: 6})
  assert experiment.run_experiment(config_of(algorithm='fedavg'), tmp_path) == 0
  last = checkpoint.read(tmp_path / 'checkpoints/7/seed_1').tree
  assert api.load(tmp_path).variables.params['w'].tobytes() == last.params['w'].tobytes()
  good = checkpoint.read(tmp_path / 'checkpoints/4/seed_0').tree
  assert api.load(tmp_path, seed=0).variables.params['w'].tobytes() == good.params['w'].tobytes()


@pytest.fixture(scope='module')
def real(tmp_path_factory):
  """A real run, with figures."""
  folder = tmp_path_factory.mktemp('real')
  config = config_of(**REAL, keep_checkpoints='phases')
  assert experiment.run_experiment(config, folder, config_name='tiny') == 0
  return folder


def test_real_run_leaves_all_files(real):
  for name in (
    'config.json',
    'metrics.jsonl',
    'summary.json',
    'figures/accuracy.png',
    'figures/partition.png',
  ):
    assert (real / name).stat().st_size > 100
  for name in ('synthetic/synthetic.npz', 'synthetic/synthetic.png', 'figures/synthetic.png'):
    assert (real / name).stat().st_size > 100
  assert len(list(real.glob('events.out.*'))) == 1
  assert sorted(p.name for p in real.iterdir() if p.name.startswith('.')) == ['.lock']
  stored = json.loads((real / 'config.json').read_text())
  assert stored['config_name'] == 'tiny' and re.fullmatch('[0-9a-f]{8}', stored['hash'])
  assert stored['dataset']['title'] and stored['dataset']['checksum'] and stored['versions']['jax']
  assert stored['layout']['lanes'] > 0 and stored['layout']['devices'] > 0


def test_real_summary(real):
  summary = json.loads((real / 'summary.json').read_text())
  seconds = summary['seconds']
  assert set(seconds) == {'total', 'compile', 'rounds', 'synthesis', 'finetune', 'evaluation'}
  assert (
    seconds['compile'] > 0
    and sum(v for k, v in seconds.items() if k != 'total') <= seconds['total'] + 0.01
  )
  assert summary['peak_memory_bytes'] > 1e6 and summary['bytes_up'] > 0
  assert 0 < summary['test_accuracy']['last']['mean'] < 1


def test_real_load_gives_a_model_that_has_the_accuracy_of_the_summary(real):
  loaded = api.load(real)
  dataset = datasets.load('digits')
  x = (dataset.test.x / 255 - np.array(dataset.normalisation.mean)) / np.array(
    dataset.normalisation.std
  )
  logits = np.asarray(
    loaded.model.apply(loaded.variables, x.astype(np.float32), train=False).logits
  )
  summary = json.loads((real / 'summary.json').read_text())
  accuracy = np.mean(logits.argmax(axis=-1) == dataset.test.y)
  assert accuracy == pytest.approx(summary['test_accuracy']['last']['mean'], abs=2e-3)


def test_api_run_of_fedavg_is_dynafed_up_to_its_synthesis(real):
  """Without folder and config, rounds 1..L of DynaFed are FedAvg's: same clients and batches."""
  config = config_lib.check(config_of(**REAL))
  dataset = datasets.load('digits')
  model = models.create('mlp', shape=dataset.train.x.shape[1:], num_classes=10, width=8, depth=1)
  method = algorithms.create('fedavg', config)
  result = api.run(
    *(method, dataset, model),
    rounds=PHASE,
    clients=4,
    partition='iid',
    participation=0.4,
    layout=Layout(devices=1),
  )
  own = ('seconds', 'dynafed/iterations', 'dynafed/loss')
  drop = lambda line: {k: v for k, v in line.items() if k not in own}
  for mine, theirs in zip(
    *(map(drop, lines) for lines in (result.history, lines_of(real)[: PHASE + 1])), strict=True
  ):
    assert mine == pytest.approx(theirs, rel=1e-5)
  at_phase = checkpoint.read(real / f'checkpoints/{PHASE}/seed_0').tree
  chex.assert_trees_all_close(result.variables[0].params, at_phase.params, rtol=1e-5, atol=1e-6)
  state = result.states[0]
  assert int(state.round) == PHASE and state.params is result.variables[0].params
  evaluate = result.engine.evaluator(dataset.test.x, dataset.test.y)
  accuracy = evaluate(state.params, state.stats)['accuracy']
  assert accuracy == pytest.approx(result.history[-1]['test/accuracy'])
  assert result.synthetic == {0: None}  # FedAvg learns none


@pytest.mark.parametrize('wrong', [{'rounds': 0}, {'rounds': 1, 'clients': 0}])
def test_api_run_refuses_by_name(wrong):
  with pytest.raises(ValueError, match='=0'):
    api.run(fs.FedAvg(), 'digits', 'mlp', **wrong)


@pytest.mark.parametrize(
  ('method', 'example'),
  [
    (fs.FedProx, r'as in fs.chain\(FedProx\(\)\)'),
    (lambda base=None: base, r'as in fs.chain\(fs.FedProx\(mu=0.01\)\)'),
    ('fedprox', r'as in fs.chain\(fs.FedProx\(mu=0.01\)\)'),
    (None, r'as in fs.chain\(fs.FedProx\(mu=0.01\)\)'),
  ],
)
def test_api_run_says_what_a_method_is(method, example):
  with pytest.raises(
    ValueError, match=f'^method=.*: must be a chain of layers, {example}'
  ) as refused:
    api.run(method, 'digits', 'mlp', rounds=1)
  assert '\n' not in str(refused.value)


def test_api_run_fills_in_what_follows_from_the_run():
  """DP gets its noise from its epsilon, 3 rounds, 2 seeds and the clients that take part."""
  wanted = fs.DP(clip=1.0, target_epsilon=2.0)
  result = api.run(
    *(wanted, 'digits', 'mlp'),
    rounds=3,
    seeds=(0, 1),
    clients=4,
    participation=0.5,
    layout=Layout(devices=1),
  )
  sampling = privacy.Sampling('fixed', 4, 0.5, 3, 2)
  resolved = wanted.resolve(contexts.Run(3, sampling, ('dp',)))
  assert resolved.noise_multiplier > 0 and result.engine.chain[fs.DP] == resolved


def test_api_run_warns_of_a_seed_that_diverged(monkeypatch):
  monkeypatch.setattr(api.engine_lib, 'Engine', Fake(diverge={1: 2}).build)
  with pytest.warns(UserWarning, match='seed 1 diverged in round 2'):
    result = api.run(
      fs.DynaFed(length=PHASE, segment=2), 'digits', 'mlp', rounds=PHASE + 1, seeds=(0, 1)
    )
  rounds = lambda seed: [line['round'] for line in result.history if line['seed'] == seed]
  assert rounds(0) == list(range(PHASE + 2)) and rounds(1) == [0, 1]
  assert result.variables[1] is None and result.variables[0] is not None
  assert result.synthetic[1] is None and result.synthetic[0]['x'].shape == (3, 10, 8, 8, 1)
  assert int(result.states[1].round) == 2


class Bar(progress.Reporter):
  """Keeps what it is told of."""

  def __init__(self):
    self.told = []

  def begin(self, label, rounds, done):
    self.told.append((label, rounds, done))

  def rounds(self, done, report):
    self.told.append(done)

  def server_work(self, report):
    self.told.append('server work')

  def end(self):
    self.told.append('end')

  def close(self):
    self.told.append('close')


def test_api_run_moves_a_bar(monkeypatch):
  bar, asked = Bar(), []
  monkeypatch.setattr(api.engine_lib, 'Engine', Fake().build)
  monkeypatch.setattr(progress, 'of_python', lambda wanted: asked.append(wanted) or bar)
  method = fs.DynaFed(length=PHASE, segment=2)
  train = lambda **more: api.run(method, 'digits', 'mlp', rounds=PHASE + 1, **more)
  train(seeds=(0, 1))
  work = ['server work'] * (ITERATIONS // 2)
  one = [0, 1, 2, 3, *work, 4, 'end']
  names = [(f'dynafed, seed {seed} ({seed + 1} of 2)', 4, 0) for seed in (0, 1)]
  assert bar.told == [names[0], *one, names[1], *one, 'close']
  bar.told.clear()
  with pytest.raises(ValueError, match="'nowhere'"):
    api.run(method, 'nowhere', 'mlp', rounds=PHASE + 1, progress=False)
  assert bar.told == ['close'] and asked == [True, False]


@pytest.mark.slow
def test_api_run_of_seeds_side_by_side():
  """Three seeds, two of them at a time: what each has alone."""
  run = lambda layout: api.run(
    fs.FedAvg(lr=0.05, optimizer='sgd', batch_size=32),
    'digits',
    'mlp',
    rounds=2,
    seeds=(0, 1, 2),
    clients=3,
    layout=Layout(seeds=layout),
  )
  alone, together = run(1), run(2)
  key = lambda line: (line['seed'], line['round'])
  assert [key(line) for line in together.history][:4] == [(0, 0), (1, 0), (0, 1), (1, 1)]
  for one, other in zip(alone.history, sorted(together.history, key=key), strict=True):
    assert one['test/loss'] == pytest.approx(other['test/loss'], abs=1e-4)
  chex.assert_trees_all_close(alone.variables, together.variables, atol=1e-4)
