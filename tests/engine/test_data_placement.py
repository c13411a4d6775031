"""Training rows in host memory: the same numbers as on the device, and a round gets a cohort's."""

import json

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core.types import Shard
from fedjax_syn.data import datasets, federated, host_rows
from fedjax_syn.data.partition import partition
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.runs import checkpoint, experiment
from tests import tiny
from tests.run_fixtures import put_stubs
from tests.run_helpers import config_of

SGD = lambda **fields: fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, **fields)
SETS = {'images_per_class': 1, 'iterations': 2}
METHODS = {
  'fedavg': lambda: SGD(weighting='size', epochs=2),
  'persistent': lambda: fs.FedAvg(lr=0.01, batch_size=2, persistent=True),
  'scaffold': lambda: fs.chain(SGD(), fs.SCAFFOLD(option=1)),
  'fedmix': lambda: fs.chain(SGD(), fs.FedMix(mixing=0.2)),
  'fedgen': lambda: fs.chain(SGD(), fs.FedGen()),
  'fedproto': lambda: fs.chain(SGD(), fs.FedProto()),
  'fedcog': lambda: fs.chain(SGD(), fs.FedCOG(start=1, samples=4, steps=2, kd_batch=2)),
  'feddm': lambda: fs.FedDM(images_per_class=1, iterations=2, least=1),
  'feddualmatch': lambda: fs.FedDualMatch(images_per_class=1, iterations=2),
  'dynafed': lambda: fs.chain(SGD(), fs.DynaFed(length=2, segment=1, inner_steps=2, **SETS)),
}
LAYOUTS = [Layout(1, 'blocks', 1), Layout(2, 'blocks', 2), Layout(1, 'loop', 1)]
SIZES = [5, 0, 1, 9, 4, 2, 0, 7]  # two empty clients


def on_host(data):
  return jax.tree.map(np.asarray, data)


def assert_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


def trained(method, data, rounds=3, model=None, **more):
  """Trains seed 0; returns the engine, its state, the last report and what looks into it."""
  engine = Engine(method, model or tiny.net(4, 3), data, **more)
  state, report = engine.init(0), {}
  while (done := int(state.round)) < rounds:
    stop = min(engine.next_stop(done) or rounds, rounds)
    state, report = engine.run(0, state, stop - done)
    while engine.pending(state):
      state, _, _ = engine.server_work(0, state, 60.0)
  return engine, state, report


def looked_into(engine, data, state):
  """The clients' own models, a client's message, the bytes of a round and before, a diagnosis."""
  x, y = np.asarray(data.x), np.asarray(data.y)
  own = engine.personal(x, y)(0, state)
  others = engine.bytes_per_round(), engine.bytes_before, engine.empty_rounds(0, 0, 9)
  return own, engine.message(0, state, 3), engine.diagnose(0, state), others


MARKS = {'fedmix': []}  # the others are tried by hand


@pytest.mark.parametrize(
  'name', [pytest.param(n, marks=MARKS.get(n, [pytest.mark.slow])) for n in METHODS]
)
def test_three_rounds_are_bit_for_bit_those_on_the_device(name):
  data, model = tiny.federated(SIZES), tiny.net(4, 3)
  if METHODS[name]().__class__ in (fs.FedDM, fs.FedDualMatch):  # which need layers of a network
    data = tiny.federated(SIZES, side=8)
    model = models.create('mlp', shape=(8, 8, 1), num_classes=3, width=8, depth=1)
  layout = LAYOUTS[list(METHODS).index(name) % 2]
  args = {'model': model, 'layout': layout, 'participation': 0.5}
  (a, first, report), (b, second, same) = (
    trained(METHODS[name](), d, **args) for d in (data, on_host(data))
  )
  assert_equal(first, second)
  assert report == same and len(report) > 2
  assert_equal(looked_into(a, data, first), looked_into(b, data, second))
  changed = [
    (np.asarray(x) != np.asarray(y)).any()
    for x, y in zip(jax.tree.leaves(a.init(0).params), jax.tree.leaves(second.params), strict=True)
  ]
  assert all(changed)


@pytest.mark.slow
@pytest.mark.parametrize('layout', LAYOUTS, ids=str)
@pytest.mark.parametrize(('sampler', 'participation'), [('poisson', 0.3), ('fixed', 1.0)])
def test_samplers_and_layouts(layout, sampler, participation):
  data = tiny.federated(SIZES)
  args = {'layout': layout, 'sampler': sampler, 'participation': participation}
  found = [trained(METHODS['scaffold'](), d, 4, **args)[1:] for d in (data, on_host(data))]
  assert_equal(*found)


