"""What a hook returns in a wrong form is one line, which names the layer and the hook."""

import jax.numpy as jnp
import pytest

import fedjax_syn as fs
from fedjax_syn.core import contexts
from tests import tiny


class ValueOnly(fs.Layer):
  def loss(self, client, loss_fn, w, step):
    return loss_fn(w, step)[0]


class ByRow(fs.Layer):
  def loss(self, client, loss_fn, w, step):
    value, out = loss_fn(w, step)
    return value * step.mask, out


class PartOnly(fs.Layer):
  def finish(self, client, trained, steps):
    return trained.params


class NewOnly(fs.Layer):
  def server_update(self, round, new):
    return new


class MeanOnly(fs.Layer):
  def aggregate(self, round):
    return round.params


class Unsent(fs.Layer):
  def server_update(self, round, new):
    return round.messages.mean('mine'), round.state


@pytest.mark.parametrize(
  ('layer', 'words'),
  [
    (ValueOnly(), r'ValueOnly.loss must return \(loss \[\], output of the model\)'),
    (ByRow(), r'ByRow.loss: the loss has shape \(32,\) and must be one number'),
    (PartOnly(), 'PartOnly.finish must return .part of the message, new state.'),
    (NewOnly(), 'NewOnly.server_update must return .parameters, new state.'),
    (MeanOnly(), 'MeanOnly.aggregate must return .parameters, numbers.'),
    (Unsent(), "messages have no part 'mine': the clients sent 'params', 'stats'"),
  ],
  ids=lambda value: getattr(value, 'name', ''),
)
def test_a_wrong_form_is_one_line(layer, words):
  sizes = [40, 33]
  engine = tiny.build(layer, tiny.net(4, 3), tiny.federated(sizes))
  with pytest.raises(ValueError, match=words) as caught:
    engine.run(0, engine.init(0), 1)
  assert '\n' not in str(caught.value)


class Fine(fs.Layer):
  def loss(self, client, loss_fn, w, step):
    value, out = loss_fn(w, step)
    return value + 0.0 * jnp.sum(step.mask), out


def test_a_right_one_runs():
  engine = tiny.build(Fine(), tiny.net(4, 3), tiny.federated([4]))
  state, _ = engine.run(0, engine.init(0), 1)
  assert int(state.round) == 1


def test_the_mean_of_whole_numbers_is_no_whole_number():
  weighted_sum = {'steps': jnp.asarray(1 * 3 + 3 * 4)}  # 3 steps of weight 1, 4 of weight 3
  messages = contexts.Messages(jnp.asarray([1.0, 3.0]), weighted_sum, {}, None)
  assert messages.mean('steps') == 3.75
