"""An engine that costs nothing: the engine's interface over a few numpy lines, with a hook into every call."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_syn.contexts import State
from fedjax_syn.engine import Engine, Layout
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

  def build(self, method, model, data, *, layout=Layout(), **_) -> Engine:  # noqa: B008
    """Stands in for `fedjax_syn.engine.build`."""
    learns = 'dynafed' in method.name

    def init(seed, begin=None):
      server = (
        {'dynafed': {'iteration': jnp.int32(0), 'x': jnp.zeros((3, 10, 8, 8, 1))}} if learns else {}
      )
      if 'fedavgm' in method.name:
        server['fedavgm'] = jnp.zeros(())
      w = jnp.asarray(np.random.default_rng([seed, 0]).normal(size=self.parameters), jnp.float32)
      return State(jnp.int32(0), {'w': w}, {}, server, {'count': jnp.zeros(4, jnp.int32)})

    def run(seed, state, rounds):
      first = int(state.round)
      assert learns is False or not first < PHASE < first + rounds, 'crossed a phase'
      assert rounds > 0 and not pending(state)
      for number in range(first + 1, first + rounds + 1):
        self.on('round', seed, number)
        noise = (
          np.random.default_rng([seed, number]).normal(size=self.parameters).astype(np.float32)
        )
        w = np.asarray(state.params['w']) * np.float32(0.9) + noise
        count = np.asarray(state.clients['count'])
        count = count + (np.arange(4) == number % 4)
        state = state._replace(
          round=jnp.int32(number),
          params={'w': jnp.asarray(w)},
          clients={'count': jnp.asarray(count)},
        )
        if self.diverge.get(seed) == number:
          return state, {
            'train/loss': float('nan'),
            'diverged_round': float(number),
            'diverged_client': 2.0,
          }
      report = {'train/loss': float(np.abs(w).sum()), 'padding_efficiency': 0.5}
      return state, {**report, 'diverged_round': 0.0, 'diverged_client': -1.0}

    def run_together(seeds, states, rounds):
      results = [run(seed, state, rounds) for seed, state in zip(seeds, states, strict=True)]
      return tuple(state for state, _ in results), [report for _, report in results]

    def pending(state):
      return (
        learns
        and int(state.round) == PHASE
        and int(state.server['dynafed']['iteration']) < ITERATIONS
      )

    def between(seed, state, seconds):
      assert pending(state)
      iteration, x = (
        int(state.server['dynafed']['iteration']),
        np.array(state.server['dynafed']['x']),
      )
      for i in range(iteration + 1, iteration + 3):
        self.on('iteration', seed, i)
        x[min(2, i // 3)] += (
          np.random.default_rng([seed, 100, i]).normal(size=x.shape[1:]).astype(np.float32)
        )
      server = {'dynafed': {'iteration': jnp.int32(i), 'x': jnp.asarray(x)}}
      report = {
        'synthesis/iteration': i,
        'synthesis/iterations': ITERATIONS,
        'synthesis/loss': 1 / i,
      }
      if seed in self.synthesis_diverges:
        report |= {
          'diverged_round': PHASE,
          'diverged_client': -1,
          'reason': f'synthesis diverged in iteration {i}',
        }
      state = state._replace(server=server)
      return state, not pending(state), report

    def evaluator(x, y):
      def evaluate(params, stats):
        self.on('evaluation', -1, -1)
        w = float(np.abs(np.asarray(params['w'])).sum())
        top = {} if self.top_prediction is None else {'top_prediction': self.top_prediction}
        return {'accuracy': 1 / (1 + w), 'loss': w, **top}

      evaluate.by_class = lambda params, stats: np.linspace(0, 1, 10)
      evaluate.by_owner = lambda params, stats, owners, clients: np.linspace(0, 1, clients)
      return evaluate

    def personal(x, y, owners=None):
      def measure(seed, state):
        self.on('personal', seed, int(state.round))
        own = np.full(4, 1 / (1 + np.abs(np.asarray(state.params['w'])).sum()))
        return Personal(own, own / 2, own * 2, np.array([True, True, True, False]))

      return measure

    def synthetic(state):
      if not learns or int(state.server['dynafed']['iteration']) < ITERATIONS:
        return None
      labels = np.tile(np.eye(10, dtype=np.float32), (3, 1, 1))
      x = np.asarray(state.server['dynafed']['x'])
      return {
        'x': x,
        'y': labels,
        'iterations': np.array([0, 3, 6]),
        'step_size': 0.1,
        'losses': np.ones(6),
      }

    return Engine(
      method=method,
      model=model,
      layout=layout._replace(
        lanes=layout.lanes or 1, form=layout.form or 'blocks', devices=layout.devices or 1
      ),
      init=init,
      run=run,
      run_together=run_together,
      next_stop=lambda round: PHASE if learns and round < PHASE else None,
      pending=pending,
      between=between,
      evaluator=evaluator,
      warm_up=lambda seeds: None,
      bytes_per_round=lambda: (10, 20),
      synthetic=synthetic,
      diagnose=lambda seed, state: {},
      personal=personal,
      message=None,
      empty_rounds=lambda seed, first, last: 0,
    )