@pytest.mark.slow
def test_groups_of_devices_get_the_rows_of_their_clients(monkeypatch):
  """Two clients on four devices: two devices generate FedCOG's images of each."""
  data = tiny.federated(SIZES)
  monkeypatch.setattr(fs.FedCOG, 'shares_on', ('cpu',))
  args = {'layout': Layout(1, 'blocks', 4), 'participation': 0.25}
  found = [trained(METHODS['fedcog'](), d, 3, **args) for d in (data, on_host(data))]
  assert found[1][0].setting.clients_mesh.devices.shape == (2, 2)
  assert_equal(found[0][1:], found[1][1:])


def test_copied_rows_by_hand():
  """Clients 2, 0 and nobody of clients with rows {0, 1}, {2}, {3, 4, 5}: rows 3, 4, 5, 0, 1."""
  x = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1)
  data = on_host(tiny.clients_of(x, np.array([0, 1, 0, 1, 1, 0]), [2, 1, 3], 2))
  clients = np.array([2, 0, 3, 3])
  size = host_rows.sizes_of(data, clients)
  assert size.tolist() == [3, 2, 0, 0]
  assert host_rows.counts_of(data, clients).tolist() == [[1, 2], [1, 1], [0, 0], [0, 0]]
  assert host_rows.starts_of(size).tolist() == [0, 3, 5, 5]
  rows = host_rows.copy(data, clients, size, 7)
  assert rows.x.ravel().tolist() == [3, 4, 5, 0, 1, 0, 0]
  assert rows.y.tolist() == [1, 1, 0, 0, 1, 0, 0]
  only = host_rows.copy(data, clients, np.array([0, 2, 0, 0]), 2)
  assert only.x.ravel().tolist() == [0, 1]
  most = [host_rows.most_rows(np.array([2, 1, 3]), n) for n in (1, 2, 3, 9)]
  assert most == [3, 5, 6, 6] and host_rows.most_rows(np.array([0]), 1) == 1


def test_a_shard_is_found_by_its_client_number():
  data = tiny.clients_of(np.zeros((6, 1, 1, 1), np.uint8), np.zeros(6, int), [1, 2, 3], 1)
  cohort = data._replace(clients=np.array([7, 4, 9], np.int32))
  shard = federated.shard_of(cohort, np.int32(4))
  assert_equal(shard, Shard(np.int32(4), np.int32(1), np.int32(2), np.array([2])))
  assert federated.shard_of(cohort, np.int32(0)).size == 0
  assert federated.shard_of(cohort, federated.nobody(cohort)).size == 0
  assert federated.shard_of(data, federated.nobody(data)).size == 0 == 3 - federated.nobody(data)


class Brightest(fs.Layer):
  """Keeps the brightest pixel of a client's first rows, which it reads before round 1."""

  def client_init(self, task, initial, shard):
    x, _, mask = federated.first_rows(task.data, shard, 3)
    return (x * mask[:, None, None, None]).max()

  def finish(self, client, trained, steps):
    return client.state, client.state + 1

  def server_init(self, task, key, params, messages):
    return params['b0'].sum()

  def server_update(self, round, new):
    return new, round.messages.sum('Brightest'.lower())


def test_a_layer_may_read_rows_before_round_1():
  data = tiny.federated(SIZES)
  method = fs.chain(SGD(), Brightest())
  device, host = (
    tiny.build(method, tiny.net(4, 3), d, participation=0.4) for d in (data, on_host(data))
  )
  kept = np.asarray(host.init(0).clients['brightest'])
  np.testing.assert_array_equal(device.init(0).clients['brightest'], kept)
  pixels = np.asarray(federated.normalise(data, data.x))[: 5 + 0 + 1]
  assert kept[0] == pytest.approx(max(pixels[:3].max(), 0)) and kept[1] == 0


def test_bytes_of_a_round_grow_with_the_cohort_only():
  """Ten of 20 clients with 3 rows, and of 2,000: 30 rows of 4 pixels, their index, 13 of 32-bit."""
  found = []
  for clients in (20, 2000):
    data = on_host(tiny.federated([3] * clients))
    engine = tiny.build(SGD(), tiny.net(4, 3), data, participation=10 / clients)
    given = engine._rows.of_round(0, 1)
    found.append(sum(leaf.nbytes for leaf in jax.tree.leaves(given)))
    assert given.x.shape == (30, 2, 2, 1) and given.size.shape == (10,)
    assert engine.task().data.x.shape == (3 * clients, 2, 2, 1)  # all, for what is not traced
  assert found[0] == found[1]


