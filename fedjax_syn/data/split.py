"""The rows of one split: what is accepted, its checksum, and which rows are held out."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedjax_syn.data import features
from fedjax_syn.data.facts import VOCABULARY
from fedjax_syn.data.scaling import scale_together

HELD_OUT = 0.2  # of the rows of every class of every client, without test rows
KINDS = (
  'x must be images (uint8 [n, height, width, channels]), a table (float32 [n, features]), '
  'sequences (float32 [n, time, channels]) or tokens (int32 [n, length])'
)


class Split(NamedTuple):
  """Rows and their labels."""

  x: np.ndarray
  """Images, uint8 [n, height, width, channels]; a table, float32 [n, features]; sequences, float32
  [n, time, channels]; tokens, int32 [n, length]."""
  y: np.ndarray
  """int32 [n]; several labels per row: multi-hot [n, labels]."""

  def take(self, rows: np.ndarray) -> 'Split':
    """Returns the rows that an index or a mask [n] names."""
    return Split(self.x[rows], self.y[rows])


MaybeSplit = TypeVar('MaybeSplit', Split, Split | None)


def check_split(x: Any, y: Any, where: str, num_classes: int | None = None) -> Split:
  """Returns arrays as a read-only Split, or says in one line what is wrong with them.

  Args:
    x: as in `Split`.
    y: labels, any integer type [n], or multi-hot [n, labels].
    where: what the message names, a file for instance.
    num_classes: labels must be below it (multi-hot: its columns); None accepts every label from 0
      on.

  Returns:
    The split, labels as int32.

  Raises:
    ValueError: if a type, a shape or a label is wrong.
  """
  x, y = np.asarray(x), np.asarray(y)
  kind = features.kind_of(x)
  types = {features.IMAGES: np.uint8, features.TOKENS: np.int32}
  if not kind or x.dtype != types.get(kind, np.float32):
    raise ValueError(f'{where}: {KINDS}, got {x.dtype} {list(x.shape)}{_row_help(x)}')
  if not np.issubdtype(y.dtype, np.integer) or not (y.ndim == 1 or y.ndim == 2 and y.shape[1] > 1):
    raise ValueError(
      f'{where}: y must be an integer type [n] or [n, labels], got {y.dtype} {list(y.shape)}'
      f'{_label_help(y)}'
    )
  if len(x) != len(y):
    turned = '; x.T would work' if x.ndim == 2 and x.shape[1] == len(y) else ''
    raise ValueError(f'{where}: {len(x)} rows in x, but {len(y)} labels in y{turned}')
  if not x.size:
    raise ValueError(f'{where}: x is empty, its shape is {list(x.shape)}')
  if features.has_columns(x):
    features.check_values(x, where)
  if kind == features.TOKENS and (x.min() < 0 or x.max() >= VOCABULARY):
    raise ValueError(f'{where}: tokens must lie in 0..{VOCABULARY - 1}, got {x.min()}..{x.max()}')
  if y.ndim == 2 and y.shape[1] != (num_classes or y.shape[1]):
    raise ValueError(f'{where}: y must have {num_classes} columns, got {y.dtype} {list(y.shape)}')
  top = np.iinfo(np.int32).max if num_classes is None else num_classes - 1
  top = 1 if y.ndim == 2 else top
  if y.min() < 0 or y.max() > top:
    wanted = f'0..{top}' if num_classes or y.ndim == 2 else '0.. (classes - 1)'
    raise ValueError(f'{where}: labels must lie in {wanted}, got {y.min()}..{y.max()}')
  split = Split(np.ascontiguousarray(x).view(), y.astype(np.int32))
  for array in split:
    array.flags.writeable = False  # several runs share a data set
  return split


def scale_splits(
  splits: Mapping[str, MaybeSplit],
) -> tuple[dict[str, MaybeSplit], tuple[str, ...]]:
  """Returns splits with images as uint8, all scaled by one range, and other floats as float32.

  Args:
    splits: by name; images [n, height, width, channels] of any numeric type, and tables and
      sequences of any float type. Tokens are left as they are.

  Returns:
    The splits by name, and what was scaled or converted.

  Raises:
    ValueError: if values have no such range or lose their digits; see `scale_together` and
      `features.to_float32`.
  """
  arrays = {name: np.asarray(split.x) for name, split in splits.items() if split is not None}
  images = {name: x for name, x in arrays.items() if x.ndim == 4 and x.dtype != np.uint8}
  floats = {name: x for name, x in arrays.items() if features.has_columns(x)}
  floats = {name: x for name, x in floats.items() if x.dtype != np.float32}
  if not images and not floats:
    return dict(splits), ()
  scaled, notes = scale_together(images) if images else features.to_float32(floats)
  return {name: s and s._replace(x=scaled.get(name, s.x)) for name, s in splits.items()}, notes


def check_shapes(splits: Mapping[str, Split]) -> None:
  """Refuses splits that are of no known kind, or not of one kind and shape.

  Args:
    splits: by name; the first is the one that others must be like.

  Raises:
    ValueError: naming the first that is not.
  """
  first, (like, _) = next(iter(splits.items()))
  for name, (x, _) in splits.items():
    x, like = np.asarray(x), np.asarray(like)
    shape, kind = list(x.shape), features.kind_of(x)
    if not kind:
      raise ValueError(f'{name}: {KINDS}, got {x.dtype} {shape}{_row_help(x)}')
    if kind != features.kind_of(like):
      other = f'{like.dtype} {list(like.shape)}'
      raise ValueError(f'{name}: x is {x.dtype} {shape}, but that of {first} {other}')
    if shape[1:] != list(np.shape(like))[1:]:
      raise ValueError(f'{name}: x is {shape}, but that of {first} {list(np.shape(like))}')


def _row_help(x: np.ndarray) -> str:
  """States what would turn x of another type or shape into rows, '' if that is unknown."""
  tokens = 'x.astype(np.int32) if they are tokens'
  if x.dtype.kind in 'OUS':
    return '; number or encode texts before, or use data.name=csv:PATH, which does'
  if x.ndim == 3:
    return '; x[..., None] if they are grey images, x.astype(np.float32) if they are sequences'
  if x.ndim == 2:
    table = 'x.astype(np.float32) if they are a table'
    return f'; {table}' if x.dtype.kind == 'b' else f'; {table}, {tokens}'
  return '; x[:, None] if it is a table of one column' if x.ndim == 1 else ''


def _label_help(y: np.ndarray) -> str:
  """States what would turn y of another type or shape into labels, '' if that is unknown."""
  if y.dtype.kind == 'f' and not np.isfinite(y).all():
    return f'; row {np.argwhere(~np.isfinite(y))[0][0]} has no label: remove it'
  if y.dtype.kind in 'US':
    return '; np.unique(y, return_inverse=True) numbers names'
  if y.shape[1:] == (1,):
    return '; y[:, 0] would work'
  whole = y.dtype.kind == 'b' or (y.dtype.kind == 'f' and (y == np.round(y)).all())
  return '; y.astype(int) would work' if whole and y.ndim in (1, 2) else ''


def checksum(
  train: Split,
  test: Split,
  clients: np.ndarray | None = None,
  test_clients: np.ndarray | None = None,
) -> str:
  """Returns the SHA-256 of the arrays' values, shapes and order, whatever file they came from.

  Args:
    train: the training rows.
    test: the test rows.
    clients: natural client of each training row, int32 [n].
    test_clients: natural client of each test row, int32.

  Returns:
    64 hexadecimal digits.
  """
  digest = hashlib.sha256()
  for array in (*train, *test, *(a for a in (clients, test_clients) if a is not None)):
    digest.update(f'{array.dtype.str} {array.shape};'.encode())
    digest.update(np.ascontiguousarray(array).data)
  return digest.hexdigest()


def same_rows(train: Split, test: Split) -> tuple[str, ...]:
  """States how many test rows equal a training row in every value; () for none."""
  digests = lambda x: [hashlib.blake2b(row.data, digest_size=16).digest() for row in x]
  seen = set(digests(train.x))
  count = sum(digest in seen for digest in digests(test.x))
  return (f'{count} of {len(test.x)} test rows are training rows as well',) if count else ()


def smallest_digests(y: np.ndarray, share: float, digests: Sequence[bytes]) -> np.ndarray:
  """Chooses rows by their content alone: `stratified`, smallest digests first.

  Args:
    y: labels [n].
    share: of the rows, 0..1.
    digests: SHA-256 of each row.

  Returns:
    Whether a row is chosen, bool [n].
  """
  order = np.array(sorted(range(len(digests)), key=digests.__getitem__))
  return stratified(y, round(share * len(y)), order)


def fifth(groups: np.ndarray) -> np.ndarray:
  """Chooses a fifth of the rows of every group, to test where data have no test rows.

  Args:
    groups: the number of each row's group [n], by class and by client where there are some.

  Returns:
    Whether a row is chosen, bool [n]: always the same rows; `stratified`.
  """
  order = np.random.default_rng(0).permutation(len(groups))
  return stratified(groups, round(HELD_OUT * len(groups)), order)


def stratified(y: np.ndarray, count: int, order: np.ndarray) -> np.ndarray:
  """Chooses rows so that every class gives its share of them, by largest remainders.

  Args:
    y: labels [n], or multi-hot [n, labels], whose classes are the sets of labels that occur.
    count: how many rows to choose.
    order: a permutation of 0..n-1; within a class the rows that come first in it are chosen.

  Returns:
    Whether a row is chosen, bool [n]. The number is exactly `count` unless a class would lose its
    last row: one row of every class is always left.
  """
  if y.ndim == 2:
    _, y = np.unique(y, axis=0, return_inverse=True)
  sizes = np.bincount(y)
  share = count * sizes / len(y)
  quota = np.floor(share).astype(int)
  # Rounding makes equal remainders differ in the last digit; ties go to the lower class.
  largest = np.argsort(-np.round(share - quota, 9), kind='stable')
  quota[largest[: count - quota.sum()]] += 1
  quota = np.minimum(quota, np.maximum(sizes - 1, 0))
  chosen = np.zeros(len(y), bool)
  for label, number in enumerate(quota):
    chosen[order[y[order] == label][:number]] = True
  return chosen
