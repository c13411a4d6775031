"""The data sets: what exists, how it is found and loaded.

`python -m fedjax_syn.data.datasets NAME --dir=DIR` prepares one.
"""

import argparse
import dataclasses
import difflib
import importlib
import numbers
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedjax_syn.core import paths
from fedjax_syn.core.fields import as_field
from fedjax_syn.data import domains, from_function, held_out, own_images
from fedjax_syn.data.builders import (
  array_checks,
  arrays,
  digits,
  domain_prepared,
  flair,
  flair_layout,
  fortunes,
  layout,
  prepared,
)
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.builders.spelling import some
from fedjax_syn.data.builders.split import Split
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.kinds import FLAIR
from fedjax_syn.data.normalisation import NORMALISATIONS, UNMEASURED, Normalisation, normalise_by
from fedjax_syn.data.settings import Data

__all__ = ['NORMALISATIONS', 'Dataset', 'Normalisation', 'Split', 'load', 'names']

HELD_OUT = 'held_out'


def names() -> dict[str, str]:
  """Returns what `data.name` can be, with one line of description each."""
  described = {
    name: f'{source.title}: {source.rows[0]:,} + {source.rows[1]:,} images, '
    f'{"x".join(map(str, source.shape))}, {source.num_classes} classes'
    for name, source in SOURCES.items()
  }
  return {
    'digits': 'scikit-learn digits: 1,198 + 599 images, 8x8x1, 10 classes; nothing to download',
    **described,
    **{
      name: f'FLAIR, {side}x{side}x3: 345,879 + 43,960 photographs (39,239 to validate) of 51,414 users, 17 labels, '
      f'any number per image; put {flair_layout.METADATA} and {flair_layout.IMAGES}/ into data.dir'
      for name, side in FLAIR.items()
    },
    **{
      name: f'{source.title}: {", ".join(source.domains)}, a client each; '
      f'{source.side}x{source.side}x{source.channels}, {source.num_classes} classes; fetched by hand'
      for name, source in DOMAIN_SOURCES.items()
    },
    'digits_domains': 'MNIST, USPS and scikit-learn digits, a client each, 28x28x1; mnist and usps must be there',
    'digits_styles': 'scikit-learn digits in three made-up styles, a client each, 8x8x1; to try domains on',
    'fortunes': "the texts of Debian's package fortunes: 7,586 + 1,896 rows of 32 hashed words, 12 topics",
    'arrays': 'a folder (data.dir) of train.npz and test.npz with x (NHWC) and y, optionally '
    'clients, and meta.json {name, normalisation, labels, layout}; several labels per image: y multi-hot',
    own_images.FOLDER: 'a folder (data.dir) of images, CLIENT/CLASS/IMAGE; test/CLASS/IMAGE, or a fifth is held out; '
    'data.size resizes',
    f'{own_images.TFDS}NAME': 'what tensorflow-datasets has prepared in data.dir as array_record: images with one class each; '
    'data.size resizes',
  }


def load(
  name: str,
  data_dir: str = '',
  *,
  normalisation: str = '',
  validation: float = 0.0,
  seed: int = 0,
  proxy: str = '',
  proxy_share: float = 0.1,
  size: int = 0,
  trusted: bool = False,
) -> Dataset:
  """Loads a data set.

  A named one is taken from a folder of arrays, from what was prepared before, from its original
  archives, or downloaded and prepared; in this order, and the first three never need a network.

  Args:
    name: one of `names()`, or `package.module:function`, a callable that returns a Dataset.
    data_dir: where data sets lie; '' means $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    normalisation: a name of NORMALISATIONS; '' means the data set's own.
    validation: the share f of the training rows that is held out, stratified; 0 <= f < 1.
    seed: `data.seed`, draws the rows that are held out.
    proxy: the server's own data: '' (none), 'held_out' (a stratified share of the training rows, which
      no client gets) or the name of another data set, whose training images serve without labels.
    proxy_share: the share f of the training rows that 'held_out' takes.
    size: side in pixels to which the images of 'folder' and 'tfds:NAME' are resized; 0 takes them as they are.
    trusted: whether modules that a folder of 'tfds:NAME' names may be imported.

  Returns:
    The data set.

  Raises:
    FileNotFoundError: if the data set is not there.
    ValueError: if an argument or the data are wrong.
  """
  if not isinstance(validation, numbers.Real) or not 0 <= validation < 1:
    raise ValueError(f'data.validation={validation} must lie in 0 <= f < 1')
  given = {'data.seed': seed, 'data.proxy_share': proxy_share}
  given |= {'data.size': size, 'data.dir': data_dir, 'data.proxy': proxy, 'data.name': name}
  checked = {key: as_field(Data, key.removeprefix('data.'), given[key], key) for key in given}
  data_dir = checked['data.dir']
  if normalisation and normalisation not in NORMALISATIONS:
    raise ValueError(
      f'data.normalisation={normalisation!r} is unknown; known are {", ".join(NORMALISATIONS)}'
    )
  if size and not own_images.is_own(name):
    raise ValueError(
      f'data.size={size}: only folder and tfds:NAME can be resized, not {name}; use 0'
    )
  folder = _folder(data_dir)
  try:
    if own_images.is_own(name):
      dataset = own_images.load(name, data_dir, folder, size, trusted)
    else:
      dataset = from_function.load(name) if ':' in name else _reader(name)(name, folder)
  except FileNotFoundError:
    raise
  except OSError as error:
    reason = error.strerror or arrays.first_line(error)
    raise ValueError(
      f'data.name={name!r}: {error.filename or folder}: {reason[:1].lower()}{reason[1:]}'
    ) from error
  if validation:
    dataset = held_out.hold_out(dataset, validation, seed)
  if proxy:
    dataset = _with_proxy(dataset, proxy, proxy_share, data_dir, seed, trusted)
  # What is computed is computed from the rows that are left for training.
  chosen = normalisation or ('auto' if dataset.normalisation.name == 'auto' else '')
  if chosen:
    dataset = dataclasses.replace(dataset, normalisation=normalise_by(chosen, dataset.train.x))
  return dataset


