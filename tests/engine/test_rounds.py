"""Rounds: hand-worked numbers, equality of layouts, randomness, compilations, memory."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.core.types import Variables
from fedjax_syn.engine import Engine, Layout
from tests import tiny

METHODS = {
  'adam': lambda: fs.FedAvg(lr=0.01, batch_size=2),
  'epochs': lambda: fs.FedAvg(
    lr=0.1, optimizer='sgd', momentum=0.9, epochs=3, batch_size=2, weighting='size'
  ),
  'steps': lambda: fs.FedAvg(lr=0.1, optimizer='sgd', epochs=0, steps=7, batch_size=3),
  'persistent': lambda: fs.FedAvg(lr=0.01, batch_size=2, persistent=True),
  'scaffold': lambda: fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.SCAFFOLD()),
  'scaffold option 1': lambda: fs.chain(
    fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.SCAFFOLD(option=1)
  ),
  'fedmix': lambda: fs.chain(
    fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.FedMix(mixing=0.2)
  ),
}
MIXED = Layout(3, 'blocks', 2)
LAYOUTS = [Layout(1, 'blocks', 1), Layout(2, 'blocks', 1), Layout(1, 'blocks', 4), Layout(8, '', 1)]
SIZES = [5, 0, 1, 9, 4, 2, 0, 7]  # two empty clients, ragged


def after(method, data, layout, rounds=1, seed=0, participation=0.75):
  engine = Engine(method, tiny.net(4, 3), data, participation=participation, layout=layout)
  state = engine.init(seed)
  return engine.run(seed, state, rounds)


def test_the_state_of_a_persistent_optimizer_has_the_structure_of_the_parameters():
  """Runs that were stored before optimizers had small arrays as one vector are read."""
  method = fs.FedAvg(lr=0.01, batch_size=2, persistent=True)
  engine = Engine(method, tiny.net(4, 3), tiny.federated(SIZES))
  state = engine.init(0)
  expected = optax.adam(0.01).init(state.params)
  chex.assert_trees_all_equal_structs(state.clients['optimizer'], expected)


def test_one_fedavg_round_by_hand():
  """From w = 1 with SGD 0.5, A (one step on 0) goes to 1 - 0.5 (1 - 0) = 0.5.

  B (one batch of 4, 4, 4) goes to 1 - 0.5 (1 - 4) = 2.5. The uniform mean is 1.5. Weighted by
  sizes 1 and 3 the mean is (0.5 + 3 * 2.5) / 4 = 2.
  """
  for weighting, expected in (('uniform', 1.5), ('size', 2.0)):
    method = fs.FedAvg(lr=0.5, optimizer='sgd', weighting=weighting)
    engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
    state, report = engine.run(0, engine.init(0), 1)
    np.testing.assert_allclose(state.params['w'], expected, rtol=1e-6)
    # Losses before the step are (1 - 0)^2 / 2 = 0.5 for A and (1 - 4)^2 / 2 = 4.5 for B. Their mean
    # over samples is (0.5 + 3 * 4.5) / 4.
    assert report['train/loss'] == pytest.approx(3.5)
    assert int(state.round) == 1


def test_epochs_and_steps_count_as_they_say():
  """SGD 0.5 halves the distance to 4 in every step.

  B alone takes part: three equal samples with batch size 2 are 2 steps an epoch.
  """
  x = np.full((3, 1, 1, 1), 4, np.uint8)
  data = tiny.clients_of(x, np.zeros(3, int), [3], 1)
  for options, steps in (({'epochs': 2}, 4), ({'epochs': 0, 'steps': 5}, 5)):
    method = fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=2, **options)
    engine = tiny.build(method, tiny.quadratic(0.0), data, loss=tiny.half_square)
    state, _ = engine.run(0, engine.init(0), 1)
    np.testing.assert_allclose(state.params['w'], 4 - 4 * 0.5**steps, rtol=1e-6)


def test_a_loss_that_only_grows_is_a_divergence_while_it_is_finite():
  """SGD 3 on (w - 4)^2 / 2 turns the distance d into -2 d, so round r has the loss 8 * 4^(r - 1).

  That is 524,288 in the ninth round and 2,097,152, more than 1e6, in the tenth.
  """
  data = tiny.clients_of(np.full((1, 1, 1, 1), 4, np.uint8), np.zeros(1, int), [1], 1)
  method = fs.FedAvg(lr=3.0, optimizer='sgd')
  engine = tiny.build(method, tiny.quadratic(0.0), data, loss=tiny.half_square)
  state, report = engine.run(0, engine.init(0), 9)
  assert report['diverged_round'] == 0 and report['train/loss'] == 8 * 4**8
  state, report = engine.run(0, state, 20)
  assert (report['diverged_round'], report['diverged_client']) == (10, 0)
  assert int(state.round) == 10 and np.isfinite(state.params['w'])


def test_each_epoch_sees_every_sample_once():
  """Batches have one sample, and the rate eta is tiny.

  To first order w - w_0 = eta * sum(x - w_0), but only if each sample comes once per epoch.
  """
  values = np.array([1, 2, 4, 8, 16], np.uint8)
  data = tiny.clients_of(values.reshape(-1, 1, 1, 1), np.zeros(5, int), [5], 1)
  eta = 1e-4
  engine = tiny.build(
    fs.FedAvg(lr=eta, optimizer='sgd', epochs=3, batch_size=1),
    tiny.quadratic(0.0),
    data,
    loss=tiny.half_square,
  )
  for seed in range(5):
    state, _ = engine.run(seed, engine.init(seed), 1)
    assert float(state.params['w']) / eta == pytest.approx(3 * values.sum(), rel=3e-3)


# Of others that are tried; SCAFFOLD is tried in float64, and Adam against numpy (tests/float64).
VARIANTS = ('adam', 'epochs', 'steps', 'scaffold option 1', 'scaffold', 'persistent')


@pytest.mark.parametrize(
  'name, layouts',
  [
    *(
      pytest.param(n, [MIXED], marks=[pytest.mark.slow] if n in VARIANTS else [], id=n)
      for n in METHODS
    ),
    pytest.param('adam', LAYOUTS, marks=pytest.mark.slow, id='adam, all'),
  ],
)
def test_layouts_agree(name, layouts):
  data = tiny.federated(SIZES)
  reference, _ = after(METHODS[name](), data, Layout(1, 'loop', 1))
  for layout in layouts:
    state, report = after(METHODS[name](), data, layout)
    for a, b in zip(jax.tree.leaves(reference), jax.tree.leaves(state), strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert 0 < report['padding_efficiency'] <= 1


@pytest.mark.parametrize('name', [pytest.param('adam', marks=pytest.mark.slow), 'scaffold'])
def test_layouts_agree_in_float64(name):
  with jax.enable_x64(True):
    data = tiny.federated(SIZES)
    data = data._replace(mean=data.mean.astype(jnp.float64), std=data.std.astype(jnp.float64))
    reference, _ = after(METHODS[name](), data, Layout(1, 'loop', 1), rounds=2)
    assert reference.params['w0'].dtype == jnp.float64
    state, _ = after(METHODS[name](), data, MIXED, rounds=2)
    for a, b in zip(jax.tree.leaves(reference.params), jax.tree.leaves(state.params), strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
  'name, layouts',
  [
    ('scaffold', LAYOUTS[1:2]),
    *(pytest.param(name, [*LAYOUTS, MIXED], marks=pytest.mark.slow) for name in METHODS),
  ],
)
def test_seeds_side_by_side_are_seeds_alone(name, layouts):
  data = tiny.federated(SIZES)
  for layout in layouts:
    engine = Engine(METHODS[name](), tiny.net(4, 3), data, participation=0.75, layout=layout)
    seeds = (0, 3, 5)
    alone = [engine.run(seed, engine.init(seed), 3) for seed in seeds]
    together = engine.run_side_by_side(seeds, [engine.init(seed) for seed in seeds], 3)
    for (state, report), other, other_report in zip(alone, *together, strict=True):
      chex.assert_trees_all_close(state, other, rtol=0, atol=1e-5)
      assert other_report == pytest.approx(report, abs=1e-5)
    assert len({float(state.params['w0'].sum()) for state in together[0]}) == 3


def test_a_seed_that_diverges_stands_still_beside_the_others():
  """Every round multiplies w by 1 - 4 = -3 from the seed's own start.

  Seed 0 starts at 0, so it stays there. From a start of 1e37 the square in the loss is not finite
  in round 1.
  """
  model = tiny.quadratic(0.0)
  start = lambda key: Variables({'w': jnp.where(jax.random.bits(key) % 2 == 0, 0.0, 1e37)}, {})
  model = model._replace(init=start)
  x = np.zeros((2, 1, 1, 1), np.uint8)
  data = tiny.clients_of(x, np.zeros(2, int), [1, 1], 1)
  engine = tiny.build(fs.FedAvg(lr=4.0, optimizer='sgd'), model, data, loss=tiny.half_square)
  starts = {seed: float(engine.init(seed).params['w']) for seed in range(20)}
  fine = next(seed for seed, w in starts.items() if w == 0)
  wild = next(seed for seed, w in starts.items() if w != 0)
  states, reports = engine.run_side_by_side((wild, fine), [engine.init(s) for s in (wild, fine)], 3)
  assert [r['diverged_round'] for r in reports] == [1, 0]
  assert [int(s.round) for s in states] == [1, 3]
  assert float(states[1].params['w']) == 0


def test_seeds_at_different_rounds_are_refused():
  engine = tiny.build(METHODS['adam'](), tiny.net(4, 3), tiny.federated(SIZES))
  later, _ = engine.run(0, engine.init(0), 1)
  with pytest.raises(ValueError, match=r'rounds \[0, 1\]'):
    engine.run_side_by_side((0, 1), [later, engine.init(1)], 1)


def test_one_call_of_ten_rounds_is_ten_calls_of_one():
  data = tiny.federated(SIZES)
  together, _ = after(METHODS['adam'](), data, Layout(devices=1), rounds=10)
  engine = tiny.build(METHODS['adam'](), tiny.net(4, 3), data, participation=0.75)
  state = engine.init(0)
  for _ in range(10):
    state, _ = engine.run(0, state, 1)
  for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(state), strict=True):
    np.testing.assert_array_equal(a, b)


def test_an_empty_cohort_changes_nothing():
  data = tiny.federated([0, 0, 0, 6])
  engine = tiny.build(METHODS['scaffold'](), tiny.net(4, 3), data, participation=0.25)
  for seed in range(20):  # some seed draws an empty client in round 1
    before = engine.init(seed)
    start = jax.tree.map(np.asarray, before)
    state, report = engine.run(seed, before, 1)
    moved = float(np.abs(state.params['w0'] - start.params['w0']).max())
    assert report['diverged_round'] == 0
    if 'train/loss' not in report:
      assert moved == 0
      jax.tree.map(np.testing.assert_array_equal, start.clients, state.clients)
      return
    assert moved > 0
  raise AssertionError('no seed drew an empty client')


def test_a_clients_draws_do_not_depend_on_who_else_is_sampled():
  """With one sampled client the new model is that client's.

  Full participation must give that client the same model.
  """
  data = tiny.federated([6, 6, 6, 6])
  method = lambda: fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, persistent=True)
  alone = tiny.build(method(), tiny.net(4, 3), data, participation=0.25)
  everyone = tiny.build(fs.chain(method(), fs.SCAFFOLD()), tiny.net(4, 3), data, participation=1.0)
  one, _ = alone.run(3, alone.init(3), 1)
  start = everyone.init(3)
  begin = jax.tree.map(np.asarray, start.params)
  four, _ = everyone.run(3, start, 1)
  # c_i+ = (x - y_i) / (K eta) with c = c_i = 0: the clients' ends can be read from SCAFFOLD's rows
  ends = jax.tree.map(lambda x, c: x - np.asarray(c) * 3 * 0.1, begin, four.clients['scaffold'])
  distances = np.abs(ends['w0'] - np.asarray(one.params['w0'])).max(axis=(1, 2))
  assert np.sort(distances)[0] < 1e-6 < np.sort(distances)[1]


def test_two_runs_are_equal_and_seeds_differ():
  data = tiny.federated(SIZES)
  a, _ = after(METHODS['adam'](), data, Layout(devices=1), 3)
  b, _ = after(METHODS['adam'](), data, Layout(devices=1), 3)
  c, _ = after(METHODS['adam'](), data, Layout(devices=1), 3, seed=1)
  np.testing.assert_array_equal(a.params['w0'], b.params['w0'])
  assert np.abs(a.params['w0'] - c.params['w0']).max() > 1e-3


def test_poisson_sampling_trains_and_counts_only_the_drawn():
  data = tiny.federated([4] * 30)
  engine = tiny.build(METHODS['adam'](), tiny.net(4, 3), data, participation=0.2, sampler='poisson')
  state, report = engine.run(0, engine.init(0), 4)
  assert report['diverged_round'] == 0 and report['train/loss'] > 0


@pytest.mark.parametrize('rate, fine', [(10.0, True), (30.0, False), (1e30, False)])
def test_divergence_names_the_client(rate, fine):
  """B's distance to 4 is 3, and each of its three steps multiplies it by 1 - rate.

  The mean of its losses in round 1 is 9 / 6 (1 + 9^2 + 9^4) = 9,964.5, or
  9 / 6 (1 + 29^2 + 29^4) = 1,062,184, or beyond float32.
  """
  engine = tiny.build(
    fs.FedAvg(lr=rate, optimizer='sgd', batch_size=1),
    tiny.quadratic(1.0),
    tiny.two_points(),
    loss=tiny.half_square,
  )
  state, report = engine.run(0, engine.init(0), 1 if fine else 200)
  if fine:
    assert (report['diverged_round'], report['diverged_client']) == (0, -1)
    assert report['train/loss'] == pytest.approx((0.5 + 3 * 9964.5) / 4)
  else:
    assert (report['diverged_round'], report['diverged_client'], int(state.round)) == (1, 1, 1)


def test_evaluation_counts_every_row_once():
  """1,003 rows do not divide by the batch; accuracy and loss must equal numpy's."""
  data = tiny.federated(SIZES)
  model = tiny.net(4, 3)
  engine = tiny.build(METHODS['adam'](), model, data)
  rng = np.random.default_rng(1)
  x, y = rng.integers(0, 256, (1003, 2, 2, 1)).astype(np.uint8), rng.integers(0, 3, 1003)
  params, stats = model.init(jax.random.key(0))
  logits = np.asarray(
    model.apply((params, stats), jnp.asarray((x / 255 - 0.5) / 0.3, jnp.float32)).logits, np.float64
  )
  log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  evaluate = engine.evaluator(x, y)
  result = evaluate(params, stats)
  assert result['accuracy'] == pytest.approx((logits.argmax(1) == y).mean(), abs=1e-12)
  pairs = [(y == true) & (logits.argmax(1) == c) for true in range(3) for c in range(3)]
  confusion = np.sum(pairs, axis=1).reshape(3, 3)
  np.testing.assert_array_equal(evaluate.confusion(params, stats), confusion)
  most = np.bincount(logits.argmax(1)).max()  # padding repeats a row, and must not count
  assert result['top_prediction'] == pytest.approx(most / 1003, abs=1e-7)
  assert result['loss'] == pytest.approx(-log_p[np.arange(1003), y].mean(), rel=1e-5)


