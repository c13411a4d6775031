"""Names of classes and clients, compared as people read them: one name in two spellings, and names that look alike."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence


def one_spelling(name: str) -> str:
  """Returns a name in Unicode's composed form (NFC): file systems keep 'é' as one character, or as two."""
  return unicodedata.normalize('NFC', name)


def respelled(names: Iterable[str]) -> list[str]:
  """Returns the names, in one spelling, that occur in several spellings, sorted."""
  spellings = defaultdict(set)
  for name in names:
    spellings[one_spelling(name)].add(name)
  return sorted(name for name, forms in spellings.items() if len(forms) > 1)


def alike(names: Iterable[str]) -> list[Sequence[str]]:
  """Returns groups of names that differ only in case, spaces, the width of letters or marks that nobody sees.

  Args:
    names: in one spelling each.

  Returns:
    Sorted groups of at least two sorted names.
  """
  groups = defaultdict(set)
  for name in names:
    visible = ''.join(c for c in name if unicodedata.category(c) != 'Cf')  # marks that nobody sees
    groups[' '.join(unicodedata.normalize('NFKC', visible).casefold().split())].add(name)
  return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def differ_in_case(group: Iterable[str]) -> bool:
  """Says whether nothing but the case of letters tells a group of `alike` names apart."""
  return len({name.casefold() for name in group}) == 1


def some(names: Sequence[str], most: int = 3) -> str:
  """Writes the first few of several names: "'a', 'b' and 7 others"."""
  shown = ', '.join(map(repr, names[:most]))
  rest = len(names) - most
  return shown if rest <= 0 else f'{shown} and {rest} other{"s" if rest > 1 else ""}'


def alike_clients(names: Iterable[str]) -> list[str]:
  """Says which clients' names differ in case alone; clients are distinct even so.

  Raises:
    ValueError: if two names differ in spaces, the width of letters or marks that nobody sees.
  """
  notes = []
  for group in alike(names):
    shown = some(group)
    if not differ_in_case(group):
      raise ValueError(f'the clients {shown} are hardly told apart: give one client one name')
    notes.append(f'{shown} are {len(group)} clients, though they differ in case alone')
  return notes
