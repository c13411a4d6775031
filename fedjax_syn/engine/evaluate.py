"""Evaluation of a model on a whole split, sharded over the devices."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.mesh import place, replicated, shapes_on
from fedjax_syn.core.objectives import Objective
from fedjax_syn.core.programs import bounded
from fedjax_syn.core.types import Array, Model, Params, Stats, Variables
from fedjax_syn.data import federated

BATCH = 500  # rows of a split at once on a device


class Evaluator(NamedTuple):
  """A split on the devices, ready to evaluate models on."""

  sums: Callable[[Params, Stats], tuple[dict[str, Array], Array]]  # counts, sum of the losses
  objective: Objective
  y: np.ndarray  # labels, [rows] or multi-hot [rows, labels]
  num_classes: int
  rows: Callable[[Params, Stats], np.ndarray]  # the predicted class of each row, int32 [rows]
  logits: Callable[[Params, Stats], np.ndarray]  # of each row, [rows, classes]

  def __call__(self, params: Params, stats: Stats) -> dict[str, float]:
    """Returns 'accuracy', the objective's other scores, and 'loss', the mean over all rows."""
    counts, losses = self.sums(params, stats)
    rows = len(self.y)
    scores = self.objective.scores(jax.tree.map(np.asarray, counts), rows)
    return {**scores, 'loss': float(losses) / rows}

  def confusion(self, params: Params, stats: Stats) -> np.ndarray | None:
    """Counts rows by true and predicted class, [classes, classes]; None as in `by_owner`."""
    if self.y.ndim > 1:
      return None
    shape = self.num_classes, self.num_classes
    pairs = np.ravel_multi_index((self.y, self.rows(params, stats)), shape)
    return np.bincount(pairs, minlength=self.num_classes**2).reshape(shape)

  def by_owner(
    self, params: Params, stats: Stats, owners: np.ndarray, clients: int
  ) -> np.ndarray | None:
    """Returns the accuracy on each client's own rows, [clients].

    It is nan for a client without rows, and None if rows have several labels.

    Args:
      params: the model's parameters.
      stats: and its statistics.
      owners: the client whose row it is, -1 for nobody's [rows].
      clients: how many there are.
    """
    if self.y.ndim > 1:
      return None
    owned, right = owners >= 0, self.rows(params, stats) == self.y
    rows = np.bincount(owners[owned], minlength=clients)
    hits = np.bincount(owners[owned], right[owned], minlength=clients)
    return np.divide(hits, rows, out=np.full(clients, np.nan), where=rows > 0)


