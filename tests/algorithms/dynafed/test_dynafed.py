"""DynaFed: what happens in which round, that chunks change nothing, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.dynafed.synthetic_set import soft_cross_entropy
from fedjax_syn.core.contexts import Run
from tests import tiny

SIZES = [6, 3, 0, 8]
FIELDS = {
  'length': 3,
  'segment': 2,
  'inner_steps': 2,
  'iterations': 6,
  'images_per_class': 2,
  'finetune_steps': 3,
}


def base():
  return fs.FedAvg(lr=0.05, optimizer='sgd', batch_size=4)


def engine_of(method):
  return tiny.build(method, tiny.net(4, 3), tiny.federated(SIZES), participation=0.75)


def synthesise(engine, state, seconds=60.0):
  chunks = 0
  while engine.pending(state):
    state, done, report = engine.server_work(0, state, seconds)
    chunks += 1
    assert 'diverged_round' not in report, report
  return state, chunks


@pytest.fixture(scope='module')
def run():
  """One DynaFed run to round 5 and the FedAvg run beside it, with the models of all rounds."""
  dyna, plain = engine_of(fs.chain(base(), fs.DynaFed(**FIELDS))), engine_of(base())
  state, other = dyna.init(0), plain.init(0)
  models, others = (
    [jax.tree.map(np.asarray, state.params)],
    [jax.tree.map(np.asarray, other.params)],
  )
  for _ in range(3):
    state, _ = dyna.run(0, state, 1)
    other, _ = plain.run(0, other, 1)
    models.append(jax.tree.map(np.asarray, state.params))
    others.append(jax.tree.map(np.asarray, other.params))
  assert dyna.pending(state)
  state, _ = synthesise(dyna, state)
  learned = dyna.artifacts(state)
  at_l = jax.tree.map(np.asarray, state)
  state, _ = dyna.run(0, state, 1)
  return dyna, plain, models, others, learned, at_l, state


@pytest.mark.exact
def test_until_round_l_it_is_the_base_and_records_it(run):
  _, _, models, others, _, at_l, _ = run
  for mine, theirs in zip(models, others, strict=True):
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)
  for c, model in enumerate(models):
    jax.tree.map(
      lambda path, w, c=c: np.testing.assert_array_equal(path[c], w),
      at_l.server['dynafed'].trajectory,
      model,
    )


def test_round_l_plus_one_is_the_average_fine_tuned_by_adam(run):
  """Replays Algorithm 2, line 12, with optax outside of the engine."""
  dyna, plain, _, _, learned, at_l, state = run
  averaged, _ = plain.run(
    0, plain.init(0)._replace(round=jnp.int32(3), params=jax.tree.map(jnp.asarray, at_l.params)), 1
  )
  w, syn = averaged.params, at_l.server['dynafed'].syn
  optimizer = optax.adam(1e-4)
  moments = optimizer.init(w)
  loss = lambda w: soft_cross_entropy(
    dyna.model.apply((w, {}), jnp.asarray(syn.x), train=True).logits, jnp.asarray(syn.y)
  )

  @jax.jit
  def tuned(w, moments):
    updates, moments = optimizer.update(jax.grad(loss)(w), moments, w)
    return optax.apply_updates(w, updates), moments

  for _ in range(3):
    w, moments = tuned(w, moments)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), w, state.params)
  assert float(jnp.abs(averaged.params['w1'] - state.params['w1']).max()) > 1e-4


def test_synthesis_moves_images_labels_and_step_and_keeps_snapshots(run):
  _, _, _, _, learned, at_l, _ = run
  assert learned['x'].shape == (9, 6, 2, 2, 1) and learned['y'].shape == (9, 6, 3)
  np.testing.assert_allclose(learned['y'].sum(-1), 1, rtol=1e-5)
  np.testing.assert_allclose(learned['y'][0], 1 / 3, rtol=1e-6)
  # Eighths of six iterations, halves rounded up: 0.75, 1.5, 2.25, 3, 3.75, 4.5, 5.25
  np.testing.assert_array_equal(learned['iterations'], [0, 1, 2, 2, 3, 4, 5, 5, 6])
  step = np.abs(np.diff(learned['x'], axis=0)).max(axis=(1, 2, 3, 4))
  np.testing.assert_array_equal(step > 0, np.diff(learned['iterations']) > 0)
  moved = [np.abs(learned['x'][i + 4] - learned['x'][i]).max() for i in (0, 4)]
  # Adam with rate 0.05 moves each pixel by at most about 0.05 in each of three iterations
  assert all(0.05 < m < 0.2 for m in moved)
  assert learned['step_size'] != pytest.approx(0.04, rel=1e-3) and learned['step_size'] > 0
  assert np.isfinite(learned['losses']).all() and (learned['losses'] > 0).all()
  np.testing.assert_array_equal(learned['x'][-1], at_l.server['dynafed'].syn.x)


def test_chunks_change_nothing():
  method = fs.chain(base(), fs.DynaFed(**FIELDS))
  engine = engine_of(method)
  states = []
  for seconds in (60.0, 0.0):
    state, _ = engine.run(0, engine.init(0), 3)
    state, chunks = synthesise(engine, state, seconds)
    states.append(state)
  assert chunks == 6
  jax.tree.map(np.testing.assert_array_equal, *states)


def test_rounds_never_cross_the_end_of_a_phase():
  engine = engine_of(fs.chain(base(), fs.DynaFed(**FIELDS)))
  assert engine.next_stop(0) == 3 and engine.next_stop(3) is None
  with pytest.raises(ValueError, match='cross round 3'):
    engine.run(0, engine.init(0), 4)


def test_without_the_initial_model_the_trajectory_starts_at_one():
  """The start is never w^0: replacing w^0 by NaN must leave the synthesis untouched."""
  engine = engine_of(fs.chain(base(), fs.DynaFed(**FIELDS, include_initial=False)))
  state, _ = engine.run(0, engine.init(0), 3)
  spoilt = state.server['dynafed']
  spoilt = spoilt._replace(
    trajectory=jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), spoilt.trajectory)
  )
  state, _ = synthesise(engine, state._replace(server={'dynafed': spoilt}))
  assert np.isfinite(engine.artifacts(state)['losses']).all()


def test_a_shorter_derivative_changes_the_images_and_another_target_the_losses(run):
  """The first loss knows no derivative; a target of three checkpoints is another one."""
  plain = run[4]

  def learned(**fields):
    engine = engine_of(fs.chain(base(), fs.DynaFed(**FIELDS, **fields)))
    state, _ = engine.run(0, engine.init(0), 3)
    state, _ = synthesise(engine, state)
    return engine.artifacts(state)

  short = learned(backward_steps=1)
  assert short['losses'][0] == pytest.approx(plain['losses'][0], rel=1e-5)
  assert np.abs(short['x'][-1] - plain['x'][-1]).max() > 1e-3
  end = learned(include_end=True)
  assert abs(end['losses'][0] - plain['losses'][0]) > 1e-3


def test_minibatches_and_augmentation():
  engine = engine_of(
    fs.chain(
      base(),
      fs.DynaFed(
        **FIELDS,
        inner_batch=4,
        finetune_batch=4,
        augment='cutout',
        finetune_augment='flip',
      ),
    )
  )
  state, _ = engine.run(0, engine.init(0), 3)
  state, _ = synthesise(engine, state)
  assert np.isfinite(engine.artifacts(state)['losses']).all()
  state, report = engine.run(0, state, 2)
  assert report['diverged_round'] == 0 and int(state.round) == 5


def test_after_scaffold_it_keeps_its_state():
  engine = engine_of(fs.chain(base(), fs.SCAFFOLD(), fs.DynaFed(**FIELDS)))
  assert engine.chain.name == 'scaffold+dynafed'
  state, _ = engine.run(0, engine.init(0), 3)
  assert set(state.server) == {'scaffold', 'dynafed'} and set(state.clients) == {'scaffold'}
  state, _ = synthesise(engine, state)
  before = jax.tree.map(np.asarray, state.server['scaffold'])
  state, _ = engine.run(0, state, 1)
  assert float(np.abs(before['w1'] - np.asarray(state.server['scaffold']['w1'])).max()) > 0


def test_a_trajectory_that_stands_still_is_reported():
  engine = engine_of(fs.chain(fs.FedAvg(lr=1e-30, optimizer='sgd'), fs.DynaFed(**FIELDS)))
  state, _ = engine.run(0, engine.init(0), 3)
  _, _, report = engine.server_work(0, state, 1.0)
  assert report['diverged_round'] == 3 and 'does not move' in report['reason']


def test_a_synthesis_that_blows_up_stops_at_its_iteration():
  engine = engine_of(fs.chain(base(), fs.DynaFed(**(FIELDS | {'iterations': 50}), inner_lr=1e30)))
  state, _ = engine.run(0, engine.init(0), 3)
  state, _, report = engine.server_work(0, state, 60.0)
  assert report['diverged_round'] == 3
  assert report['synthesis/iteration'] == 1 and 'iteration 1' in report['reason']


def resolved(rounds, **fields):
  return fs.chain(fs.DynaFed(**fields)).resolve(Run(rounds, None, ('dynafed',)))


@pytest.mark.parametrize(
  'fields, rounds, message',
  [
    ({'length': 20}, 20, r'dynafed.length=20 must be smaller than rounds=20'),
    ({'length': 15}, 6, r'try --config.dynafed.length=3 --config.dynafed.segment=3$'),
    (
      {'length': 4, 'segment': 5},
      9,
      r'dynafed.segment=5 needs 6 checkpoints, but dynafed.length=4 gives 5',
    ),
    ({'length': 5, 'segment': 5, 'include_initial': False}, 9, r'needs 6 checkpoints.*gives 5'),
    ({'augment': 'flip_twist'}, 50, r'dynafed.augment.*twist'),
  ],
)
def test_refusals(fields, rounds, message):
  with pytest.raises(ValueError, match=message):
    resolved(rounds, **fields)


def test_length_of_exactly_a_segment_works_with_the_initial_model():
  resolved(6, length=5, segment=5)
