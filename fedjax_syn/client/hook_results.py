"""Checks of what hooks return, while a round is traced; errors name the layer and the hook."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_syn.core.texts import shown
from fedjax_syn.core.types import Array, Measured, PyTree
from fedjax_syn.layer import Layer, Numbers


def parts(layer: Layer, hook: str, value: Any, *names: str) -> tuple:
  """Returns what a hook returned as its parts.

  Args:
    layer: whose hook it is.
    hook: its name.
    value: what it returned.
    *names: of the parts, for the error.

  Raises:
    ValueError: if these are not as many.
  """
  if not isinstance(value, tuple | list) or len(value) != len(names):
    several = isinstance(value, tuple | list)
    kind = f'{len(value)} values' if several else f'a {type(value).__name__}'
    raise ValueError(f'{_where(layer, hook)} must return ({", ".join(names)}), not {kind}')
  return tuple(value)


def like(layer: Layer, hook: str, value: PyTree, wanted: PyTree, what: str) -> PyTree:
  """Returns a tree of arrays that a hook returned.

  Args:
    layer: whose hook it is.
    hook: its name.
    value: what it returned.
    wanted: a tree of the same structure, shapes and types.
    what: it is, for the error.

  Returns:
    The tree; numbers of Python in it are arrays of the wanted type.

  Raises:
    ValueError: if structures, shapes or types differ.
  """
  if jax.tree.structure(value) == jax.tree.structure(wanted):  # type: ignore[operator]
    number = lambda leaf: isinstance(leaf, int | float)
    # A weak type would make the next round another program.
    kind = lambda leaf: getattr(leaf, 'dtype', None)
    as_array = lambda leaf, other: jnp.asarray(leaf, other.dtype if number(leaf) else kind(leaf))
    value = jax.tree.map(as_array, value, wanted)
  own, other = _kinds(value), _kinds(wanted)
  for path in other | own:
    if own.get(path) != other.get(path):
      differ = f'is {own.get(path, "missing")} instead of {other.get(path, "missing")}'
      raise ValueError(f'{_where(layer, hook)} returned {what}{path} that {differ}')
  return value


def new_state(layer: Layer, hook: str, value: PyTree, states: Mapping[str, PyTree]) -> PyTree:
  """Returns the new state that a hook returned.

  Args:
    layer: whose hook it is.
    hook: its name.
    value: the state that it returned.
    states: before the hook, by layer.

  Raises:
    ValueError: if it is not like the state before, or the layer has none.
  """
  if layer.name in states:
    return like(layer, hook, value, states[layer.name], 'state')
  if jax.tree.leaves(value):
    init = 'client_init' if hook in ('finish', 'client_update') else 'server_init'
    raise ValueError(
      f'{_where(layer, hook)} returned a state, and the layer has none: add {init}, which returns'
      ' it at round 0'
    )
  return value


def numbers(layer: Layer, hook: str, value: Any) -> Numbers:
  """Returns the numbers for the log that a hook returned, as arrays [].

  Raises:
    ValueError: if they are no numbers by name.
  """
  if not isinstance(value, Mapping):
    raise ValueError(
      f'{_where(layer, hook)} must return a dict of numbers, not a {type(value).__name__}'
    )
  for name, number in value.items():
    shape = jnp.shape(number.value if isinstance(number, Measured) else number)
    if shape:
      raise ValueError(
        f'{_where(layer, hook)} returned {shown(name)} of shape {shape}: must be one number'
      )
  return jax.tree.map(jnp.asarray, dict(value))


def loss(layer: Layer, hook: str, value: Any) -> tuple[Array, Any]:
  """Returns the loss and the model's output that a hook returned.

  Raises:
    ValueError: if they are not two, or the loss is not one number.
  """
  value, out = parts(layer, hook, value, 'loss []', 'output of the model')
  if jnp.shape(value):
    raise ValueError(
      f'{_where(layer, hook)}: the loss has shape {jnp.shape(value)} and must be one number;'
      ' sum over the batch by step.mask'
    )
  return value, out


def _where(layer: Layer, hook: str) -> str:
  return f'{type(layer).__name__}.{hook}'


def _kinds(tree: PyTree) -> dict[str, str]:
  """Returns 'float32[4,3]' by leaf."""
  kind = lambda leaf: f'{jnp.result_type(leaf)}{list(jnp.shape(leaf))}'
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {jax.tree_util.keystr(path): kind(leaf) for path, leaf in leaves}
