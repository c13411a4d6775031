"""Exports what a run learned to npz, PNG and safetensors (extra `export`)."""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.config import trusted as trust
from fedjax_syn.core import paths, privacy
from fedjax_syn.core.types import Model, PyTree, Variables
from fedjax_syn.runs import api, stored_files, work_folder

# What the file of a model with noise says of the data: names that a user chose.
TOLD_OF_DATA = ('name', 'partition', 'proxy')
MANIFEST = 'export.json'
LETTERS = 40  # of a class's name in that of a file
MODEL = {  # what is kept beside the arrays of a model
  'config': {str: work_folder.SETTING},
  'dataset': {
    'shape': [int],
    'num_classes': int,
    'normalisation': {'mean': [float], 'std': [float]},
    'class_names?': [str],
  },
}


class Exported(NamedTuple):
  """A loaded model: `model.apply(variables, (pixels / 255 - mean) / std).logits`."""

  model: Model
  variables: Variables
  mean: np.ndarray  # [channels], of pixels in 0..1
  std: np.ndarray  # [channels]
  class_names: tuple[str, ...] = ()  # by logit; () where the data set did not say them


def last_set(
  learned: Mapping[str, np.ndarray], class_names: Sequence[str] = ()
) -> dict[str, np.ndarray]:
  """Takes the final set out of its snapshots.

  Args:
    learned: as in synthetic.npz.
    class_names: by number; () where the data set does not say them.

  Returns:
    'x' [rows, *shape] as the model sees them, 'y' [rows, classes] probabilities, 'pixels' of images
    (uint8, as 'x', clipped to black and white) or 'values' of other data (float32, before scaling),
    'labels' int32 [rows], the likeliest classes, 'mean' and 'std' [channels or features],
    'class_names' [classes] if there are any.
  """
  x, y = (np.asarray(learned[name][-1], np.float32) for name in ('x', 'y'))
  mean, std = (np.asarray(learned[name], np.float32) for name in ('mean', 'std'))
  values = {'values': x * std + mean}
  if x.ndim == 4:
    values = {'pixels': np.round(255 * np.clip(values['values'], 0, 1)).astype(np.uint8)}
  labels = y.argmax(axis=-1).astype(np.int32)
  last = {'x': x, 'y': y, **values, 'labels': labels, 'mean': mean, 'std': std}
  return last | ({'class_names': np.array(class_names)} if class_names else {})


def replace(folder: Path, kind: str, files: Mapping[str, bytes]) -> list[Path]:
  """Writes files of one kind into a folder, and removes those that only an earlier export wrote.

  Args:
    folder: created if needed. Its `export.json` lists what exports wrote, by kind, with digests.
    kind: 'npz', 'png' and so on.
    files: content by path in the folder.

  Returns:
    The files' paths.

  Raises:
    ValueError: before anything is written, if one of these files exists and no export wrote it.
  """
  kinds = stored_files.read_json(folder / MANIFEST, {str: {str: str}}) or {}
  known = kinds.get(kind, {})
  for name, content in files.items():
    path = folder / name
    now = stored_files.read_bytes(path)
    if now is not None and _digest(now) != known.get(name) and now != content:
      raise ValueError(f'{path}: exists, and no export wrote it; delete it, or name another folder')
  for name in known.keys() - files.keys():
    old = folder / name
    odd = Path(name).is_absolute() or '..' in Path(name).parts or old.is_symlink()
    if not odd and old.is_file() and _digest(old.read_bytes()) == known[name]:
      old.unlink()
  for name, content in files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    paths.write_whole(folder / name, content)
  kinds[kind] = {name: _digest(content) for name, content in files.items()}
  stored_files.write_json(folder / MANIFEST, kinds)
  return [folder / name for name in files]


