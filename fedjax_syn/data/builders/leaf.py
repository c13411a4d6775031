"""A folder in LEAF's JSON: `train/*.json` and `test/*.json`, rows by user (Caldas et al., 2018).

A file holds {"users": [names], "num_samples": [numbers], "user_data": {name: {"x": [...], "y":
[...]}}}. Two forms of x are read, and both make every user a client:

- 784 numbers in 0..1 (FEMNIST): 28 x 28 grey pixels, row by row. A number v becomes the level
  p = round(255 v), and is refused if p / 255 differs from it by more than `SLACK`. Nothing is
  inverted.
- texts of one length (Shakespeare), with one character as y: the character number i of `ALPHABET`
  is the token i + 1 and the class i. Token 0 is padding, and does not occur.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core.texts import listed, shown
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.checks import untrained_classes
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.naming import number_clients
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.split import Split, check_split, same_rows
from fedjax_syn.data.unseen import with_unseen_clients

PARTS = ('train', 'test')
SIDE = 28
SLACK = 1e-4  # a fortieth of a level: files may round to four decimals
ALPHABET = '\n' + ''.join(map(chr, range(32, 127)))  # the line feed and printable ASCII
NAMES = {'\n': 'line feed', ' ': 'space'}  # of classes that cannot be seen
_NUMBER = np.full(128, -1, np.int32)  # by code of a character
_NUMBER[[ord(c) for c in ALPHABET]] = np.arange(len(ALPHABET))


class User(NamedTuple):
  """The rows of one user in one file."""

  name: str
  x: np.ndarray
  """uint8 [rows, 28, 28, 1], or int32 [rows, length]."""
  y: np.ndarray
  """int32 [rows]."""


def load(name: str, folder: Path) -> Dataset:
  """Reads a folder.

  Args:
    name: of the data set, as in the config.
    folder: holds the folders `train` and `test`.

  Returns:
    The data set; users are its clients, numbered in the order of their names.

  Raises:
    FileNotFoundError: if a folder is missing or holds no JSON file.
    ValueError: if a file holds something else.
  """
  users = {part: _read_part(folder, part) for part in PARTS}
  kinds = {user.x.shape[1:]: part for part, of_part in users.items() for user in of_part}
  if len(kinds) > 1:
    (shape, part), (other, second) = list(kinds.items())[:2]
    raise ValueError(f'{folder}: rows of {part} are {list(shape)}, and of {second} {list(other)}')
  join = lambda part, key: np.concatenate([getattr(user, key) for user in users[part]])
  train, test = (check_split(join(p, 'x'), join(p, 'y'), str(folder / p)) for p in PARTS)
  ids = [np.repeat([u.name for u in users[p]], [len(u.y) for u in users[p]]) for p in PARTS]
  where = str(folder / PARTS[0]), str(folder / PARTS[1])
  clients, numbering = number_clients(ids[0], ids[1], (len(train.y), len(test.y)), where)
  text = train.x.ndim == 2
  classes = len(ALPHABET) if text else 1 + int(max(train.y.max(), test.y.max()))
  notes = [f'read {len(train.y)} training rows of {len(users["train"])} users and {len(test.y)}']
  notes[0] += f' test rows of {len(users["test"])}'
  if (untrained := untrained_classes(train.y, test.y)).size:
    notes.append(f'classes {listed(untrained.tolist())} have test rows and no training rows')
  dataset = make(
    name,
    f'{folder.resolve().name} (LEAF)',
    train,
    test,
    classes,
    'unit' if text else UNMEASURED,
    **clients._asdict(),
    class_names=tuple(NAMES.get(c, c) for c in ALPHABET) if text else (),
    notes=(*notes, *numbering, *(() if text else same_rows(train, test))),
  )
  return with_unseen_clients(dataset, ids[1])


def _read_part(folder: Path, part: str) -> list[User]:
  """Reads all files of one split."""
  here = folder / part
  paths = sorted(here.glob('*.json')) if here.is_dir() else []
  if not paths:
    data = folder / 'data'
    hint = f'; {data} has them: --config.data.dir={data}' if (data / part).is_dir() else ''
    raise FileNotFoundError(
      f'{here} has no file *.json: a folder of LEAF holds train/ and test/ with such files{hint}'
    )
  users, seen = [], dict[str, Path]()
  for path in paths:
    for user in _read_file(path):
      if user.name in seen:
        raise ValueError(f'{path}: user {user.name!r} is in {seen[user.name].name} as well')
      seen[user.name] = path
      users.append(user)
  users = [user for user in users if len(user.y)]
  if not users:
    raise ValueError(f'{here}: no user has a row')
  return users


def _read_file(path: Path) -> list[User]:
  content = bounded.read_json(path)
  keys = 'users', 'num_samples', 'user_data'
  if not isinstance(content, dict) or not all(key in content for key in keys):
    raise ValueError(f'{path}: must hold {", ".join(keys)}, as LEAF writes them')
  names, counts, data = (content[key] for key in keys)
  fits = isinstance(names, list) and isinstance(counts, list) and isinstance(data, dict)
  if not fits or not all(isinstance(n, str) for n in names) or len(counts) != len(names):
    raise ValueError(f'{path}: users must be texts, num_samples as many, user_data by user')
  if odd := sorted(set(names) ^ set(data)):
    raise ValueError(f'{path}: {listed(odd)}: in only one of users and user_data')
  out = []
  for name, count in zip(names, counts, strict=True):
    rows, where = data.pop(name), f'{path}: user {name!r}'  # memory of rows that are converted
    x, y = (rows.get('x'), rows.get('y')) if isinstance(rows, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list):
      raise ValueError(f'{where}: must have lists x and y')
    if not len(x) == len(y) == count:
      raise ValueError(f'{where}: num_samples is {count!s}, but x has {len(x)} and y {len(y)} rows')
    if count:
      out.append(User(name, *_rows(x, y, where)))
  return out


def _rows(x: list[Any], y: list[Any], where: str) -> Split:
  if all(isinstance(row, str) for row in x):
    return _texts(x, y, where)
  try:
    array = np.array(x, np.float64)
  except (TypeError, ValueError):
    array = np.zeros(0)
  if array.shape != (len(x), SIDE * SIDE):
    raise ValueError(
      f'{where}: a row of x must be {SIDE * SIDE} numbers (FEMNIST) or a text (Shakespeare), got'
      f' {shown(x[0], 60)}'
    )
  return Split(_pixels(array, where), _whole(y, where))


def _pixels(array: np.ndarray, where: str) -> np.ndarray:
  """Returns numbers [rows, 784] in 0..1 as uint8 [rows, 28, 28, 1]; they must be levels / 255."""
  levels = np.rint(array * 255)
  wrong = ~(np.abs(levels / 255 - array) <= SLACK) | (levels < 0) | (levels > 255)  # NaN, too
  if wrong.any():
    row, column = np.argwhere(wrong)[0]
    raise ValueError(
      f'{where}: number {column} of row {row} of x is {array[row, column]:g}; the pixels of'
      ' LEAF are levels 0..255, divided by 255'
    )
  return levels.astype(np.uint8).reshape(-1, SIDE, SIDE, 1)


def _whole(y: list[Any], where: str) -> np.ndarray:
  numbers = np.array(y) if all(isinstance(v, int | float) for v in y) else np.full(1, -1)
  labels = numbers if numbers.dtype.kind in 'if' else np.full(1, -1)  # beyond 64 bits, say
  if not ((labels == np.rint(labels)) & (labels >= 0) & (labels < 2**31)).all():
    raise ValueError(f'{where}: y must be integers from 0 on, got {shown(y, 60)}')
  return labels.astype(np.int32)


def _texts(x: list[str], y: list[Any], where: str) -> Split:
  length = len(x[0])
  if odd := next((i for i, row in enumerate(x) if len(row) != length or not row), None):
    raise ValueError(f'{where}: texts of x have {length} and {len(x[odd])} characters')
  if not length or not all(isinstance(c, str) and len(c) == 1 for c in y):
    raise ValueError(f'{where}: x must be texts and y the character that follows each')
  return Split(1 + _numbers(x, where), _numbers(y, where)[:, 0])


def _numbers(texts: Sequence[str], where: str) -> np.ndarray:
  """Returns the numbers of characters in `ALPHABET`, int32 [texts, length]."""
  codes = np.frombuffer(''.join(texts).encode('utf-32-le', 'surrogatepass'), np.uint32)
  codes = codes.reshape(len(texts), -1)
  numbers = _NUMBER[np.minimum(codes, 127)]  # 127 is no character of the alphabet
  if (numbers < 0).any():
    row, column = np.argwhere(numbers < 0)[0]
    raise ValueError(
      f'{where}: text {row} has the character {shown(texts[row][column])}; the line feed and'
      ' printable ASCII have tokens'
    )
  return numbers
