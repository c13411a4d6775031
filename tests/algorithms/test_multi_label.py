"""Several labels per sample: which layers allow them, and which refuse.

The tests compare FedCOG with numpy and the evaluation with scikit-learn.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sk

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.core.objectives import multi_label
from fedjax_syn.core.types import Step, Variables
from fedjax_syn.data import datasets
from fedjax_syn.data.federated import Proxy
from tests import tiny

WORK = (
  'fedprox',
  'fedavgm',
  'fedopt',
  'fedexp',
  'fedsam',
  'feddecorr',
  'moon',
  'scaffold',
  'abavg',
  'ditto',
  'fedrep',
  'fednova',
)
REFUSE = (
  'dynafed',
  'fedbe',
  'feddf',
  'fedgen',
  'fedmix',
  'feddm',
  'feddualmatch',
  'vhl',
  'fedreg',
)
LABELS = 3


def federated(sizes=(12, 0, 5)):
  """Images of 2 x 2 pixels; label j is there if pixel j is bright."""
  data = tiny.federated(sizes)
  x = np.asarray(data.x)
  y = (x.reshape(len(x), -1)[:, :LABELS] > 128).astype(np.int32)
  clients = np.split(y, np.cumsum(sizes)[:-1])
  counts = np.stack([part.sum(0) for part in clients]).astype(np.int32)
  return data._replace(y=jnp.asarray(y), class_counts=jnp.asarray(counts))


def base():
  return fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=4)


def setup(**fields):
  """A client with 6 samples and 8, 1, 0 of the labels: 9 / 6 labels per sample, lacking 0, 7, 8."""
  data, model = federated(), tiny.net(4, LABELS)
  method = fs.chain(base(), fs.FedCOG(**{'start': 1, 'samples': 10, 'lr': 0.05, **fields}))
  layer, previous, w = method[fs.FedCOG], *(model.init(jax.random.key(i)) for i in (7, 1))
  state = layer.client_init(None, previous, None)._replace(visited=jnp.ones((), bool))
  engine = tiny.build(method, model, data)
  client = tiny.client_of(
    engine, fs.FedCOG, round=2, key=jax.random.key(3), params=w.params, state=state
  )
  shard = client.shard._replace(class_counts=jnp.array([8, 1, 0]), size=jnp.array(6))
  return layer, client._replace(shard=shard), previous


def bernoulli(model, variables, x):
  """Probabilities [samples, labels, 2] in numpy."""
  p = 1 / (1 + np.exp(-np.asarray(model.apply(variables, x).logits, np.float64)))
  return np.stack([1 - p, p], -1)


def objective(model, w, previous, x, y, weight=0.1):
  """Eq. 1 with means over labels, in numpy, summed over samples."""
  p, q = (bernoulli(model, v, x) for v in (w, previous))
  m = (p + q) / 2
  js = 0.5 * (p * np.log(p / m) + q * np.log(q / m)).sum(-1).mean(-1)
  ce = -np.log(np.where(y > 0, p[..., 1], p[..., 0])).mean(-1)
  return (ce + weight * (1 - js)).sum()


def test_targets_are_what_is_lacking_and_generation_recognises_them():
  """15 labels of ten samples by 7 : 8."""
  layer, client, previous = setup(steps=200)
  prepared, model = layer.prepare(client), client.task.model
  end, start = prepared.generated, setup(steps=0)[0].prepare(client).generated
  np.testing.assert_array_equal(end.y.sum(0), [0, 7, 8])
  w = Variables(client.params, {})
  first, last = (objective(model, w, previous, g.x, np.asarray(g.y)) for g in (start, end))
  assert last < 0.7 * first
  assert end.log_p.shape == (10, LABELS, 2)
  np.testing.assert_allclose(np.exp(end.log_p), bernoulli(model, w, end.x), atol=1e-6)
  recognised = (np.argmax(end.log_p, -1) == end.y).mean()
  assert recognised > 0.8
  logged = layer.client_metrics(client._replace(prepared=prepared), w)
  np.testing.assert_allclose(logged['recognised'], recognised)


def test_generation_follows_the_finite_differences_of_its_objective():
  """Adam's first step is its rate times the sign of the gradient."""
  with jax.enable_x64(True):
    layer, client, previous = setup(steps=1)
    end, model = layer.prepare(client).generated, client.task.model
    x = np.asarray(setup(steps=0)[0].prepare(client).generated.x)
    w, y = Variables(client.params, {}), np.asarray(end.y)
    for index in [(0, 0, 0, 0), (3, 1, 0, 0), (9, 1, 1, 0)]:
      h = np.zeros_like(x)
      h[index] = 1e-5
      up, down = (objective(model, w, previous, x + s * h, y) for s in (1, -1))
      moved = (np.asarray(end.x) - x)[index]
      np.testing.assert_allclose(moved, -0.05 * np.sign(up - down), rtol=1e-3)


