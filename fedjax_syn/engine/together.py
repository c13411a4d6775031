"""Runs of several seeds side by side: one program whose every operation has an axis of seeds."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from fedjax_syn.engine.report import Report, numbers
from fedjax_syn.engine.tracing import traced
from fedjax_syn.method import State

AXIS = 'seeds'


def make_rounds_together(one_round: Callable) -> Callable:
  """Puts a round under vmap over seeds, and many of them into one program.

  A seed that diverges stands still while the others go on, so that its state is that of the round in
  which it happened.

  Args:
    one_round: (seed, state, data, hyper, first_round, name of the axis) -> (state, report of scalars).

  Returns:
    (seeds [seeds], a State for each, data, hyper, rounds, first_round) -> (a State for each, report of
    arrays [seeds]), jitted; the states given are consumed.
  """

  @functools.partial(jax.jit, static_argnums=5, donate_argnums=1)
  def many_rounds(seeds, states, data, hyper, rounds, first_round):
    def all_seeds(states):
      one = lambda seed, state: one_round(seed, state, data, hyper, first_round, AXIS)
      return jax.vmap(one, axis_name=AXIS)(seeds, states)

    def go(loop):
      i, _, report = loop
      return (i < rounds) & (report['diverged_round'] == 0).any()

    def body(loop):
      i, *old = loop
      fine = old[1]['diverged_round'] == 0
      keep = lambda new, old: jnp.where(fine.reshape(-1, *[1] * (new.ndim - 1)), new, old)
      return i + 1, *jax.tree.map(keep, step(old[0]), tuple(old))

    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    step, (_, report) = traced(all_seeds, states)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), report)
    _, states, report = jax.lax.while_loop(go, body, (jnp.int32(0), states, blank))
    return tuple(jax.tree.map(lambda leaf: leaf[i], states) for i in range(len(seeds))), report

  return many_rounds


def reports_of(report: Report, seeds: int) -> list[dict[str, float]]:
  """Returns each seed's report.

  Args:
    report: arrays [seeds].
    seeds: how many.
  """
  values = jax.device_get(report)
  return [numbers(jax.tree.map(lambda leaf: leaf[i], values)) for i in range(seeds)]


def at_one_round(states: Sequence[State]) -> int:
  """Returns the round that all states have reached.

  Raises:
    ValueError: if they stand at different ones.
  """
  rounds = {int(number) for number in jax.device_get([state.round for state in states])}
  if len(rounds) > 1:
    raise ValueError(f'rounds {sorted(rounds)}: seeds side by side must stand at the same round')
  return rounds.pop()
