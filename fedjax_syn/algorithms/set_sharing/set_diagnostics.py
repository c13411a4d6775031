"""Measures the assumptions of FedDualMatch: sigma_d, sigma_g and the spread of clients' gradients.

Assumption 3 bounds ||E h(D_k) - E h(S_k)|| by sigma_d, and Assumption 4 bounds E ||grad L(w, S_k) -
grad L(w, S)|| by sigma_g. Figures 1 and 3 show that the gradients of distilled sets spread more
than those of the data, and that gradient matching reduces the spread.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.set_sharing import distribution_matching, gradient_matching
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.client.shard_gradient import Loss, gradient_sum
from fedjax_syn.core.types import Array, Model, Params, Shard, Stats, Variables
from fedjax_syn.data import federated


def spread(grads: Params, present: Array) -> Array:
  """Returns the clients' root mean square distance from their mean gradient, over its norm.

  Args:
    grads: leaves [clients, ...].
    present: [clients], bool; clients without data do not count.

  Returns:
    The ratio, []; 0 if all gradients are equal.
  """
  weight = present / jnp.maximum(present.sum(), 1)
  mean = jax.tree.map(lambda g: jnp.tensordot(weight, g, 1), grads)
  distance = jax.vmap(lambda g: optax.tree.norm(optax.tree.sub(g, mean)))(grads)
  return jnp.sqrt(jnp.sum(weight * distance**2)) / optax.tree.norm(mean)


def on_data(
  model: Model,
  loss: Loss,
  data: federated.FederatedData,
  variables: Variables,
  batch_size: int = 256,
) -> Params:
  """Returns grad L(w, D_k) of every client, leaves [clients, ...]; see `gradient_sum`."""

  def gradient(client):
    shard = federated.shard_of(data, client)
    total = gradient_sum(model, loss, data, shard, variables, batch_size)
    return optax.tree.scale(1 / jnp.maximum(shard.size, 1), total)

  return jax.lax.map(gradient, jnp.arange(data.start.shape[0], dtype=jnp.int32))


def on_sets(model: Model, w: Params, stats: Stats, sets: ClassSet) -> Params:
  """Returns grad L(w, S_k) of every client, leaves [clients, ...]."""
  return jax.lax.map(lambda own: gradient_matching.set_gradient(model, w, stats, own), sets)


def gradient_difference(model: Model, w: Params, stats: Stats, sets: ClassSet) -> Array:
  """Returns the clients' mean ||grad L(w, S_k) - grad L(w, S)||, [], of Assumption 4 (sigma_g)."""
  union = gradient_matching.union_gradient(model, w, stats, sets)
  each = on_sets(model, w, stats, sets)
  distance = jax.vmap(lambda g: optax.tree.norm(optax.tree.sub(g, union)))(each)
  present = sets.present.any(axis=-1)
  return jnp.sum(distance * present) / jnp.maximum(present.sum(), 1)


def feature_difference(
  embed: Callable[[Array], distribution_matching.Layers],
  data: federated.FederatedData,
  shard: Shard,
  own: ClassSet,
) -> tuple[Array, Array]:
  """Returns ||E h(D_k) - E h(S_k)|| of one client, all layers together; sigma_d bounds it.

  A set has the same number of images of each class, whatever the client has. So the distance as
  stated in Assumption 3 also depends on the shares of the classes. The second number weights the
  classes of the set by the client's shares.

  Args:
    embed: h_w.
    data: the clients' data.
    shard: the client.
    own: its set.

  Returns:
    The distance as stated, and with the client's own shares, [] both; 0 for an empty client.
    Source: Assumption 3.
  """
  real = distribution_matching.class_means(data, shard, embed)
  distilled = jax.lax.map(lambda x: tuple(z.mean(0) for z in embed(x)), own.x)
  share = shard.class_counts / jnp.maximum(shard.class_counts.sum(), 1)
  equal = own.present / jnp.maximum(own.present.sum(), 1)

  def distance(weight):
    of_all = lambda weights, means: jnp.tensordot(weights, means, 1)
    pairs = zip(real, distilled, strict=True)
    squares = (jnp.sum((of_all(share, r) - of_all(weight, s)) ** 2) for r, s in pairs)
    return jnp.sqrt(sum(squares)) * own.present.any()

  return distance(equal), distance(share)
