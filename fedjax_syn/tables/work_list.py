"""Work that processes share in one folder: each waits for the items that others work on."""

import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fedjax_syn.core import stopping
from fedjax_syn.runs import lock

POLL = 1.0
"""Seconds between two looks at what other processes do."""
Item = TypeVar('Item')


def work_through(
  items: Sequence[Item],
  attempt: Callable[[Item], bool | None],
  folders: Callable[[Item], dict[str, pathlib.Path]],
  stop: stopping.StopRequest,
  say: Callable[[str], None],
) -> list[Item]:
  """Attempts items in order, and those of other processes again when one of them is free.

  Args:
    items: to attempt.
    attempt: returns whether the item is done; False: another process works on it; None: end here.
    folders: of an item, by name; it is free if no other process works in any of them.
    stop: ends a wait.
    say: called with what is waited for.

  Returns:
    The items that are not done.
  """
  left = list(items)
  while left:
    busy: list[Item] = []
    for number, item in enumerate(left):
      done = attempt(item)
      if done is None:
        return busy + left[number:]
      if not done:
        busy.append(item)
    left = busy
    if left and not _wait([folders(item) for item in left], stop, say):
      break
  return left


def _wait(
  items: Sequence[dict[str, pathlib.Path]], stop: stopping.StopRequest, say: Callable[[str], None]
) -> bool:
  """Waits until one of some items is free; returns False if it was asked to stop."""
  owners = lambda item: [lock.owner(folder) for folder in item.values()]
  is_free = lambda: not all(any(owners(item)) for item in items)
  if is_free():
    return True
  say(f'waiting for {"; ".join(_named(item) for item in items)}: another process is at work there')
  while not stop:
    if is_free():
      return True
    time.sleep(POLL)
  return False


def _named(item: dict[str, pathlib.Path]) -> str:
  owners: Iterable[tuple[str, str]] = ((name, lock.owner(f)) for name, f in item.items())
  return ', '.join(f'{name} ({owner})' for name, owner in owners if owner)
