"""Personal models: their metrics by hand, in every layout; measuring them changes nothing."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.contexts import Message
from fedjax_syn.core.types import Variables
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.engine.personal import Personal, own_accuracy, report
from tests import tiny

SIZES = [5, 0, 1, 9, 4, 2]


def sgd(**fields):
  return fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, **fields)


def split(rows=37, seed=1):
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, (rows, 2, 2, 1)).astype(np.uint8), rng.integers(0, 3, rows)


def test_own_accuracy_by_hand():
  """The classes have 4, 2, 0 and 1 test rows, of which 3, 1, 0 and 0 are right.

  The client holds 1, 3, 6 and 0 samples. The third class has no test rows, so the accuracy is
  (1 * 3/4 + 3 * 1/2) / 4 = 0.5625. A client with only the third class has 0.
  """
  hits, rows = jnp.array([3, 1, 0, 0]), jnp.array([4, 2, 0, 1])
  assert float(own_accuracy(hits, rows, jnp.array([1, 3, 6, 0]))) == 0.5625
  assert float(own_accuracy(hits, rows, jnp.array([0, 0, 6, 0]))) == 0.0


@pytest.mark.parametrize('layout', [Layout(1, 'loop', 1), Layout(2, 'blocks', 2)])
def test_a_confusion_by_hand(layout):
  """Test rows of class 0 are predicted as 0, 0, 1, of class 1 as 1, 0, of class 2 as 2.

  So the classes have 2/3, 1/2 and 1. A holds class 0 alone: 2/3. B holds 1 of class 0 and 3 of
  class 1: (2/3 + 3/2) / 4 = 13/24. C is empty. D holds 2 of class 2: 1. On the plain split each
  has 4 of 6. The worst tenth of three clients is one.
  """
  pixels, labels = np.array([0, 0, 1, 1, 0, 2], np.uint8), np.array([0, 0, 0, 1, 1, 2])
  held = np.array([0, 0, 0, 1, 1, 1, 2, 2])
  data = tiny.clients_of(np.zeros((8, 1, 1, 1), np.uint8), held, [2, 4, 0, 2], 3)
  engine = Engine(sgd(), tiny.table(3), data, layout=layout)
  measured = engine.personal(pixels.reshape(-1, 1, 1, 1), labels)(0, engine.init(0))
  np.testing.assert_array_equal(measured.present, [True, True, False, True])
  own = np.asarray(measured.accuracy)[[0, 1, 3]]
  assert np.isnan(measured.accuracy[2])  # no accuracy is not one of 0
  np.testing.assert_allclose(own, [2 / 3, 13 / 24, 1], rtol=1e-6)
  np.testing.assert_allclose(measured.generalisation, 4 / 6, rtol=1e-6)
  got = report(measured)
  assert got['personal/test/accuracy'] == pytest.approx(own.mean(), rel=1e-6)
  assert got['personal/test/accuracy_std'] == pytest.approx(own.std(), rel=1e-6)
  assert got['personal/test/accuracy_worst_decile'] == pytest.approx(13 / 24, rel=1e-6)


def test_a_clients_own_test_rows_by_hand():
  """The confusion is the one above; the rows are A's, A's, A's, C's, B's and nobody's.

  A has 2 of 3 and B 0 of 1. C has no sample and D no test row. Without owners the first test
  holds.
  """
  pixels, labels = np.array([0, 0, 1, 1, 0, 2], np.uint8), np.array([0, 0, 0, 1, 1, 2])
  held = np.array([0, 0, 0, 1, 1, 1, 2, 2])
  data = tiny.clients_of(np.zeros((8, 1, 1, 1), np.uint8), held, [2, 4, 0, 2], 3)
  engine = Engine(sgd(), tiny.table(3), data, layout=Layout(2, 'blocks', 2))
  owners = np.array([0, 0, 0, 2, 1, -1])
  measured = engine.personal(pixels.reshape(-1, 1, 1, 1), labels, owners)(0, engine.init(0))
  np.testing.assert_array_equal(measured.present, [True, True, False, False])
  np.testing.assert_allclose(np.asarray(measured.accuracy)[:2], [2 / 3, 0], rtol=1e-6)
  np.testing.assert_allclose(measured.generalisation, 4 / 6, rtol=1e-6)
  evaluate, state = engine.evaluator(pixels.reshape(-1, 1, 1, 1), labels), engine.init(0)
  of_clients = evaluate.by_owner(state.params, state.stats, owners, 4)
  np.testing.assert_allclose(of_clients, [2 / 3, 0, 1, np.nan])


def test_the_local_model_is_that_after_local_training_by_hand():
  """One step of SGD 0.5 from w = 1 takes A to 0.5 and B to 2.5; FedProx starts the same.

  `test_one_fedavg_round_by_hand` works this out. After that round w = 1.5, and A goes to 0.75 and
  B to 2.75. FedProx with mu 1 takes two full steps to the same ends: there the second gradients,
  0.75 + (0.75 - 1.5) and (2.75 - 4) + (2.75 - 1.5), are zero.
  """
  x, y = np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, int)

  def drift(method, rounds):
    engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
    state = engine.init(0)
    state = engine.run(0, state, rounds)[0] if rounds else state
    return engine.personal(x, y)(0, state).difference

  plain = fs.FedAvg(lr=0.5, optimizer='sgd')
  np.testing.assert_allclose(drift(plain, 0), [0.5, 1.5], rtol=1e-6)
  np.testing.assert_allclose(drift(fs.chain(plain, fs.FedProx(mu=7.0)), 0), [0.5, 1.5], rtol=1e-6)
  np.testing.assert_allclose(drift(plain, 1), [0.75, 1.25], rtol=1e-6)
  two = fs.chain(
    fs.FedAvg(lr=0.5, optimizer='sgd', epochs=0, steps=2, batch_size=3), fs.FedProx(mu=1.0)
  )
  engine = tiny.build(two, tiny.quadratic(1.5), tiny.two_points(), loss=tiny.half_square)
  got = engine.personal(x, y)(0, engine.init(0)).difference
  np.testing.assert_allclose(got, [0.75, 1.25], rtol=1e-6)


METHODS = {
  'fedavg': lambda: sgd(momentum=0.9),
  'persistent': lambda: fs.FedAvg(lr=0.01, batch_size=2, persistent=True),
  'scaffold': lambda: fs.chain(sgd(), fs.SCAFFOLD()),
  'fedcog': lambda: fs.chain(sgd(), fs.FedCOG(start=1, samples=4, steps=2)),
  'common': lambda: fs.chain(sgd(), fs.VHL(images_per_class=2, noise_batch=4)),
  'fedrep': lambda: fs.chain(sgd(), fs.FedRep(head=2)),
  'ditto': lambda: fs.chain(sgd(), fs.Ditto()),
}


FEW = ('scaffold', 'fedrep')  # one that keeps rows, and one whose clients have models of their own


@pytest.mark.parametrize(
  'name', [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in METHODS]
)
def test_looking_changes_nothing(name):
  """Two rounds with a look after every one end where two rounds without end, to the last bit."""
  data = tiny.federated(SIZES)
  engine = tiny.build(METHODS[name](), tiny.net(4, 3), data, participation=0.5)
  personal = engine.personal(*split())
  looked = {}
  for look in (False, True):
    state = engine.init(0)
    for round in range(2):
      if look:
        first, second = personal(0, state), personal(0, state)
        chex.assert_trees_all_equal(first, second)
        assert all(np.isfinite(a[first.present]).all() for a in first)
        assert first.accuracy.shape == (6,)
        np.testing.assert_array_equal(first.present, np.array(SIZES) > 0)
        assert round == 0 or float(first.difference.max()) > 0
      state, looked[look, round] = engine.run(0, state, 1)
    looked[look] = jax.tree.map(np.asarray, state)
  chex.assert_trees_all_equal(looked[False], looked[True])
  assert looked[False, 1] == looked[True, 1]


LAYOUTS = (Layout(1, 'loop', 1), Layout(2, 'blocks', 3), Layout(4, 'blocks', 1), Layout())


@pytest.mark.parametrize(
  'name, layouts',
  [
    ('ditto', LAYOUTS[:2]),
    *(pytest.param(n, LAYOUTS, marks=pytest.mark.slow) for n in ('fedavg', 'fedrep', 'ditto')),
  ],
)
def test_layouts_agree(name, layouts):
  data = tiny.federated(SIZES)
  found = []
  for layout in layouts:
    engine = Engine(METHODS[name](), tiny.net(4, 3), data, layout=layout)
    state, _ = engine.run(0, engine.init(0), 1)
    found.append(engine.personal(*split())(0, state))
  for other in found[1:]:
    for a, b in zip(found[0], other, strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_with_hardly_any_rate_every_client_has_the_global_model():
  """Also: 1,003 rows divide by no batch, and a client's p is that of its training labels."""
  data, (x, y) = tiny.federated(SIZES), split(1003)
  engine = tiny.build(fs.FedAvg(lr=1e-12, optimizer='sgd', batch_size=2), tiny.net(4, 3), data)
  state = engine.init(0)
  measured = engine.personal(x, y)(0, state)
  whole = engine.evaluator(x, y)(state.params, state.stats)['accuracy']
  np.testing.assert_allclose(measured.generalisation, whole, rtol=1e-6)
  logits = engine.model.apply(state[1:3], jnp.asarray((x / 255 - 0.5) / 0.3, jnp.float32)).logits
  right = np.asarray(logits.argmax(axis=1)) == y
  by_class = np.array([right[y == c].mean() for c in range(3)])
  counts = np.asarray(data.class_counts)[[0, 2, 3, 4, 5]]
  want = (counts * by_class).sum(axis=1) / counts.sum(axis=1)
  np.testing.assert_allclose(np.asarray(measured.accuracy)[[0, 2, 3, 4, 5]], want, rtol=1e-6)
  assert float(measured.difference.max()) < 1e-6