def _digest(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()


def save_npz(last: Mapping[str, Any], folder: Path) -> list[Path]:
  """Writes a set (`last_set`) as `synthetic.npz`; returns the files."""
  packed = io.BytesIO()
  np.savez(packed, **last)
  return replace(folder, 'npz', {'synthetic.npz': packed.getvalue()})


def save_pngs(last: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
  """Writes a set (`last_set`) as `synthetic/<class>_<index>.png`; returns the files.

  A class is its number, and its name where that says more. Refuses what `check_shown` refuses.
  """
  from PIL import Image

  check_shown(last, ('png',))
  files = {}
  names = last.get('class_names', ())
  short = lambda name: re.sub(r'\W+', '-', str(name))[:LETTERS]
  of = {c: short(name) for c, name in enumerate(names) if str(name) != str(c)}
  for index, (image, label) in enumerate(zip(last['pixels'], last['labels'], strict=True)):
    words = str(label), *([of[label]] if label in of else []), str(index)
    picture = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(picture, 'png')
    files[f'synthetic/{"_".join(words)}.png'] = picture.getvalue()
  return replace(folder, 'png', files)


def check_shown(last: Mapping[str, np.ndarray], kinds: Sequence[str]) -> None:
  """Refuses PNGs of images that a PNG does not show.

  Args:
    last: from `last_set`.
    kinds: of `FORMATS`, what is to be written.

  Raises:
    ValueError: if PNGs are among them, and rows are no images or have neither 1 nor 3 channels.
  """
  if 'png' in kinds and 'pixels' not in last:
    raise ValueError('format=png: the set has no images; npz and safetensors would work')
  channels = last['pixels'].shape[-1] if 'pixels' in last else 1
  if 'png' in kinds and channels not in (1, 3):
    raise ValueError(
      f'format=png: the images have {channels} channels, and a PNG shows 1 or 3; npz and'
      ' safetensors hold them all'
    )


def save_safetensors(last: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
  """Writes a set (`last_set`) as `synthetic.safetensors`; returns the files."""
  arrays = {k: np.ascontiguousarray(v) for k, v in last.items() if k != 'class_names'}  # no texts
  metadata = {'class_names': json.dumps(list(map(str, last.get('class_names', ()))))}
  return replace(
    folder, 'safetensors', {'synthetic.safetensors': _safetensors().save(arrays, metadata)}
  )


FORMATS = {'npz': save_npz, 'png': save_pngs, 'safetensors': save_safetensors}


def published(described: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what the file of an exported model states of its run.

  Args:
    described: the run's config.json.

  Returns:
    'config' and 'dataset'. Of a run with noise they hold what rebuilds the model and nothing that
    was computed from its clients' data or identifies them: no checksum, rows, title, seeds (which
    determine the noise), folders or number of clients.

  Raises:
    ValueError: if a run with noise was normalised by mean and deviation of its clients' pixels.
  """
  dataset = {key: value for key, value in described['dataset'].items() if key != 'client_names'}
  config = config_lib.check(described['config'])
  mechanism = algorithms.create(config.algorithm, config).mechanism(None)
  if not privacy.promises(mechanism):
    return {'config': described['config'], 'dataset': dataset}
  privacy.check_data(mechanism, dataset['normalisation']['name'])
  whole = config_lib.to_dict(config)
  client = whole['client'] | {'participation': 1.0, 'sampler': 'fixed'}
  kept = {key: whole[key] for key in ('algorithm', 'rounds', 'server', 'model')}
  kept |= {'client': client, 'data': {key: whole['data'][key] for key in TOLD_OF_DATA}}
  for part in config.algorithm.split('+'):
    block = whole.get(name := algorithms.block_name(part))
    if block is not None:
      kept[name] = block | ({'target_epsilon': 0.0} if 'target_epsilon' in block else {})
  known = ('name', 'num_classes', 'class_names', 'shape', 'kind', 'normalisation')
  return {'config': kept, 'dataset': {key: dataset[key] for key in known if key in dataset}}


def note(described: Mapping[str, Any]) -> str:
  """States in one line what protects an exported model, or ''; refuses as `published` does."""
  if published(described)['config'] == described['config']:
    return ''
  seeds = ', '.join(map(str, described['config']['seeds']))
  return (
    f'the noise follows from the seeds ({seeds}): whoever guesses them can subtract it'
    ' (docs/privacy.md)'
  )


def save_model(variables: Variables, described: Mapping[str, Any], path: Path) -> Path:
  """Writes a model as safetensors: arrays by path, 'params.body.dense_0.kernel' for instance.

  Args:
    variables: of the model.
    described: the run's config.json; the file's metadata keep what rebuilds the model and the names
      of the classes (see `published`), not those of clients, as the file may be published.
    path: the file.

  Returns:
    The path.

  Raises:
    ValueError: if the package safetensors is missing, or as `published`.
  """
  arrays = {name: np.ascontiguousarray(leaf) for name, leaf in _named(variables)}
  metadata = {key: json.dumps(value) for key, value in published(described).items()}
  (written,) = replace(path.parent, 'model', {path.name: _safetensors().save(arrays, metadata)})
  return written


def save_client_models(
  models: Iterable[Variables], described: Mapping[str, Any], folder: Path
) -> list[Path]:
  """Writes the clients' models as `clients/client_<number>.safetensors`; see `save_model`.

  Args:
    models: of every client, in order.
    described: the run's config.json.
    folder: of the export.

  Raises:
    ValueError: if the run adds noise for privacy, which does not protect these models, or as
      `save_model`.
  """
  known = published(described)
  if known['config'] != described['config']:
    raise ValueError("--clients: the run's noise protects the global model and no client's own")
  metadata = {key: json.dumps(value) for key, value in known.items()}
  content = {}
  for number, variables in enumerate(models):
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in _named(variables)}
    content[f'clients/client_{number}.safetensors'] = _safetensors().save(arrays, metadata)
  return replace(folder, 'clients', content)


def load_model(path: str | Path, *, trusted: bool = False) -> Exported:
  """Opens what `save_model` wrote; neither the run's folder nor the data set is needed.

  Args:
    path: the file.
    trusted: whether code that the file names (`module:function`) may be imported and called.

  Returns:
    The model, its variables, the constants that normalise its pixels, and its classes' names.

  Raises:
    ValueError: if the package safetensors is missing, the file is no such model, or it names code
      and is not trusted.
  """
  _safetensors()
  from safetensors import SafetensorError, safe_open

  path = paths.given(path)
  stored_files.read_bytes(path, 0)  # a regular file
  try:
    with safe_open(path, 'numpy') as file:
      metadata = file.metadata() or {}
      arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
  except SafetensorError as error:
    raise stored_files.DamagedError(f'{path} is damaged ({error})') from error
  described = {k: stored_files.parse(v.encode(), f'{path}, {k},') for k, v in metadata.items()}
  if wrong := stored_files.fault(described, MODEL):
    raise stored_files.DamagedError(f'{path} is not an exported model: {wrong}')
  config, dataset = described['config'], described['dataset']
  model = api.model_of(trust.check(config, path, trusted), dataset)
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  named = dict(_named(shapes))
  odd = [n for n in {**named, **arrays} if _kind(named.get(n)) != _kind(arrays.get(n))]
  if odd:
    raise stored_files.DamagedError(f'{path} is not the model that it says: {odd[0]} does not fit')
  leaves = [arrays[name] for name in named]
  variables = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
  constants = dataset['normalisation']
  mean, std = (np.asarray(constants[name], np.float32) for name in ('mean', 'std'))
  names = tuple(dataset.get('class_names', ()))  # an older file says none
  return Exported(model, variables, mean, std, names)


def _kind(array: Any) -> Any:
  return None if array is None else (tuple(array.shape), str(array.dtype))


def _named(tree: PyTree) -> list[tuple[str, Any]]:
  named = jax.tree_util.tree_leaves_with_path(tree)
  return [(jax.tree_util.keystr(path, simple=True, separator='.'), leaf) for path, leaf in named]


def _safetensors() -> Any:
  try:
    import safetensors.numpy
  except ImportError as error:
    raise ValueError(f"{error}: pip install -e '.[export]'") from error
  return safetensors.numpy
