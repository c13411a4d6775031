"""The programs of a run, lowered from shapes alone: for devices that need not be there."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.chains import Chain
from fedjax_syn.client.local import bind
from fedjax_syn.core.contexts import State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import alone, replicated, shapes_on
from fedjax_syn.core.types import Variables
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine import evaluate, rounds
from fedjax_syn.engine.placement import schedule
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.layer import overrides


class Program(NamedTuple):
  """One program of a run."""

  name: str
  unit: str
  """What it does once: 'a round', 'an iteration'."""
  lower: Callable[[], jax.stages.Lowered]
  trips: Mapping[str, float] = {}
  """Trip counts that the compiler does not know, by the name of the loop's scope."""


def programs_of(
  setting: Setting,
  chain: Chain,
  method: Chain,
  data: FederatedData,
  state: State,
  splits: Mapping[str, int],
  size: np.ndarray,
  last: int,
) -> list[Program]:
  """Returns the programs of a run: initial state, rounds of each phase, server work, evaluation.

  Args:
    setting: of the engine.
    chain: the method with traced fields, or their shapes.
    method: the same with plain numbers.
    data: the partitioned training set, its pixels and labels as shapes.
    state: shapes of a run's state, with shardings.
    splits: the rows of each split that is evaluated, by name.
    size: samples of each client, [clients].
    last: rounds of the run; 0: not known.

  Returns:
    The programs, in the order in which a run needs them.
  """
  number = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated(setting.mesh))
  start = lambda: rounds.init.lower(setting, chain, number, data)
  out = [Program('initial state', 'once', start, _of_clients(setting, method, data, size, 1))]
  firsts = [1, *(phase + 1 for phase in method.phases)]
  for i, first in enumerate(firsts):
    end = firsts[i + 1] - 1 if i + 1 < len(firsts) else last
    name = f'rounds {first} to {end}' if end else f'rounds from {first} on'
    arguments = setting, first, chain, state, data, setting.layout.seeds
    trips = _of_clients(setting, method, data, size, first)
    out.append(Program(name, 'a round', functools.partial(rounds.lowered, *arguments), trips))
    for stop in method.stops:
      if first <= stop and (stop <= end or i + 1 == len(firsts)):
        out += _server_work(setting, method, data, state)
  for name, rows in splits.items():
    out.append(Program(f'evaluation: {name}', 'once', _evaluation(setting, data, state, rows)))
  return out


def _of_clients(
  setting: Setting, method: Chain, data: FederatedData, size: np.ndarray, first_round: int
) -> dict[str, float]:
  """Returns the trip counts of loops over a device's queue, local steps and batches of a client.

  They are those of the cohort of the phase's first round with seed 0, on the longest queue.
  """
  sampled = np.asarray(setting.sample(jnp.int32(0), jnp.int32(first_round)))
  size = np.append(size, 0)[sampled]  # one number beyond the last is nobody
  cost = bind(setting.task(method, data, first_round)).steps(jnp.asarray(size))
  if setting.layout.form == 'loop':
    blocks, steps = size.shape[0], float(cost.sum())
  else:
    _, _, count, longest = schedule(cost, setting.layout.lanes, setting.layout.devices)
    blocks, steps = int(count.max()), float(longest)
  return {
    'queue': blocks,
    'local_steps': steps / max(blocks, 1),
    'rows_of_client': float(np.max(size)),
    'classes': setting.num_classes,  # at most
  }


def _server_work(
  setting: Setting, method: Chain, data: FederatedData, state: State
) -> list[Program]:
  out = []
  for layer in method.on_server:
    if not overrides(layer, 'server_programs'):
      continue
    on_one = alone(state._replace(clients={}), setting.mesh)
    seed = jax.eval_shape(lambda: fold(stream(np.int32(0), Purpose.SERVER_WORK, np.int32(1)), 0))
    key = shapes_on(jax.tree.leaves(on_one.params)[0].sharding, seed)
    task = setting.task(method, data, 1)._replace(mesh=setting.mesh)
    arguments = task, key, on_one.server.get(layer.name), Variables(on_one.params, on_one.stats)
    lowers = layer.server_programs(*arguments)
    out += [Program(name, 'an iteration', lower) for name, lower in lowers.items()]
  return out


def _evaluation(
  setting: Setting, data: FederatedData, state: State, rows: int
) -> Callable[[], jax.stages.Lowered]:
  return lambda: evaluate.lowered(
    setting.model,
    data,
    setting.objective,
    rows,
    setting.mesh,
    Variables(state.params, state.stats),
  )
