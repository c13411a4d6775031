"""What a hook must return: a mistake is one line that names the layer and the hook."""

import jax
import jax.numpy as jnp
import pytest

import fedjax_syn as fs
from fedjax_syn.client import hook_results
from fedjax_syn.core.contexts import Message
from tests.tiny import build, federated, net

SGD = fs.FedAvg(optimizer='sgd', lr=0.1)


def run(rounds=1, **hooks):
  layer = type('Mine', (fs.Layer,), hooks)()
  engine = build(fs.chain(SGD, layer), net(4, 3), federated([5, 3]))
  return engine.run(0, engine.init(0), rounds)


def message(client, **payload):
  return Message(jnp.ones(()), payload)


STATE = lambda self, task, initial, shard: jnp.zeros(3)
SERVER_STATE = lambda self, task, key, params, messages: jnp.zeros(3)
FINE = {'loss': jnp.zeros(()), 'finite': jnp.ones((), bool)}
WRONG = [
  ({'loss': lambda s, c, f, w, step: f(w, step)[0]}, 'Mine.loss must return (loss [], output'),
  (
    {'loss': lambda s, c, f, w, step: (jnp.ones(3), f(w, step)[1])},
    'Mine.loss: the loss has shape (3,) and must be one number',
  ),
  ({'grad': lambda s, c, g, w, step: g(w, step)[1]}, 'Mine.grad must return ((loss'),
  (
    {'grad': lambda s, c, g, w, step: (g(w, step)[0], {'w0': w['w0']})},
    "Mine.grad returned gradient['b0'] that is missing instead of float32[5]",
  ),
  (
    {'step': lambda s, c, old, new, grads, step: None},
    "Mine.step returned params['b0'] that is missing instead of float32[5]",
  ),
  ({'receive': lambda s, c, params: None}, 'Mine.receive returned params'),
  ({'finish': lambda s, c, w, n: None}, 'Mine.finish must return (part'),
  (
    {'finish': lambda s, c, w, n: (None, n)},
    'Mine.finish returned a state, and the layer has none',
  ),
  (
    {'client_init': STATE, 'finish': lambda s, c, w, n: (None, jnp.zeros(4))},
    'Mine.finish returned state that is float32[4] instead of float32[3]',
  ),
  (
    {'client_init': STATE, 'finish': lambda s, c, w, n: (None, None)},
    'Mine.finish returned state that is missing instead of float32[3]',
  ),
  (
    {'postprocess_update': lambda s, c, p: {}},
    'Mine.postprocess_update: must return the payload, a',
  ),
  (
    {'client_metrics': lambda s, c, w: None},
    'Mine.client_metrics must return a',
  ),
  (
    {'client_metrics': lambda s, c, w: {'a': jnp.ones(3)}},
    "Mine.client_metrics returned 'a' of shape (3,): must be one number",
  ),
  ({'aggregate': lambda s, r: r.params}, 'Mine.aggregate must return (paramet'),
  ({'aggregate': lambda s, r: ({}, {})}, 'Mine.aggregate returned params'),
  ({'server_update': lambda s, r, new: new}, 'Mine.server_update must return (param'),
  (
    {'server_update': lambda s, r, new: (new, jnp.ones(2))},
    'Mine.server_update returned a state, and the layer has none: add server_init',
  ),
  (
    {'server_init': SERVER_STATE, 'server_update': lambda s, r, new: (new, None)},
    'Mine.server_update returned state that is missing instead of float32[3]',
  ),
  (
    {'server_init': SERVER_STATE, 'server_update': lambda s, r, new: (new, r.state > 0)},
    'Mine.server_update returned state that is bool[3] instead of float32[3]',
  ),
  (
    {'server_metrics': lambda s, state: {'a': jnp.ones(3)}},
    "Mine.server_metrics returned 'a' of shape (3,)",
  ),
  ({'client_update': lambda s, c: None}, 'Mine.client_update must return (Mess'),
  (
    {'client_update': lambda s, c: (message(c, params=c.params), None, {})},
    "Mine.client_update: 'loss' must be among the numbers",
  ),
  (
    {'client_update': lambda s, c: (message(c, a=jnp.ones(2)), None, FINE)},
    "Mine.client_update: its messages have no 'params', and no layer has aggregate",
  ),
  (
    {'broadcast': lambda s, state: 1.0, 'common': lambda s, task, key, round, w: 2.0},
    "'mine' has both broadcast and common",
  ),
]


@pytest.mark.parametrize(('hooks', 'line'), WRONG, ids=[line[:40] for _, line in WRONG])
def test_what_is_wrong_names_the_layer_and_the_hook(hooks, line):
  with pytest.raises(ValueError) as refused:
    run(**hooks)
  text = str(refused.value)
  assert '\n' not in text
  for part in line.split('.*'):
    assert part in text


def test_numbers_of_python_are_numbers():
  hooks = {
    'client_init': lambda s, task, initial, shard: 0.0,
    'finish': lambda s, c, w, n: (2.0, c.state + 1),
    'client_metrics': lambda s, c, w: {'a': 1.5, 'b': 2},
    'server_init': lambda s, task, key, params, messages: jnp.zeros(()),
    'server_update': lambda s, r, new: (new, r.messages.sum('mine') + 0 * r.state),
    'server_metrics': lambda s, state: {'sum': state, 'c': 3},
  }
  state, report = run(rounds=2, **hooks)
  names = 'mine/a', 'mine/b', 'mine/c', 'mine/sum'
  assert [report[name] for name in names] == [1.5, 2.0, 3.0, 4.0]
  assert jax.tree.leaves(state.clients['mine'])[0].tolist() == [2.0, 2.0]


def test_a_state_of_weak_type_is_of_the_type_before():
  """Its shape and type are the same, and yet the next round would be compiled again."""
  weak = jnp.ones((), int) * 2.0
  assert weak.aval.weak_type
  (left,) = hook_results.like(fs.FedAvg(), 'server_update', (weak,), (jnp.zeros(()),), 'state')
  assert not left.aval.weak_type and left.dtype == weak.dtype and left == 2
