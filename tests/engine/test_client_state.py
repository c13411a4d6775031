"""Per-client state in host memory: the same numbers as on the device; only a cohort's rows move."""

import json
import shutil

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core.mesh import place
from fedjax_syn.data import datasets, federated
from fedjax_syn.data.partition import partition
from fedjax_syn.engine import Engine, Layout, client_state
from fedjax_syn.runs import checkpoint, experiment, loop
from tests import tiny
from tests.run_fixtures import put_stubs
from tests.run_helpers import config_of

BASE = lambda: fs.FedAvg(lr=0.05, optimizer='sgd', epochs=0, steps=3, batch_size=8)
METHODS = {
  'fedcog': lambda: fs.chain(BASE(), fs.FedCOG(start=1, samples=6, steps=3, lr=0.1, kd_batch=3)),
  'scaffold': lambda: fs.chain(BASE(), fs.SCAFFOLD()),
  'ditto': lambda: fs.chain(BASE(), fs.Ditto()),
  'persistent': lambda: fs.FedAvg(lr=0.01, batch_size=8, persistent=True),
}
SIZES = [5, 0, 1, 9, 4, 2, 0, 7]


@pytest.fixture(scope='module')
def digits():
  """Five clients of the digits with two classes each."""
  data = datasets.load('digits')
  part = partition('labels_per_client', data.train.y, 5, num_classes=10, labels=2)
  return federated.from_partition(data, part)


def assert_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


def both(method, model, data, rounds, layout=Layout(), **more):  # noqa: B008
  """Trains with and without a budget of one byte; returns engines, states and reports."""
  found = []
  for budget in (0, 1):
    chosen = layout._replace(client_state_bytes=budget)
    engine = Engine(method(), model, data, layout=chosen, **more)
    state = engine.init(0)
    while (done := int(state.round)) < rounds:
      stop = min(engine.next_stop(done) or rounds, rounds)
      state, report = engine.run(0, state, stop - done)
      while engine.pending(state):
        state, _, _ = engine.server_work(0, state, 60.0)
    found.append((engine, state, report))
  return found


# The state of both is made in the same way: FedCOG's and Ditto's are tried by hand.
MARKS = {'scaffold': pytest.mark.exact, 'persistent': pytest.mark.exact}


@pytest.mark.parametrize(
  'name', [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n in METHODS]
)
def test_three_rounds_are_bit_for_bit_those_on_the_device(name, digits):
  model = models.create('mlp', shape=(8, 8, 1), num_classes=10, width=8, depth=1)
  (on_device, a, report), (on_host, b, same) = both(
    METHODS[name], model, digits, 3, Layout(1, 'blocks', 1), participation=0.6
  )
  assert (on_device.client_state_place, on_host.client_state_place) == ('device', 'host')
  assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(b.clients))
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((a.clients, b.params)))
  assert_equal(a, b)
  assert report == same
  start = on_device.init(0)
  assert any(
    (np.asarray(x) != np.asarray(y)).any()
    for x, y in zip(jax.tree.leaves(start.clients), jax.tree.leaves(a.clients), strict=True)
  )


@pytest.mark.parametrize(
  ('layout', 'sampler', 'participation'),
  [
    pytest.param(Layout(1, 'loop', 1), 'fixed', 0.5, marks=pytest.mark.slow),
    (Layout(3, 'blocks', 2), 'fixed', 1.0),
    (Layout(2, 'blocks', 1), 'poisson', 0.3),  # a cohort of 8 places, most of them empty
  ],
)
def test_layouts_samplers_and_empty_clients(layout, sampler, participation):
  """Clients 1 and 6 have no sample: their rows stay as they were at the beginning."""
  method = lambda: fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.SCAFFOLD())
  args = {'layout': layout, 'sampler': sampler, 'participation': participation}
  (engine, a, _), (_, b, _) = both(method, tiny.net(4, 3), tiny.federated(SIZES), 4, **args)
  assert_equal(a, b)
  first = engine.init(0).clients
  for kept, begun in zip(jax.tree.leaves(b.clients), jax.tree.leaves(first), strict=True):
    np.testing.assert_array_equal(kept[[1, 6]], np.asarray(begun)[[1, 6]])


@pytest.mark.slow
def test_work_between_rounds_and_personal_models():
  method = lambda: fs.chain(
    fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2),
    fs.Ditto(),
    fs.DynaFed(
      length=2,
      segment=1,
      iterations=2,
      inner_steps=2,
      images_per_class=1,
    ),
  )
  data = tiny.federated(SIZES)
  (a, first, _), (b, second, _) = both(method, tiny.net(4, 3), data, 3, participation=0.4)
  assert_equal(first, second)
  x, y = np.asarray(data.x), np.asarray(data.y)
  measured = [engine.personal(x, y)(0, state) for engine, state in ((a, first), (b, second))]
  assert_equal(*measured)
  assert len(measured[1].accuracy) == len(SIZES)  # of all clients, though 3 are seen at a time