def _folder(data_dir: str) -> Path:
  if chosen := data_dir or os.environ.get('TFDS_DATA_DIR'):
    return paths.given(chosen, 'data.dir')
  home = os.path.expanduser('~')  # a user of a container may have none, and digits needs none
  return Path('' if home == '~' else home) / 'tensorflow_datasets'


def _reader(name: str) -> Callable[[str, Path], Dataset]:
  readers = {'digits': _digits, 'arrays': _arrays, **dict.fromkeys(SOURCES, _named)}
  readers |= {'fortunes': _fortunes, **dict.fromkeys(FLAIR, _flair)}
  readers |= {'digits_domains': _digits_domains, 'digits_styles': _digits_styles}
  readers |= dict.fromkeys(DOMAIN_SOURCES, _domain_source)
  if name not in readers:
    near = difflib.get_close_matches(name, readers, n=1)
    raise ValueError(
      f'data.name={name!r} is unknown{f" (did you mean {near[0]!r}?)" if near else ""}; known are '
      f'{", ".join(names())} and package.module:function'
    )
  return readers[name]


def _digits(name: str, folder: Path) -> Dataset:
  del folder
  train, test = digits.read()
  return make(name, 'digits', train, test, 10, 'digits')


def _arrays(name: str, folder: Path) -> Dataset:
  found = arrays.read(folder)
  labels = found.train.y, found.test.y
  if labels[0].ndim == 2:
    classes = labels[0].shape[1]
  else:
    classes = 1 + int(max(y.max() for y in labels))
    there = np.unique(labels[0])
    if len(there) < classes:
      gaps = np.flatnonzero(there != np.arange(len(there)))
      raise ValueError(
        f'{folder / "train.npz"}: no row has label {gaps[0] if len(gaps) else len(there)}, and'
        f' others have up to {classes - 1}; classes are numbered from 0 on, without gaps'
      )
  return _from_folder(name, folder.resolve().name, found, classes, UNMEASURED)


def _named(name: str, folder: Path) -> Dataset:
  source = SOURCES[name]
  for place in (folder / name, folder):
    if arrays.is_folder(place):
      found = arrays.read(place, source.num_classes)
      return _from_folder(name, name, found, source.num_classes, source.normalisation)
  train, test = prepared.read(source, folder)
  return make(name, source.title, train, test, source.num_classes, source.normalisation)


def _flair(name: str, folder: Path) -> Dataset:
  found, side = flair.read(name, folder, FLAIR[name]), FLAIR[name]
  constants = normalise_by('half', found.train.x)  # its checksum is stored: of 4 GB and more
  lone = [flair_layout.CLASSES[c] for c in array_checks.lone_classes(found.train.y, found.test.y)]
  return Dataset(
    name,
    f'FLAIR {side}x{side}',
    found.train,
    found.test,
    found.validation,
    len(flair_layout.CLASSES),
    constants,
    found.checksum,
    found.clients,
    class_names=flair_layout.CLASSES,
    notes=(f'no training row has the labels {some(lone)}, and test rows have',) if lone else (),
  )


def _fortunes(name: str, folder: Path) -> Dataset:
  found = fortunes.read(folder)
  clients = found.train.y.astype(np.int32)  # a client has one topic
  topics = found.topics
  splits = found.train, found.test
  notes = found.notes
  return make(name, 'fortunes', *splits, len(topics), 'unit', clients, topics, topics, notes)


