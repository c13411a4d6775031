"""Methods on tables and sequences, compared with numpy."""

import flax.linen as nn
import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.data.split import Split

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
