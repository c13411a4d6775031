"""Which data sets exist, and how one is loaded.

`python -m fedjax_syn.data.datasets NAME --dir=DIR` prepares one.
"""

import argparse
import dataclasses
import importlib
import importlib.util
import numbers
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedjax_syn.core import own_code, paths, suggestions
from fedjax_syn.core.fields import as_field
from fedjax_syn.core.texts import first_line
from fedjax_syn.data import checks, domains, facts, held_out, naming
from fedjax_syn.data.builders import (
  arrays,
  csv_table,
  digits,
  federations,
  flair,
  flair_records,
  folder_layout,
  fortunes,
  image_folder,
  leaf,
  prepared,
  records,
)
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.facts import CSV, FLAIR
from fedjax_syn.data.normalisation import NORMALISATIONS, Normalisation, check_name
from fedjax_syn.data.settings import Data
from fedjax_syn.data.split import Split

__all__ = ['NORMALISATIONS', 'Dataset', 'Normalisation', 'Split', 'load', 'names']

HELD_OUT = 'held_out'
FOLDER, PARQUET, TFDS = 'folder', 'parquet', 'tfds:'  # a user's own images, which can be resized


def _digits_domains(name: str, folder: Path) -> Dataset:
  try:
    parts = {part: prepared.load(part, folder) for part in ('mnist', 'usps')}
  except (FileNotFoundError, ValueError) as error:
    raise type(error)(f'data.name={name!r}: {error}') from error
  parts['digits'] = digits.load('digits', folder)
  origins = [domains.Domain(part, data.train, data.test) for part, data in parts.items()]
  return domains.join(name, 'digits of three origins', 10, origins, 28, 1)


_READERS: dict[str, Callable[[str, Path], Dataset]] = {
  'digits': digits.load,
  **dict.fromkeys(SOURCES, prepared.load),
  **dict.fromkeys(FLAIR, flair.load),
  **dict.fromkeys(DOMAIN_SOURCES, prepared.load_domains),
  'digits_domains': _digits_domains,
  'digits_styles': digits.load_styles,
  'fortunes': fortunes.load,
  **federations.READERS,
  'leaf': leaf.load,
}


