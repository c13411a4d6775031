"""VHL: clients align their features with those of common noise (Tang et al., 2022)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.sampling import minibatch
from fedjax_syn.core.types import Array, PRNGKey
from fedjax_syn.layer import Layer
from fedjax_syn.models.extra_outputs import extra_logits, with_extra_outputs

ORDER = 7  # the use of a client's key in a round; local training has the first ones
NOISE_CONTRAST = 0.1  # weight, within the alignment, of the contrastive loss on noise alone (code)
SPREAD = 0.5  # standard deviation within a class, the class means having 1 (code, Gaussian noise)
GRID = 8  # pixels of the coarse images, as in the authors' Gaussian noise


class Virtual(NamedTuple):
  """Noise images as small latent vectors; `render` computes the pixels."""

  z: Array  # [images, pixels of a coarse image]
  y: Array  # [images], 0 .. classes - 1


class VHL(Layer):
  """Adds lambda CE(noise) + alignment (SupCon(real, noise) + 0.1 SupCon(noise)) to the local loss.

  The C kinds of noise are classes C .. 2C - 1 of a classifier with 2C outputs. In the first
  `align_epochs` passes of every round, steps 0 .. align_epochs ceil(size / batch) - 1, real
  features are aligned with those of the noise of their class; the latter get no gradient from it.

  The noise follows from a fixed key: it is the same for all clients and rounds, and nobody sends
  it. Models are evaluated by their first C outputs. The loss of real samples is over these C too,
  or with `joint` over all 2C, as in the code: then the extra outputs change the loss even with all
  weights at 0. Without `joint`, lambda_noise = alignment = 0 changes nothing.

  Deviations: the noise is Gaussian (paper: images of an untrained StyleGAN), drawn in normalised
  pixels instead of stored as clipped images, and not augmented; BatchNorm takes its statistics from
  the real samples only.
  """

  lambda_noise: float = field(1.0, 'weight of the cross-entropy on noise (scripts 1.0)', low=0.0)
  alignment: float = field(1.0, 'weight of the alignment of features (code 1.0)', low=0.0)
  temperature: float = field(0.07, 'tau of the contrastive losses (code 0.07)', above=0.0)
  align_epochs: int = field(5, 'passes of a round that are aligned (code 5)', low=0, high=1000)
  noise_batch: int = field(128, 'noise images in a local step (code 128)', low=1, high=10**9)
  images_per_class: int = field(100, 'noise images of a class (code 5000)', low=1, high=10**5)
  joint: bool = field(False, 'cross-entropy of real samples over all 2C outputs (code)')

  def requires(self):
    return frozenset({'one class', 'pixels'})

  def model(self, model, shape):
    return with_extra_outputs(model, shape)

  def common(self, task, key, round, w):
    """Returns the noise; the argument `key` differs by round and is not used."""
    key, shape = stream(0, Purpose.COMMON), task.data.x.shape[1:]
    return noise_set(key, shape, task.num_classes, self.images_per_class)

  def prepare(self, client):  # the key of the noise's order, and the number of aligned steps
    per_pass = -(-client.shard.size // client.task.local.batch_size)
    return fold(client.key, 0, ORDER), self.align_epochs * per_pass

  def loss(self, client, loss_fn, w, step):
    noise, (key, aligned_steps) = client.broadcast, client.prepared
    images, batch = noise.y.shape[0], step.y.shape[0]
    size = min(self.noise_batch, images)
    rows = minibatch(key, images, size, step.index)
    x, y = render(noise, rows, step.x.shape[1:]).astype(step.x.dtype), noise.y[rows]
    # Real samples and noise share a pass; the mask excludes the noise from the loss without this
    # layer.
    both = step._replace(
      x=jnp.concatenate([step.x, x]),
      y=jnp.concatenate([step.y, y]),
      mask=jnp.concatenate([step.mask, jnp.zeros(size, step.mask.dtype)]),
    )
    value, out = loss_fn(w, both)
    logits = jnp.concatenate([out.logits, extra_logits(w, out.features)], axis=1)
    if self.joint:  # from CE over C outputs to CE over 2C
      more = jax.nn.logsumexp(logits, axis=1) - jax.nn.logsumexp(out.logits, axis=1)
      value += jnp.sum(more * both.mask) / jnp.maximum(both.mask.sum(), 1)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    of_noise = cross_entropy(logits[batch:], y + client.task.num_classes).mean()
    real, virtual = out.features[:batch], out.features[batch:]
    contrast = self._contrast(real, virtual, both.y, step.mask)
    alignment = jnp.where(step.index < aligned_steps, self.alignment, 0.0)
    out = out._replace(logits=out.logits[:batch], features=real)
    return value + self.lambda_noise * of_noise + alignment * contrast, out

  def client_metrics(self, client, trained):
    task, noise = client.task, client.broadcast
    images = noise.y.shape[0]
    rows = jnp.linspace(0, images - 1, min(self.noise_batch, images)).astype(jnp.int32)  # all kinds
    x = render(noise, rows, task.data.x.shape[1:]).astype(task.data.mean.dtype)
    out = task.model.apply(trained, x, train=False)
    logits = jnp.concatenate([out.logits, extra_logits(trained.params, out.features)], axis=1)
    y = noise.y[rows] + task.num_classes
    return {'noise_loss': optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()}

  def _contrast(self, real: Array, virtual: Array, y: Array, mask: Array) -> Array:
    """Returns SupCon(real, noise) + 0.1 SupCon(noise), [].

    Args:
      real: features of the real samples, [batch, features].
      virtual: features of the noise, [size, features].
      y: labels of both, [batch + size].
      mask: [batch], 1 for a real sample and 0 for padding.
    """
    batch, ones = real.shape[0], jnp.ones(virtual.shape[0], mask.dtype)
    features = jnp.concatenate([real, jax.lax.stop_gradient(virtual)])
    pairs = contrastive_loss(features, y, jnp.concatenate([mask, ones]), self.temperature)
    alone = contrastive_loss(virtual, y[batch:], ones, self.temperature)
    return pairs + NOISE_CONTRAST * alone


def noise_set(key: PRNGKey, shape: tuple[int, int, int], classes: int, per_class: int) -> Virtual:
  """Draws the set: z = m_y + 0.5 e, with a mean m_c ~ N(0, 1) for every class and e ~ N(0, 1).

  Args:
    key: of the set; the same key gives the same set.
    shape: (height, width, channels) of an image.
    classes: C.
    per_class: images of a class.

  Returns:
    The set, C * per_class images in the order of their labels.
  """
  height, width, channels = shape
  size = min(GRID, height) * min(GRID, width) * channels
  y = jnp.repeat(jnp.arange(classes, dtype=jnp.int32), per_class)
  means = jax.random.normal(fold(key, 0), (classes, size))
  z = means[y] + SPREAD * jax.random.normal(fold(key, 0, 1), (y.shape[0], size))
  return Virtual(z, y)


def render(virtual: Virtual, rows: Array, shape: tuple[int, int, int]) -> Array:
  """Returns images of rows [batch], normalised, [batch, height, width, channels]."""
  height, width, channels = shape
  z = virtual.z[rows].reshape(-1, min(GRID, height), min(GRID, width), channels)
  return jax.image.resize(z, (z.shape[0], *shape), 'bilinear')


def contrastive_loss(features: Array, y: Array, mask: Array, temperature: Array | float) -> Array:
  """Returns the supervised contrastive loss: features of a class attract each other, others repel.

  Args:
    features: [batch, features]; only their directions count.
    y: labels, [batch].
    mask: [batch], 1 for a sample and 0 for padding.
    temperature: tau.

  Returns:
    The mean over all samples i of -1/|P(i)| sum_{p in P(i)} log(exp(s_ip / tau) / sum_{j != i}
    exp(s_ij / tau)), [], s the cosines and P(i) the other samples of i's class; a sample without
    one adds 0. Source: Khosla et al. (2020), Eq. 2, with the scale of VHL's code: tau over tau is
    1.
  """
  square = jnp.sum(features**2, axis=-1, keepdims=True)
  # A feature vector of zeros (dead ReLUs) has no direction, and must have no gradient either.
  z = features * jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)
  others = (mask > 0)[None] & ~jnp.eye(y.shape[0], dtype=bool)
  scores = jnp.where(others, z @ z.T / temperature, -1e30)
  log_p = jnp.where(others, jax.nn.log_softmax(scores, axis=1), 0)
  positive = others & (y[:, None] == y[None])
  losses = -jnp.sum(log_p * positive, axis=1) / jnp.maximum(positive.sum(axis=1), 1)
  return jnp.sum(losses * mask) / jnp.maximum(mask.sum(), 1)
