"""Models drawn around the global one, from its error ball (FedDualMatch, Section 4.1; FedDM)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey


def _direction(key: PRNGKey, params: Params) -> Params:
  leaves, structure = jax.tree.flatten(params)
  drawn = [jax.random.normal(fold(key, i), w.shape, w.dtype) for i, w in enumerate(leaves)]
  return jax.tree.unflatten(structure, drawn)


def _gaussian(key: PRNGKey, norm: Array, size: int, radius: Array) -> Array:
  return jnp.minimum(norm, radius)


def _uniform(key: PRNGKey, norm: Array, size: int, radius: Array) -> Array:
  return radius * jax.random.uniform(fold(key, 0, 1)) ** (1 / size)


# form: (key, norm of a standard normal vector, its size, R) -> length of the step
FORMS = {'gaussian': _gaussian, 'uniform': _uniform}


def sample(key: PRNGKey, params: Params, radius: Array | float, form: str = 'gaussian') -> Params:
  """Draws parameters from the ball B(w; R).

  Args:
    key: for direction and length.
    params: w.
    radius: R.
    form: 'gaussian': a standard normal vector cut to length R (FedDM's code; for more than a few dozen
      parameters this is the sphere); 'uniform': uniform in the ball.

  Returns:
    w plus a vector of length at most R.
  """
  direction = _direction(key, params)
  norm = optax.tree.norm(direction)
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  length = FORMS[form](key, norm, size, radius)
  scale = length / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
  return jax.tree.map(lambda w, d: w + scale.astype(w.dtype) * d, params, direction)
