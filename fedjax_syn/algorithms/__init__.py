"""The methods, one file each; each is a layer that `fedjax_syn.chain` composes with others."""

import dataclasses
import functools
import re
import sys
from typing import Any

import jax
import numpy as np

from fedjax_syn import chains
from fedjax_syn.algorithms import own_layers
from fedjax_syn.algorithms.abavg import ABAVG
from fedjax_syn.algorithms.ditto import Ditto
from fedjax_syn.algorithms.dp import DP
from fedjax_syn.algorithms.dynafed.dynafed import DynaFed
from fedjax_syn.algorithms.fedavg import FedAvg
from fedjax_syn.algorithms.fedavgm import FedAvgM
from fedjax_syn.algorithms.fedbe import FedBE
from fedjax_syn.algorithms.fedcog.fedcog import FedCOG
from fedjax_syn.algorithms.feddecorr import FedDecorr
from fedjax_syn.algorithms.feddf import FedDF
from fedjax_syn.algorithms.feddyn import FedDyn
from fedjax_syn.algorithms.fedexp import FedExP
from fedjax_syn.algorithms.fedgen import FedGen
from fedjax_syn.algorithms.fedmix import FedMix
from fedjax_syn.algorithms.fednova import FedNova
from fedjax_syn.algorithms.fedopt import FedOpt
from fedjax_syn.algorithms.fedproto import FedProto
from fedjax_syn.algorithms.fedprox import FedProx
from fedjax_syn.algorithms.fedreg import FedReg
from fedjax_syn.algorithms.fedrep import FedRep
from fedjax_syn.algorithms.fedsam import FedSAM
from fedjax_syn.algorithms.krum import Krum
from fedjax_syn.algorithms.labelflip import LabelFlip
from fedjax_syn.algorithms.median import Median
from fedjax_syn.algorithms.moon import MOON
from fedjax_syn.algorithms.old_fields import without_constants
from fedjax_syn.algorithms.scaffold import SCAFFOLD
from fedjax_syn.algorithms.serverrate import ServerRate
from fedjax_syn.algorithms.serverwarmup import ServerWarmUp
from fedjax_syn.algorithms.set_sharing.feddm import FedDM
from fedjax_syn.algorithms.set_sharing.feddualmatch import FedDualMatch
from fedjax_syn.algorithms.signflip import SignFlip
from fedjax_syn.algorithms.trimmedmean import TrimmedMean
from fedjax_syn.algorithms.vhl import VHL
from fedjax_syn.chains import Chain
from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer

BASE = 'fedavg'
LAYERS: dict[str, type[Layer]] = {
  layer.name: layer
  for layer in (
    *(ABAVG, Ditto, DP, DynaFed, FedAvg, FedAvgM, FedBE, FedCOG, FedDecorr, FedDF, FedDM),
    *(FedDualMatch, FedDyn, FedExP, FedGen, FedMix, FedNova, FedOpt, FedProto, FedProx, FedReg),
    *(FedRep, FedSAM, MOON, SCAFFOLD, ServerWarmUp, VHL),
    *(Krum, LabelFlip, Median, SignFlip, TrimmedMean, ServerRate),  # last: colours follow the order
  )
}


def _renamed(layer: type[Layer], name: str) -> Any:
  """Is the `__getattr__` of a method's module, which had a function and a Config before 0.2."""
  if name == 'Config' or (name.islower() and name == layer.name):
    raise ImportError(
      f'{layer.__module__}.{name} is the class fedjax_syn.{layer.__name__} now:'
      f' fs.chain(fs.{layer.__name__}(...)) (docs/compose.md, CHANGELOG.md)'
    )
  raise AttributeError(f'module {layer.__module__!r} has no attribute {name!r}')


for _layer in LAYERS.values():
  _module = sys.modules[_layer.__module__]
  _module.__getattr__ = functools.partial(_renamed, _layer)  # type: ignore[method-assign]


