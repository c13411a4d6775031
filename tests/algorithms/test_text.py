"""Tokens: the text model by hand, and FedCOG's data behind the embedding (A.1.2)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms, models
from fedjax_syn import config as config_lib
from fedjax_syn.core.objectives import cross_entropy, negative_log_likelihood
from fedjax_syn.core.types import Step, Variables
from fedjax_syn.data import datasets
from fedjax_syn.data.builders import fortunes
from fedjax_syn.data.federated import from_partition
from fedjax_syn.data.partition import partition
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
  """One convolution over three neighbours, ReLU, maximum over positions; padding is zero."""
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
  layer, (w, previous) = method[fs.FedCOG], (model.init(jax.random.key(i)) for i in (1, 7))
  state = layer.client_init(None, previous, None)._replace(visited=jnp.ones((), bool))
  engine = tiny.build(method, model, placed)
  return layer, tiny.client_of(
    engine, fs.FedCOG, round=2, key=jax.random.key(3), params=w.params, state=state
  )


def test_data_are_generated_behind_the_embedding(corpus):
  """The client has topic 0 alone, so its data are of the two others.

  Generation moves the data until the global model recognises their topics.
  """
  layer, client = setup(corpus, steps=60)
  end, start = (of.prepare(client).generated for of in (layer, setup(corpus, steps=0)[0]))
  assert end.x.shape == (12, fortunes.LENGTH, 8) and end.x.dtype == jnp.float32
  np.testing.assert_array_equal(np.bincount(end.y, minlength=3), [0, 6, 6])
  first, last = (negative_log_likelihood(g.log_p, g.y).mean() for g in (start, end))
  assert last < 0.5 * first
  out = client.task.model.apply(Variables(client.params, {}), end.x)
  np.testing.assert_allclose(end.log_p, jax.nn.log_softmax(out.logits), rtol=0, atol=1e-5)


def test_distillation_leaves_the_base_its_gradient(corpus):
  """Real tokens and embedded data share a pass, and the loss is the weighted sum.

  The embedding of the tokens gets the gradient of the base's loss.
  """
  layer, client = setup(corpus, steps=3, kd_batch=12)
  client = client._replace(prepared=layer.prepare(client))
  x, y = jnp.asarray(corpus.train.x[:5]), jnp.asarray(corpus.train.y[:5])
  step = Step(jax.random.key(0), 0, x, y, jnp.array([1.0, 1, 1, 1, 0]), {})

  def plain(params, step):
    out = client.task.model.apply(Variables(params, {}), step.x)
    return cross_entropy(out.logits, step.y, step.mask), out

  real = client.prepared.real_weight
  value = lambda f: jax.jit(jax.value_and_grad(lambda w: f(w, step)[0]))(client.params)
  mixed = functools.partial(layer.loss, client, plain)
  (got, grads), (want, base_grads) = value(mixed), value(plain)
  np.testing.assert_allclose(got, real * want, rtol=1e-5)  # the model is its own teacher
  for a, b in zip(*(jax.tree.leaves(g) for g in (grads, base_grads)), strict=True):
    np.testing.assert_allclose(a, real * b, rtol=0, atol=1e-6)
  assert np.abs(grads['body']['embedding']).max() > 0


@pytest.mark.parametrize(
  'layers, least',
  [((), 2 / 3), pytest.param((fs.MOON(),), 0.4, marks=pytest.mark.slow)],
  ids=['fedavg', 'moon'],
)
def test_training_on_topics(corpus, layers, least):
  """Each client has one topic, and a guess is right for a third of the samples.

  MOON applies other models to the embedded samples too.
  """
  cog = fs.FedCOG(start=4, samples=12, steps=20, lr=0.1, kd_batch=8)
  method = fs.chain(base(), *layers, cog)
  of = {'clients': 3, 'partition': 'natural', 'layout': fs.Layout(devices=1)}
  result = fs.run(method, corpus, text_model(), rounds=6, **of)
  assert all(np.isfinite(v) for line in result.history for v in line.values())
  assert result.history[-1]['test/accuracy'] > least


@pytest.mark.parametrize(
  'name', ['dynafed', 'fedgen', 'fedmix', 'feddm', 'feddualmatch', 'vhl', 'fedreg']
)
def test_methods_for_images_refuse(corpus, name):
  method = fs.chain(base(), algorithms.layer_class(name)())
  with pytest.raises(
    ValueError, match=f"algorithm='{name}': needs .*images.*, and these data are tokens"
  ):
    fs.run(method, corpus, text_model(), rounds=30, clients=3, partition='iid')


def test_options_for_images_refuse(corpus):
  data = from_partition(corpus, partition('iid', corpus.train.y, 3))
  for method in (
    fs.chain(base(), fs.FedCOG(start=1, generator=True)),
    fs.FedAvg(lr=0.1, augment='crop_flip'),
  ):
    with pytest.raises(ValueError, match='needs images, and these data are tokens'):
      tiny.build(method, text_model(), data)


def test_models_and_data_that_do_not_fit_refuse():
  takes = "'mlp': takes images, a table or sequences, and these data are tokens; use text"
  with pytest.raises(ValueError, match=takes):
    models.create('mlp', shape=(32,), num_classes=2, kind='tokens')
  with pytest.raises(ValueError, match="'text': takes tokens, and these data are images; use cnn3"):
    models.create('text', shape=(8, 8, 1), num_classes=2)
  data = {'name': 'fortunes', 'partition': 'natural', 'clients': 12}
  with pytest.raises(
    config_lib.ConfigError, match="model.name='convnet': takes images, and data.name"
  ):
    config_lib.check({'algorithm': 'fedavg', 'data': data})
  with pytest.raises(config_lib.ConfigError, match="algorithm='dynafed': needs rows of real"):
    config_lib.check({'algorithm': 'dynafed', 'data': data, 'model': {'name': 'text'}})
  config_lib.check({'algorithm': 'fedcog', 'data': data, 'model': {'name': 'text'}})
