"""The sets that clients send, of a finished run of FedDM or FedDualMatch: distilled once more, measured and drawn.

Measuring needs the model that they were distilled for: from the last checkpoint the round after it is distilled, as
the run would. The sets of the last round itself are in synthetic/, and `export.py` writes them.
"""

import functools
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing import gradient_matching, set_diagnostics
from fedjax_syn.algorithms.set_sharing.base import train
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.algorithms.set_sharing.feddm import FedDM
from fedjax_syn.algorithms.set_sharing.feddualmatch import FedDualMatch
from fedjax_syn.algorithms.set_sharing.perturbation import perturb_weights
from fedjax_syn.core.contexts import State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.types import Variables
from fedjax_syn.data import federated
from fedjax_syn.engine import Engine
from fedjax_syn.layer import Layer
from fedjax_syn.plotting import figures
from fedjax_syn.runs import assemble, restore

NAMES = (FedDM.name, FedDualMatch.name)
MODELS = 3  # drawn within the ball, for numbers that hold for all models in it
POINTS = 5  # along fine-tuning, for sigma_g


class Subject(NamedTuple):
  """A finished run at its last checkpoint."""

  config: config_lib.Resolved
  problem: assemble.Problem
  engine: Engine
  state: State
  seed: int

  @property
  def layer(self) -> Layer:
    """FedDM or FedDualMatch, with its fields."""
    return self.engine.chain.layers[-1]

  @property
  def name(self) -> str:
    """The method's."""
    return self.layer.name


