"""Work on the server between rounds, in chunks that a run can resume; not traced."""

from typing import Any

import numpy as np

from fedjax_syn.chains import Chain
from fedjax_syn.core.contexts import State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import alone
from fedjax_syn.core.types import Variables
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.layer import Layer, overrides


def unfinished(chain: Chain, state: State) -> tuple[int, Layer] | None:
  """Returns the first layer with unfinished work and its number in `chain.on_server`, or None."""
  for i, layer in enumerate(chain.on_server):
    own = state.server.get(layer.name)
    if overrides(layer, 'server_work') and layer.pending(own, int(state.round)):
      return i, layer
  return None


def work(
  setting: Setting, chain: Chain, data: FederatedData, seed: int, state: State, seconds: float
) -> tuple[State, dict[str, Any]]:
  """Works for about so many seconds on the first layer with unfinished work.

  Args:
    setting: of the engine.
    chain: the method, its fields plain numbers.
    data: the partitioned training set.
    seed: the run's.
    state: where the run stands; consumed.
    seconds: of a chunk.

  Returns:
    The state, and numbers for the log.
  """
  first = unfinished(chain, state)
  if first is None:
    return state, {}
  i, layer = first
  # The work runs on one device, or as the layer says.
  state = alone(state._replace(clients={}), setting.mesh)._replace(clients=state.clients)
  key = fold(stream(np.int32(seed), Purpose.SERVER_WORK, state.round), i)
  task = setting.task(chain, data, 1)._replace(mesh=setting.mesh)
  w = Variables(state.params, state.stats)
  params, own, report = layer.server_work(task, key, state.server[layer.name], w, seconds)
  return state._replace(params=params, server={**state.server, layer.name: own}), report
