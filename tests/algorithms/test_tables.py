"""Methods on tables and sequences, compared with numpy."""

import flax.linen as nn
import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.data.split import Split
from fedjax_syn.runs import export, stored_files, work_folder

ROWS, CLASSES = 24, 3


def table(features=4, seed=0):
  """Two thirds of the rows train; columns of quite different sizes."""
  rng = np.random.default_rng(seed)
  y = rng.permutation(np.arange(ROWS) % CLASSES)
  x = rng.normal(y[:, None] * [[1.0, -1, 0, 2][:features]], 1) * 10.0 ** np.arange(features)
  return fs.Dataset('t', 'T', Split(x[:16], y[:16]), Split(x[16:], y[16:]), None, CLASSES)


class Linear(nn.Module):
  """Logistic regression."""

  num_classes: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.num_classes)(x)


def gradient(w, b, x, y):
  """Of the mean softmax cross-entropy of a linear model."""
  logits = x @ w + b
  p = np.exp(logits - logits.max(1, keepdims=True))
  p = p / p.sum(1, keepdims=True) - np.eye(CLASSES)[y]
  return x.T @ p / len(x), p.mean(0)


@pytest.mark.parametrize('placement', ['device', 'host'])
def test_fedavg_of_a_linear_model(placement):
  """Two rounds of four clients with two full-batch steps each, on rows scaled in numpy."""
  data = table()
  x, y = data.train
  x = np.asarray(x, np.float64)
  x, lr = (x - x.mean(0)) / x.std(0), 0.5
  model = models.from_module(Linear(CLASSES), data.shape, CLASSES)
  method = fs.FedAvg(lr=lr, optimizer='sgd', batch_size=0, epochs=2)
  of = {'clients': 4, 'placement': placement, 'layout': fs.Layout(devices=1)}
  result = fs.run(method, data, model, rounds=2, progress=False, **of)
  start = jax.tree.map(np.asarray, model.init(stream(0, Purpose.INIT))).params['Dense_0']
  w, b = (np.asarray(start[name], np.float64) for name in ('kernel', 'bias'))
  shards = result.engine.data
  order, begin, size = (np.asarray(v) for v in (shards.order, shards.start, shards.size))
  for _ in range(2):
    sent = []
    for first, rows in zip(begin, size, strict=True):
      own, (v, c) = order[first : first + rows], (w, b)
      for _ in range(2):
        of_v, of_c = gradient(v, c, x[own], y[own])
        v, c = v - lr * of_v, c - lr * of_c
      sent.append((v, c))
    w, b = (np.mean(part, axis=0) for part in zip(*sent, strict=True))
  got = result.variables[0].params['Dense_0']
  np.testing.assert_allclose(got['kernel'], w, rtol=0, atol=2e-6)
  np.testing.assert_allclose(got['bias'], b, rtol=0, atol=2e-6)


def test_what_needs_images_says_so():
  data = table()
  for method, words in (
    (fs.VHL(), "algorithm='vhl': needs images, and these data are a table"),
    (fs.FedAvg(augment='flip'), "client.augment: needs images, and these data are a table; 'none'"),
    (fs.chain(fs.FedAvg(), fs.FedCOG(start=1, generator=True)), "'fedcog': needs images, and"),
    (fs.chain(fs.FedAvg(), fs.DynaFed(length=2, segment=1, augment='flip')), "'dynafed': needs im"),
  ):
    with pytest.raises(ValueError, match=words):
      fs.run(method, data, 'mlp', rounds=4, clients=2)


def sequences():
  """Five steps of two channels, around the label."""
  rng = np.random.default_rng(1)
  y = rng.permutation(np.arange(ROWS) % CLASSES)
  x = rng.normal(y[:, None, None], 1, (ROWS, 5, 2))
  return fs.Dataset('s', 'S', Split(x[:16], y[:16]), Split(x[16:], y[16:]), None, CLASSES)


SGD = lambda: fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=8)
LEARN = {'images_per_class': 2, 'iterations': 2}
METHODS = {
  'dynafed': lambda: fs.chain(SGD(), fs.DynaFed(length=2, segment=1, targets=1, **LEARN)),
  'feddm': lambda: fs.FedDM(least=1, server_steps=2, real_batch=4, **LEARN),
  'feddualmatch': lambda: fs.FedDualMatch(**LEARN),
  'fedcog': lambda: fs.chain(SGD(), fs.FedCOG(start=1, samples=6, steps=2, kd_batch=4)),
  'fedmix': lambda: fs.chain(SGD(), fs.FedMix()),
  'fedreg': lambda: fs.chain(SGD(), fs.FedReg(iterations=2)),
  'fedgen': lambda: fs.chain(SGD(), fs.FedGen(steps=2)),
  'moon': lambda: fs.chain(SGD(), fs.MOON()),
  'ditto': lambda: fs.chain(SGD(), fs.Ditto()),
}


@pytest.mark.slow
@pytest.mark.parametrize('make, model', [(table, 'mlp'), (sequences, 'convnet1d')])
@pytest.mark.parametrize('name', METHODS)
def test_matching_and_generation(name, make, model):
  """Every number is finite, also with dropout; a learned set has the shape of the rows."""
  data = make()
  of = {'shape': data.shape, 'num_classes': CLASSES, 'width': 6, 'depth': 1}
  network, more = models.create(model, dropout=0.3, **of), {'layout': fs.Layout(devices=1)}
  result = fs.run(METHODS[name](), data, network, rounds=3, clients=2, progress=False, **more)
  assert all(np.isfinite(v) for line in result.history for v in line.values())
  if (learned := result.synthetic[0]) is not None:
    assert learned['x'].shape[2:] == data.shape and np.isfinite(learned['x']).all()


def test_bytes_of_a_sent_table():
  """Two classes with two rows of four float32 features each, and a byte for each class."""
  method = fs.FedDM(least=5, images_per_class=2)
  counts = np.array([[5, 4, 6]])
  task = type('T', (), {'data': type('D', (), {'x': np.zeros((9, 4), np.float32)})})
  assert method.message_bytes(task, counts).tolist() == [2 * 2 * 4 * 4 + 3]


@pytest.mark.parametrize('shape', [(4,), (5, 2), (6, 6, 3)])
def test_a_learned_set_in_a_run_folder(tmp_path, shape):
  """Its file is read back; what is exported are values before scaling, or pixels."""
  columns = shape[-1]
  x = np.random.default_rng(0).normal(size=(2, 3, *shape)).astype(np.float32)
  mean, std = np.arange(columns, dtype=np.float32), np.full(columns, 2, np.float32)
  more = {'iterations': np.array([0, 2]), 'mean': mean, 'std': std}
  y = np.full((2, 3, 2), 0.5, np.float32)
  stored_files.write_arrays(tmp_path / 'synthetic' / 'synthetic.npz', {'x': x, 'y': y, **more})
  learned = work_folder.arrays(tmp_path, 'synthetic/synthetic.npz', None)
  described = {'dataset': {'num_classes': 2}}
  assert work_folder.misfit(described, None, (), [learned]) == ''
  last = export.last_set(learned)
  if len(shape) == 3:
    assert last['pixels'].dtype == np.uint8 and 'values' not in last
    return
  np.testing.assert_allclose(last['values'], x[-1] * 2 + mean, rtol=1e-6)
  with pytest.raises(ValueError, match='format=png: the set has no images'):
    export.check_shown(last, ('npz', 'png'))