def open_subject(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> Subject:
  """Opens a run.

  Args:
    folder: with a config.json and a checkpoint of the seed.
    seed: which of its seeds; None is the first that has a model.
    data_dir: where the data set lies; None is where it lay for the run.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if its clients send no sets, it has no checkpoint, or its data set is not there.
  """
  opened = restore.read(folder, trusted)
  if opened.config.algorithm not in NAMES:
    raise ValueError(f'{folder}: algorithm={opened.config.algorithm!r}: its clients send no sets')
  run = restore.restore(opened, seed, data_dir=data_dir)
  return Subject(run.config, run.problem, run.engine, run.state, run.seed)


def distil(subject: Subject) -> ClassSet:
  """Distils every client's set of the round after the checkpoint, leaves [clients, ...]."""
  message = functools.partial(subject.engine.message, subject.seed, subject.state)
  sent = (message(client) for client in range(subject.engine.setting.num_clients))
  layer = subject.engine.chain.client_update
  found = [layer._received(one.payload) for one in sent]
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def measure(subject: Subject, sets: ClassSet) -> dict[str, float | None]:
  """Measures what FedDualMatch's theory assumes and its figures show.

  Args:
    subject: the run.
    sets: from `distil`.

  Returns:
    'spread_data', 'spread_before', 'spread_after' (of the clients' gradients on their data, their sets, and their sets
    after gradient matching; None for FedDM, which has none), means over a few models within the ball; 'sigma_d',
    'sigma_d_same_shares', the largest over these models and the clients; 'sigma_g', the largest along fine-tuning.
  """
  layer, task = subject.layer, subject.engine.task()
  w, stats = subject.state.params, subject.state.stats
  dual = isinstance(layer, FedDualMatch)
  matching = dual and layer.matches > 0
  layers = layer.layers if dual else 'last+logits'
  key = stream(subject.seed, Purpose.DIAGNOSE, 2)
  radius = layer.radius
  if dual:
    radius = gradient_matching.radius(task.model, w, stats, sets, layer.radius_lr)

  @jax.jit
  def at(i, data, sets):
    drawn = perturb_weights(fold(key, i), w, radius)
    variables = Variables(drawn, stats)
    own = sets.present.any(axis=-1)
    embed = lambda x: dm.layers(task.model, variables, x, layers)
    real = set_diagnostics.on_data(task.model, task.loss, data, variables)
    found = {
      'spread_data': set_diagnostics.spread(real, data.size > 0),
      'spread_before': set_diagnostics.spread(
        set_diagnostics.on_sets(task.model, drawn, stats, sets), own
      ),
    }
    if matching:
      target = gradient_matching.union_gradient(task.model, drawn, stats, sets)
      match = lambda s: gradient_matching.match(
        task.model, drawn, stats, s, target, layer.match_steps, layer.match_lr
      )
      matched, _ = jax.lax.map(match, sets)
      after = set_diagnostics.on_sets(task.model, drawn, stats, matched)
      found['spread_after'] = set_diagnostics.spread(after, own)

    def features(inputs):
      client, own = inputs
      shard = federated.shard_of(data, client)
      return set_diagnostics.feature_difference(embed, data, shard, own)

    clients = jnp.arange(task.num_clients, dtype=jnp.int32)
    stated, same = jax.lax.map(features, (clients, sets))
    return found, {'sigma_d': stated.max(), 'sigma_d_same_shares': same.max()}

  spreads, largest = zip(*(at(i, task.data, sets) for i in range(MODELS)), strict=True)
  mean = {name: float(np.mean([s[name] for s in spreads])) for name in spreads[0]}
  high = {name: float(max(s[name] for s in largest)) for name in largest[0]}
  return {'spread_after': None, **mean, **high, 'sigma_g': _sigma_g(subject, sets)}


def _sigma_g(subject: Subject, sets: ClassSet) -> float:
  """The largest mean difference at some points of fine-tuning on S, as the server of the method fine-tunes."""
  layer, task = subject.layer, subject.engine.task()
  w, stats = subject.state.params, subject.state.stats
  rule = layer._server_optimizer()
  key = stream(subject.seed, Purpose.DIAGNOSE, 3)

  @functools.partial(jax.jit, static_argnums=1)
  def at(sets, steps):
    tuned = train(
      key,
      task,
      w,
      stats,
      [sets],
      rule,
      steps=steps,
      batch_size=layer.server_batch,
    )
    return set_diagnostics.gradient_difference(task.model, tuned, stats, sets)

  points = np.linspace(0, layer.server_steps, POINTS).astype(int)
  return max(float(at(sets, int(steps))) for steps in points)


def draw(subject: Subject, sets: ClassSet, path: pathlib.Path) -> None:
  """Draws the set of the client with the most classes.

  Args:
    subject: the run.
    sets: from `distil`.
    path: where the picture goes.
  """
  client = int(sets.present.sum(axis=-1).argmax())
  present = np.flatnonzero(np.asarray(sets.present[client]))
  x = np.asarray(sets.x[client])[present]
  labels = np.eye(subject.problem.dataset.num_classes)[np.repeat(present, x.shape[1])]
  dataset = subject.problem.dataset
  title = f'{dataset.title}, {subject.name}, client {client}, round {int(subject.state.round) + 1}'
  path.parent.mkdir(parents=True, exist_ok=True)
  figures.synthetic_sets(
    x.reshape(1, -1, *x.shape[2:]),
    labels[None],
    [_steps(subject)],
    dataset.normalisation,
    path,
    title,
  )


def _steps(subject: Subject) -> int:
  """By how many iterations a set is distilled, in all its stages."""
  learned = subject.engine.artifacts(subject.state)
  return int(learned['iterations'][-1]) if learned else 0


def inspect(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> dict:
  """Distils, measures and draws; leaves figures/client_set.png.

  Returns:
    What `measure` found, with the run's algorithm, data set and seed.

  Raises:
    ValueError: see `open_subject`.
  """
  subject = open_subject(folder, seed, data_dir, trusted)
  with jax.default_matmul_precision(subject.config.precision):
    sets = distil(subject)
    draw(subject, sets, folder / 'figures' / 'client_set.png')
    found = measure(subject, sets)
  head = {'algorithm': subject.name, 'dataset': subject.problem.dataset.name, 'seed': subject.seed}
  return {**head, **found}