def _digits_domains(name: str, folder: Path) -> Dataset:
  try:
    read = {part: _named(part, folder) for part in ('mnist', 'usps')}
  except (FileNotFoundError, ValueError) as error:
    raise type(error)(f'data.name={name!r}: {error}') from error
  read['digits'] = _digits('digits', folder)
  parts = [domains.Domain(part, d.train, d.test) for part, d in read.items()]
  return _joined(name, 'digits of three origins', domains.join(parts, 28, 1, name), 10)


def _digits_styles(name: str, folder: Path) -> Dataset:
  del folder
  found = domains.join(digits.styles(), 8, 1, name)
  return _joined(name, 'digits in three made-up styles', found, 10)


def _domain_source(name: str, folder: Path) -> Dataset:
  source = DOMAIN_SOURCES[name]
  found = domain_prepared.read(source, folder)
  return _joined(name, source.title, found, source.num_classes)


def _joined(name: str, title: str, found: domains.Joined, classes: int) -> Dataset:
  dataset = make(name, title, found.train, found.test, classes, UNMEASURED, found.clients)
  return dataclasses.replace(
    dataset, domains=found.names, test_domains=found.test_domains, client_names=found.names
  )


def _from_folder(
  name: str, shown: str, found: arrays.Folder, classes: int, default: str | Normalisation
) -> Dataset:
  dataset = make(
    name,
    '',
    found.train,
    found.test,
    classes,
    UNMEASURED if found.normalisation == 'auto' else found.normalisation or default,
    found.clients,
    client_names=found.client_names,
    notes=found.notes,
    test_clients=found.test_clients,
  )
  title = found.title or f'{shown} (arrays {dataset.checksum[:8]})'
  return dataclasses.replace(dataset, title=title)


def _with_proxy(
  dataset: Dataset, proxy: str, share: float, data_dir: str, seed: int, trusted: bool
) -> Dataset:
  if proxy == HELD_OUT:
    return held_out.give_server(dataset, share, seed)
  if proxy == dataset.name:
    raise ValueError(
      f'data.proxy={proxy!r} is the data set itself: use {HELD_OUT!r}, rows that no client has'
    )
  try:
    other_set = load(proxy, data_dir, trusted=trusted)
  except (ValueError, OSError) as error:
    raise type(error)(f'data.proxy={proxy!r}: {error}') from error
  other = other_set.train
  if other.x.shape[1:] != dataset.shape:
    shapes = ['x'.join(map(str, shape)) for shape in (other.x.shape[1:], dataset.shape)]
    raise ValueError(
      f'data.proxy={proxy!r}: its images are {shapes[0]} and those of {dataset.name} {shapes[1]}; '
      f'use {HELD_OUT!r} or a data set of the same shape'
    )
  notes = *dataset.notes, *(f'data.proxy: {note}' for note in other_set.notes)
  return dataclasses.replace(dataset, proxy=Split(other.x, np.full_like(other.y, -1)), notes=notes)


def brings_validation(name: str, data_dir: str = '') -> bool:
  """Says whether a data set has a validation split of its own, which `data.validation` must not add to."""
  return name in FLAIR or (name == own_images.FOLDER and layout.has_validation(_folder(data_dir)))


def main(argv: Sequence[str] | None = None) -> int:
  """Prepares a data set from the command line.

  Args:
    argv: the arguments, `NAME --dir=DIR`.

  Returns:
    The exit status: 0, or 2 after one line that says why not.
  """
  parser = argparse.ArgumentParser(
    prog='python -m fedjax_syn.data.datasets',
    description='Prepares a data set: checks its archives, or downloads them, and writes records.',
  )
  parser.add_argument('name', help=', '.join(names()))
  parser.add_argument(
    '--dir', default='', help="'' means $TFDS_DATA_DIR, else ~/tensorflow_datasets"
  )
  flags = parser.parse_args(argv)
  folder = _folder(flags.dir)
  try:
    if flags.name in SOURCES:
      prepared.prepare(SOURCES[flags.name], folder)
    if flags.name in DOMAIN_SOURCES:
      domain_prepared.prepare(DOMAIN_SOURCES[flags.name], folder)
    dataset = load(flags.name, flags.dir)
  except (ValueError, OSError) as error:
    print(error, file=sys.stderr)
    return 2
  print(
    f'{dataset.title}: {len(dataset.train.y)} training and {len(dataset.test.y)} test images of '
    f'{"x".join(map(str, dataset.shape))}, SHA-256 {dataset.checksum}',
    *dataset.notes,
    sep='\n',
  )
  return 0


if __name__ == '__main__':
  # By its full name: the Dataset of a script is another class than the one that others import.
  sys.exit(importlib.import_module('fedjax_syn.data.datasets').main())
