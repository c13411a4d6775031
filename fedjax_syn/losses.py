"""Losses of a batch, by its mask."""

import jax.numpy as jnp
import optax

from fedjax_syn.typing import Array


def cross_entropy(logits: Array, y: Array, mask: Array) -> Array:
  """Mean softmax cross-entropy over the samples of a mask: logits [batch, classes], y [batch], mask [batch] -> []."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
  return jnp.sum(losses * mask) / jnp.maximum(jnp.sum(mask), 1)
