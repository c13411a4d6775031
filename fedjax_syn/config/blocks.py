"""The blocks of a config: one for each layer of the package, and for a user's own layers in use."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer


def outside(before: Iterable[str], *words: str) -> tuple[str, ...]:
  """Returns the layers from outside the package that have a block in a config.

  Args:
    before: those of the config so far; one whose block another layer in use has now is left out.
    *words: the methods of `algorithm` and `compare`.
  """
  used = [part for word in words for part in word.split('+') if part]
  names = {algorithms.block_name(part) for part in used}
  kept = [word for word in before if word in used or algorithms.block_name(word) not in names]
  return tuple(dict.fromkeys([*kept, *(part for part in used if ':' in part)]))


def check(words: Iterable[tuple[str, str]]) -> None:
  """Checks that no two layers in use have the same block.

  Args:
    words: methods, each with its key, 'algorithm' or 'compare'.
  """
  owners: dict[str, str] = {}
  for key, word in words:
    for part in word.split('+'):
      name = algorithms.block_name(part)
      other = owners.setdefault(name, part)
      if other != part and algorithms.layer_class(other) is not algorithms.layer_class(part):
        raise ConfigError(
          f'{key}={shown(word)}: {part!r} and {other!r} both have the block {name!r};'
          ' rename one of the classes'
        )


def classes(outside: Iterable[str]) -> dict[str, type[Layer]]:
  """Returns the class of every block.

  Args:
    outside: layers from outside the package; one may have the name of a layer of the package.
  """
  parts = [*(name for name in algorithms.LAYERS if name != algorithms.BASE), *outside]
  return {algorithms.block_name(part): algorithms.layer_class(part) for part in parts}


def build(
  outside: Iterable[str], values: Mapping[str, Mapping[str, Any]], given: Iterable[str]
) -> dict[str, Layer]:
  """Returns the layer of every block.

  Args:
    outside: own layers, as for `classes`.
    values: of all fields, by block.
    given: dotted keys that the config sets; a block without any is the default layer, built once.
  """
  changed = {key.partition('.')[0] for key in given}
  return {
    name: cls(**values.get(name, {})) if name in changed else _default(cls)  # type: ignore[arg-type]
    for name, cls in classes(outside).items()
  }


@functools.cache
def _default(cls: type[Layer]) -> Layer:
  return cls()
