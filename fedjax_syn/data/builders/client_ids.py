"""What a data set calls its clients, whatever that is: numbered from 0 on, and kept as names."""

from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.data.builders.spelling import alike_clients, one_spelling, respelled, some

_MISSING = ('nan', 'none', 'null', 'na', 'n/a', '<na>', '-1', '?')  # words for 'no client', often


class Clients(NamedTuple):
  """Whose rows are whose."""

  train: np.ndarray  # int32 [training rows], 0 .. clients - 1
  test: np.ndarray | None  # int32 [test rows], -1 for a client without training rows
  names: tuple[str, ...]  # by number; () where the data say 0, 1, ... themselves
  notes: tuple[str, ...]


def number(train: Any, test: Any, rows: tuple[int, int], where: tuple[str, str]) -> Clients:
  """Numbers the clients of training rows in the order of their ids, and finds those of test rows among them.

  Args:
    train: ids [training rows]: integers of any type and sign, whole floats, or texts.
    test: ids [test rows], None if nobody says them.
    rows: how many training and test rows there are.
    where: what a message names, for both.

  Returns:
    The numbers. Numbers are ordered by value, texts by their characters, in Unicode's composed form.

  Raises:
    ValueError: if ids are missing, of another type, or differ in spaces alone.
  """
  ids, of_row = _unique(train, rows[0], where[0])
  spelled = list(map(str, ids.tolist()))
  words = list(map(one_spelling, spelled))
  names = sorted(set(words)) if ids.dtype.kind == 'U' else words
  place = {name: i for i, name in enumerate(names)}
  owners = np.array([place[word] for word in words], np.int32)[of_row]
  notes = (
    [f'{some(same)}: two Unicode spellings, taken as one client']
    if (same := respelled(spelled))
    else []
  )
  try:
    notes += alike_clients(names)
  except ValueError as error:
    raise ValueError(f'{where[0]}: {error}') from error
  if doubtful := [name for name in names if name.casefold() in _MISSING]:
    notes.append(f'{where[0]}: {some(doubtful)} is taken as the name of a client')
  tested = None
  if test is not None:
    others, of_test = _unique(test, rows[1], where[1])
    found = [place.get(one_spelling(str(i)), -1) for i in others.tolist()]
    tested = np.array(found, np.int32)[of_test]
    if -1 in found:
      strangers = [str(i) for i, n in zip(others.tolist(), found, strict=True) if n < 0]
      notes.append(
        f'{int((tested < 0).sum())} test rows are of clients without training rows ({some(strangers)}): they count'
        ' in the whole test split alone'
      )
  told = names == [str(i) for i in range(len(names))]
  return Clients(owners, tested, () if told else tuple(names), tuple(notes))


def _unique(ids: Any, rows: int, where: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns the sorted ids, integers or texts, and the place of every row's among them."""
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
    raise ValueError(f'{where}: row {empty[0]} has no client: take it out, or name one')
  ids = ids.astype(np.int8) if ids.dtype.kind == 'b' else ids
  return np.unique(ids, return_inverse=True)


def _whole(ids: np.ndarray, where: str) -> np.ndarray:
  exact = 2 ** (np.finfo(ids.dtype).nmant + 1)
  wrong = np.flatnonzero(~(np.isfinite(ids) & (ids == np.round(ids)) & (np.abs(ids) <= exact)))
  if wrong.size:
    raise ValueError(
      f'{where}: clients are {ids.dtype}, and row {wrong[0]} has {ids[wrong[0]]!s}: use integers or texts'
    )
  return ids.astype(np.int64)
