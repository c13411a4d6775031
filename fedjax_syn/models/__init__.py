"""Networks as pure functions: `create(name, ...)` returns a `Model`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import flax.linen as nn
import jax

from fedjax_syn.core import own_code, suggestions
from fedjax_syn.core.types import Model
from fedjax_syn.data.features import IMAGES, SEQUENCES, TABLE, TOKENS, called
from fedjax_syn.models.activations import TYPES, in_bfloat16
from fedjax_syn.models.classifier import as_model
from fedjax_syn.models.convnet import ConvNet, convnet
from fedjax_syn.models.convnet1d import convnet1d
from fedjax_syn.models.flax_module import from_class, from_module
from fedjax_syn.models.init import INITS
from fedjax_syn.models.lenet import cnn3, lenet
from fedjax_syn.models.mlp import mlp
from fedjax_syn.models.network_layers import FORMS, NORMS, POOLINGS
from fedjax_syn.models.resnet import resnet18
from fedjax_syn.models.text import embed, text

__all__ = ['create', 'from_module', 'names']

MODELS: dict[str, tuple[Callable[..., nn.Module], str]] = {
  'cnn3': (cnn3, 'FedCOG for CIFAR-100: three 3x3 convolutions, 128 hidden units'),
  'convnet': (convnet, 'DynaFed: depth (3) blocks of width (128): conv 3x3, norm, ReLU, pooling'),
  'convnet1d': (
    convnet1d,
    'sequences: depth (3) blocks of width (64): convolution over 5 steps, norm, ReLU, pooling by 2',
  ),
  'lenet': (lenet, 'FedCOG: two 5x5 convolutions with max-pooling, 120 and 84 hidden units'),
  'mlp': (mlp, 'images, tables or sequences: depth (2) hidden layers of width (128) with ReLU'),
  'resnet18': (
    resnet18,
    'ResNet-18 of width (64); norm "group" (32 groups), "batch", "layer", "none"',
  ),
  'text': (
    text,
    'tokens: embedding and depth (1) convolutions of width (64), maximum over the text',
  ),
}
# What they take, where it is not images alone.
TAKES: dict[str, tuple[str, ...]] = {
  'convnet1d': (SEQUENCES,),
  'mlp': (IMAGES, TABLE, SEQUENCES),
  'text': (TOKENS,),
}
DROPPING = ('mlp', 'convnet1d')  # those that have `dropout`
TEXT = tuple(name for name, kinds in TAKES.items() if TOKENS in kinds)
# The fastest form for vmapped or scanned clients; measured, for the paper's CIFAR-10 round on an
# H200 with tensorfloat32: patches 0.144 s, XLA's grouped convolutions 0.206 s. Other backends take
# XLA's own.
FASTEST = {'cpu': 'chwn', 'gpu': 'patches'}


def names() -> dict[str, str]:
  """Returns the models that `create` knows: name -> one line about it, defaults in brackets."""
  return {name: about for name, (_, about) in MODELS.items()}


def create(
  name: str,
  *,
  shape: tuple[int, ...],
  num_classes: int,
  width: int = 0,
  depth: int = 0,
  norm: str = 'group',
  pooling: str = 'avg',
  init: str = 'torch',
  conv: str = 'auto',
  kind: str = '',
  dropout: float = 0.0,
  activations: str = 'float32',
) -> Model:
  """Builds a model; a network ignores what it has no use for (an MLP the pooling, say).

  Args:
    name: one of `names()`, or 'package.module:function', a function that takes the arguments below
      by name and returns a Model, or a class of Flax modules (see `from_module`).
    shape: of a row: (height, width, channels) of an image, in pixels; (features,) of a table;
      (time, channels) of sequences; (length,) of tokens.
    num_classes: size of the output.
    width: channels or hidden units of a layer; 0 is the model's own default.
    depth: number of blocks or hidden layers; 0 is the model's own default.
    norm: 'group' (one group per channel in the ConvNet), 'layer', 'batch' or 'none'.
    pooling: 'avg', 'max' or 'none', of the ConvNet.
    init: 'torch' (weights and biases uniform on +-1/sqrt(fan in)) or 'flax' (LeCun normal weights,
      zero biases).
    conv: form of the convolutions: 'xla', 'patches', 'chwn', or 'auto', the fastest here.
    kind: what rows are, `Dataset.kind`; '' follows from the shape, a single size being that of
      tokens for models of texts and of a table for others.
    dropout: rate of the values that a hidden layer drops in local training, of the MLP and of
      sequences' ConvNet, and of own modules with such a field, whose default 0 leaves.
    activations: 'float32', or 'bfloat16' (`models.activations`), of which a function outside the
      package is not told.

  Returns:
    The model, with `init(key) -> Variables`; `apply(variables, x [batch, *shape],
    train=False, mask=None) -> Output`; `head(params, features) -> logits`; `is_head(path)`. Equal
    arguments give one model, except of a function outside the package.

  Raises:
    ValueError: if a name or an argument is unknown or does not fit.
  """
  forms = ['auto', *FORMS]
  known = {'norm': [*NORMS], 'pooling': [*POOLINGS], 'init': [*INITS], 'conv': forms}
  given: dict[str, Any] = {'norm': norm, 'pooling': pooling, 'init': init, 'conv': conv}
  for argument, value in given.items():
    _one_of(argument, value, known[argument])
  _one_of('activations', activations, TYPES)
  if not 0 <= dropout < 1:
    raise ValueError(f'dropout = {dropout}: it must lie in 0 <= p < 1')
  kind = _kind(name, shape, kind)
  sizes = {'num_classes': num_classes, 'width': width, 'depth': depth}
  for argument, size in sizes.items():
    least = 1 if argument == 'num_classes' else 0
    if size < least:
      raise ValueError(f'{argument} = {size}: it must be at least {least}')
  if conv == 'auto':
    given['conv'] = FASTEST.get(jax.default_backend(), 'xla')
  given |= {'shape': tuple(shape), **sizes}
  if dropout:  # other functions outside the package need not know it
    given['dropout'] = float(dropout)
    if ':' not in name and name not in DROPPING:
      raise ValueError(
        f'dropout = {dropout}: is for {", ".join(DROPPING)}, not {name}; 0 would work'
      )
  model = _own(name, kind, given) if ':' in name else _built_in(name, **given)
  return in_bfloat16(model) if activations == 'bfloat16' else model


def _own(name: str, kind: str, given: dict[str, Any]) -> Model:
  """Builds a network of a function or class outside the package."""
  build = own_code.load(name, 'model.name')
  if isinstance(build, type) and issubclass(build, nn.Module):
    build = functools.partial(from_class, build, name, kind=kind)  # type: ignore[arg-type]
  model = own_code.call(build, f'model.name = {name!r}', **given)
  if not isinstance(model, Model):
    raise ValueError(f'model.name = {name!r}: it returned a {type(model).__name__}, not a Model')
  return model


@functools.cache  # compiled programs are looked up by the model
def _built_in(
  name: str, *, shape: tuple[int, ...], num_classes: int, init: str, conv: str, **options: Any
) -> Model:
  weights = INITS[init]
  body = MODELS[name][0](shape=shape, form=FORMS[conv], weights=weights, **options)
  keyed = bool(options.get('dropout'))
  model = as_model(name, body, shape, num_classes, weights, tokens=name in TEXT, keyed=keyed)
  model = model._replace(in_blocks=isinstance(body, ConvNet) and body.in_blocks(shape))
  return model._replace(embed=embed) if name in TEXT else model


def _kind(name: str, shape: tuple[int, ...], kind: str) -> str:
  """Returns what rows are, after a check that the model takes them."""
  by_size = {1: TOKENS if name in TEXT else TABLE, 2: SEQUENCES, 3: IMAGES}
  if len(shape) not in by_size or min(shape) < 1:
    raise ValueError(
      f'shape = {shape}: it is (height, width, channels), (features,), (time, channels) or'
      ' (length,), positive integers'
    )
  kind = kind or by_size[len(shape)]
  if ':' in name:
    return kind
  _one_of('name', name, MODELS)
  if kind not in (taken := taken_by(name)):
    *others, last = map(called, taken)
    takes = f'{", ".join(others)} or {last}' if others else last
    fit = [other for other in MODELS if kind in taken_by(other)]
    raise ValueError(
      f'model.name = {name!r}: takes {takes}, and these data are'
      f' {called(kind)}; use {", ".join(fit)}'
    )
  return kind


def taken_by(name: str) -> tuple[str, ...]:
  """Returns what rows a built-in model takes."""
  return TAKES.get(name, (IMAGES,))


def _one_of(argument: str, value: str, known: Iterable[str]) -> str:
  if value not in known:
    near = suggestions.nearest(str(value), known)
    hint = f'did you mean {" or ".join(map(repr, near))}? ' if near else ''
    raise ValueError(f'model.{argument} = {value!r} is unknown: {hint}known: {", ".join(known)}')
  return value