@pytest.mark.parametrize('divergence', ['paper', 'code'])
def test_distillation_by_hand(divergence):
  """9 labels are held and 15 lacking: the weights are 9/24 and 15/24.

  KL is 0 where the model is its own teacher (Lemma A.5).
  """
  layer, client, _ = setup(steps=10, kd_batch=10, divergence=divergence)
  client = client._replace(prepared=layer.prepare(client))
  own, weights, model = client.prepared.generated, client.prepared[2:], client.task.model
  np.testing.assert_allclose(weights, (9 / 24, 15 / 24), rtol=1e-6)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2, 2, 1)), jnp.float32)
  y = jnp.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]])
  step = Step(jax.random.key(0), 0, x, y, jnp.array([1.0, 1, 1, 0]), {})

  def plain(params, step):
    out = model.apply(Variables(params, {}), step.x)
    return multi_label.loss(out.logits, step.y, step.mask), out

  loss = functools.partial(layer.loss, client, plain)
  np.testing.assert_allclose(
    loss(client.params, step)[0], 9 / 24 * plain(client.params, step)[0], rtol=1e-5
  )
  other = model.init(jax.random.key(11)).params
  p, q = (bernoulli(model, Variables(v, {}), own.x).astype(float) for v in (client.params, other))
  kl = (p * np.log(p / q)).sum(-1).mean()
  want = 9 / 24 * plain(other, step)[0] + 15 / 24 * kl
  np.testing.assert_allclose(loss(other, step)[0], want, rtol=1e-4)
  hard = setup(steps=10, kd_batch=10, divergence=divergence, supervision='hard')[0]
  ce = -np.log(np.where(np.asarray(own.y) > 0, q[..., 1], q[..., 0])).mean()
  want = 9 / 24 * plain(other, step)[0] + 15 / 24 * ce
  np.testing.assert_allclose(hard.loss(client, plain, other, step)[0], want, rtol=1e-4)


def train(method, rounds, data=None):
  engine = tiny.build(method, tiny.net(4, LABELS), data or federated())
  state = engine.init(0)
  while int(state.round) < rounds:
    stop = min(engine.next_stop(int(state.round)) or rounds, rounds)
    state, report = engine.run(0, state, stop - int(state.round))
  return engine, state, report


def test_training_learns_and_is_evaluated_as_scikit_learn_does():
  engine, state, _ = train(
    fs.chain(base(), fs.FedCOG(start=20, samples=6, steps=10, kd_batch=3)), 22
  )
  data = federated((40,))
  evaluate = engine.evaluator(np.asarray(data.x), np.asarray(data.y))
  got, before = evaluate(state.params, state.stats), evaluate(engine.init(1).params, {})
  x = (data.x / 255 - 0.5) / 0.3
  found = np.asarray(engine.model.apply(Variables(state.params, {}), x).logits) > 0
  for letter, average in (('c', 'macro'), ('o', 'micro')):
    want = sk.precision_recall_fscore_support(data.y, found, average=average, zero_division=0)
    assert [got[f'{letter}_{n}'] for n in ('precision', 'recall', 'f1')] == pytest.approx(want[:3])
  assert got['accuracy'] == pytest.approx(sk.accuracy_score(data.y, found))
  assert got['o_f1'] > before['o_f1'] and got['loss'] < before['loss']


