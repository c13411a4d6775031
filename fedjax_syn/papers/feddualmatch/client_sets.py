"""The sets that clients of a finished run of FedDM or FedDualMatch send: measured and drawn.

Measuring needs the model that the sets were distilled for. From the last checkpoint the round
after it is distilled again, as the run would. The sets of the last round itself are in synthetic/,
and `launch/export.py` writes them.
"""

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing import gradient_matching, set_diagnostics
from fedjax_syn.algorithms.set_sharing.base import perturb_weights, train
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.algorithms.set_sharing.feddm import FedDM
from fedjax_syn.algorithms.set_sharing.feddualmatch import FedDualMatch
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.types import Array, Params, Variables
from fedjax_syn.data import federated
from fedjax_syn.plotting import figures
from fedjax_syn.plotting.style import method_name
from fedjax_syn.runs import restore
from fedjax_syn.runs.restore import Restored

NAMES = (FedDM.name, FedDualMatch.name)
MODELS = 3
"""Drawn within the ball, for numbers that hold for all models in it."""
POINTS = 5
"""Along fine-tuning, for sigma_g."""


def open_run(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> Restored:
  """Opens a run at its last checkpoint.

  Args:
    folder: with a config.json and a checkpoint of the seed.
    seed: which of its seeds; None is the first that has a model.
    data_dir: of the data set; None is where it was for the run.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if its clients send no sets, it has no checkpoint, or its data set is not there.
  """
  opened = restore.read(folder, trusted)
  if opened.config.algorithm not in NAMES:
    raise ValueError(f'{folder}: algorithm={opened.config.algorithm!r}: its clients send no sets')
  return restore.restore(opened, seed, data_dir=data_dir)


def inspect(run: Restored, folder: pathlib.Path) -> dict[str, Any]:
  """Distils, measures and draws; leaves figures/client_set.png in the run's folder.

  Returns:
    The run's 'algorithm', 'dataset' and 'seed', and the numbers of `measure`.
  """
  sets = distil(run)
  draw(run, sets, folder / 'figures' / 'client_set.png')
  name, dataset = run.config.algorithm, run.problem.dataset.name
  return {'algorithm': name, 'dataset': dataset, 'seed': run.seed, **measure(run, sets)}


def _layer(run: Restored) -> FedDM | FedDualMatch:
  layer = run.engine.chain.layers[-1]
  assert isinstance(layer, FedDM | FedDualMatch)
  return layer


def distil(run: Restored) -> ClassSet:
  """Distils every client's set of the round after the checkpoint, leaves [clients, ...]."""
  message = functools.partial(run.engine.message, run.seed, run.state)
  sent = (message(client) for client in range(run.engine.setting.num_clients))
  sets = [_layer(run)._received(one.payload) for one in sent]
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets)


def measure(run: Restored, sets: ClassSet) -> dict[str, float | None]:
  """Measures what FedDualMatch's theory assumes and its figures show.

  Args:
    run: the run.
    sets: from `distil`.

  Returns:
    'spread_data', 'spread_before', 'spread_after': of the clients' gradients on their data, on
    their sets, and on their sets after gradient matching (None for FedDM, which has none), means
    over a few models within the ball; 'sigma_d', 'sigma_d_same_shares': the largest over these
    models and the clients; 'sigma_g': the largest along fine-tuning.
  """
  layer, task = _layer(run), run.engine.task()
  w, stats, model = run.state.params, run.state.stats, task.model
  key = stream(run.seed, Purpose.EVALUATE, 2)
  radius: Array | float = layer.radius
  layers, matches = 'last+logits', 0
  if isinstance(layer, FedDualMatch):
    radius = gradient_matching.radius(model, w, stats, sets, layer.radius_lr)
    layers, matches = layer.layers, layer.matches

  def matched(drawn: Params, sets: ClassSet) -> ClassSet:
    assert isinstance(layer, FedDualMatch)
    target = gradient_matching.union_gradient(model, drawn, stats, sets)
    arguments = target, layer.match_steps, layer.match_lr
    return jax.lax.map(
      lambda s: gradient_matching.match(model, drawn, stats, s, *arguments)[0], sets
    )

  @jax.jit
  def at(i, data, sets):
    drawn = perturb_weights(fold(key, i), w, radius)
    variables = Variables(drawn, stats)
    own = sets.present.any(axis=-1)
    embed = lambda x: dm.layers(model, variables, x, layers)
    of_sets = lambda s: set_diagnostics.spread(set_diagnostics.on_sets(model, drawn, stats, s), own)
    real = set_diagnostics.on_data(model, task.loss, data, variables)
    spreads = {
      'spread_data': set_diagnostics.spread(real, data.size > 0),
      'spread_before': of_sets(sets),
    }
    if matches > 0:
      spreads['spread_after'] = of_sets(matched(drawn, sets))

    def features(inputs):
      client, own = inputs
      shard = federated.shard_of(data, client)
      return set_diagnostics.feature_difference(embed, data, shard, own)

    clients = jnp.arange(task.num_clients, dtype=jnp.int32)
    stated, same = jax.lax.map(features, (clients, sets))
    return spreads, {'sigma_d': stated.max(), 'sigma_d_same_shares': same.max()}

  spreads, largest = zip(*(at(i, task.data, sets) for i in range(MODELS)), strict=True)
  mean = {name: float(np.mean([s[name] for s in spreads])) for name in spreads[0]}
  high = {name: float(max(s[name] for s in largest)) for name in largest[0]}
  return {'spread_after': None, **mean, **high, 'sigma_g': _sigma_g(run, sets)}


def _sigma_g(run: Restored, sets: ClassSet) -> float:
  """The largest mean difference at some points of the server's fine-tuning on S."""
  layer, task = _layer(run), run.engine.task()
  w, stats = run.state.params, run.state.stats
  optimizer = layer._optimizer()
  key = stream(run.seed, Purpose.EVALUATE, 3)

  @functools.partial(jax.jit, static_argnums=1)
  def at(sets, steps):
    batch = layer.server_batch
    tuned = train(key, task, w, stats, [sets], optimizer, steps=steps, batch_size=batch)
    return set_diagnostics.gradient_difference(task.model, tuned, stats, sets)

  points = np.linspace(0, layer.server_steps, POINTS).astype(int)
  return max(float(at(sets, int(steps))) for steps in points)


def draw(run: Restored, sets: ClassSet, path: pathlib.Path) -> None:
  """Draws the set of the client with the most classes.

  Args:
    run: the run.
    sets: from `distil`.
    path: of the picture.
  """
  client, dataset = int(sets.present.sum(axis=-1).argmax()), run.problem.dataset
  present = np.flatnonzero(np.asarray(sets.present[client]))
  x = np.asarray(sets.x[client])[present]
  labels = np.eye(dataset.num_classes)[np.repeat(present, x.shape[1])]
  learned = run.engine.artifacts(run.state)
  iterations = int(learned['iterations'][-1]) if learned else 0  # of a set, in all its stages
  round = int(run.state.round) + 1
  title = f'{dataset.title}, {method_name(run.config.algorithm)}, client {client}, round {round}'
  pictured = x.reshape(1, -1, *x.shape[2:]), labels[None], [iterations], dataset.normalisation
  figures.synthetic_sets(*pictured, path, title, class_names=dataset.class_names)