def test_the_rows_of_a_queue_fit_on_its_device():
  """40 clients of 3 rows on 4 devices: 30 rows each, and a quarter and one more for other rounds.

  A device finds a client's rows where its index says, among those of its own part. Arrays that
  are too short grow.
  """
  data = on_host(tiny.federated([3] * 40))
  engine = Engine(SGD(), tiny.net(4, 3), data, participation=1.0, layout=Layout(1, 'blocks', 4))
  rows = engine._rows
  assert (rows.most, rows.rows) == (120, 30 + 7 + 1)
  rows.rows = 2
  given = rows.of_round(0, 1)
  parts = np.asarray(given.x).reshape(4, 38, 2, 2, 1)
  index = zip(*map(np.asarray, (given.clients, given.start)), strict=True)
  places = [
    [d for d in range(4) if (parts[d, start : start + 3] == data.x[3 * c : 3 * c + 3]).all()]
    for c, start in index
  ]
  assert sorted(sum(places, [])) == sorted([0, 1, 2, 3] * 10)


def test_the_next_round_is_read_in_another_thread(monkeypatch):
  """Rounds 1 to 4 are read once each, the first when it is asked for; then a jump to round 9."""
  engine = tiny.build(SGD(), tiny.net(4, 3), on_host(tiny.federated(SIZES)), participation=0.25)
  read, rows = [], engine._rows
  monkeypatch.setattr(rows, '_read', lambda key, of=rows._read: read.append(key) or of(key))
  state, _ = engine.run(0, engine.init(0), 3)
  rows._next[1].result()
  assert read == [(0, n) for n in (1, 2, 3, 4)]
  assert (
    rows.sampled(0, 4).tolist()
    == np.asarray(engine.setting.sample(np.int32(0), np.int32(4))).tolist()
  )
  rows.of_round(1, 9)
  rows._next[1].result()
  assert read[-3:] == [(0, 5), (1, 9), (1, 10)]


def test_a_draw_among_the_rows_of_those_who_take_part():
  """Of 30 natural clients 4 take part: their rows, in the order of the data set, are drawn from."""
  data = datasets.load('digits')
  part = partition('iid', data.train.y, 30)
  part = part._replace(order=part.order[: part.start[4]], start=part.start[:4], size=part.size[:4])
  device, host = (federated.from_partition(data, part, where) for where in ('device', 'host'))
  assert (federated.placement_of(device), federated.placement_of(host)) == ('device', 'host')
  key = jax.random.key(3)
  few = [federated.draw(d, key, 20) for d in (device, host)]
  assert_equal(few[0].x, few[1].x)
  assert_equal(few[0].y, few[1].y)
  taken = {row.tobytes() for row in data.train.x[part.order]}
  assert all(np.asarray(row).tobytes() in taken for row in few[1].x)


def test_seeds_side_by_side_are_refused():
  data = on_host(tiny.federated(SIZES))
  with pytest.raises(ValueError, match=r"layout.seeds=2, data.placement='host'.*layout.seeds=1"):
    Engine(SGD(), tiny.net(4, 3), data, layout=Layout(seeds=2))


def test_a_run_goes_on_where_the_rows_were_elsewhere(tmp_path, monkeypatch, capsys):
  """Two rounds with rows in host memory and two on the device are four on the device."""
  put_stubs(monkeypatch)
  changes = {
    'algorithm': 'fedavg',
    'seeds': (0,),
    'client.participation': 0.5,
    'client.epochs': 1,
    'layout.devices': 1,
    'personal_every': 2,
  }
  config = lambda **more: config_of(**{**changes, **more})
  host = {'data.placement': 'host'}
  assert experiment.run_experiment(config(rounds=4), tmp_path / 'device') == 0
  assert experiment.run_experiment(config(rounds=2, **host), tmp_path / 'both') == 0
  assert '; the training rows stay in host memory' in capsys.readouterr().out
  assert experiment.run_experiment(config(rounds=4), tmp_path / 'both') == 0

  def lines(name):
    text = (tmp_path / name / 'metrics.jsonl').read_text()
    return [{**json.loads(line), 'seconds': 0} for line in text.splitlines()]

  def last(name):
    return checkpoint.read(checkpoint.list_sorted(tmp_path / name / 'checkpoints')[-1]).tree

  assert lines('device') == lines('both')[-len(lines('device')) :]
  assert_equal(last('device'), last('both'))
