"""Pretrained weights: a file's arrays by flax's names, or by PyTorch's of a ResNet-18."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_syn.core.types import Model, Variables

TORCH_BLOCK = {  # of torchvision's ResNets: modules of a block, and ours
  'conv1': 'conv_0',
  'bn1': 'norm_0',
  'conv2': 'conv_1',
  'bn2': 'norm_1',
  'downsample.0': 'conv_skip',
  'downsample.1': 'norm_skip',
}
TORCH_TOP = {'conv1': 'body.conv', 'bn1': 'body.norm', 'fc': 'head'}
TORCH_LEAF = {
  ('weight', 4): ('params', 'kernel'),
  ('weight', 2): ('params', 'kernel'),
  ('weight', 1): ('params', 'scale'),
  ('bias', 1): ('params', 'bias'),
  ('running_mean', 1): ('stats', 'mean'),
  ('running_var', 1): ('stats', 'var'),
}
AXES = {4: (2, 3, 1, 0), 2: (1, 0)}  # of PyTorch's convolutions and matrices, as ours


def read(path: Path) -> dict[str, np.ndarray]:
  """Reads the arrays of a safetensors or npz file.

  Raises:
    ValueError: if it is no such file; nothing in it is executed.
  """
  where = f'model.weights={str(path)!r}'
  if not path.is_file():
    raise ValueError(f'{where}: no such file')
  try:
    if path.suffix == '.npz':
      with np.load(path, allow_pickle=False) as file:
        return dict(file)
    if path.suffix == '.safetensors':
      from safetensors.numpy import load_file

      return load_file(path)
  except ImportError as error:
    raise ValueError(f"{where}: {error}: pip install -e '.[export]'") from error
  except Exception as error:  # whatever the readers make of a damaged file
    raise ValueError(f'{where}: cannot be read ({type(error).__name__}: {error})') from error
  raise ValueError(
    f'{where}: must be .safetensors or .npz; of PyTorch: safetensors.torch.save_file('
    "model.state_dict(), 'weights.safetensors')"
  )


def from_torch(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
  """Returns arrays of torchvision's ResNet-18 under our names and with our axes.

  Args:
    arrays: a state_dict.

  Returns:
    (PyTorch's name, array) by our name, or by its own if a ResNet-18 does not have it.
  """
  out = {}
  for name, array in arrays.items():
    module, _, leaf = name.rpartition('.')
    block = re.fullmatch(r'layer([1-4])\.([01])\.(.+)', module)
    place = TORCH_TOP.get(module)
    if block and block[3] in TORCH_BLOCK:
      place = f'body.block_{int(block[1]) - 1}_{block[2]}.{TORCH_BLOCK[block[3]]}'
    if place and (leaf, array.ndim) in TORCH_LEAF:
      kind, own = TORCH_LEAF[leaf, array.ndim]
      turned = array.transpose(AXES[array.ndim]) if array.ndim in AXES else array
      out[f'{kind}.{place}.{own}'] = name, turned
    elif leaf != 'num_batches_tracked':
      out[name] = name, array  # of another network
  return out


def _by_our_names(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
  """(the file's name, array) by our name, from exports and from flattened flax variables."""
  out = {}
  for name, array in arrays.items():
    own = re.sub(r'^batch_stats\.', 'stats.', name.replace('/', '.'))
    out[own if own.startswith(('params.', 'stats.')) else f'params.{own}'] = name, array
  return out


def named(variables: Variables) -> dict[str, Any]:
  """Returns the leaves of a model by their paths, 'params.body.dense_0.kernel'."""
  of = lambda path: jax.tree_util.keystr(path, simple=True, separator='.')
  return {of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(variables)}


def fill(
  model: Model, base: Model, arrays: Mapping[str, np.ndarray], drawn: Variables, where: str
) -> tuple[Variables, list[str]]:
  """Puts the arrays of a file into a model.

  Args:
    model: the network, as the method changed it.
    base: the network without these changes: what the file may hold.
    arrays: of the file.
    drawn: variables of the model, from which what the file lacks is taken: a head of another size,
      and parts that the method adds.
    where: names the file in messages.

  Returns:
    The variables, and lines that say which array is which.

  Raises:
    ValueError: if the file lacks an array, or has one that the network has not or in another shape.
  """
  ours = named(drawn)
  own = named(jax.eval_shape(base.init, jax.random.key(0)))
  torch = any(name in arrays for name in ('conv1.weight', 'fc.weight', 'layer1.0.conv1.weight'))
  if torch and model.name != 'resnet18':
    raise ValueError(
      f"{where}: has PyTorch's names, which are known for model.name=resnet18; for {model.name}"
      f' write its own: {", ".join([*ours][:3])} ...'
    )
  given = from_torch(arrays) if torch else _by_our_names(arrays)
  heads = {
    jax.tree_util.keystr((jax.tree_util.GetAttrKey('params'), *path), simple=True, separator='.')
    for path, _ in jax.tree_util.tree_leaves_with_path(drawn.params)
    if model.is_head(path)
  }
  new, lines = dict(ours), []
  for name, leaf in ours.items():
    if name not in own:
      continue  # the method's
    source, array = given.pop(name, ('', None))
    if array is not None and array.shape == leaf.shape:
      new[name] = np.asarray(array, leaf.dtype)
      lines.append(f'{name} {list(leaf.shape)} from {source}')
    elif name in heads:
      lines.append(f'{name} {list(leaf.shape)} made anew')
    elif array is None:
      raise ValueError(f'{where}: has no {name} {list(leaf.shape)} of model.name={model.name}')
    else:
      raise ValueError(
        f'{where}: {source} has shape {list(array.shape)}, and {name} of model.name={model.name}'
        f' {list(leaf.shape)}; see model.width, model.norm and, for the stem, data.size'
      )
  for source, _ in given.values():
    raise ValueError(
      f'{where}: has {source}, which model.name={model.name} has not; see model.norm'
    )
  leaves = [new[name] for name in ours]
  return jax.tree.unflatten(jax.tree.structure(drawn), leaves), lines
