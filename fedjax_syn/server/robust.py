"""Robust averages of the clients' updates: each client with samples counts once."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PyTree


def trimmed_mean(updates: PyTree, present: Array, cut: Array) -> PyTree:
  """Averages each coordinate without its smallest and its largest values.

  Args:
    updates: leaves [cohort, ...].
    present: [cohort], whether a client counts.
    cut: values to leave out at each end, []; below half of those who count.

  Returns:
    The means, leaves [...]; zeros if nobody counts.
  """
  last = present.sum() - cut  # ranks cut .. last - 1 stay

  def of_leaf(leaf):
    along = lambda vector: vector.reshape(-1, *[1] * (leaf.ndim - 1))
    ordered = jnp.sort(jnp.where(along(present), leaf, jnp.inf), axis=0)
    rank = along(jnp.arange(leaf.shape[0]))
    kept = (rank >= cut) & (rank < last)
    total = jnp.where(kept, ordered, 0).sum(axis=0)
    return total / jnp.maximum(last - cut, 1).astype(leaf.dtype)

  return jax.tree.map(of_leaf, updates)


def squared_distances(updates: PyTree) -> Array:
  """Returns the squared Euclidean distances of all pairs of updates, [cohort, cohort].

  Args:
    updates: leaves [cohort, ...].
  """

  def to_all(i):
    of_leaf = lambda leaf: ((leaf - leaf[i][None]) ** 2).reshape(leaf.shape[0], -1).sum(axis=1)
    return sum(map(of_leaf, jax.tree.leaves(updates)))

  cohort = jax.tree.leaves(updates)[0].shape[0]
  return jax.lax.map(to_all, jnp.arange(cohort))
