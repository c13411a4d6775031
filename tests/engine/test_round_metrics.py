"""What a round says of itself: means by hand, and nothing where there is nothing to measure."""

import types

import jax
import jax.numpy as jnp
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.algorithms.set_sharing.feddualmatch import Server
from fedjax_syn.core.types import Measured
from fedjax_syn.engine.round_metrics import numbers, round_report
from fedjax_syn.runs import final_files
from tests import tiny


def base():
  return fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2)


def test_means_are_over_those_that_measured_something():
  """Sizes are 1, 3, 0 and 4.

  The loss is weighted by size, without the second client's: (1 * 2 + 4 * 7) / 5 = 6. The layer's
  number is over the first and the last: (10 + 40) / 2 = 25. Nobody measured the other number.
  """
  there = jnp.array([True, False, True, True])
  report = numbers(
    jax.jit(round_report)(
      jnp.int32(3),
      {'w': jnp.ones(2)},
      {
        'loss': Measured(jnp.array([2.0, 99.0, 99.0, 7.0]), there),
        'finite': jnp.ones(4, bool),
        'a/b': Measured(jnp.array([10.0, 99.0, 99.0, 40.0]), there),
        'a/none': Measured(jnp.full(4, 99.0), jnp.array([False, False, True, False])),
        'a/all': jnp.array([1.0, 2.0, 99.0, 3.0]),
      },
      jnp.array([1, 3, 0, 4]),
      jnp.arange(4),
      jnp.asarray(0.5),
      {'c/d': jnp.asarray(8.0), 'c/none': Measured(jnp.asarray(9.0), jnp.asarray(False))},
    )
  )
  assert report == {
    'train/loss': 6.0,
    'a/b': 25.0,
    'a/all': 2.0,
    'padding_efficiency': 0.5,
    'c/d': 8.0,
    'diverged_round': 0.0,
    'diverged_client': -1.0,
  }


def test_a_round_without_a_sample_has_no_numbers():
  """Loss, drift and effective steps are not 0 then.

  Nothing was measured, on clients, in the mean or on the server.
  """
  method = fs.chain(base(), fs.FedProx(), fs.SCAFFOLD(), fs.FedNova())
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([0, 0, 4]), participation=1 / 3)
  empty = {seed: engine.empty_rounds(seed, 0, 1) for seed in range(20)}
  told = {}
  for kind in (0, 1):
    seed = min(seed for seed in empty if empty[seed] == kind)
    told[kind] = set(engine.run(seed, engine.init(seed), 1)[1])
  assert told[1] == {'diverged_round', 'diverged_client'}
  own = {'fedprox/drift', 'fednova/effective_steps', 'scaffold/norm'}
  assert told[0] == {'train/loss', 'padding_efficiency'} | own | told[1]


@pytest.mark.parametrize(
  ('sampler', 'participation', 'sizes'),
  [('fixed', 0.25, [0, 5, 0, 0]), ('poisson', 0.3, [2, 0, 3])],
)
def test_empty_rounds_are_those_whose_line_has_no_loss(sampler, participation, sizes):
  engine = tiny.build(
    base(), tiny.net(4, 3), tiny.federated(sizes), participation=participation, sampler=sampler
  )
  for seed in (0,):
    state, without = engine.init(seed), []
    for _ in range(12):
      state, report = engine.run(seed, state, 1)
      without.append('train/loss' not in report)
    assert 0 < sum(without) < 12
    assert engine.empty_rounds(seed, 0, 12) == sum(without)
    assert engine.empty_rounds(seed, 5, 9) == sum(without[5:9])
    assert engine.empty_rounds(seed, 9, 9) == 0


def test_seeds_side_by_side_leave_out_what_is_theirs():
  """One of two seeds draws nobody with a sample."""
  engine = tiny.build(base(), tiny.net(4, 3), tiny.federated([0, 0, 4]), participation=1 / 3)
  empty = {seed: engine.empty_rounds(seed, 0, 1) for seed in range(20)}
  seeds = [min(seed for seed in empty if empty[seed] == kind) for kind in (1, 0)]
  _, (none, one) = engine.run_side_by_side(seeds, [engine.init(seed) for seed in seeds], 1)
  assert set(none) == {'diverged_round', 'diverged_client'}
  assert set(one) == {'train/loss', 'padding_efficiency', *none}
  assert one['train/loss'] > 0


def test_where_every_draw_has_a_sample_no_draw_is_repeated(monkeypatch):
  engine = tiny.build(base(), tiny.net(4, 3), tiny.federated([0, 4, 4]), participation=2 / 3)
  monkeypatch.setattr(jax.lax, 'fori_loop', None)
  assert engine.empty_rounds(0, 0, 10**6) == 0


def test_the_summary_counts_from_where_a_seed_began_to_where_it_ended():
  """Seed 1 is a branch that began at round 50; seed 2 diverged before its first line."""
  engine = types.SimpleNamespace(empty_rounds=lambda *arguments: arguments)
  recorder = types.SimpleNamespace(
    lines=[{'seed': s, 'round': r} for s, r in ((0, 0), (0, 7), (1, 50), (1, 60))],
    status={'0': {'round': 7}, '1': {'round': 60}, '2': {'round': 0}},
  )
  counted = [final_files._empty_rounds(engine, recorder, seed) for seed in (0, 1, 2)]
  assert counted == [(0, 0, 7), (1, 50, 60), (2, 0, 0)]


def test_a_client_that_has_distilled_nothing_has_no_loss():
  """One client has too little of every class.

  The other has one of its two classes present, with a loss of 3.
  """

  def measured(present):
    own = ClassSet(jnp.zeros((2, 1, 2, 2, 1)), jnp.array(present))
    _, report = fs.FedDM()._message(own, lambda iterations: lambda x, c: 3.0 + 0.0 * x.sum(), 1)
    return report['loss']

  assert numbers({'loss': measured([False, True])}) == {'loss': 3}
  assert numbers({'loss': measured([False, False])}) == {}


@pytest.mark.parametrize(('matches', 'there'), [(0, False), (1, True)])
def test_without_gradient_matching_there_is_no_distance(matches, there):
  state = Server(jnp.ones(()), jnp.zeros(()), jnp.ones(()), None)
  report = fs.FedDualMatch(matches=matches).server_metrics(state)
  assert ('distance' in numbers(report)) is there
  assert {'radius', 'images'} <= set(numbers(report))


def test_a_single_sample_has_no_correlation():
  """Its features minus their mean are 0, and a 0 would count in the mean over the clients."""
  method, model = fs.FedDecorr(), tiny.net(4, 3)
  engine, trained = tiny.build(method, model, tiny.federated([5, 1])), model.init(jax.random.key(0))
  five, one = (
    numbers(method.client_metrics(tiny.client_of(engine, fs.FedDecorr, client), trained))
    for client in (0, 1)
  )
  assert five['correlation'] > 0 and one == {}


def test_before_its_synthesis_dynafed_has_no_loss():
  metrics = fs.DynaFed(length=2, segment=1).server_metrics
  losses = jnp.array([5.0, 4.0])
  told = [
    numbers(metrics(types.SimpleNamespace(iteration=jnp.int32(i), losses=losses)))
    for i in (0, 1, 2)
  ]
  assert told == [{'iterations': 0}, {'iterations': 1, 'loss': 5}, {'iterations': 2, 'loss': 4}]