def test_bytes_per_round():
  """Three of four clients send and get 4 * 5 + 5 + 5 * 3 = 40 float32 parameters.

  That is 480 bytes each way. SCAFFOLD doubles both.
  """
  data = tiny.federated([3, 3, 3, 3])
  plain = tiny.build(METHODS['adam'](), tiny.net(4, 3), data, participation=0.75)
  assert plain.bytes_per_round() == (480, 480)
  some = tiny.build(
    METHODS['adam'](), tiny.net(4, 3), data, participation=0.5, sampler='poisson'
  )  # two on average, however many places there are for them
  assert some.bytes_per_round() == (320, 320)
  # FedMix: four images of 4 pixels and labels of 3 classes, and whether there is one, once.
  mixed = tiny.build(METHODS['fedmix'](), tiny.net(4, 3), data)
  assert (mixed.bytes_before, plain.bytes_before) == (4 * 4 * (4 + 3 + 1), 0)
  doubled = tiny.build(METHODS['scaffold'](), tiny.net(4, 3), data, participation=0.75)
  assert doubled.bytes_per_round() == (960, 960)


def test_refusals():
  data = tiny.federated(SIZES)
  with pytest.raises(ValueError, match=r"client.sampler='lottery'.*fixed, poisson"):
    tiny.build(METHODS['adam'](), tiny.net(4, 3), data, sampler='lottery')
  with pytest.raises(ValueError, match=r'layout.devices=64'):
    Engine(METHODS['adam'](), tiny.net(4, 3), data, layout=Layout(devices=64))
  with pytest.raises(ValueError, match='exactly one'):
    fs.chain(fs.FedAvg(epochs=1, steps=3))
  with pytest.raises(ValueError, match="'scaffold' is given twice"):
    fs.chain(fs.SCAFFOLD(), fs.SCAFFOLD())