def test_a_round_sees_a_cohort_s_rows(monkeypatch):
  """Of eight clients two take part: what is placed on the devices are two rows of each leaf."""
  seen = []

  def watched(tree, sharding):
    if hasattr(tree, 'clients'):
      seen.extend(leaf.shape[0] for leaf in jax.tree.leaves(tree.clients))
    return place(tree, sharding)

  monkeypatch.setattr('fedjax_syn.engine.engine.place', watched)
  method = fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.SCAFFOLD())
  for budget, rows in ((0, 8), (1, 2)):
    seen.clear()
    layout = Layout(devices=1, client_state_bytes=budget)
    data = tiny.federated(SIZES)
    engine = Engine(method, tiny.net(4, 3), data, participation=0.25, layout=layout)
    engine.run(0, engine.init(0), 2)
    assert set(seen) == {rows}


def test_bytes_by_hand_and_the_budget_they_are_held_against():
  """The tiny net on 2 x 2 pixels has 32 float32: 4 x 4 + 4 weights and biases, and a head of 4 x 3.

  For each of 8 clients FedCOG keeps such a model and one bool, SCAFFOLD a model, FedAvg nothing.
  """
  data, model = tiny.federated(SIZES), tiny.net(4, 3)
  parameters = sum(leaf.size for leaf in jax.tree.leaves(model.init(jax.random.key(0)).params))
  for name, each in (('fedcog', 4 * parameters + 1), ('scaffold', 4 * parameters)):
    for budget, where in (
      (0, 'device'),
      (8 * each, 'device'),
      (8 * each - 1, 'host'),
    ):
      engine = Engine(METHODS[name](), model, data, layout=Layout(client_state_bytes=budget))
      assert (engine.client_state_bytes, engine.client_state_place) == (8 * each, where)
  engine = Engine(BASE(), model, data, layout=Layout(client_state_bytes=1))
  assert (engine.client_state_bytes, engine.client_state_place) == (0, 'device')


def test_seeds_side_by_side_have_their_rows_on_the_device():
  """4 bytes a parameter of 8 clients, for each of two seeds."""
  data, model, method = tiny.federated(SIZES), tiny.net(4, 3), METHODS['scaffold']()
  whole = tiny.build(method, model, data).client_state_bytes
  enough = Layout(seeds=2, client_state_bytes=2 * whole)
  assert Engine(method, model, data, layout=enough).client_state_place == 'device'
  with pytest.raises(ValueError, match=f'2 seeds have {2 * whole} bytes.* layout.seeds=1'):
    Engine(method, model, data, layout=enough._replace(client_state_bytes=2 * whole - 1))
  engine = Engine(method, model, data, layout=Layout(client_state_bytes=1))
  with pytest.raises(ValueError, match='layout.seeds must say so'):
    engine.run_side_by_side((0, 1), (engine.init(0), engine.init(1)), 1)


def test_a_state_given_by_a_checkpoint_is_not_written_to():
  kept = {'a': np.zeros((3, 2))}
  kept['a'].flags.writeable = False
  store = client_state.OnHost(num_clients=3, cohort_size=1)
  sample = lambda number: np.zeros(1, int)
  state = loop.State(np.int32(0), {}, {}, {}, kept)

  def advance(state, rounds):
    rows = jax.tree.map(lambda leaf: leaf + 1, state.clients)
    return state._replace(round=state.round + 1, clients=rows), {'diverged_round': 0}

  state, _ = store.run(advance, sample, lambda: np.ones(3, int), state, 2)
  np.testing.assert_array_equal(state.clients['a'], [[2, 2], [0, 0], [0, 0]])
  np.testing.assert_array_equal(kept['a'], 0)


def test_a_run_goes_on_and_branches_with_rows_on_the_host(tmp_path, monkeypatch):
  """Interrupted runs, runs with and without a budget, and branches between both end the same."""
  put_stubs(monkeypatch)
  changes = {
    'algorithm': 'moon',
    'rounds': 4,
    'seeds': (0,),
    'client.participation': 0.5,
    'client.epochs': 1,
    'layout.devices': 1,
  }
  monkeypatch.setattr(
    checkpoint, 'prune', lambda *_: None
  )  # runs begin at round 2 of a finished one
  config = lambda **more: config_of(**{**changes, **more})
  host = {'layout.client_state_bytes': 1}
  folders = {name: tmp_path / name for name in ('device', 'host', 'short', 'branch', 'back')}
  assert experiment.run_experiment(config(), folders['device']) == 0
  assert experiment.run_experiment(config(**host), folders['host']) == 0
  assert experiment.run_experiment(config(rounds=2), folders['short']) == 0
  start = {'start_from': str(folders['short'] / 'checkpoints' / '2')}
  assert experiment.run_experiment(config(**host, **start), folders['branch']) == 0
  start = {'start_from': str(folders['host'] / 'checkpoints' / '2')}
  assert experiment.run_experiment(config(**start), folders['back']) == 0

  def last(name):
    return checkpoint.read(checkpoint.list_sorted(folders[name] / 'checkpoints')[-1]).tree

  (folders['host'] / 'summary.json').unlink()
  shutil.rmtree(folders['host'] / 'checkpoints' / '4')  # as if it had been killed after round 2
  assert experiment.run_experiment(config(**host), folders['host']) == 0
  assert int(last('host').round) == 4
  for name in ('host', 'branch', 'back'):
    assert_equal(last('device'), last(name))
  summaries = {n: json.loads((folders[n] / 'summary.json').read_text()) for n in ('device', 'host')}
  row = sum(leaf[0].nbytes for leaf in jax.tree.leaves(last('host').clients))
  for name, summary in summaries.items():
    assert summary['client_state_bytes'] == 4 * row > 0
    assert summary['client_state_place'] == name