def names() -> dict[str, str]:
  """Returns what `data.name` can be, with one line of description each."""
  return {
    'digits': 'scikit-learn digits: 1,198 + 599 images, 8x8x1, 10 classes; nothing to download',
    **{
      name: f'{source.title}: {source.rows[0]:,} + {source.rows[1]:,} images, '
      f'{_size(source.shape)}, {source.num_classes} classes'
      for name, source in SOURCES.items()
    },
    **{
      name: f'FLAIR, {_size((side, side, 3))}: 345,879 + 43,960 photographs (39,239 to validate) '
      f'of 51,414 users, 17 labels, any number per image; put {flair_records.METADATA} and '
      f'{flair_records.IMAGES}/ into data.dir'
      for name, side in FLAIR.items()
    },
    **{
      name: f'{source.title}: {", ".join(source.domains)}, a client each; '
      f'{_size((source.side, source.side, 3))}, {source.num_classes} classes; '
      'fetched by hand'
      for name, source in DOMAIN_SOURCES.items()
    },
    'digits_domains': 'MNIST, USPS and scikit-learn digits, a client each, 28x28x1; mnist and usps '
    'must be there',
    'digits_styles': 'scikit-learn digits in three made-up styles, a client each, 8x8x1; to try '
    'domains on',
    'fortunes': "the texts of Debian's package fortunes: 7,586 + 1,896 rows of 32 hashed words, 12 "
    'topics',
    **federations.DESCRIPTIONS,
    'arrays': 'a folder (data.dir) of train.npz and test.npz with x (images, NHWC; a table; '
    'sequences) and y, optionally clients, and meta.json {name, normalisation, labels, layout, '
    'kind}; several labels per row: y multi-hot',
    'leaf': "a folder (data.dir, or leaf:DIR) in LEAF's JSON, train/ and test/: images of 784 "
    'numbers (FEMNIST) or texts of characters (Shakespeare), users as clients',
    'parquet': 'a folder (data.dir, or parquet:DIR) of Parquet files as Hugging Face writes them, '
    'images or columns of numbers; '
    'data.client_column names the clients; data.size resizes',
    CSV: 'a table (data.dir, or csv:PATH), train.csv and test.csv in a folder or one file: columns '
    'of classes (data.label_column), clients (data.client_column), numbers and texts',
    FOLDER: 'a folder (data.dir) of images, CLIENT/CLASS/IMAGE; test/CLASS/IMAGE, or a fifth is '
    'held out; data.size resizes',
    f'{TFDS}NAME': 'what tensorflow-datasets has prepared in data.dir as array_record: images with '
    'one class each; data.size resizes',
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
  placement: str = 'device',
  choice: facts.Choice = facts.Choice(),  # noqa: B008 (an immutable NamedTuple)
  unseen_clients: float = 0.0,
) -> Dataset:
  """Loads a data set.

  A named one is taken from a folder of arrays, from what was prepared before, from its original
  archives, or downloaded and prepared; in this order, and the first three never need a network.

  Args:
    name: one of `names()`, or `package.module:function`, a callable that returns a Dataset;
      'leaf:DIR' is short for 'leaf' with its folder.
    data_dir: folder of the data sets; '' means $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    normalisation: a name of NORMALISATIONS; '' means the data set's own.
    validation: the share f of the training rows that is held out, stratified; 0 <= f < 1.
    seed: `data.seed`, draws the rows that are held out.
    proxy: the server's own data: '' (none), 'held_out' (a stratified share of the training rows,
      which no client gets) or the name of another data set, whose training images serve without
      labels.
    proxy_share: the share f of the training rows that 'held_out' takes.
    size: side in pixels to which the images of 'folder' and 'tfds:NAME' are resized; 0 takes them
      as they are.
    trusted: whether modules that a folder of 'tfds:NAME' names may be imported.
    placement: where the training rows will be; those for the 'host' stay in their file until they
      are used, if it is not compressed.
    choice: splits and columns of 'parquet' and 'tfds:NAME'; what is done with rows of 'arrays'
      and 'csv' that lack a value.
    unseen_clients: the share of its clients that never train; see `data.unseen.hold_out`.

  Returns:
    The data set.

  Raises:
    FileNotFoundError: if the data set is not there.
    ValueError: if an argument or the data are wrong.
  """
  if not isinstance(validation, numbers.Real) or not 0 <= validation < 1:
    raise ValueError(f'data.validation={validation} must lie in 0 <= f < 1')
  given = {'seed': seed, 'proxy_share': proxy_share, 'size': size, 'proxy': proxy, 'name': name}
  given |= {'unseen_clients': unseen_clients}
  for key, value in given.items():
    as_field(Data, key, value, f'data.{key}')
  name, data_dir = facts.split_name(name, as_field(Data, 'dir', data_dir, 'data.dir'))
  if normalisation:
    check_name(normalisation)
  _check_settings(name, data_dir, size, choice)
  folder = _folder(data_dir)
  try:
    dataset = _read(name, folder, size, trusted, placement == 'host', choice)
  except FileNotFoundError:
    raise
  except OSError as error:
    reason = error.strerror or first_line(error)
    raise ValueError(
      f'data.name={name!r}: {error.filename or folder}: {reason[:1].lower()}{reason[1:]}'
    ) from error
  dataset = held_out.from_training(dataset, unseen_clients, validation, seed)
  if proxy:
    dataset = _with_proxy(dataset, proxy, proxy_share, data_dir, seed, trusted)
  return held_out.normalised(dataset, normalisation)


def _size(shape: tuple[int, ...]) -> str:
  return 'x'.join(map(str, shape))


def _folder(data_dir: str) -> Path:
  if chosen := data_dir or os.environ.get('TFDS_DATA_DIR'):
    return paths.given(chosen, 'data.dir')
  home = os.path.expanduser('~')  # a user of a container may have none, and digits needs none
  return Path('' if home == '~' else home) / 'tensorflow_datasets'


def _check_settings(name: str, data_dir: str, size: int, choice: facts.Choice) -> None:
  """Refuses a size, splits and columns of data sets that take none, and a missing folder."""
  if size and name not in (FOLDER, PARQUET) and not name.startswith(TFDS):
    raise ValueError(
      f'data.size={size}: only {FOLDER}, {PARQUET} and tfds:NAME can be resized, not {name}; use 0'
    )
  if name == FOLDER and not data_dir:
    raise ValueError(f"data.dir='': name the folder of images; {folder_layout.WANTED}")
  if name in facts.IN_FOLDER and not data_dir:
    raise ValueError(f"data.dir='': name the folder, as in data.name={name}:FOLDER")
  if choice.missing and name not in ('arrays', CSV):
    raise ValueError(
      f'data.missing={choice.missing!r}: only arrays and CSV files can lack values, not {name}; '
      "use ''"
    )
  for key, value in choice._replace(missing='')._asdict().items():
    takes = {
      'ignore_columns': (PARQUET, CSV),
      'label_column': (PARQUET, CSV),
      'client_column': (PARQUET, CSV),
    }
    for_splits = (PARQUET, f'{TFDS}NAME')
    taken = takes.get(key, for_splits)
    if value and name not in taken and not (taken is for_splits and name.startswith(TFDS)):
      raise ValueError(f'data.{key}={value!r}: is for {" and ".join(taken)}, not {name}')


