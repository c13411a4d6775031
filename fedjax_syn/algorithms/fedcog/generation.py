"""Complementary data: inputs that the global model knows and a client's own model does not (FedCOG, Section 4.1)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Model, Params, PRNGKey, PyTree, Variables
from fedjax_syn.models.generator import image_generator
from fedjax_syn.models.layers import DECAY

# By backend: samples whose activations stay in a CPU's cache. LeNet on 256 images of 28 x 28: 4.4 s for 100 steps, and
# 6.7 s all at once.
AT_A_TIME = {'cpu': 32}


def complement(class_counts: Array) -> Array:
  """How many samples of each class a client lacks: max(d) - d, [classes]. Source: FedCOG, Appendix A.1.1."""
  return class_counts.max() - class_counts


def target_labels(
  class_counts: Array | None, each: float | Array, budget: int, classes: int, several: bool
) -> Array:
  """Deals the target labels of generated samples.

  Args:
    class_counts: d, [classes], the client's samples of each class, which are complemented (A.1.1); None: all alike.
    each: [], labels per sample.
    budget: how many samples.
    classes: how many.
    several: whether a sample has several labels.

  Returns:
    int32 [budget], or multi-hot [budget, classes].
  """
  if several:
    lacking = jnp.zeros(classes) if class_counts is None else complement(class_counts)
    return label_sets(lacking, each, budget)
  if class_counts is None:
    return uniform_labels(classes, budget)
  return complementary_labels(class_counts, budget)


def loss_weights(class_counts: Array) -> tuple[Array, Array]:
  """Returns the weights of real and of generated data in the loss, by what is lacking. Source: FedCOG, A.3.2."""
  lacking, held = complement(class_counts).sum(), jnp.maximum(class_counts.sum(), 1)
  share = lacking / (lacking + held)
  return 1 - share, share


def complementary_labels(class_counts: Array, budget: int) -> Array:
  """Deals a budget of target labels in proportion to what a client lacks.

  Args:
    class_counts: d, [classes], the client's samples of each class.
    budget: how many labels.

  Returns:
    int32 [budget], in ascending order. Shares are rounded by the largest remainder, so that the budget is
    used up (the authors' code rounds down and loses a few); a balanced client, which lacks nothing, gets
    equal shares.
  """
  return spread(deal(complement(class_counts), budget), budget)


def uniform_labels(classes: int, budget: int) -> Array:
  """Deals a budget of target labels evenly over the classes; the first ones get what is left: int32 [budget]."""
  return spread(budget // classes + (jnp.arange(classes) < budget % classes), budget)


def label_sets(lacking: Array, each: float | Array, budget: int) -> Array:
  """Deals sets of target labels, for data with several labels per sample.

  Every sample gets as many labels as the client's own have on average (at least one), and every label goes
  to a number of samples in proportion to what is lacking of it, to all of them at most. With one label per
  sample this is `complementary_labels`. (Neither the paper nor its code says how it is done.)

  Args:
    lacking: [labels], `complement` of how many of the client's samples have each label; zeros ask for all
      labels alike.
    each: [], labels per sample.
    budget: how many samples.

  Returns:
    Multi-hot int32 [budget, labels]; numbers of labels differ by one at most, where no label is in all samples.
  """
  labels = lacking.shape[0]
  total = jnp.round(budget * jnp.clip(each, 1.0, labels))
  position = jnp.arange(budget * labels)
  label = jnp.searchsorted(jnp.cumsum(deal(lacking, total)), position, side='right')
  # Dealt like cards, one label after the other, so that a sample gets none twice; beyond the total lies no label.
  sets = jnp.zeros((budget, labels), jnp.int32)
  return sets.at[position % budget, label].set(1, mode='drop')


def deal(lacking: Array, budget: int | Array) -> Array:
  """Rounds shares of a budget in proportion to `lacking` [classes], evenly if it is zero, by largest remainders."""
  lacking = lacking.astype(jnp.float32)
  lacking = jnp.where(lacking.sum() > 0, lacking, 1.0)
  exact = budget * lacking / lacking.sum()
  whole = jnp.floor(exact)
  left = budget - whole.sum()
  rank = jnp.argsort(jnp.argsort(-(exact - whole), stable=True), stable=True)
  return whole + (rank < left)


def spread(counts: Array, budget: int) -> Array:
  """Turns counts [classes] that add up to the budget into labels 0, 0, ..., 1, ...: int32 [budget]."""
  return jnp.searchsorted(jnp.cumsum(counts), jnp.arange(budget), side='right').astype(jnp.int32)


def jensen_shannon(log_p: Array, log_q: Array) -> Array:
  """JS divergence of two distributions over the last axis, in nats: between 0 and ln 2."""
  p, q = jnp.exp(log_p), jnp.exp(log_q)
  log_m = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
  return 0.5 * jnp.sum(p * (log_p - log_m) + q * (log_q - log_m), axis=-1)


def clipped_jensen_shannon(log_p: Array, log_q: Array) -> Array:
  """The authors' form: all probabilities clipped to [0.01, 0.99], KL with its arguments exchanged, at most 1."""
  clip = lambda a: jnp.clip(a, 0.01, 0.99)
  p, q = jnp.exp(log_p), jnp.exp(log_q)
  m, p, q = clip((p + q) / 2), clip(p), clip(q)
  divergence = 0.5 * jnp.sum(m * (2 * jnp.log(m) - jnp.log(p) - jnp.log(q)), axis=-1)
  return jnp.clip(divergence, 0.0, 1.0)


DIVERGENCES = {'paper': jensen_shannon, 'code': clipped_jensen_shannon}


def total_variation(x: Array) -> Array:
  """Mean squared difference of neighbouring pixels of each image [batch, height, width, channels]: [batch]."""
  down, right = jnp.diff(x, axis=1), jnp.diff(x, axis=2)
  return (down**2).mean(axis=(1, 2, 3)) + (right**2).mean(axis=(1, 2, 3))


def statistics_gap(model: Model, variables: Variables, x: Array) -> Array:
  """Squared distance of a batch's statistics from the running ones of BatchNorm, []; 0 for models without.

  A training pass moves running statistics a known part of the way to the batch's: the gap is read from that.
  """
  moved = model.apply(variables, x, train=True).stats
  gap = jax.tree.map(
    lambda new, old: jnp.sum(((new - old) / (1 - DECAY)) ** 2), moved, variables.stats
  )
  return sum(jax.tree.leaves(gap), jnp.zeros(()))


def optimise(
  losses: Callable[[PyTree, Array], Array],
  inputs: PyTree,
  y: Array,
  *,
  steps: int,
  lr: float | Array,
  batch_size: int = 0,
) -> PyTree:
  """Moves inputs by Adam (betas 0.5 and 0.9) down the mean of their losses.

  Args:
    losses: (inputs [batch, ...], y [batch]) -> loss of each sample, [batch].
    inputs: leaves [samples, ...].
    y: target labels [samples].
    steps: steps for every sample.
    lr: Adam's rate.
    batch_size: samples that are held and moved at a time, from the first step to the last; 0: all. As a
      sample's gradient is its own, this changes the memory and not the result.

  Returns:
    The moved inputs. Source: FedCOG, Eq. 1 and Appendix A.5.2; betas are the code's.
  """
  if not steps:
    return inputs
  samples = y.shape[0]
  size = min(batch_size or samples, samples)
  optimizer = optax.adam(lr, b1=0.5, b2=0.9)

  def run(batch):
    start, labels = batch

    def step(carry, _):
      x, opt_state = carry
      grads = jax.grad(lambda x: losses(x, labels).sum() / samples)(x)
      updates, opt_state = optimizer.update(grads, opt_state, x)
      return (optax.apply_updates(x, updates), opt_state), None

    return jax.lax.scan(step, (start, optimizer.init(start)), None, length=steps)[0][0]

  if size == samples:
    return run((inputs, y))
  fill = -samples % size
  cut = lambda a: jnp.concatenate([a, a[:fill]]).reshape(-1, size, *a.shape[1:])
  moved = jax.lax.map(run, (jax.tree.map(cut, inputs), cut(y)))
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:samples], moved)


