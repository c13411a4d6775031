"""Ditto and FedRep: numbers by hand, their neutral settings, and what stays on the clients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.types import Variables
from tests import tiny


def sgd(lr=0.5, **fields):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=1, **fields)


def after(method, rounds, model=None, data=None, **options):
  if model is None:
    model, options['loss'] = tiny.quadratic(1.0), tiny.half_square
  engine = tiny.build(method, model, data or tiny.two_points(), **options)
  return engine, engine.run(0, engine.init(0), rounds)[0]


def own_heads(state):
  (leaf,) = state.clients['fedrep'].values()  # the tiny models' heads are one leaf
  return np.asarray(leaf)


def test_dittos_personal_models_two_rounds_by_hand():
  """lambda = 1/2, rate 1/2, batch 1: v - ((v - x) + (v - w) / 2) / 2 = v / 4 + x / 2 + w / 4.

  A takes 1 step, B 3.

  Round 1, w = v = 1. A (x = 0): 1/4 + 1/4 = 0.5. B (x = 4): v / 4 + 2.25: 2.5; 2.875; 2.96875.
  The global model is FedAvg's: A to 0.5, B to 3.625, mean 2.0625.

  Round 2, w = 2.0625. A: 0.125 + 0.515625 = 0.640625. B: v / 4 + 2.515625: 3.2578125; 3.330078125;
  3.34814453125. The global model: A to 1.03125, B to 4 - 1.9375 / 8 = 3.7578125, mean 2.39453125.
  """
  _, state = after(fs.chain(sgd(), fs.Ditto(lambda_personal=0.5)), 2)
  np.testing.assert_allclose(
    state.clients['ditto'].params['w'], [0.640625, 3.34814453125], rtol=1e-6
  )
  np.testing.assert_allclose(state.params['w'], 2.39453125, rtol=1e-6)


def test_dittos_steps_are_its_own():
  """Two steps instead of a pass, round 1 as above: A 0.5 / 4 + 1 / 4 = 0.375; B 2.875."""
  _, state = after(fs.chain(sgd(), fs.Ditto(lambda_personal=0.5, steps=2)), 1)
  np.testing.assert_allclose(state.clients['ditto'].params['w'], [0.375, 2.875], rtol=1e-6)
  _, state = after(fs.chain(sgd(), fs.Ditto(lambda_personal=0.5, epochs=2)), 1)
  np.testing.assert_allclose(
    state.clients['ditto'].params['w'], [0.375, 3 - 2 / 4**6], rtol=1e-6
  )  # towards 3, a quarter of the distance left in every step


@pytest.mark.exact
@pytest.mark.parametrize(
  'base', ['adam', pytest.param('momentum', marks=pytest.mark.slow), 'fedprox']
)
def test_dittos_global_model_is_the_bases_to_the_last_bit(base):
  make = {
    'adam': lambda: fs.FedAvg(lr=0.01, batch_size=2, persistent=True),
    'momentum': lambda: fs.FedAvg(lr=0.1, optimizer='sgd', momentum=0.9, batch_size=2, epochs=2),
    'fedprox': lambda: fs.chain(
      fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.FedProx(mu=0.1)
    ),
  }[base]
  data = tiny.federated([4, 0, 3, 7])
  (plain_engine, plain), (engine, state) = (
    after(m, 3, tiny.net(4, 3), data, participation=0.75)
    for m in (make(), fs.chain(make(), fs.Ditto()))
  )
  for a, b in zip(jax.tree.leaves(plain.params), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_array_equal(a, b)
  assert engine.bytes_per_round() == plain_engine.bytes_per_round()


def test_a_large_lambda_holds_the_personal_models_at_the_global_one():
  """Rate 0.01, lambda 99: one step from any v ends at w - 0.01 (w - x)."""
  _, state = after(fs.chain(sgd(0.01), fs.Ditto(lambda_personal=99.0)), 1)
  np.testing.assert_allclose(state.clients['ditto'].params['w'], 1.0, atol=0.05)
  _, state = after(fs.chain(sgd(0.01), fs.Ditto(lambda_personal=0.0, epochs=300)), 1)
  np.testing.assert_allclose(state.clients['ditto'].params['w'], [0.0, 4.0], atol=0.06)


def test_without_lambda_and_with_one_sample_the_personal_model_is_the_local_one():
  _, state = after(
    fs.chain(sgd(0.1), fs.Ditto(lambda_personal=0.0)), 1, tiny.net(4, 3), tiny.federated([1])
  )
  for v, w in zip(
    jax.tree.leaves(state.clients['ditto'].params), jax.tree.leaves(state.params), strict=True
  ):
    np.testing.assert_allclose(v[0], w, rtol=0, atol=1e-6)


def test_dittos_personal_model_is_evaluated():
  """The sign of w - 2 is the class of two logits.

  With w near 2.4 both clients predict 1. With v A predicts 0 and B 1.
  """
  model = tiny.quadratic(1.0)

  def apply(variables, x, train=False, mask=None):
    out = tiny.quadratic(1.0).apply(variables, x)
    if train:
      return out
    w = jnp.full((x.shape[0], 1), variables.params['w'])
    return out._replace(logits=jnp.concatenate([0 * w, w - 2], axis=1))

  x = np.array([0, 4, 4, 4], np.uint8).reshape(4, 1, 1, 1)
  data = tiny.clients_of(x, np.array([0, 1, 1, 1]), [1, 3], 2)
  method = fs.chain(sgd(), fs.Ditto(lambda_personal=0.5))
  engine, state = after(method, 2, model._replace(apply=apply), data, loss=tiny.half_square)
  measured = engine.personal(x[:2], np.array([0, 1]))(0, state)
  np.testing.assert_array_equal(measured.accuracy, [1.0, 1.0])
  # What is plain local training from 2.39453125: A to 1.197265625, B to 4 - 1.60546875 / 8.
  np.testing.assert_allclose(measured.difference, [1.197265625, 1.40478515625], rtol=1e-6)
  np.testing.assert_allclose(measured.generalisation, [0.5, 0.5])


def test_fedrep_two_rounds_by_hand():
  """body = head = 1, rate 1/2, loss (body head - x)^2 / 2: a step on the head, then on the body.

  Round 1. A (x = 0): head 1 - 1/2 = 0.5, body 1 - 0.5 * 0.5 * 0.5 = 0.875. B (x = 4; its three
  samples are a batch): head 1 + 3/2 = 2.5, body 1 + 1.5 * 2.5 / 2 = 2.875. The mean body is 1.875.

  Round 2. A: 0.5 * 1.875 = 0.9375, so the head is 0.5 - 0.9375 * 1.875 / 2 = -0.37890625. The
  product is -0.71044921875, so the body is
  1.875 - 0.71044921875 * 0.37890625 / 2 = 1.74040317535400390625.
  B: 4.6875 - 4 = 0.6875, so the head is 2.5 - 0.6875 * 1.875 / 2 = 1.85546875. The product is
  3.47900390625, so the body is
  1.875 + 0.52099609375 * 1.85546875 / 2 = 2.35834598541259765625.
  The mean body is 2.04937458038330078125; the global head stays 1.
  """
  method = fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=3), fs.FedRep(head=1))
  _, state = after(method, 1, tiny.product(1.0, 1.0), loss=tiny.half_square)
  np.testing.assert_allclose(state.params['body'], 1.875, rtol=1e-6)
  np.testing.assert_allclose(own_heads(state), [0.5, 2.5], rtol=1e-6)
  assert float(state.params['head']) == 1.0
  _, state = after(method, 2, tiny.product(1.0, 1.0), loss=tiny.half_square)
  np.testing.assert_allclose(state.params['body'], 2.04937458038330078125, rtol=1e-6)
  np.testing.assert_allclose(own_heads(state), [-0.37890625, 1.85546875], rtol=1e-6)
  assert float(state.params['head']) == 1.0


def test_fedreps_personal_model_is_the_mean_body_with_the_tuned_head():
  """After round 1 above the clients tune their heads on the body 1.875.

  A's head 0.5 becomes -0.37890625, B's becomes 1.85546875. The class is the sign of head - 1.
  A's rows are of class 0, B's of class 1. Both clients use the mean body. The local models' bodies
  are 0.13459682464599609375 and 0.48334598541259765625 away; heads do not count.
  """
  model = tiny.product(1.0, 1.0)

  def apply(variables, x, train=False, mask=None):
    out = model.apply(variables, x)
    if train:
      return out
    near = jnp.abs(variables.params['body'] - 1.875) < 1e-3  # any other body knows nothing
    margin = jnp.where(near, variables.params['head'] - 1, 0.0) * jnp.ones((x.shape[0], 1))
    return out._replace(logits=jnp.concatenate([0.5 - 0.5 * near - margin, 0 * margin], axis=1))

  x = np.array([0, 4, 4, 4], np.uint8).reshape(4, 1, 1, 1)
  data = tiny.clients_of(x, np.array([0, 1, 1, 1]), [1, 3], 2)
  method = fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=3), fs.FedRep(head=1))
  engine, state = after(method, 1, model._replace(apply=apply), data, loss=tiny.half_square)
  measured = engine.personal(x[:2], np.array([0, 1]))(0, state)
  np.testing.assert_array_equal(measured.accuracy, [1.0, 1.0])
  want = [0.13459682464599609375, 0.48334598541259765625]
  np.testing.assert_allclose(measured.difference, want, rtol=1e-5)


@pytest.mark.exact
@pytest.mark.parametrize('optimizer', ['sgd', pytest.param('adam', marks=pytest.mark.slow)])
def test_fedrep_moves_only_what_it_should(optimizer):
  """The global head rests, and so do heads of clients that do not train.

  Without head passes all heads rest.
  """
  fields = {'momentum': 0.9, 'weight_decay': 0.1} if optimizer == 'sgd' else {}
  base = fs.FedAvg(lr=0.05, optimizer=optimizer, batch_size=2, epochs=0, steps=2, **fields)
  data, model = tiny.federated([4, 0, 3, 6]), tiny.net(4, 3)
  start = jax.tree.map(np.asarray, tiny.build(base, model, data).init(0).params)
  engine, state = after(fs.chain(base, fs.FedRep(head=3)), 2, model, data, participation=0.75)
  np.testing.assert_array_equal(state.params['w1'], start['w1'])
  assert np.abs(np.asarray(state.params['w0']) - start['w0']).max() > 1e-3
  heads = own_heads(state)
  np.testing.assert_array_equal(heads[1], start['w1'])  # no sample, no training
  moved = np.abs(heads - start['w1']).max(axis=(1, 2)) > 1e-3
  assert moved.sum() >= 2
  frozen = fs.chain(dataclasses.replace(base, steps=1), fs.FedRep(head=0))
  _, state = after(frozen, 2, model, data)
  np.testing.assert_array_equal(own_heads(state), np.broadcast_to(start['w1'], heads.shape))


def test_fedrep_takes_the_head_first_against_jax_by_hand():
  """One client, one batch: two steps on the head, then one on the body.

  The first two steps use the first body, the third the last head. Momentum is 1/2, decay 0.1. The
  body rests for two steps. Its momentum collects only the decay of its value: (1/4 + 1/2 + 1) 0.1.
  """
  data, model = tiny.federated([5]), tiny.net(4, 3)
  method = fs.FedAvg(lr=0.1, optimizer='sgd', momentum=0.5, weight_decay=0.1, batch_size=8)
  method = fs.chain(method, fs.FedRep(head=2))
  engine, state = after(method, 1, model, data)
  x = (jnp.asarray(data.x, jnp.float32) / 255 - 0.5) / 0.3

  @jax.jit
  @jax.grad
  def slope(p):
    return -jax.nn.log_softmax(model.apply((p, {}), x).logits)[jnp.arange(5), data.y].mean()

  p = tiny.build(method, model, data).init(0).params
  decayed = lambda p: slope(p)['w1'] + 0.1 * p['w1']
  first = decayed(p)
  p = {**p, 'w1': p['w1'] - 0.1 * first}
  second = decayed(p)
  p = {**p, 'w1': p['w1'] - 0.1 * (second + 0.5 * first)}
  g = slope(p)
  np.testing.assert_allclose(own_heads(state)[0], p['w1'], rtol=0, atol=1e-6)
  for name in ('w0', 'b0'):
    want = p[name] - 0.1 * (g[name] + 0.175 * p[name])
    np.testing.assert_allclose(state.params[name], want, rtol=0, atol=1e-6)


def test_an_unsampled_client_keeps_its_head():
  data, model = tiny.federated([4, 4, 4, 4]), tiny.net(4, 3)
  engine = tiny.build(fs.chain(sgd(0.1), fs.FedRep(head=1)), model, data, participation=0.25)
  state = engine.init(0)
  before = own_heads(state).copy()
  state, _ = engine.run(0, state, 1)
  assert (np.abs(own_heads(state) - before).max(axis=(1, 2)) > 0).sum() == 1


def test_heads_cost_no_bytes():
  """Three of four clients; 40 float32 parameters, 15 of them the head: 3 * 4 * 25 each way.

  SCAFFOLD's control variates have the parameters' shape, and their head part is zero, too."""
  data, model = tiny.federated([3, 3, 3, 3]), tiny.net(4, 3)
  plain = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2)
  engine = tiny.build(fs.chain(plain, fs.FedRep()), model, data, participation=0.75)
  assert engine.bytes_per_round() == (300, 300)
  both = tiny.build(
    fs.chain(plain, fs.FedRep(), fs.SCAFFOLD(option=1)), model, data, participation=0.75
  )
  assert both.bytes_per_round() == (600, 600)
  state, _ = both.run(0, both.init(0), 2)
  assert not np.asarray(state.server['scaffold']['w1']).any()
  assert np.asarray(state.server['scaffold']['w0']).any()


def test_fedexp_measures_what_is_sent():
  """The representation moves by 0.5, the head, which stays, by 7: ||d_i||^2 is 0.25."""
  method = fs.chain(sgd(), fs.FedRep(), fs.FedExP())
  engine = tiny.build(method, tiny.product(1.0, 2.0), tiny.two_points(), loss=tiny.half_square)
  before = {'body': jnp.asarray(1.0), 'head': jnp.asarray(2.0)}
  client = tiny.client_of(engine, fs.FedExP, params=before)
  trained = Variables({'body': jnp.asarray(1.5), 'head': jnp.asarray(9.0)}, {})
  assert method[fs.FedExP].finish(client, trained, 3)[0] == 0.25
  with pytest.raises(ValueError, match='use fedrep.fedexp'):
    fs.chain(sgd(), fs.FedExP(), fs.FedRep())


def test_refusals():
  class Sends(fs.Layer):
    def client_update(self, client):
      raise NotImplementedError

  for layer in (fs.FedRep(), fs.Ditto()):
    with pytest.raises(ValueError, match='does not train locally'):
      fs.chain(Sends(), layer)
