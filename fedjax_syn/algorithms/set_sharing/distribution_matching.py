"""Distribution matching: a small set whose mean features by class are those of a client's data.

`FedDM._losses` and `FedDualMatch._losses` are the losses that are minimised. Source: FedDualMatch,
Section 4.1 (Eqs. 2 and 3); FedDM (Xiong et al., 2023); Zhao and Bilen (2023).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, over_present
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Model, PRNGKey, Shard, Variables
from fedjax_syn.data import federated

# (images of a class [images, ...], class number) -> its loss, []
ClassLoss = Callable[[Array, Array], Array]
Losses = Callable[[Any], ClassLoss]  # iteration -> the loss of a class
Layers = tuple[Array, ...]  # [samples, ...] each, from the first to the last


def layers(model: Model, variables: Variables, x: Array, which: str) -> Layers:
  """Returns a network's outputs as an embedding h_w.

  Args:
    model: a network of this library (it returns its stages).
    variables: w.
    x: normalised images [samples, height, width, channels].
    which: 'pooled': the outputs of the blocks; 'pooled+logits': and the logits; 'last+logits': the
      features and the logits, as in FedDM.

  Returns:
    One array per layer, [samples, ...]: the shape of a block's output, or [samples, features or
    classes].
  """
  out, stages = model.apply(variables, x, train=False, stages=True)  # type: ignore[misc]
  return {
    'pooled': stages,
    'pooled+logits': (*stages, out.logits),
    'last+logits': (out.features, out.logits),
  }[which]


LAYERS = ('pooled', 'pooled+logits', 'last+logits')


def distance(real: Array, synthetic: Array, squared: bool) -> Array:
  """Returns ||real - synthetic||, squared or not, of means of one shape, []; gradient 0 at 0."""
  square = jnp.sum((real - synthetic) ** 2)
  return square if squared else jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)


def at_a_time(backend: str = '') -> int:
  """Returns how many real images are embedded at once; on a CPU their activations stay in cache.

  Args:
    backend: 'cpu', 'gpu' or 'tpu'; '' is JAX's default.
  """
  return 16 if (backend or jax.default_backend()) == 'cpu' else 256


def means(x: Array, embed: Callable[[Array], Layers], backend: str = '') -> Layers:
  """Returns the mean features of images, in microbatches where `at_a_time` divides them.

  Args:
    x: normalised images [images, height, width, channels].
    embed: images -> layers.
    backend: as in `at_a_time`.

  Returns:
    The mean of each layer, without the axis of images.
  """
  size = at_a_time(backend) if x.shape[0] % at_a_time(backend) == 0 else x.shape[0]
  mean = lambda part: tuple(z.mean(0) for z in embed(part))
  return tuple(z.mean(0) for z in jax.lax.map(mean, x.reshape(-1, size, *x.shape[1:])))


def class_means(
  data: federated.FederatedData,
  shard: Shard,
  embed: Callable[[Array], Layers],
  backend: str = '',
  batch: int = 0,
) -> Layers:
  """Returns the mean features of every class over all samples of a client.

  Args:
    data: the partitioned training set.
    shard: the client.
    embed: images [batch, ...] -> layers.
    backend: as in `at_a_time`.
    batch: samples at a time; 0 is `at_a_time`.

  Returns:
    [classes, ...] per layer; zeros for absent classes.
  """
  classes = shard.class_counts.shape[0]
  in_rows = (backend or jax.default_backend()) == 'cpu'

  def class_sums(z, y):
    # A product needs flat features, which XLA computes without vectors on a CPU (docs/speed.md).
    if in_rows:
      return jax.ops.segment_sum(z, y, classes)
    return jnp.tensordot(jax.nn.one_hot(y, classes, dtype=z.dtype), z, (0, 0))

  def feature_sums(x, y, mask):
    y = jnp.where(mask > 0, y, classes)  # rows that do not exist belong to no class
    return tuple(class_sums(z, y) for z in embed(x))

  sums = federated.sum_batches(data, shard, batch or at_a_time(backend), feature_sums)
  counts = jnp.maximum(shard.class_counts, 1)
  return tuple(s / _by_row(counts, s) for s in sums)


def _by_row(values: Array, z: Array) -> Array:
  """Returns values [n] in the shape [n, 1, ...] that multiplies z [n, ...]."""
  return values.reshape(-1, *[1] * (z.ndim - 1))


def by_class(data: federated.FederatedData, shard: Shard) -> tuple[Array, Array]:
  """Sorts a client's positions by class.

  Returns:
    Positions [bound] in the order of their classes, those beyond the client's size last; the first
    index of each class in them, [classes].
  """
  flat = jnp.minimum(shard.start + data.positions, data.order.shape[0] - 1)
  y = data.y[data.order[flat]]
  classes = shard.class_counts.shape[0]
  order = jnp.argsort(jnp.where(data.positions < shard.size, y, classes), stable=True)
  begin = jnp.cumsum(shard.class_counts) - shard.class_counts
  return order.astype(jnp.int32), begin


def draw(
  key: PRNGKey,
  data: federated.FederatedData,
  shard: Shard,
  sorted_: tuple[Array, Array],
  c: Array,
  rows: int,
) -> Array:
  """Draws samples of a class of a client, with replacement.

  Args:
    key: for the draw.
    data: the partitioned training set.
    shard: the client.
    sorted_: its positions, as of `by_class`.
    c: the class, [].
    rows: number of samples; those of an absent class are arbitrary.

  Returns:
    Normalised images, [rows, height, width, channels].
  """
  positions, begin = sorted_
  within = jax.random.randint(key, (rows,), 0, jnp.maximum(shard.class_counts[c], 1))
  return federated.take(data, shard, positions[begin[c] + within])[0]


def backward_stages(count: int) -> Array:
  """Returns weights [stages, layers]: stage p = J, J - 1, ..., 1 has the layers q >= p."""
  stage = jnp.arange(count)[:, None]
  return (jnp.arange(count)[None] >= count - 1 - stage).astype(jnp.float32)


class Noise(NamedTuple):
  """A Gaussian mechanism; see `privatise` and `noised_means`."""

  clip: Array  # C
  sigma: Array | float  # in units of C / images of the set, or of C on a class's sum


def bounded(embed: Callable[[Array], Layers], clip: Array) -> Callable[[Array], Layers]:
  """Returns an embedding whose features of a sample, all layers together, are clipped to norm C."""

  def clipped(x):
    features = embed(x)
    square = sum(jnp.sum(z * z, axis=range(1, z.ndim)) for z in features)
    long = square > clip**2
    scale = jnp.where(long, clip / jnp.sqrt(jnp.where(long, square, 1.0)), 1.0)
    return tuple(_by_row(scale, z) * z for z in features)

  return clipped


def noised_means(key: PRNGKey, means: Layers, counts: Array, noise: Noise) -> Layers:
  """Adds noise to the class means of `bounded` features.

  Args:
    key: for the noise.
    means: [classes, ...] per layer.
    counts: samples of each class, [classes].
    noise: of standard deviation sigma C on the sum of a class, that is sigma C / n_c on its mean.
      Exchanging a sample for another of its class changes the sum by at most 2 C.

  Returns:
    The means, structure of `means`; zeros for absent classes.
  """
  scale = noise.sigma * noise.clip / jnp.maximum(counts, 1) * (counts > 0)
  drawn = (jax.random.normal(fold(key, i), z.shape, z.dtype) for i, z in enumerate(means))
  pairs = zip(means, drawn, strict=True)
  return tuple(z + _by_row(scale, z).astype(z.dtype) * d for z, d in pairs)


def privatise(key: PRNGKey, grads: Array, present: Array, noise: Noise) -> Array:
  """Clips the gradient of a client's whole set and adds noise to the present classes.

  Args:
    key: for the noise.
    grads: [classes, images, ...].
    present: [classes].
    noise: the mechanism; exchanging a sample changes the clipped gradient by at most 2 C.

  Returns:
    The noised gradient, with noise of standard deviation sigma C / images. Source: FedDualMatch,
    Algorithm 1, lines 13-16.
  """
  norm = jnp.sqrt(jnp.sum(grads**2))
  clipped = grads / jnp.maximum(1.0, norm / noise.clip)
  images = jnp.maximum(present.sum() * grads.shape[1], 1)
  added = jax.random.normal(key, grads.shape, grads.dtype) * noise.sigma * noise.clip / images
  return clipped + added * _by_row(present, grads)


def descend(
  losses: Losses,
  start: ClassSet,
  steps: int,
  *,
  lr: Array | float,
  momentum: float,
  noise: Callable[[Array, Array], Array] | None = None,
) -> ClassSet:
  """Optimises a client's set by SGD; each class has its own loss, and absent classes cost no time.

  Args:
    losses: step -> the loss of a class at it; what all classes share is computed once a step.
    start: the initial set.
    steps: iterations.
    lr: SGD's rate.
    momentum: heavy ball.
    noise: (gradient of the whole set, step) -> gradient, for differential privacy.

  Returns:
    The set after the last step.
  """

  def iterate(i, carry):
    x, velocity = carry
    slope = jax.grad(losses(i))
    add = lambda c, grads: grads.at[c].set(slope(x[c], c))
    grads = over_present(start.present, add, jnp.zeros_like(x))
    if noise is not None:
      grads = noise(grads, i)
    velocity = momentum * velocity + grads
    return x - lr * velocity, velocity

  x, _ = jax.lax.fori_loop(0, steps, iterate, (start.x, jnp.zeros_like(start.x)))
  return start._replace(x=x)