def starting_point(
  key: PRNGKey, samples: int, shape: tuple[int, ...], generator: bool
) -> tuple[PyTree, Callable[[PyTree], Array]]:
  """Draws what generation begins from.

  Args:
    key: for the noise.
    samples: how many.
    shape: of one input.
    generator: whether a convolutional generator makes images of the noise, and is moved too (A.5.1).

  Returns:
    What is moved, and what makes inputs [samples, *shape] of it.
  """
  if not generator:
    return noise(fold(key, 0, 1), samples, shape), lambda x: x
  made = image_generator(shape)
  moved = made.init(fold(key, 0)), noise(fold(key, 0, 1), samples, (made.noise,))
  return moved, lambda moved: made.apply(*moved)


def input_shape(model: Model, params: Params, x: Array) -> tuple[int, ...]:
  """The shape of one real-valued input: that of x [rows, ...], or of what a model embeds x as (FedCOG, A.1.2)."""
  if model.embed is None:
    return x.shape[1:]
  return jax.eval_shape(model.embed, params, x[:1]).shape[1:]


def noise(key: PRNGKey, samples: int, shape: tuple[int, ...]) -> Array:
  """Inputs to begin from: N(0, 1) in normalised space, [samples, *shape]."""
  return jax.random.normal(key, (samples, *shape))
