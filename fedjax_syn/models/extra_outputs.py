"""Adds outputs to a classifier, for samples that belong to none of its classes."""

import functools

import jax
import jax.numpy as jnp

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Model, Params, Variables

NAME = 'extra'  # the key of the outputs' parameters
STREAM = 2**20  # of the initial key, far from the numbers that a network folds or splits


@functools.cache  # compiled programs are looked up by the model
def with_extra_outputs(model: Model, shape: tuple[int, ...]) -> Model:
  """Doubles the outputs of a model: `extra_logits` gives the additional ones.

  Args:
    model: the network with C classes.
    shape: of a row.

  Returns:
    The model with a linear layer of C more outputs in `params['extra']`. Logits, and with them loss
    and evaluation, remain the first C; all other parameters begin as they would without the layer.
  """
  variables = jax.eval_shape(model.init, jax.random.key(0))
  image = jax.ShapeDtypeStruct((1, *shape), jnp.result_type(float))
  out = jax.eval_shape(model.apply, variables, image)
  size, classes = out.features.shape[-1], out.logits.shape[-1]

  def init(key):
    params, stats = model.init(key)
    kernel = jax.random.normal(fold(key, STREAM), (size, classes), out.logits.dtype)
    layer = {'kernel': kernel / size**0.5, 'bias': jnp.zeros(classes, out.logits.dtype)}
    return Variables({**params, NAME: layer}, stats)

  def apply(variables, x, **options):
    own = {k: v for k, v in variables.params.items() if k != NAME}
    return model.apply(Variables(own, variables.stats), x, **options)

  def is_head(path):
    return getattr(path[0], 'key', path[0]) == NAME or model.is_head(path)

  return model._replace(init=init, apply=apply, is_head=is_head)


def check(params: Params, size: int) -> None:
  """Raises if the extra outputs, if the model has any, are for features of another size.

  Args:
    params: the model's, or their shapes.
    size: of the features.

  Raises:
    ValueError: see above.
  """
  if NAME in params and params[NAME]['kernel'].shape[0] != size:
    raise ValueError(
      f'the extra outputs are for {params[NAME]["kernel"].shape[0]} features, and a later layer of'
      f" the method made them {size}: name it first, as in 'moon+vhl'"
    )


def extra_logits(params: Params, features: Array) -> Array:
  """Returns the C other outputs of a model of `with_extra_outputs`.

  Args:
    params: the model's.
    features: [batch, features], as the model returns them.

  Returns:
    [batch, classes].

  Raises:
    ValueError: if the features are not those that the outputs were made for.
  """
  layer = params[NAME]
  check(params, features.shape[-1])
  return features @ layer['kernel'] + jnp.expand_dims(
    layer['bias'], tuple(range(features.ndim - 1))
  )
