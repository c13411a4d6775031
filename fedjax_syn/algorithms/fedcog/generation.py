"""Complementary data: inputs that the global model knows and a client's does not (Section 4.1).

`FedCOG._generate` puts the parts together; the loss that is minimised (Eqs. 1 and 2) is there.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.clients import Group, in_group
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import optimize
from fedjax_syn.core.types import Array, Model, Params, PRNGKey, PyTree
from fedjax_syn.models.generator import IMAGE_NOISE, ImageGenerator

# By backend: samples whose activations stay in a CPU's cache. A step of LeNet on 256 images of
# 32 x 32 x 3 takes 147 ms of one core, with 32 at a time 255; on 28 x 28 x 1 both take 40.
AT_A_TIME = {'cpu': 16}


def complement(class_counts: Array) -> Array:
  """Returns the samples that a client lacks of each class: max(d) - d, [classes] (A.1.1)."""
  return class_counts.max() - class_counts


def loss_weights(class_counts: Array) -> tuple[Array, Array]:
  """Returns the weights of real and generated data: N_real and N_gen over their sum (A.3.2)."""
  lacking, held = complement(class_counts).sum(), jnp.maximum(class_counts.sum(), 1)
  share = lacking / (lacking + held)
  return 1 - share, share


def class_labels(lacking: Array, budget: int) -> Array:
  """Chooses a budget of target labels in proportion to what a client lacks.

  Args:
    lacking: [classes], `complement` of the client's samples of each class; zeros ask for all
      classes alike.
    budget: number of labels.

  Returns:
    int32 [budget], in ascending order. Shares are rounded by the largest remainder, so that the
    budget is used up; the authors' code rounds down.
  """
  counts = jnp.cumsum(shares(lacking, budget))
  return jnp.searchsorted(counts, jnp.arange(budget), side='right').astype(jnp.int32)


def label_sets(lacking: Array, each: float | Array, budget: int) -> Array:
  """Chooses sets of target labels, for data with several labels per sample.

  Every sample gets as many labels as the client's samples have on average, at least one. A label is
  given to a number of samples in proportion to what is lacking of it, to all samples at most. With
  one label per sample this is `class_labels`. (Neither the paper nor its code describes it.)

  Args:
    lacking: [labels], `complement` of the client's samples with each label; zeros ask for all
      labels alike.
    each: [], labels per sample.
    budget: number of samples.

  Returns:
    Multi-hot int32 [budget, labels]; numbers of labels differ by one at most, where no label is in
    all samples.
  """
  labels = lacking.shape[0]
  total = jnp.round(budget * jnp.clip(each, 1.0, labels))
  position = jnp.arange(budget * labels)
  label = jnp.searchsorted(jnp.cumsum(shares(lacking, total)), position, side='right')
  # Consecutive positions go to consecutive samples, so that no sample gets a label twice. Positions
  # beyond the total have no label.
  sets = jnp.zeros((budget, labels), jnp.int32)
  return sets.at[position % budget, label].set(1, mode='drop')


def shares(lacking: Array, budget: int | Array) -> Array:
  """Divides a budget by largest remainders, in proportion to `lacking` [classes], equally if 0."""
  lacking = lacking.astype(jnp.float32)
  lacking = jnp.where(lacking.sum() > 0, lacking, 1.0)
  exact = budget * lacking / lacking.sum()
  whole = jnp.floor(exact)
  left = budget - whole.sum()
  rank = jnp.argsort(jnp.argsort(-(exact - whole), stable=True), stable=True)
  return whole + (rank < left)


def jensen_shannon(log_p: Array, log_q: Array) -> Array:
  """Returns the JS divergence of distributions over the last axis, in nats: 0 to ln 2."""
  p, q = jnp.exp(log_p), jnp.exp(log_q)
  log_m = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
  return 0.5 * jnp.sum(p * (log_p - log_m) + q * (log_q - log_m), axis=-1)


def clipped_jensen_shannon(log_p: Array, log_q: Array) -> Array:
  """Returns the authors' form: clipped to [0.01, 0.99], KL with exchanged arguments, at most 1."""
  clip = lambda a: jnp.clip(a, 0.01, 0.99)
  p, q = jnp.exp(log_p), jnp.exp(log_q)
  m, p, q = clip((p + q) / 2), clip(p), clip(q)
  divergence = 0.5 * jnp.sum(m * (2 * jnp.log(m) - jnp.log(p) - jnp.log(q)), axis=-1)
  return jnp.clip(divergence, 0.0, 1.0)