def chain(*layers: Layer | Chain) -> Chain:
  """Composes layers into a method, from the inside out, like `optax.chain`.

  Args:
    *layers: layers, or chains of them; FedAvg with its defaults is added in front if it is
      missing.

  Returns:
    The method.

  Raises:
    ValueError: in one line, if the layers cannot be combined.
  """
  flat: list[Layer] = []
  for part in layers:
    if not isinstance(part, Layer | Chain):
      kind = 'call it' if isinstance(part, type) else 'it must be a layer'
      raise ValueError(
        f'chain: {shown(part)} is no layer: {kind}, as in fs.chain(fs.FedProx(mu=0.01))'
      )
    flat += part.layers if isinstance(part, Chain) else (part,)
  if not flat or not isinstance(flat[0], FedAvg):
    flat = [FedAvg(), *flat]
  if any(isinstance(layer, FedAvg) for layer in flat[1:]):
    raise ValueError('chain: fs.FedAvg must come first: the other layers change its local training')
  method = Chain(tuple(flat))
  chains.check(method)
  return method


def names() -> dict[str, str]:
  """Returns the name of every method and the first line of its file."""
  return {name: _first_line(layer) for name, layer in sorted(LAYERS.items())}


def _first_line(layer: type[Layer]) -> str:
  return (sys.modules[layer.__module__].__doc__ or '').strip().splitlines()[0]


def layer_class(word: str) -> type[Layer]:
  """Returns a layer's class by its name, or by 'module:Class' or 'FILE:Class', which is imported.

  Args:
    word: one part of `algorithm`.

  Raises:
    ValueError: if there is no such layer.
  """
  if ':' in word:
    return own_layers.load(word)
  if word not in LAYERS:
    raise ValueError(f'{word!r} is unknown; known: {", ".join(sorted(LAYERS))}')
  return LAYERS[word]


def word_of(layer: type[Layer]) -> str:
  """Returns the word of a layer, of which `layer_class` is the inverse."""
  return layer.name if LAYERS.get(layer.name) is layer else own_layers.word_of(layer)


def block_name(word: str) -> str:
  """Returns what the block of a layer is called in a config: 'fedprox', 'mine' of 'module:Mine'."""
  return word.rpartition(':')[2].lower()


def create(word: str, config: Any) -> Chain:
  """Builds a method from a config.

  Args:
    word: names joined from the inside out, 'scaffold+dynafed'; 'fedavg' is understood at the
      beginning.
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


def to_json(method: Chain) -> list[dict[str, Any]]:
  """Returns a chain as `json` writes it; `from_json` reads it.

  Raises:
    ValueError: if no file says what a layer is.
  """
  plain = lambda value: value.item() if isinstance(value, jax.Array | np.ndarray) else value
  fields = lambda layer: {f.name: plain(getattr(layer, f.name)) for f in dataclasses.fields(layer)}
  return [{'layer': word_of(type(layer)), 'fields': fields(layer)} for layer in method]


def from_json(rows: Any, *, trusted: bool = False) -> Chain:
  """Reads a chain that `to_json` wrote.

  Args:
    rows: what `json` read.
    trusted: whether code that the rows name (`module:Class`, `FILE:Class`) may be imported.

  Returns:
    The method.

  Raises:
    ValueError: in one line, if the rows are no chain, or name code and are not trusted.
  """
  if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
    raise ValueError(
      f'chain: {shown(rows)}: must be a list of {{"layer": name, "fields": {{...}}}}'
    )
  layers = []
  for row in rows:
    word, fields = row['layer'], row['fields']
    prefix = f'{word}.'
    kept = without_constants({prefix + name: value for name, value in fields.items()})
    fields = {key.removeprefix(prefix): value for key, value in kept.items()}
    code = {'layer': word, 'schedule': str(fields.get('schedule', ''))}
    for key in [key for key, name in code.items() if ':' in name and not trusted]:
      raise ValueError(
        f'chain: {key}={code[key]!r} names code, which is not imported because a file says so; if'
        ' you trust this file, say so: trusted=True'
      )
    cls = layer_class(word)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in fields.keys() - known:
      raise ValueError(f'{cls.name}.{name}: no such field; known: {", ".join(known) or "none"}')
    layers.append(cls(**fields))
  return chain(*layers)


def _is_row(row: Any) -> bool:
  fits = isinstance(row, dict) and row.keys() == {'layer', 'fields'}
  return fits and isinstance(row['layer'], str) and isinstance(row['fields'], dict)


def _fedavg(config: Any) -> FedAvg:
  blocks = {**vars(config.client), **vars(config.server)}
  return FedAvg(**{f.name: blocks[f.name] for f in dataclasses.fields(FedAvg)})