def batch_shape(rows: int, batch_size: int, devices: int = 1) -> tuple[int, int]:
  """Returns (batches, rows of a batch) into which `into_batches` divides rows."""
  batch_size = min(batch_size, -(-rows // devices))
  return -(-rows // (batch_size * devices)) * devices, batch_size


def into_batches(rows: int, batch_size: int, devices: int = 1) -> Callable[..., np.ndarray]:
  """Returns a function that pads arrays [rows, ...] and reshapes them to [batches, batch, ...].

  Args:
    rows: of the arrays.
    batch_size: rows of a batch, at most.
    devices: a divisor of the number of batches.

  Returns:
    A function of an array and of options of `np.pad`, which pads with zeros by default.
  """
  batches, batch_size = batch_shape(rows, batch_size, devices)

  def cut(array, **padding):
    width = [(0, batches * batch_size - rows), *[(0, 0)] * (np.ndim(array) - 1)]
    return np.pad(array, width, **padding).reshape(batches, batch_size, *np.shape(array)[1:])

  return cut


def make_evaluator(
  model: Model,
  data: federated.FederatedData,
  objective: Objective,
  x: np.ndarray,
  y: np.ndarray,
  mesh: jax.sharding.Mesh,
  batch_size: int = BATCH,
) -> Evaluator:
  """Places a split on the mesh and returns what evaluates a model on it.

  Args:
    model: the network.
    data: gives the normalisation.
    objective: its loss, and what it counts and scores.
    x: uint8 [rows, height, width, channels].
    y: [rows], or multi-hot [rows, labels].
    mesh: batches are sharded over its axis 'lanes'.
    batch_size: rows at once on a device; padding counts for nothing.

  Returns:
    The evaluator.
  """
  rows, labels, num_classes = len(y), np.asarray(y), data.class_counts.shape[1]
  cut = into_batches(rows, batch_size, mesh.devices.size)
  batches = cut(x, mode='edge'), cut(y.astype(np.int32)), cut(np.ones(rows, np.float32))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('lanes'))
  x, y, mask = place(batches, sharding)

  one = lambda leaf: np.zeros((1, *leaf.shape[1:]), leaf.dtype)
  few = jax.tree.map(one, (data.x, data.y, data.order))
  small = place(data._replace(x=few[0], y=few[1], order=few[2], proxy=None), replicated(mesh))

  on_mesh = lambda *of: place(Variables(*of), replicated(mesh))
  sums = lambda *of: _sums(model, objective, mesh, on_mesh(*of), small, x, y, mask)
  classes = lambda *of: np.asarray(_classes(model, mesh, on_mesh(*of), small, x)).ravel()[:rows]

  def logits(*of):
    found = np.asarray(_logits(model, mesh, on_mesh(*of), small, x))
    return found.reshape(-1, found.shape[-1])[:rows]

  return Evaluator(sums, objective, labels, num_classes, classes, logits)


def lowered(
  model: Model,
  data: federated.FederatedData,
  objective: Objective,
  rows: int,
  mesh: jax.sharding.Mesh,
  variables: Variables,
  batch_size: int = BATCH,
) -> jax.stages.Lowered:
  """Traces and lowers the evaluation of a split, from shapes; see `make_evaluator`.

  Args:
    model: the network.
    data: the training set, or its shapes: a split has rows of the same shapes.
    objective: its loss, and what it counts and scores.
    rows: of the split.
    mesh: batches are sharded over its axis 'lanes'.
    variables: shapes of the model's variables.
    batch_size: rows at once on a device.

  Returns:
    What compiles to the program.
  """
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('lanes'))
  cut = batch_shape(rows, batch_size, mesh.devices.size)
  of = lambda shape, dtype: jax.ShapeDtypeStruct((*cut, *shape), dtype, sharding=sharding)
  x, y = of(data.x.shape[1:], data.x.dtype), of(data.y.shape[1:], jnp.int32)
  one: Callable[..., Any] = lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype)
  small = data._replace(x=one(data.x), y=one(data.y), order=one(data.order), proxy=None)
  small, variables = (shapes_on(replicated(mesh), tree) for tree in (small, variables))
  return _sums.lower(model, objective, mesh, variables, small, x, y, of((), jnp.float32))


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sums(model, objective, mesh, variables, data, x, y, mask):
  """Sums an objective's counts and the losses over all batches, each device over its own."""

  def batch(variables, data, xb, yb, mb):
    out = model.apply(variables, federated.normalise(data, xb), train=False)
    return objective.counts(out.logits, yb, mb), objective.loss(out.logits, yb, mb) * mb.sum()

  def device(variables, data, x, y, mask):
    sums = jax.lax.map(lambda b: batch(variables, data, *b), (x, y, mask))
    return jax.tree.map(lambda s: jax.lax.psum(s.sum(axis=0), 'lanes'), sums)

  spec, replicate = jax.sharding.PartitionSpec('lanes'), jax.sharding.PartitionSpec()
  return jax.shard_map(
    device,
    mesh=mesh,
    in_specs=(replicate, replicate, spec, spec, spec),
    out_specs=replicate,
    check_vma=False,
  )(variables, data, x, y, mask)


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1))
def _classes(model, mesh, variables, data, x):
  """Returns the predicted class of each row, [batches, batch]."""
  logits = lambda xb: model.apply(variables, federated.normalise(data, xb), train=False).logits
  classes = jax.lax.map(lambda xb: jnp.argmax(logits(xb), axis=-1), x)
  return jax.lax.with_sharding_constraint(classes, replicated(mesh))


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1))
def _logits(model, mesh, variables, data, x):
  """Returns the logits of each row, [batches, batch, classes]."""
  logits = lambda xb: model.apply(variables, federated.normalise(data, xb), train=False).logits
  return jax.lax.with_sharding_constraint(jax.lax.map(logits, x), replicated(mesh))
