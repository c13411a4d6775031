"""How a folder of images is laid out: which row is of which split, client and class."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedjax_syn.core.texts import listed
from fedjax_syn.data.naming import alike, alike_clients, differ_in_case

TRAIN, TEST, VALIDATION = 'train', 'test', 'validation'
_ROLES = {
  **dict.fromkeys(('train', 'training', 'trn'), TRAIN),
  **dict.fromkeys(('test', 'testing', 'tests', 'tst'), TEST),
  **dict.fromkeys(('val', 'valid', 'validation', 'validate'), VALIDATION),
}
_BESIDE = re.compile(r'[ _-]*(set|split|data|dataset|images|imgs|(19|20)\d\d)')
UNCLEAR = ('eval', 'evaluation', 'holdout', 'held_out', 'unlabeled', 'unlabelled')
WANTED = (
  'expected CLIENT/CLASS/IMAGE.png or CLASS/IMAGE.png, with or without test/CLASS/IMAGE.png; or'
  ' train/CLASS/IMAGE.png or train/CLIENT/CLASS/IMAGE.png, with test and optionally valid'
)


class Row(NamedTuple):
  """What the path of an image says."""

  split: str
  """TRAIN, TEST or VALIDATION."""
  client: str
  """'' where no folder names one."""
  label: str


def role(name: str) -> str:
  """Returns the split that a folder's name means ('Train', 'val2017', 'test_set'), or ''."""
  word = name.strip().casefold()
  return _ROLES.get(word) or _ROLES.get(_BESIDE.sub('', word), '')


def has_validation(root: Path) -> bool:
  """Returns whether a folder has validation and test images, on top or below a client's folder."""
  top = [path for path in (root.iterdir() if root.is_dir() else ()) if path.is_dir()]
  below = [path for folder in top if not role(folder.name) for path in folder.iterdir()]
  return any({VALIDATION, TEST} <= {role(path.name) for path in paths} for paths in (top, below))


def arrange(parts: Sequence[tuple[str, ...]]) -> tuple[list[Row], list[str]]:
  """Returns the split, the client and the class of every image.

  Args:
    parts: of every image, the names of its folders below the root and its own.

  Returns:
    A row for each, in the same order, and notes.

  Raises:
    ValueError: if an image is out of place, or names do not tell what is meant.
  """
  if all(len(p) == 4 and role(p[1]) and not role(p[0]) for p in parts):  # CLIENT/train/CLASS/IMAGE
    parts = [(p[1], p[0], *p[2:]) for p in parts]
  named: dict[str, list[str]] = {}  # folders by split; '': other folders
  for name in sorted({p[0] for p in parts if len(p) > 1}):
    named.setdefault(role(name), []).append(name)
  others = named.pop('', [])
  for split, names in named.items():
    if len(names) > 1:
      raise ValueError(f'{listed(names)} are folders of one split, {split}: keep one of them')
  if TRAIN in named and others:
    raise ValueError(
      f'{listed(others)} beside {named[TRAIN][0]!r}: is that a client, a class or a split? {WANTED}'
    )
  if unclear := [name for name in others if name.strip().casefold() in UNCLEAR]:
    raise ValueError(
      f'{listed(unclear)}: is that a client, a class or a split? Rename it to test or valid, or'
      ' remove it'
    )
  placed = [(role(p[0]) or TRAIN, p[1:] if role(p[0]) else p) for p in parts]
  sizes = {split: Counter(len(own) for s, own in placed if s == split) for split, _ in placed}
  depths = {split: counts.most_common(1)[0][0] for split, counts in sizes.items()}
  if TRAIN not in depths:
    raise ValueError(f'holds no images to train on; {WANTED}')
  rows = []
  for path, (split, own) in zip(parts, placed, strict=True):
    legal = (2, 3) if split == TRAIN or depths[TRAIN] == 3 else (2,)
    if len(own) != depths[split] or len(own) not in legal:
      raise ValueError(f'{"/".join(path)} is out of place; {WANTED}')
    rows.append(Row(split, own[0] if len(own) == 3 else '', own[-2]))
  notes = [f'{n!r} is the {s} split' for s, (n,) in sorted(named.items()) if n not in (s, 'valid')]
  if VALIDATION in named and TEST not in named:
    rows = [row._replace(split=TEST) if row.split == VALIDATION else row for row in rows]
    notes = [f'the test split is {named[VALIDATION][0]!r}, as there is no folder test']
  _check_classes(rows)
  return rows, notes + alike_clients({row.client for row in rows})


def _check_classes(rows: Sequence[Row]) -> None:
  """Refuses classes that are splits, lack training rows or have names that look alike."""
  classes = {row.label for row in rows if row.split == TRAIN}
  roles = {role(name) for name in classes}
  if len(roles - {''}) > 1 or roles <= {TRAIN, TEST, VALIDATION}:
    raise ValueError(
      f'the folders of classes are {listed(sorted(classes))}: splits belong on top; {WANTED}'
    )
  in_folder: dict[tuple[str, str], set[str]] = {}
  for row in rows:
    in_folder.setdefault((row.split, row.client), set()).add(row.label)
  for group in alike({row.label for row in rows}):
    one_folder = any(names.issuperset(group) for names in in_folder.values())
    if not (one_folder and differ_in_case(group)):  # 'a' and 'A' of one client are two classes
      raise ValueError(
        f'the classes {" and ".join(map(repr, group))} look alike: use one name for one class'
      )
  for split in (TEST, VALIDATION):
    only = sorted({row.label for row in rows if row.split == split} - classes)
    if only:
      raise ValueError(
        f'class {listed(only)} has images in {split} and none to train on; add some, or take it '
        'away'
      )
