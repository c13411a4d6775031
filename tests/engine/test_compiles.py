"""A new value of a traced field compiles nothing."""

import contextlib

import chex
import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.engine import round_programs, rounds
from tests import tiny

ARGUMENTS = {
  'clients': 4,
  'partition': 'dirichlet',
  'alpha': 0.3,
  'participation': 0.5,
  'layout': fs.Layout(devices=1),
}
BASE = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=64)


@contextlib.contextmanager
def compiled():
  """Yields the programs that are compiled inside, as a list of events."""
  events = []
  listen = lambda event, duration, **_: events.append(event) if 'backend_compile' in event else None
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield events
  finally:
    jax.monitoring.clear_event_listeners()


def losses(method, rounds):
  """Runs a method and returns its test losses; the model is made by name, as users do."""
  result = fs.run(method, 'digits', 'mlp', rounds=rounds, **ARGUMENTS)
  return [line['test/loss'] for line in result.history]


def test_the_listener_hears_a_compilation():
  with compiled() as events:
    jax.jit(lambda v: v * 5 - 2)(jnp.ones(11))
  assert events


def test_five_values_of_mu():
  first = losses(fs.chain(BASE, fs.FedProx(mu=0.01)), 2)
  with compiled() as events:
    others = [losses(fs.chain(BASE, fs.FedProx(mu=mu)), 2) for mu in (0.1, 1, 5.0, 9.0)]
  assert not events
  assert len({tuple(run) for run in [first, *others]}) == 5  # and every value counts


def dynafed(image_lr):
  return fs.DynaFed(
    length=2,
    segment=1,
    iterations=3,
    images_per_class=1,
    inner_steps=2,
    finetune_steps=2,
    image_lr=image_lr,
  )


def test_five_values_of_the_rate_of_dynafed_s_images():
  first = losses(fs.chain(BASE, dynafed(0.05)), 4)
  with compiled() as events:
    others = [losses(fs.chain(BASE, dynafed(rate)), 4) for rate in (0.5, 1.0, 2.0, 5.0)]
  assert not events
  assert len({tuple(run) for run in [first, *others]}) == 5


def test_rounds_before_and_after_dynafed_s_synthesis_are_one_program():
  rounds.many_rounds.clear_cache()
  losses(fs.chain(BASE, dynafed(0.05)), 4)
  assert rounds.many_rounds._cache_size() == 1


def test_an_engine_that_compiles_in_the_background_shares_programs_too():
  data, model = tiny.federated([3, 5]), tiny.net(4, 3)
  engines = [tiny.build(fs.chain(BASE, fs.FedProx(mu=mu)), model, data) for mu in (0.1, 0.7)]
  for engine in engines[:1]:
    engine.warm_up()
    engine.run(0, engine.init(0), 2)
  other = engines[1]
  state = other.init(0)
  with compiled() as events:
    other.warm_up()
    other.run(0, state, 2)
  assert not events


def test_a_static_field_compiles():
  losses(fs.chain(BASE, fs.FedProx()), 1)
  with compiled() as events:
    losses(fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=32), fs.FedProx()), 1)
  assert events


def test_a_key_outside_a_program_compiles_nothing():
  with compiled() as events:
    fold(stream(np.int32(3), Purpose.SERVER_WORK, np.int32(7)), 1)
  assert not events


def engines(*methods):
  """Returns engines of methods on the same data and network."""
  data, model = tiny.federated([3, 5, 4]), tiny.net(4, 3)
  return [tiny.build(method, model, data) for method in methods]


def test_a_method_runs_by_the_program_of_a_longer_one():
  """FedAvg's rounds are those of its own program, beyond the round of DynaFed's synthesis too."""
  alone, fedavg, longer = engines(BASE, BASE, fs.chain(BASE, dynafed(0.05)))
  fedavg.share_programs([fedavg, longer])
  rounds.many_rounds.clear_cache()
  state, expected = fedavg.init(0), alone.init(0)
  for count in (2, 3):
    state, report = fedavg.run(0, state, count)
  longer.run(0, longer.init(0), 2)
  assert rounds.many_rounds._cache_size() == 1
  expected, numbers = alone.run(0, expected, 5)
  assert report.keys() == numbers.keys()
  np.testing.assert_allclose(report['train/loss'], numbers['train/loss'], rtol=1e-6)
  chex.assert_trees_all_close(state, expected, rtol=1e-6)
  both, _ = fedavg.run_side_by_side((0, 1), [fedavg.init(0), fedavg.init(1)], 5)
  chex.assert_trees_all_close(both[0], expected, rtol=1e-5)


def test_other_methods_have_their_own_program():
  dyna = dynafed(0.05)
  methods = fs.chain(BASE, fs.FedProx()), fs.chain(BASE, fs.SCAFFOLD(), dyna), fs.chain(BASE, dyna)
  for other in (*methods[:2], fs.chain(BASE, fs.FedAvgM()), fs.FedAvg(lr=0.1, batch_size=64)):
    both = engines(other, methods[2])
    before = [engine.round_programs for engine in both]
    for engine in both:
      engine.share_programs(both)
    assert [engine.round_programs for engine in both] == before
  scaffold, longer = engines(fs.chain(BASE, fs.SCAFFOLD()), methods[1])
  scaffold.share_programs([longer, scaffold])
  assert isinstance(scaffold.round_programs, round_programs.Borrowed)
