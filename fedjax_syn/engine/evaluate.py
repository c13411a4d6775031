"""Evaluation of a model on a whole split, sharded over the devices."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.data import federated
from fedjax_syn.engine.mesh import place, replicated
from fedjax_syn.typing import Array, Model, Params, Stats, Variables


def make_evaluator(
  model: Model,
  data: federated.FederatedData,
  loss: Callable[[Array, Array, Array], Array],
  x: np.ndarray,
  y: np.ndarray,
  mesh: jax.sharding.Mesh,
  batch_size: int = 500,
) -> Callable[[Params, Stats], dict[str, float]]:
  """Places a split on the mesh and returns a function that evaluates a model on it.

  Args:
    model: the network.
    data: gives the normalisation.
    loss: (logits, y, mask) -> mean loss.
    x: uint8 [rows, height, width, channels].
    y: [rows].
    mesh: batches are sharded over its axis 'lanes'.
    batch_size: rows at once on a device; padding counts for nothing.

  Returns:
    (params, stats) -> {'accuracy', 'loss'}, fractions and means over all rows.
  """
  rows, devices = len(y), mesh.devices.size
  batch_size = min(batch_size, -(-rows // devices))
  batches = -(-rows // (batch_size * devices)) * devices
  fill = batches * batch_size - rows
  mask = np.concatenate([np.ones(rows, np.float32), np.zeros(fill, np.float32)])
  x = np.concatenate([x, np.repeat(x[:1], fill, axis=0)])
  y = np.concatenate([y, np.repeat(y[:1], fill)])
  spec = jax.sharding.PartitionSpec('lanes')
  sharding = jax.sharding.NamedSharding(mesh, spec)
  cut = lambda a: place(a.reshape(batches, batch_size, *a.shape[1:]), sharding)
  x, y, mask = cut(x), cut(y.astype(np.int32)), cut(mask)
  everywhere = replicated(mesh)

  def batch(variables, data, xb, yb, mb):
    out = model.apply(variables, federated.normalise(data, xb), train=False)
    correct = jnp.sum((jnp.argmax(out.logits, axis=-1) == yb) * mb)
    return correct, loss(out.logits, yb, mb) * mb.sum()

  def device(variables, data, x, y, mask):
    sums = jax.lax.map(lambda b: batch(variables, data, *b), (x, y, mask))
    return jax.tree.map(lambda s: jax.lax.psum(s.sum(), 'lanes'), sums)

  replicate = jax.sharding.PartitionSpec()
  total = jax.jit(
    jax.shard_map(
      device,
      mesh=mesh,
      in_specs=(replicate, replicate, spec, spec, spec),
      out_specs=replicate,
      check_vma=False,
    )
  )
  few = jax.tree.map(lambda leaf: np.asarray(leaf[:1]), (data.x, data.y, data.order))
  small = place(data._replace(x=few[0], y=few[1], order=few[2], proxy=None), everywhere)

  def evaluate(params, stats):
    variables = place(Variables(params, stats), everywhere)
    correct, losses = total(variables, small, x, y, mask)
    return {'accuracy': float(correct) / rows, 'loss': float(losses) / rows}

  return evaluate