class Sends(fs.Layer):
  def client_update(self, client):
    return Message(jnp.ones(()), {}), None, {}


class SendsAndOwns(Sends):
  def personal(self, client, trained):
    return Variables({'w': trained.params['w'] + 2}, trained.stats)


def test_a_client_that_does_not_train_has_the_global_model():
  data, (x, y) = tiny.two_points(), (np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, int))
  engine = tiny.build(Sends(), tiny.quadratic(1.0), data, loss=tiny.half_square)
  measured = engine.personal(x, y)(0, engine.init(0))
  np.testing.assert_array_equal(measured.difference, [0.0, 0.0])
  np.testing.assert_array_equal(measured.accuracy, [1.0, 1.0])
  with pytest.raises(ValueError, match='its personal is not called'):
    fs.chain(SendsAndOwns())


def test_report_leaves_out_who_has_nothing_and_what_is_not_finite():
  measured = Personal(
    *(np.array(a) for a in ([0.5, 1.0, 9.0], [0.25, 0.75, 9.0], [1.0, np.inf, 9.0])),
    np.array([True, True, False]),
  )
  got = report(measured)
  assert got == {
    'personal/test/accuracy': 0.75,
    'personal/test/accuracy_std': 0.25,
    'personal/test/accuracy_worst_decile': 0.5,
    'personal/generalisation': 0.5,
  }
  assert report(measured._replace(present=np.zeros(3, bool))) == {}
