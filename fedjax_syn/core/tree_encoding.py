"""A tree as named arrays and a JSON description of the rest, so that reading it needs no template.

The description names the classes of NamedTuples (optimizer states, say); nothing is pickled.
"""

import importlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core import old_modules
from fedjax_syn.core.types import PyTree

PACKAGES = ('fedjax_syn', 'optax')  # whose NamedTuples states are made of


def encode(tree: PyTree) -> tuple[dict[str, np.ndarray], dict]:
  """Splits a tree into named arrays and a JSON description of everything else.

  Args:
    tree: dicts, lists, tuples and NamedTuples over arrays, typed keys, numbers, strings and None.

  Returns:
    The arrays by their path, and the structure.

  Raises:
    TypeError: if the tree holds anything else.
  """
  arrays = {}

  def walk(node, path):
    child = lambda name, value: walk(
      value, (*path, str(name).replace('%', '%25').replace('/', '%2F'))
    )
    if isinstance(node, dict):
      return {'dict': [[k, child(k, v)] for k, v in node.items()]}
    if isinstance(node, tuple) and hasattr(node, '_fields'):
      kind = type(node)
      fields = {name: child(name, getattr(node, name)) for name in node._fields}
      return {'named': f'{kind.__module__}:{kind.__qualname__}', 'fields': fields}
    if isinstance(node, (list, tuple)):
      kind = 'list' if isinstance(node, list) else 'tuple'
      return {kind: [child(i, v) for i, v in enumerate(node)]}
    if node is None or isinstance(node, (bool, int, float, str)):
      return {'value': node}
    if not isinstance(node, (jax.Array, np.ndarray, np.generic)):
      raise TypeError(f'a checkpoint cannot hold {type(node).__qualname__} at {"/".join(path)}')
    name, extra = '/'.join(path) or 'leaf', {}
    if jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
      extra = {'impl': str(jax.random.key_impl(node))}
      node = jax.random.key_data(node)
    array = np.asarray(node)
    if array.size == 0:  # Orbax cannot store these
      return {'empty': list(array.shape), 'dtype': array.dtype.name}
    while name in arrays:  # a dict can have 2 and '2'; no path ends with %
      name += '%'
    arrays[name] = array
    return {'leaf': name, **extra}

  return arrays, walk(tree, ())


def decode(arrays: dict[str, np.ndarray], structure: dict) -> PyTree:
  """Returns the tree of arrays and a structure; the inverse of `encode`.

  Args:
    arrays: arrays by path.
    structure: the JSON description.

  Returns:
    The tree; arrays are numpy arrays.

  Raises:
    ValueError: if a NamedTuple of it has changed since.
  """
  if 'dict' in structure:
    return {key: decode(arrays, node) for key, node in structure['dict']}
  if 'list' in structure:
    return [decode(arrays, node) for node in structure['list']]
  if 'tuple' in structure:
    return tuple(decode(arrays, node) for node in structure['tuple'])
  if 'value' in structure:
    return structure['value']
  if 'empty' in structure:
    return np.zeros(structure['empty'], jnp.dtype(structure['dtype']))
  if 'leaf' in structure:
    array = arrays[structure['leaf']]
    if 'impl' in structure:
      return jax.random.wrap_key_data(jnp.asarray(array), impl=structure['impl'])
    return array
  named = structure['named']
  module, _, name = named.partition(':')
  module = old_modules.new_name(module)
  # A file must not decide which code is imported: a user's own module is there already, by the
  # config.
  known = module in sys.modules or module.partition('.')[0] in PACKAGES
  try:
    kind: Any = importlib.import_module(module) if known else None
    for part in name.split('.'):
      kind = getattr(kind, part, None)
  except ImportError:  # also of names that a module had once
    kind = None
  fields = structure['fields']
  is_tuple = isinstance(kind, type) and issubclass(kind, tuple)
  if not is_tuple or getattr(kind, '_fields', None) != tuple(fields):
    raise ValueError(f'the checkpoint holds a {named} that this version does not know')
  return kind(**{key: decode(arrays, node) for key, node in fields.items()})


def leaves(structure: dict) -> list[str]:
  """Names of the arrays that a structure needs."""
  if 'leaf' in structure:
    return [structure['leaf']]
  nodes = [node for _, node in structure.get('dict', [])]
  nodes += structure.get('list', []) + structure.get('tuple', [])
  nodes += structure.get('fields', {}).values()
  return [name for node in nodes for name in leaves(node)]