DIVERGENCES = {'paper': jensen_shannon, 'code': clipped_jensen_shannon}


def minimise(
  losses: Callable[[PyTree, Array], Array],
  inputs: PyTree,
  y: Array,
  *,
  steps: int,
  lr: float | Array,
  batch_size: int = 0,
  group: Group | None = None,
) -> PyTree:
  """Minimises the mean loss of inputs by Adam (betas 0.5 and 0.9).

  Args:
    losses: (inputs [batch, ...], y [batch]) -> loss of each sample, [batch].
    inputs: leaves [samples, ...].
    y: target labels [samples].
    steps: steps for every sample.
    lr: Adam's rate.
    batch_size: samples that take all their steps before the next ones do; 0: all. As a sample's
      gradient does not depend on the others, this changes the memory and not the result.
    group: of devices that share the samples; None: one.

  Returns:
    The inputs after the last step. Source: FedCOG, Eq. 1 and Appendix A.5.2; betas are the code's.
  """
  if not steps:
    return inputs
  samples = y.shape[0]
  own = functools.partial(_minimise, losses, samples, steps, lr, batch_size)
  return in_group(own, group, inputs, y)


def _minimise(
  losses: Callable[[PyTree, Array], Array],
  total: int,
  steps: int,
  lr: float | Array,
  batch_size: int,
  inputs: PyTree,
  y: Array,
) -> PyTree:
  """Minimises the losses of one device's samples over the `total` of all; see `minimise`."""
  samples = y.shape[0]
  size = min(batch_size or samples, samples)

  def run(batch):
    start, labels = batch
    loss = lambda x, step: losses(x, labels).sum() / total
    return optimize(loss, optax.adam(lr, b1=0.5, b2=0.9), start, jnp.arange(steps))[0]

  if size == samples:
    return run((inputs, y))
  fill = -samples % size
  cut = lambda a: jnp.concatenate([a, a[:fill]]).reshape(-1, size, *a.shape[1:])
  moved = jax.lax.map(run, (jax.tree.map(cut, inputs), cut(y)))
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:samples], moved)


def starting_point(
  key: PRNGKey, samples: int, shape: tuple[int, ...], generator: bool
) -> tuple[PyTree, Callable[[PyTree], Array]]:
  """Draws the start of generation: N(0, 1), in normalised space without a generator.

  Args:
    key: for the noise.
    samples: number of samples.
    shape: of one input.
    generator: whether a convolutional generator computes the inputs from noise, and is trained too
      (A.5.1).

  Returns:
    What is optimised, and a function of it that returns inputs [samples, *shape].
  """
  noise = lambda *shape: jax.random.normal(fold(key, 0, 1), (samples, *shape))
  if not generator:
    return noise(*shape), lambda x: x
  height, width, channels = shape
  network: Any = ImageGenerator((height, width, channels))
  params = network.init(fold(key, 0), jnp.zeros((1, IMAGE_NOISE)))['params']
  return (params, noise(IMAGE_NOISE)), lambda start: network.apply({'params': start[0]}, start[1])


def input_shape(model: Model, params: Params, x: Array) -> tuple[int, ...]:
  """Returns the shape of one real-valued input: that of x [rows, ...] or its embedding (A.1.2)."""
  if model.embed is None:
    return x.shape[1:]
  return jax.eval_shape(model.embed, params, x[:1]).shape[1:]