def _read(
  name: str, folder: Path, size: int, trusted: bool, mapped: bool, choice: facts.Choice
) -> Dataset:
  if name == FOLDER:
    return image_folder.load(name, folder, size)
  if name == PARQUET:
    if importlib.util.find_spec('pyarrow') is None:
      raise ValueError(f"data.name={name!r} needs pyarrow: pip install -e '.[parquet]'")
    from fedjax_syn.data.builders import parquet  # slow to import

    return parquet.load(name, folder, size, choice)
  if name.startswith(TFDS):
    records.import_tfds(f'data.name={name!r}')
    from fedjax_syn.data.builders import tfds_named  # slow to import

    return tfds_named.load(name, folder, size, trusted, choice)
  if ':' in name:
    return _from_function(name)
  if name == CSV:
    return csv_table.load(name, folder, choice)
  if name == 'arrays':
    return arrays.load(name, folder, mapped=mapped, missing=choice.missing)
  if name not in _READERS:
    near = suggestions.nearest(name, names(), most=1)
    raise ValueError(
      f'data.name={name!r} is unknown{f" (did you mean {near[0]!r}?)" if near else ""}; known are '
      f'{", ".join(names())} and module:function'
    )
  if mapped and name in SOURCES:
    return prepared.load(name, folder, mapped=True)
  return _READERS[name](name, folder)


def _from_function(name: str) -> Dataset:
  """Calls a user's function, checks what it returns and numbers its clients from 0 on."""
  where = f'data.name={name!r}'
  made = own_code.call(own_code.load(name, 'data.name'), where, passes=(OSError,))
  dataset = checks.check(made, where)
  if dataset.client_names or dataset.natural_clients:
    checks.check_clients(dataset, where)
  elif dataset.clients is not None:
    rows = len(dataset.train.y), len(dataset.test.y)
    ids = dataset.clients, dataset.test_clients
    clients, notes = naming.number_clients(*ids, rows, (where, where))
    dataset = dataclasses.replace(dataset, **clients._asdict(), notes=(*dataset.notes, *notes))
  return dataset


def _with_proxy(
  dataset: Dataset, proxy: str, share: float, data_dir: str, seed: int, trusted: bool
) -> Dataset:
  if proxy == HELD_OUT:
    return held_out.hold_out(dataset, 'proxy', share, seed)
  if proxy == dataset.name:
    raise ValueError(
      f'data.proxy={proxy!r} is the data set itself: use {HELD_OUT!r}, rows that no client has'
    )
  try:
    other_set = load(proxy, data_dir, trusted=trusted)
  except (ValueError, OSError) as error:
    raise type(error)(f'data.proxy={proxy!r}: {error}') from error
  other = other_set.train
  if other.x.shape[1:] != dataset.shape or other_set.kind != dataset.kind:
    raise ValueError(
      f'data.proxy={proxy!r}: its {other_set.kind} are {_size(other.x.shape[1:])} and those of '
      f'{dataset.name} {_size(dataset.shape)}; use {HELD_OUT!r} or a data set of the same shape'
    )
  notes = *dataset.notes, *(f'data.proxy: {note}' for note in other_set.notes)
  return dataclasses.replace(dataset, proxy=Split(other.x, np.full_like(other.y, -1)), notes=notes)


def brings_validation(name: str, data_dir: str = '') -> bool:
  """Returns whether a data set has validation rows of its own: `data.validation` must then be 0."""
  return name in FLAIR or (name == FOLDER and folder_layout.has_validation(_folder(data_dir)))


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
      prepared.prepare_domains(DOMAIN_SOURCES[flags.name], folder)
    dataset = load(flags.name, flags.dir)
  except (ValueError, OSError) as error:
    print(error, file=sys.stderr)
    return 2
  print(
    f'{dataset.title}: {len(dataset.train.y)} training and {len(dataset.test.y)} test rows of '
    f'{_size(dataset.shape)}, SHA-256 {dataset.checksum}',
    *dataset.notes,
    sep='\n',
  )
  return 0


if __name__ == '__main__':
  # By its full name: the Dataset of a script is another class than the one that others import.
  sys.exit(importlib.import_module('fedjax_syn.data.datasets').main())
