"""Activations in bfloat16: half the bytes of memory traffic, on a TPU or GPU.

Parameters, gradients, moments of the norms, running statistics, the head and the loss stay float32.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, Model, Output, PyTree, Variables

TYPES = ('float32', 'bfloat16')


@functools.cache  # compiled programs are looked up by the model
def in_bfloat16(model: Model) -> Model:
  """Returns a network whose body computes in bfloat16, with float32 parameters and results.

  Parameters are rounded where they are used. Gradients therefore reach them as float32, and an
  optimizer adds steps that are smaller than bfloat16 could hold (Micikevicius et al., 2018,
  Section 3.1).

  Args:
    model: the network, in float32.
  """

  def rounded(path: tuple, leaf: Array) -> Array:
    return leaf if model.is_head(path) else _to(jnp.bfloat16, leaf)

  def apply(variables: Variables, x: Array, *args: Any, **kwargs: Any) -> Output:
    params = jax.tree_util.tree_map_with_path(rounded, variables.params)
    out = model.apply(variables._replace(params=params), _to(jnp.bfloat16, x), *args, **kwargs)
    return _results(out)

  return model._replace(apply=apply, in_blocks=False)


def _results(out: PyTree) -> Any:
  wide = lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf
  return jax.tree.map(wide, out)


def _to(dtype: Any, x: Array) -> Array:
  return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x  # tokens are integers
