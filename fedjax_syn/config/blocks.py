"""Whose the blocks of a config are: one for each layer of the package, and those of a user's own that are in use."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer


def outside(before: Iterable[str], *words: str) -> tuple[str, ...]:
  """Returns the layers from outside the package whose blocks a config has.

  Args:
    before: which were so before; one whose block a layer in use has by now is left out.
    *words: `algorithm` and `compare`.
  """
  used = [part for word in words for part in word.split('+') if part]
  taken = {algorithms.block_name(part) for part in used}
  kept = [word for word in before if word in used or algorithms.block_name(word) not in taken]
  return tuple(dict.fromkeys([*kept, *(part for part in used if ':' in part)]))


def check(words: Iterable[str]) -> None:
  """Refuses two layers in use that have one block."""
  owners: dict[str, str] = {}
  for key, word in zip(('algorithm', 'compare'), words, strict=True):
    for part in word.split('+'):
      other = owners.setdefault(algorithms.block_name(part), part)
      if other != part and algorithms.layer_class(other) is not algorithms.layer_class(part):
        name = algorithms.block_name(part)
        raise ConfigError(
          f'{key}={shown(word)}: {part!r} and {other!r} both have the block {name!r}; rename one of the classes'
        )


def classes(outside: Iterable[str]) -> dict[str, type]:
  """Returns the class of every block; `outside` are layers from outside the package, which may have a name of its own."""
  parts = [*(name for name in algorithms.LAYERS if name != algorithms.BASE), *outside]
  return {algorithms.block_name(part): algorithms.layer_class(part) for part in parts}


def build(
  outside: Iterable[str], values: Mapping[str, Mapping[str, Any]], given: Iterable[str]
) -> dict[str, Layer]:
  """Returns the layer of every block.

  Args:
    outside: own layers, as `classes`.
    values: of all fields, by block.
    given: dotted keys that a config sets; a block without any is the layer with its defaults, which is built once.
  """
  changed = {key.partition('.')[0] for key in given}
  return {
    name: cls(**values.get(name, {})) if name in changed else _default(cls)
    for name, cls in classes(outside).items()
  }


@functools.cache
def _default(cls: type[Layer]) -> Layer:
  return cls()
