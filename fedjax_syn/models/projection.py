"""A projection head between features and classifier, as in contrastive methods (MOON)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Model, Output, Variables
from fedjax_syn.models import extra_outputs


class Head(nn.Module):
  """Two linear layers with a ReLU between them, then the classifier."""

  hidden: int
  size: int
  classes: int

  def setup(self):
    # Flax's layers have float32 weights even where the run is in float64.
    dense = functools.partial(nn.Dense, param_dtype=jnp.result_type(float))
    self.first, self.second = dense(self.hidden), dense(self.size)
    self.classifier = dense(self.classes)

  def __call__(self, features: Array) -> tuple[Array, Array]:
    z = self.second(nn.relu(self.first(features)))
    return self.classifier(z), z

  def classify(self, z: Array) -> Array:
    return self.classifier(z)


@functools.cache  # compiled programs are looked up by their Model
def with_projection(model: Model, shape: tuple[int, ...], size: int) -> Model:
  """Inserts a projection head between features and a new classifier.

  Args:
    model: the network; its own classifier is not used any more.
    shape: of a row.
    size: of the projected features, which become the model's features.

  Returns:
    The model; `params['projection']` holds the head, and the new classifier is the model's head.

  Raises:
    ValueError: if the model has extra outputs for features of another size.
  """
  variables = jax.eval_shape(model.init, jax.random.key(0))
  kind = jnp.float32 if model.embed is None else jnp.int32
  out = jax.eval_shape(model.apply, variables, jax.ShapeDtypeStruct((1, *shape), kind))
  features, classes = out.features.shape[-1], out.logits.shape[-1]
  extra_outputs.check(variables.params, size)
  projection = Head(features, size, classes)

  def init(key):
    variables = model.init(fold(key, 0))
    head = projection.init(fold(key, 0, 1), jnp.zeros((1, features)))
    return Variables({**variables.params, 'projection': head['params']}, variables.stats)

  def apply(variables, x, **options):
    own = {k: v for k, v in variables.params.items() if k != 'projection'}
    out = model.apply(Variables(own, variables.stats), x, **options)
    logits, z = projection.apply({'params': variables.params['projection']}, out.features)
    return Output(logits, z, out.stats)

  def head(params, z):
    return projection.apply({'params': params['projection']}, z, method='classify')

  def is_head(path):
    keys = [getattr(part, 'key', part) for part in path[:2]]
    return keys == ['projection', 'classifier']

  return model._replace(init=init, apply=apply, head=head, is_head=is_head)
