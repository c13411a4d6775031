"""Types that all parts of the library share: arrays, trees and small records."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Array = jax.Array
PRNGKey = jax.Array  # a typed key: jax.random.key(...)
PyTree = Any
KeyPath = tuple[Any, ...]  # of a leaf, as in jax.tree_util
Params = PyTree  # trainable parameters of a model
Stats = PyTree  # running statistics (BatchNorm); {} for models without


class Variables(NamedTuple):
  """What a model's `init` returns: trainable parameters and running statistics."""

  params: Params
  stats: Stats


class Output(NamedTuple):
  """What a model's `apply` returns for a batch."""

  logits: Array  # [batch, classes] (or labels)
  features: Array  # [batch, features], the input of the classifier head
  stats: Stats  # running statistics after this batch; unchanged outside training
  # []: the factor that layers have applied to the loss of the samples; None is 1
  weight: Array | None = None


class Model(NamedTuple):
  """A network as pure functions; see `fedjax_syn.models.create`."""

  name: str
  init: Callable[[PRNGKey], Variables]
  apply: Callable[..., Output]  # apply(variables, x, train=False, mask=None) -> Output
  head: Callable[[Params, Array], Array]  # (params, features) -> logits
  is_head: Callable[[KeyPath], bool]  # path of a leaf in params -> does it belong to the head
  # (params, x) -> real-valued inputs, which `apply` takes in place of x; None: x is real-valued
  # itself
  embed: Callable[[Params, Array], Array] | None = None
  # whether `apply` also takes `key`: layers such as dropout draw with it in training, and do
  # nothing without it
  keyed: bool = False
  # whether its layers are the blocks of `fedjax_syn.models.blocks`
  in_blocks: bool = False


class Step(NamedTuple):
  """One local step as a loss sees it: everything besides the parameters."""

  key: PRNGKey  # fresh in every step
  index: Array  # type: ignore[assignment]  # [], 0, 1, ... within this round
  x: Array  # [batch, height, width, channels], normalised; tokens: int32 [batch, length]
  y: Array  # [batch], int32 class labels; multi-label: [batch, labels], 0 or 1
  mask: Array  # [batch], 1 for a sample and 0 for padding
  stats: Stats  # running statistics before the step


LossFn = Callable[[Params, Step], tuple[Array, Output]]
GradFn = Callable[[Params, Step], tuple[tuple[Array, Output], Params]]


class Shard(NamedTuple):
  """Which samples a client has: rows order[start:start+size] of the training arrays."""

  client: Array  # []
  start: Array  # []
  size: Array  # []
  class_counts: Array  # [classes]; multi-label: samples with each label


class Measured(NamedTuple):
  """A number for the log that is left out where there is nothing to measure."""

  value: Array  # []
  there: Array  # [], bool