def test_uniform_targets():
  fields = {'source': 'global', 'labels': 'uniform'}
  method = fs.chain(base(), fs.FedCOG(start=0, samples=6, steps=5, kd_batch=3, **fields))
  assert np.isfinite(train(method, 1)[2]['train/loss'])


@pytest.mark.parametrize(
  'name',
  [
    n if n in ('fedprox', 'scaffold', 'fedrep') else pytest.param(n, marks=pytest.mark.slow)
    for n in WORK
  ],
)
def test_who_works(name):
  method = fs.chain(base(), algorithms.layer_class(name)())
  data = federated()
  if name in ('moon', 'scaffold'):
    method = fs.chain(method, fs.FedCOG(start=0, samples=6, steps=3, kd_batch=3))
  report = train(method, 1, data._replace(proxy=Proxy(data.x, data.y)))[2]
  assert np.isfinite(report['train/loss'])


@pytest.mark.parametrize('name', REFUSE)
def test_who_refuses(name):
  layer, data = algorithms.layer_class(name)(), federated()
  with pytest.raises(ValueError) as error:
    train(fs.chain(base(), layer), 1, data._replace(proxy=Proxy(data.x, data.y)))
  assert str(error.value) == (
    f"algorithm='{name}': needs one class per sample, and these data have several labels per sample"
  )


def test_a_folder_of_multi_hot_arrays_from_end_to_end(tmp_path):
  """Natural partition; held-out rows keep their labels; metrics by name in the history."""
  rng = np.random.default_rng(0)
  for name, rows in (('train', 48), ('test', 20)):
    x = rng.integers(0, 256, (rows, 4, 4, 1), np.uint8)
    y = (x.reshape(rows, -1)[:, :5] > 180).astype(np.uint8)
    np.savez(
      tmp_path / f'{name}.npz', x=x, y=y, **({'clients': np.arange(rows) % 4} if rows == 48 else {})
    )
  data = datasets.load('arrays', str(tmp_path), validation=0.25)
  assert (
    data.num_classes == 5 and data.train.y.shape == (36, 5) and data.validation.y.shape == (12, 5)
  )
  bright = lambda s: s.x.reshape(len(s.x), -1)[:, :5] > 180
  for split in (data.train, data.validation):
    np.testing.assert_array_equal(split.y, bright(split))
  of = {'clients': 4, 'layout': fs.Layout(devices=1)}
  result = fs.run(fs.FedAvg(lr=0.1), data, 'mlp', rounds=2, partition='natural', **of)
  letters = {f'test/{a}_{b}' for a in 'co' for b in ('precision', 'recall', 'f1')}
  assert letters < set(result.history[-1])
  with pytest.raises(ValueError, match='personal_every: needs one class per sample'):
    fs.run(fs.FedAvg(lr=0.1), data, 'mlp', rounds=1, clients=4, partition='iid', personal_every=1)
  with pytest.raises(ValueError, match="'dirichlet' needs one class per row"):
    fs.run(fs.FedAvg(lr=0.1), data, 'mlp', rounds=2, clients=4, partition='dirichlet')


def test_multi_hot_arrays_are_checked(tmp_path):
  x = np.zeros((4, 2, 2, 1), np.uint8)
  np.savez(tmp_path / 'train.npz', x=x, y=np.eye(4, dtype=int)[:, :3])
  np.savez(tmp_path / 'test.npz', x=x, y=np.eye(4, dtype=int))
  with pytest.raises(ValueError, match=r'train.npz: labels are \[4, 3\], but test labels \[4, 4\]'):
    datasets.load('arrays', str(tmp_path))
  np.savez(tmp_path / 'test.npz', x=x, y=2 * np.eye(4, dtype=int)[:, :3])
  with pytest.raises(ValueError, match=r'labels must lie in 0\.\.1, got 0\.\.2'):
    datasets.load('arrays', str(tmp_path))
