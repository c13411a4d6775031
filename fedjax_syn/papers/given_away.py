"""What the synthetic sets of a finished run give away, for every method that makes data.

DynaFed's set is the server's. FedDM's and FedDualMatch's are those that the clients sent in the
last round, all together. FedCOG's images stay with the clients, which generate them from their own
local model: they are measured as if they had been sent. `privacy_check` says what is measured.
"""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed import dynamics, privacy_check
from fedjax_syn.algorithms.dynafed.dynafed import DynaFed
from fedjax_syn.algorithms.dynafed.scratch import train_from_scratch
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.algorithms.fedcog.fedcog import FedCOG
from fedjax_syn.algorithms.set_sharing.base import listed
from fedjax_syn.algorithms.set_sharing.feddm import FedDM
from fedjax_syn.algorithms.set_sharing.feddualmatch import FedDualMatch
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.papers.fedcog import generation
from fedjax_syn.runs import restore
from fedjax_syn.runs.restore import Restored

RATE = 1e-3
"""Of Adam, in training from scratch."""
NAMES = (DynaFed.name, FedCOG.name, FedDM.name, FedDualMatch.name)
"""Methods that make data."""


class Set(NamedTuple):
  """All synthetic images of a run."""

  run: Restored
  syn: SyntheticSet


def open_set(folder: pathlib.Path, seed: int, data_dir: str | None = None) -> Set:
  """Opens the images of a finished run.

  Args:
    folder: of the run; FedCOG's needs the checkpoint of round T0 (keep_checkpoints=phases).
    seed: one of its seeds.
    data_dir: of the data set; None is where it was for the run.

  Raises:
    ValueError: if it made no images.
  """
  opened = restore.read(folder)
  names = opened.config.algorithm.split('+')
  made = [name for name in NAMES if name in names]
  if not made:
    raise ValueError(f'{folder}: algorithm={opened.config.algorithm!r} makes no images')
  if made[0] == FedCOG.name:
    start = opened.config.blocks[FedCOG.name].start
    run = restore.restore(opened, seed, start, data_dir=data_dir)
    return Set(run, _generated(run))
  run = restore.restore(opened, seed, data_dir=data_dir)
  if made[0] == DynaFed.name:
    return Set(run, run.state.server[DynaFed.name].syn)
  sent = listed(run.state.server[made[0]].sets, 0)
  if sent is None:
    raise ValueError(f'{folder}: no client of the last round sent an image')
  return Set(run, _labelled(run, sent['x'][0], sent['y'][0].argmax(axis=1)))


def _generated(run: Restored) -> SyntheticSet:
  """Returns what all clients with data generate in round T0 + 1."""
  generate = generation.generator(run)
  clients = np.flatnonzero(np.asarray(run.problem.data.size) > 0)
  own = (generate(generation.context_of(run, int(k)), run.problem.data) for k in clients)
  parts = [(one.x, one.y) for one in own]
  x, y = (np.concatenate([np.asarray(leaf) for leaf in own]) for own in zip(*parts, strict=True))
  return _labelled(run, x, y)


def _labelled(run: Restored, x: np.ndarray, y: np.ndarray) -> SyntheticSet:
  classes = run.problem.dataset.num_classes
  return dynamics.labelled(jnp.asarray(x), jnp.asarray(y), classes, jnp.zeros(()))


def measure(own: Set, steps: int) -> dict[str, Any]:
  """Measures distances to training images, and two membership attacks with their controls.

  Args:
    own: the images.
    steps: of training a network on them alone.

  Returns:
    'images', how many; 'nearest' and 'membership' as of `launch/inspect_run.py`, the attacks beside
    the same ones with noise as the set and with a network before training.
  """
  run, (x, *_) = own.run, own.syn
  data, model, dataset = run.problem.data, run.engine.model, run.problem.dataset
  train, test = dataset.train, dataset.test
  key = stream(run.seed, Purpose.EVALUATE, 1)
  synthetic, noise = np.asarray(x), np.asarray(jax.random.normal(fold(key, 4), x.shape))
  near = lambda x, references: privacy_check.nearest_distances(data, x, references)
  seen = [privacy_check.as_seen(data, split) for split in (train, test)]
  nearest = privacy_check.nearness(near(synthetic, seen[0].x), near(seen[1].x, seen[0].x))

  def by_distance(references):
    scores = [-near(split.x, references) for split in seen]
    return privacy_check.membership(*scores)._asdict()

  def by_loss(variables):
    loss = lambda split: privacy_check.sample_losses(model, data, variables, split.x, split.y)
    return privacy_check.membership(-loss(train), -loss(test))._asdict()

  evaluate: Any = run.engine.evaluator(test.x, test.y)
  scratch = train_from_scratch(
    fold(key, 2),
    model,
    own.syn,
    evaluate,
    optimizer=optax.adam(RATE),
    steps=steps,
    every=steps,
    batch_size=min(256, len(x)),
  )
  membership = {
    'distance': by_distance(synthetic),
    'distance, noise': by_distance(noise),
    'loss': by_loss(scratch.variables),
    'loss, network before training': by_loss(model.init(fold(key, 2))),
  }
  accuracy = float(scratch.accuracy[-1])
  return {
    'images': len(x),
    'nearest': nearest._asdict(),
    'membership': membership,
    'accuracy_from_scratch': accuracy,
  }
