"""The methods, one file each; every one of them is a layer that `fedjax_syn.chain` composes with others."""

import re
from typing import Any

from fedjax_syn.algorithms.fedavg import FedAvg
from fedjax_syn.algorithms.fedprox import FedProx
from fedjax_syn.algorithms.scaffold import SCAFFOLD
from fedjax_syn.chains import Chain, chain
from fedjax_syn.fields import ConfigError
from fedjax_syn.layer import Layer
from fedjax_syn.own_layers import load

BASE = 'fedavg'
LAYERS: dict[str, type[Layer]] = {
  layer.name: layer
  for layer in (
    FedAvg,
    FedProx,
    SCAFFOLD,
  )
}


def names() -> dict[str, str]:
  """Returns the name of every method and the first line of its file."""
  return {name: _first_line(layer) for name, layer in sorted(LAYERS.items())}


def _first_line(layer: type[Layer]) -> str:
  import sys

  return (sys.modules[layer.__module__].__doc__ or '').strip().splitlines()[0]


def layer_class(word: str) -> type[Layer]:
  """Returns a layer's class by its name, or by 'module:Class' or 'FILE:Class', which is imported.

  Args:
    word: one part of `algorithm`.

  Raises:
    ValueError: if there is no such layer.
  """
  if ':' in word:
    return load(word)
  if word not in LAYERS:
    raise ValueError(f'{word!r} is unknown; known: {", ".join(sorted(LAYERS))}')
  return LAYERS[word]


def block_name(word: str) -> str:
  """Returns what the block of a layer is called in a config: 'fedprox', 'mine' of 'module:Mine'."""
  return word.rpartition(':')[2].lower()


def create(word: str, config: Any) -> Chain:
  """Builds a method from a config.

  Args:
    word: names joined from the inside out, 'scaffold+dynafed'; 'fedavg' is understood at the beginning.
    config: a checked config, with the blocks `client` and `server` and one block per layer.

  Returns:
    The method.

  Raises:
    ValueError: if a part does not exist or the parts cannot be combined.
  """
  parts = [part for part in word.split('+') if part != BASE]
  try:
    return chain(_fedavg(config), *(config.blocks[block_name(part)] for part in parts))
  except ValueError as error:
    named = re.match(r'[\w.]+ ?[=:]', str(error))  # the setting that is to be changed
    raise ConfigError(str(error) if named else f'algorithm={word!r}: {error}') from error


def _fedavg(config: Any) -> FedAvg:
  import dataclasses

  blocks = {**vars(config.client), **vars(config.server)}
  return FedAvg(**{f.name: blocks[f.name] for f in dataclasses.fields(FedAvg)})
