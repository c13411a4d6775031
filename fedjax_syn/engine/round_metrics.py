"""What a round says of itself: losses, numbers of the layers, and whether and where it diverged."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_syn.client import hook_results
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.types import Array, Measured, Params, PyTree

Report = dict[str, Array | Measured]


def round_report(
  number: Array,
  new: Params,
  metrics: Mapping[str, Any],
  size: Array,
  sampled: Array,
  efficiency: Array,
  server: Mapping[str, Array | Measured],
) -> Report:
  """Sums up a round inside its program.

  Args:
    number: the round, [].
    new: the aggregated model.
    metrics: by name, [cohort]: 'loss', 'finite' and whatever layers measured.
    size: [cohort], samples of each sampled client.
    sampled: [cohort], client numbers.
    efficiency: padding efficiency, [].
    server: numbers of the aggregation and of server layers, [] by name.

  Returns:
    Scalars by name: 'train/loss', weighted by size; means over the clients with a sample of the
    layers' numbers; the server's; all of them missing in a round without a sample, which says
    nothing of the method. 'diverged_round', 0 if all is finite, and 'diverged_client', -1 if it is
    none of the clients, are always there.
  """
  finite = jnp.ones((), bool)
  for leaf in jax.tree.leaves(new):
    finite &= jnp.isfinite(leaf.sum())
  finite_client: Array = metrics['finite']
  culprit = jnp.where(finite_client.all(), -1, sampled[jnp.argmin(finite_client)])
  finite &= finite_client.all()
  present = size > 0

  def mean(measured, weights):
    values, there = _measured(measured, present)
    weights = jnp.where(there, weights, 0).astype(values.dtype)
    total = jnp.sum(jnp.where(there, values, 0) * weights)
    return Measured(total / jnp.maximum(weights.sum(), 1), there.any())

  own = {k: mean(v, jnp.ones_like(size)) for k, v in metrics.items() if '/' in k}
  measured = {'padding_efficiency': efficiency, **server}
  return {
    'train/loss': mean(metrics['loss'], size),
    **own,
    **{name: _measured(value, present.any()) for name, value in measured.items()},
    'diverged_round': jnp.where(finite, 0, number),
    'diverged_client': culprit,
  }


def server_numbers(task: Task, state: Mapping[str, PyTree]) -> dict[str, Array | Measured]:
  """Returns what layers say of their server states, by '<layer>/<name>'."""
  return {
    f'{layer.name}/{name}': value
    for layer in task.chain.having('server_metrics', task)
    for name, value in hook_results.numbers(
      layer, 'server_metrics', layer.server_metrics(state.get(layer.name))
    ).items()
  }


def _measured(number: Array | Measured, there: Array) -> Measured:
  if isinstance(number, Measured):
    return number._replace(there=number.there & there)
  return Measured(number, there)


def numbers(report: Report) -> dict[str, float]:
  """Returns a report, on the host, as floats by name, without what was not measured."""
  whole = {k: v if isinstance(v, Measured) else (v, True) for k, v in report.items()}
  return {name: float(value) for name, (value, there) in whole.items() if there}


def each_numbers(report: Report, runs: int) -> list[dict[str, float]]:
  """Returns the `numbers` of each run of a report, on the host, of arrays [runs]."""
  return [numbers(jax.tree.map(lambda leaf: leaf[i], report)) for i in range(runs)]
