"""A new value of a traced field compiles nothing."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.engine import rounds
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


def test_a_key_outside_a_program_compiles_two_programs():
  """Work between rounds makes its keys so, and each operation alone would be a program."""
  stream.clear_cache()
  fold.clear_cache()
  with compiled() as events:
    fold(stream(np.int32(3), Purpose.SERVER_WORK, np.int32(7)), 1)
  assert len(events) <= 2
