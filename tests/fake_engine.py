"""A cheap engine for tests: the engine's interface in a few numpy lines; a hook sees every call."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms import chain
from fedjax_syn.core.contexts import State
from fedjax_syn.engine import Layout
from fedjax_syn.engine.personal import Personal

PHASE = 3  # the program changes after this round
ITERATIONS = 6  # of the work between rounds, two in a chunk


class Fake(NamedTuple):
  """How the fake behaves."""

  on: Callable[[str, int, int], None] = lambda what, seed, round: (
    None
  )  # called before every piece of work
  parameters: int = 5
  diverge: dict[int, int] = {}
  synthesis_diverges: tuple[int, ...] = ()  # seeds
  top_prediction: float | None = (
    None  # share of the test rows that the most frequent prediction gets
  )

  def build(self, method, model, data, *, layout=Layout(), **_) -> 'FakeEngine':  # noqa: B008
    """Takes what `fedjax_syn.engine.Engine` takes."""
    return FakeEngine(self, chain(method), model, data, layout)


class FakeEngine:
  """What the loop and everything outside the engine use of `fedjax_syn.engine.Engine`."""

  client_state_bytes, client_state_place, bytes_before = 0, 'device', 0

  def __init__(self, how, method, model, data, layout):
    self.how, self.chain, self.model, self.data = how, method, model, data
    self.mechanism = method.mechanism(None)
    self.learns = 'dynafed' in method.name
    self.layout = layout._replace(
      lanes=layout.lanes or 1, form=layout.form or 'blocks', devices=layout.devices or 1
    )

  def share_programs(self, engines):
    """Has no programs."""

  def init(self, seed, begin=None):
    server = {}
    if self.learns:
      server['dynafed'] = {'iteration': jnp.int32(0), 'x': jnp.zeros((3, 10, 8, 8, 1))}
    if 'fedavgm' in self.chain.name:
      server['fedavgm'] = jnp.zeros(())
    w = np.random.default_rng([seed, 0]).normal(size=self.how.parameters)
    params = {'w': jnp.asarray(w, jnp.float32)}
    return State(jnp.int32(0), params, {}, server, {'count': jnp.zeros(4, jnp.int32)})

  def run(self, seed, state, rounds):
    first, how = int(state.round), self.how
    assert self.learns is False or not first < PHASE < first + rounds, 'crossed a phase'
    assert rounds > 0 and not self.pending(state)
    for number in range(first + 1, first + rounds + 1):
      how.on('round', seed, number)
      noise = np.random.default_rng([seed, number]).normal(size=how.parameters).astype(np.float32)
      w = np.asarray(state.params['w']) * np.float32(0.9) + noise
      count = np.asarray(state.clients['count'])
      count = count + (np.arange(4) == number % 4)
      state = state._replace(
        round=jnp.int32(number),
        params={'w': jnp.asarray(w)},
        clients={'count': jnp.asarray(count)},
      )
      if how.diverge.get(seed) == number:
        return state, {
          'train/loss': float('nan'),
          'diverged_round': float(number),
          'diverged_client': 2.0,
        }
    report = {'train/loss': float(np.abs(w).sum()), 'padding_efficiency': 0.5}
    return state, {**report, 'diverged_round': 0.0, 'diverged_client': -1.0}

  def run_side_by_side(self, seeds, states, rounds):
    results = [self.run(seed, state, rounds) for seed, state in zip(seeds, states, strict=True)]
    return tuple(state for state, _ in results), [report for _, report in results]

  def next_stop(self, round):
    return PHASE if self.learns and round < PHASE else None

  def pending(self, state):
    return (
      self.learns
      and int(state.round) == PHASE
      and int(state.server['dynafed']['iteration']) < ITERATIONS
    )

  def server_work(self, seed, state, seconds):
    assert self.pending(state)
    own = state.server['dynafed']
    iteration, x = int(own['iteration']), np.array(own['x'])
    for i in range(iteration + 1, iteration + 3):
      self.how.on('iteration', seed, i)
      draw = np.random.default_rng([seed, 100, i]).normal(size=x.shape[1:])
      x[min(2, i // 3)] += draw.astype(np.float32)
    report = {
      'synthesis/iteration': i,
      'synthesis/iterations': ITERATIONS,
      'synthesis/loss': 1 / i,
    }
    if seed in self.how.synthesis_diverges:
      report |= {
        'diverged_round': PHASE,
        'diverged_client': -1,
        'reason': f'synthesis diverged in iteration {i}',
      }
    state = state._replace(server={'dynafed': {'iteration': jnp.int32(i), 'x': jnp.asarray(x)}})
    return state, not self.pending(state), report

  def evaluator(self, x, y):
    def evaluate(params, stats):
      self.how.on('evaluation', -1, -1)
      w, top = float(np.abs(np.asarray(params['w'])).sum()), self.how.top_prediction
      return {'accuracy': 1 / (1 + w), 'loss': w} | ({} if top is None else {'top_prediction': top})

    right = np.arange(10)  # of nine rows of each class; the others are taken for the next class
    confused = np.diag(right) + np.roll(np.diag(9 - right), 1, axis=1)
    evaluate.confusion = lambda params, stats: confused
    evaluate.by_owner = lambda params, stats, owners, clients: np.linspace(0, 1, clients)
    return evaluate

  def personal(self, x, y, owners=None):
    def measure(seed, state):
      self.how.on('personal', seed, int(state.round))
      own = np.full(4, 1 / (1 + np.abs(np.asarray(state.params['w'])).sum()))
      present = np.array([True, True, True, False])
      return Personal(np.where(present, own, np.nan), own / 2, own * 2, present)

    return measure

  def artifacts(self, state):
    if not self.learns or int(state.server['dynafed']['iteration']) < ITERATIONS:
      return None
    return {
      'x': np.asarray(state.server['dynafed']['x']),
      'y': np.tile(np.eye(10, dtype=np.float32), (3, 1, 1)),
      'iterations': np.array([0, 3, 6]),
      'step_size': 0.1,
      'losses': np.ones(6),
    }

  def warm_up(self, runs=1):
    pass

  def bytes_up(self, seed, rounds):
    return self.bytes_per_round()[0] * rounds

  def bytes_per_round(self):
    return 10, 20

  def diagnose(self, seed, state):
    return {}

  def empty_rounds(self, seed, first, last):
    return 0
