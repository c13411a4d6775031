"""Names of clients and classes: compared as people read them; clients numbered from 0 on."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core.texts import listed

_MISSING = ('nan', 'none', 'null', 'na', 'n/a', '<na>', '-1', '?')  # words for 'no client', often


class Clients(NamedTuple):
  """The client of every row, by the names of a data set's fields."""

  clients: np.ndarray | None = None
  """int32 [training rows], 0 .. clients - 1; None: unknown."""
  test_clients: np.ndarray | None = None
  """int32 [test rows], -1 for a client without training rows; None as above."""
  client_names: tuple[str, ...] = ()
  """By number; () where the data say 0, 1, ... themselves."""


def number_clients(
  train: Any, test: Any, rows: tuple[int, int], where: tuple[str, str]
) -> tuple[Clients, list[str]]:
  """Numbers the clients of training rows in the order of their ids; test rows refer to them.

  Args:
    train: ids [training rows]: integers of any type and sign, whole floats, or texts.
    test: ids [test rows], None if unknown.
    rows: how many training and test rows there are.
    where: what a message names, for both.

  Returns:
    The numbers, and notes. Numbers are ordered by value, texts by their characters, in Unicode's
    composed form.

  Raises:
    ValueError: if ids are missing, of another type, or differ in spaces alone.
  """
  ids, of_row = _unique(train, rows[0], where[0])
  spelled = list(map(str, ids.tolist()))
  words = list(map(one_spelling, spelled))
  names = sorted(set(words)) if ids.dtype.kind == 'U' else words
  numbers = {name: i for i, name in enumerate(names)}
  owners = np.array([numbers[word] for word in words], np.int32)[of_row]
  same = respelled(spelled)
  notes = [f'{listed(same)}: two Unicode spellings, taken as one client'] if same else []
  try:
    notes += alike_clients(names)
  except ValueError as error:
    raise ValueError(f'{where[0]}: {error}') from error
  if doubtful := [name for name in names if name.casefold() in _MISSING]:
    notes.append(f'{where[0]}: {listed(doubtful)} is taken as the name of a client')
  test_owners = None
  if test is not None:
    unique, of_test = _unique(test, rows[1], where[1])
    test_ids = list(map(str, unique.tolist()))
    test_owners = np.array([numbers.get(one_spelling(i), -1) for i in test_ids], np.int32)[of_test]
    if unknown := [i for i in test_ids if one_spelling(i) not in numbers]:
      notes.append(
        f'{int((test_owners < 0).sum())} test rows are of clients without training rows '
        f'({listed(unknown)}): they count in the whole test split alone'
      )
  named = names != [str(i) for i in range(len(names))]
  return Clients(owners, test_owners, tuple(names) if named else ()), notes


def _unique(ids: Any, rows: int, where: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns the sorted ids, integers or texts, and the index of every row's among them."""
  ids = np.asarray(ids)
  if ids.shape != (rows,) or ids.dtype.kind not in 'biufUS':
    raise ValueError(
      f'{where}: clients must be integers or texts [{rows}], got {ids.dtype} {list(ids.shape)}'
    )
  if ids.dtype.kind == 'f':
    ids = _whole(ids, where)
  if ids.dtype.kind == 'S':
    try:
      ids = np.char.decode(ids, 'utf-8')
    except UnicodeDecodeError as error:
      raise ValueError(f'{where}: clients are bytes and no UTF-8: {error.reason}') from error
  if ids.dtype.kind == 'U' and (empty := np.flatnonzero(np.char.strip(ids) == '')).size:
    raise ValueError(f'{where}: row {empty[0]} has no client: remove it, or name one')
  ids = ids.astype(np.int8) if ids.dtype.kind == 'b' else ids
  return np.unique(ids, return_inverse=True)


def _whole(ids: np.ndarray, where: str) -> np.ndarray:
  exact = 2 ** (np.finfo(ids.dtype).nmant + 1)
  wrong = np.flatnonzero(~(np.isfinite(ids) & (ids == np.round(ids)) & (np.abs(ids) <= exact)))
  if wrong.size:
    raise ValueError(
      f'{where}: clients are {ids.dtype}, and row {wrong[0]} has {ids[wrong[0]]!s}: use integers '
      'or texts'
    )
  return ids.astype(np.int64)


def one_spelling(name: str) -> str:
  """Returns a name in Unicode's composed form (NFC), as people read it."""
  return unicodedata.normalize('NFC', name)


def respelled(names: Iterable[str]) -> list[str]:
  """Returns the names, in one spelling, that occur in several spellings, sorted."""
  spellings = defaultdict(set)
  for name in names:
    spellings[one_spelling(name)].add(name)
  return sorted(name for name, forms in spellings.items() if len(forms) > 1)


def alike(names: Iterable[str]) -> list[list[str]]:
  """Returns groups of names that differ only in case, spaces, width or invisible marks.

  Args:
    names: in one spelling each.

  Returns:
    Sorted groups of at least two sorted names.
  """
  groups = defaultdict(set)
  for name in names:
    visible = ''.join(c for c in name if unicodedata.category(c) != 'Cf')
    groups[' '.join(unicodedata.normalize('NFKC', visible).casefold().split())].add(name)
  return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def differ_in_case(group: Iterable[str]) -> bool:
  """Returns whether nothing but the case of letters tells a group of `alike` names apart."""
  return len({name.casefold() for name in group}) == 1


def alike_clients(names: Iterable[str]) -> list[str]:
  """States which clients' names differ in case alone; clients are distinct even so.

  Raises:
    ValueError: if two names differ in spaces, the width of letters or invisible marks.
  """
  notes = []
  for group in alike(names):
    shown = listed(group)
    if not differ_in_case(group):
      raise ValueError(f'the clients {shown} look alike: use one name for one client')
    notes.append(f'{shown} are {len(group)} clients, though they differ in case alone')
  return notes
