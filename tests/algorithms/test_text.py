"""Tokens: the text model by hand, and FedCOG's data behind the embedding (A.1.2)."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedjax_syn.method import ClientContext, Task

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn import models
from fedjax_syn.data import datasets
from fedjax_syn.data.builders import fortunes
from fedjax_syn.data.federated import from_partition, shard_of
from fedjax_syn.data.partition import partition
from fedjax_syn.losses import cross_entropy, negative_log_likelihood
from fedjax_syn.typing import Step, Variables
from tests import tiny
from tests.data.test_fortunes import write


def text_model(classes: int = 3):
  return models.create('text', shape=(fortunes.LENGTH,), num_classes=classes, width=8)


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp('texts')
  write(folder / 'fortunes')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(fortunes, 'LEAST', 10)
    return datasets.load('fortunes', str(folder))


def base():
  return fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=8)


def test_model_by_hand_and_on_embedded_tokens():
  """One convolution over three neighbours, ReLU, maximum over positions; padding is the zero vector."""
  model = models.create('text', shape=(4,), num_classes=2, width=3)
  w = model.init(jax.random.key(0))
  x = jnp.array([[7, 2, 9, 0], [1, 0, 0, 0]], jnp.int32)
  body, head = w.params['body'], w.params['head']
  e = np.asarray(body['embedding'])[x] * (np.asarray(x) > 0)[..., None]
  padded = np.pad(e, ((0, 0), (1, 1), (0, 0)))
  windows = np.concatenate([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], -1)
  z = np.maximum(windows @ body['conv_0']['kernel'] + body['conv_0']['bias'], 0).max(1)
  out = model.apply(w, x)
  np.testing.assert_allclose(out.features, z, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(out.logits, z @ head['kernel'] + head['bias'], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(model.embed(w.params, x), e, rtol=1e-6)
  np.testing.assert_allclose(model.apply(w, model.embed(w.params, x)).logits, out.logits, rtol=1e-6)


def setup(data, **fields):
  model = text_model()
  part = partition('natural', data.train.y, 3, client_ids=data.clients)
  placed = from_partition(data, part)
  method = fs.chain(base(), fs.FedCOG(start=0, samples=12, lr=0.05, **fields))
  task = Task(model, cross_entropy, placed, 3, 3, method.hyper, 1)
  transform = method.client_transforms[0](task)
  w, previous = (model.init(jax.random.key(i)) for i in (1, 7))
  state = transform.init(previous, None)._replace(visited=jnp.ones((), bool))
  visit = ClientContext(
    jax.random.key(3), jnp.int32(2), w.params, {}, {}, {'fedcog': state}, shard_of(placed, 0)
  )
  return task, transform, visit


def test_data_are_generated_behind_the_embedding(corpus):
  """The client has topic 0 alone: its data are of the two others, and move until the global model sees them."""
  task, transform, visit = setup(corpus, steps=60)
  _, made, _ = transform.prepare(visit)
  _, start, _ = setup(corpus, steps=0)[1].prepare(visit)
  assert made.x.shape == (12, fortunes.LENGTH, 8) and made.x.dtype == jnp.float32
  np.testing.assert_array_equal(np.bincount(made.y, minlength=3), [0, 6, 6])
  first, last = (negative_log_likelihood(g.log_p, g.y).mean() for g in (start, made))
  assert last < 0.5 * first
  out = task.model.apply(Variables(visit.params, {}), made.x)
  np.testing.assert_allclose(made.log_p, jax.nn.log_softmax(out.logits), rtol=0, atol=1e-5)


def test_distillation_leaves_the_base_its_gradient(corpus):
  """Real tokens and embedded data share a pass: the loss is the weighted sum, and the embedding of the tokens gets
  the gradient of the base's loss."""
  task, transform, visit = setup(corpus, steps=3, kd_batch=12)
  ctx = transform.prepare(visit)
  x, y = jnp.asarray(corpus.train.x[:5]), jnp.asarray(corpus.train.y[:5])
  step = Step(jax.random.key(0), 0, x, y, jnp.array([1.0, 1, 1, 1, 0]), {})

  def plain(params, step):
    out = task.model.apply(Variables(params, {}), step.x)
    return cross_entropy(out.logits, step.y, step.mask), out

  real, _ = ctx[2]
  value = lambda f: jax.value_and_grad(lambda w: f(w, step)[0])(visit.params)
  (got, grads), (want, base_grads) = value(transform.loss(ctx, plain)), value(plain)
  np.testing.assert_allclose(got, real * want, rtol=1e-5)  # the model is its own teacher
  for a, b in zip(*(jax.tree.leaves(g) for g in (grads, base_grads)), strict=True):
    np.testing.assert_allclose(a, real * b, rtol=0, atol=1e-6)
  assert np.abs(grads['body']['embedding']).max() > 0


@pytest.mark.parametrize(
  'wrap, least',
  [(lambda m: m, 2 / 3), pytest.param(fs.MOON, 0.4, marks=pytest.mark.slow)],
  ids=['fedavg', 'moon'],
)
def test_training_on_topics(corpus, wrap, least):
  """One topic per client; a guess has a third right. MOON sees the embedded samples through other models too."""
  method = fs.chain(wrap(base()), fs.FedCOG(start=4, samples=12, steps=20, lr=0.1, kd_batch=8))
  result = fs.run(method, corpus, text_model(), rounds=6, clients=3, partition='natural')
  assert all(np.isfinite(v) for line in result.history for v in line.values())
  assert result.history[-1]['test/accuracy'] > least


@pytest.mark.parametrize(
  'name', ['dynafed', 'fedgen', 'fedmix', 'feddm', 'feddualmatch', 'vhl', 'fedreg']
)
def test_methods_for_images_refuse(corpus, name):
  module = importlib.import_module(f'fedjax_syn.algorithms.{name}')
  with pytest.raises(
    ValueError, match=f"algorithm='{name}': needs images, and these data are tokens"
  ):
    fs.run(
      getattr(module, name)(base()), corpus, text_model(), rounds=1, clients=3, partition='iid'
    )


def test_options_for_images_refuse(corpus):
  data = from_partition(corpus, partition('iid', corpus.train.y, 3))
  for method in (
    fs.chain(base(), fs.FedCOG(start=1, generator=True)),
    fs.chain(base(), fs.FedCOG(start=1, total_variation=0.1)),
    fs.FedAvg(lr=0.1, augment='crop_flip'),
  ):
    with pytest.raises(ValueError, match='needs images, and these data are tokens'):
      tiny.build(method, text_model(), data)


def test_models_and_data_that_do_not_fit_refuse():
  with pytest.raises(ValueError, match="'mlp': takes images, and these data are tokens; use text"):
    models.create('mlp', shape=(32,), num_classes=2)
  with pytest.raises(ValueError, match="'text': takes tokens, and these data are images; use cnn3"):
    models.create('text', shape=(8, 8, 1), num_classes=2)
  data = {'name': 'fortunes', 'partition': 'natural', 'clients': 12}
  with pytest.raises(
    config_lib.ConfigError, match="model.name='convnet': takes images, and data.name"
  ):
    config_lib.check({'algorithm': 'fedavg', 'data': data})
  with pytest.raises(config_lib.ConfigError, match="algorithm='dynafed': needs images"):
    config_lib.check({'algorithm': 'dynafed', 'data': data, 'model': {'name': 'text'}})
  config_lib.check({'algorithm': 'fedcog', 'data': data, 'model': {'name': 'text'}})
