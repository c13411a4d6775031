"""A network body and a linear head, turned into the pure functions of a `Model`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, Model, Output, Params, PRNGKey, Variables
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import Dense


class Classifier(nn.Module):
  """A body that turns images into features, and the linear layer on top.

  Attributes:
    body: called as body(x, train, mask) -> features [batch, features]; what it sows under
      ('stages', 'outputs') are its intermediate activations.
    num_classes: size of the output.
    weights: one of `INITS`.
  """

  body: nn.Module
  num_classes: int
  weights: Init

  def setup(self):
    self.head = Dense(self.num_classes, self.weights)

  def __call__(self, x: Array, train: bool, mask: Array | None) -> tuple[Any, Array]:
    features = self.body(x, train, mask)
    return self.head(features), features


def as_model(
  name: str,
  body: nn.Module,
  shape: tuple[int, ...],
  num_classes: int,
  init: Init,
  tokens: bool = False,
  keyed: bool = False,
) -> Model:
  """Closes a body into a `Model`, whose parameters are {'body': ..., 'head': {'kernel', 'bias'}}.

  Args:
    name: what the model is called in results.
    body: called as body(x, train, mask) -> features [batch, features].
    shape: of a row, see `fedjax_syn.models.create`.
    num_classes: size of the output.
    init: one of `INITS`, for the head.
    tokens: whether rows are integers.
    keyed: whether the body draws random numbers in training (`dropout`).

  Returns:
    The model. Beyond what `Model` promises, `apply(..., stages=True)` returns the Output and a
    tuple of the body's intermediate activations, [batch, height, width, channels], [batch,
    time, channels] or [batch, features], in the order of the layers.
  """
  network = Classifier(body, num_classes, init)
  top = Dense(num_classes, init)

  @jax.jit
  def initialise(key: PRNGKey) -> Variables:
    blank = jnp.zeros((1, *shape), jnp.int32 if tokens else None)
    drawn = network.init(key, blank, False, None)
    return Variables(drawn['params'], drawn.get('batch_stats', {}))

  def apply(
    variables: Variables,
    x: Array,
    train: bool = False,
    mask: Array | None = None,
    stages: bool = False,
    key: PRNGKey | None = None,
  ) -> Output | tuple[Output, tuple[Array, ...]]:
    collections = {'params': variables.params, 'batch_stats': variables.stats}
    mutable = ['batch_stats', 'stages'] if stages else ['batch_stats']
    rngs = None if key is None else {'dropout': key}
    outputs, changed = network.apply(collections, x, train, mask, mutable=mutable, rngs=rngs)
    logits, features = outputs
    output = Output(logits, features, changed.get('batch_stats', {}) if train else variables.stats)
    return (output, changed['stages']['body']['outputs']) if stages else output

  def head(params: Params, features: Array) -> Any:
    return top.apply({'params': params['head']}, features)

  def is_head(path: tuple) -> bool:
    return getattr(path[0], 'key', path[0]) == 'head'

  return Model(name, initialise, apply, head, is_head, keyed=keyed)  # type: ignore[arg-type]


def check_fits(shape: tuple[int, int, int], name: str, *layers: tuple[int, int, int]) -> None:
  """Refuses images of which nothing would be left.

  Args:
    shape: (height, width, channels) of an image, in pixels.
    name: the model, for the message.
    *layers: (size, stride, padding) of every convolution and pooling, in order, in pixels.

  Raises:
    ValueError: if a window no longer fits.
  """
  left = list(shape[:2])
  for size, stride, padding in layers:
    left = [(n + 2 * padding - size) // stride + 1 for n in left]
    if min(left) < 1:
      raise ValueError(
        f'model.name = {name!r} does not fit images of {shape[0]}x{shape[1]} pixels: its poolings '
        'leave nothing; use larger images, or in the ConvNet a smaller depth or pooling "none"'
      )
