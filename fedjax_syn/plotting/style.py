"""Names, colours and dashes, the same in all figures and reports."""

import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedjax_syn import algorithms

COLOURS = ('#0072b2', '#d55e00', '#009e73', '#b65c9b', '#b8860b', '#3a9bd9', '#808080')
"""Okabe and Ito's, which most colour-blind people tell apart, for both backgrounds."""
DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2), (1, 2), (4, 2, 1, 2), (8, 2))
"""Lengths of strokes and gaps in widths of the line; () is solid."""
FIRST = ('fedavg', 'dynafed', 'scaffold', 'fedprox', 'fedcog', 'feddualmatch', 'moon')
"""Methods with solid lines, each of its own colour."""
STYLES = 7 * len(DASHES)
SLOTS = sorted(range(STYLES), key=lambda slot: (slot >= 28, slot >= 7 and slot % 7 == 0, slot))
"""Numbers of colours and dashes, in the order in which methods get them; FedAvg's colour last."""


class Style(NamedTuple):
  """How the line of a method is drawn."""

  colour: str
  dash: tuple[int, ...]

  @property
  def line(self) -> dict[str, Any]:
    """What matplotlib's `plot` takes."""
    return {'color': self.colour, 'linestyle': (0, self.dash) if self.dash else '-'}


def method_name(algorithm: str) -> str:
  """Returns a method as papers write it: 'SCAFFOLD + DynaFed' for 'scaffold+dynafed'.

  Settings behind it stay: 'FedAvg (client.lr=0.1)' for 'fedavg(client.lr=0.1)'.
  """
  method, settings = _parts(algorithm)
  words = method.split('+')
  words = [word for word in words if word != algorithms.BASE] or words[:1]
  known = {word: layer.__name__ for word, layer in algorithms.LAYERS.items()}
  own = lambda word: re.sub(r'^\S+:(\w+)$', r'\1', word)
  name = ' + '.join(known.get(word) or own(word.strip()) for word in words)
  return f'{name} {settings}'.strip()


def _parts(name: str) -> tuple[str, str]:
  """A method and the settings behind it, '(client.lr=0.1)'."""
  match = re.fullmatch(r'([^()]*?) ?(\(.+=.+\))', name)
  return (match[1], match[2]) if match else (name, '')


def plain_title(title: str) -> str:
  """Returns a data set's title without the digits of its checksum."""
  return re.sub(r' \((arrays )?[0-9a-f]{8}\)', '', title)


def styles(names: Sequence[str]) -> list[Style]:
  """Returns a style for each of several methods.

  A method has the same style wherever it is drawn; a composition has its last method's colour. Of
  two that would look alike, the later one gets another dash, or another colour.

  Args:
    names: of the methods, 'scaffold+dynafed' or 'SCAFFOLD + DynaFed'; one may come twice.

  Returns:
    Styles, all different up to `STYLES` of them.
  """
  taken: list[int] = []
  for name in names:
    slots = [(_slot(name) + 7 * i + i // len(DASHES)) % STYLES for i in range(STYLES)]
    taken.append(next((slot for slot in slots if slot not in taken), slots[0]))
  return [Style(COLOURS[s % 7], DASHES[s // 7]) for s in taken]


def _slot(name: str) -> int:
  *inner, last = _parts(name)[0].lower().replace(' ', '').split('+')
  order = [*FIRST, *(word for word in algorithms.LAYERS if word not in FIRST)]
  place = order.index(last) if last in order else zlib.crc32(last.encode(errors='replace'))
  return SLOTS[place % STYLES] + 7 * len([word for word in inner if word != algorithms.BASE])
