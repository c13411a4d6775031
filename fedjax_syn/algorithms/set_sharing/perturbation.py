"""Models drawn around the global one (FedDualMatch, Section 4.1; FedDM)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey


def perturb_weights(key: PRNGKey, params: Params, radius: Array | float) -> Params:
  """Draws parameters from the ball B(w; R), by a standard normal vector cut to length R.

  Args:
    key: for the vector.
    params: w.
    radius: R, [].

  Returns:
    The parameters, structure of w. With more than a few dozen parameters they lie on the sphere.
    Source: FedDM's code.
  """
  leaves, structure = jax.tree.flatten(params)
  drawn = [jax.random.normal(fold(key, i), w.shape, w.dtype) for i, w in enumerate(leaves)]
  direction = jax.tree.unflatten(structure, drawn)
  norm = optax.tree.norm(direction)
  scale = jnp.minimum(norm, radius) / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
  return jax.tree.map(lambda w, d: w + scale.astype(w.dtype) * d, params, direction)
