"""What a run says of its training and of how far its figures can be trusted, a line each."""

from collections.abc import Mapping, Sequence

import jax

from fedjax_syn.config import Resolved
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.types import Model
from fedjax_syn.engine import Engine
from fedjax_syn.runs import metrics

FEW_ROWS = 200
"""With at most as many test rows, one of them is half a point of accuracy or more."""
SEEDS_DIFFER = 0.1
"""Accuracies of two seeds of one method can differ by so much: FedAvg's on digits do."""


def parameters_of(model: Model) -> int:
  """Returns how many parameters a network has."""
  shapes = jax.eval_shape(model.init, jax.random.key(0)).params
  return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def cohort(resolved: Resolved) -> str:
  """States who takes part in a round, as a part of a line."""
  share, clients = resolved.client.participation, resolved.data.clients
  sampler, dropouts = resolved.client.sampler, resolved.client.dropouts
  lost = f' (each drops out with probability {dropouts:g})' if dropouts else ''
  if ':' in sampler:
    return f'{SAMPLERS["fixed"](clients, share)[0]} of them by {sampler}{lost}'
  if share == 1:
    return f'all of them{lost}'
  if sampler != 'fixed':
    return f'each with probability {share:g}{lost}'
  return f'{SAMPLERS["fixed"](clients, share)[0]} of them{lost}'


def training(resolved: Resolved, engine: Engine) -> str:
  """States in one line what is trained and how.

  Args:
    resolved: a checked config.
    engine: of its method.
  """
  c, seeds = resolved.client, resolved.seeds
  work = f'{c.steps} steps' if c.steps else f'{c.epochs} epoch{"s" * (c.epochs != 1)}'
  optimizer = f'{c.optimizer} with momentum {c.momentum:g}' if c.momentum else c.optimizer
  schedule = f' ({c.schedule})' if c.schedule else ''
  batches = f'batches of {c.batch_size}' if c.batch_size else 'all samples in a batch'
  how = f', trained by {optimizer}: rate {c.lr:g}{schedule}, {batches}, {work} a round'
  return (
    f'{resolved.model.name} with {parameters_of(engine.model):,} parameters'
    f'{how if engine.chain.trains_locally else ""}; {resolved.rounds} rounds,'
    f' seed{"s" * (len(seeds) > 1)} {", ".join(map(str, seeds))}'
  )


def caution(
  test_rows: int,
  seeds: Sequence[int],
  results: Mapping[str, float | None],
  *,
  over: bool = False,
  rounds: int = 5,
) -> str:
  """States in one line why differences may be chance; '' where nothing speaks for it.

  Args:
    test_rows: how many.
    seeds: of the run.
    results: accuracy by method; None where it is not known.
    over: whether the run is over. Then methods are named whose one seed says little.
    rounds: of the run.
  """
  parts = []
  if 0 < test_rows <= FEW_ROWS:
    parts.append(f'one of {test_rows} test rows is {100 / test_rows:.1f} points of accuracy')
  if len(seeds) == 1 and len(results) > 1:
    if not over:
      parts.append('one seed is compared, and seeds can differ by several points')
    else:
      parts += _close(results, rounds)
    if parts and 'seed' in parts[-1]:
      parts[-1] += ' (--config.seeds=0,1,2 trains three)'
  return f'NOTE: {"; ".join(parts)}' if parts else ''


def _close(results: Mapping[str, float | None], rounds: int) -> list[str]:
  known = sorted(((a, name) for name, a in results.items() if a is not None), reverse=True)
  if len(known) < 2 or known[0][0] - known[1][0] >= SEEDS_DIFFER:
    return []
  (best, first), (other, second) = known[:2]
  points = 100 * (best - other)
  return [
    f'{first} and {second} differ by {points:.1f} points in the mean of the last'
    f' {metrics.rounds_in_mean([rounds])} rounds, with one seed each'
  ]
