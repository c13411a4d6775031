"""VHL: clients calibrate their features on a common data set of noise (Tang et al., 2022)."""

import functools

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import minibatch
from fedjax_syn.algorithms.vhl.virtual_data import contrastive_loss, noise_set, render
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.types import Array
from fedjax_syn.layer import Layer
from fedjax_syn.models.extra_outputs import extra_logits, with_extra_outputs

ORDER = 7  # the use of a client's key in a round; local training has the first ones


class VHL(Layer):
  """Adds lambda CE(noise) + alignment (SupCon(real, noise) + 0.1 SupCon(noise)) to the local loss.

  The C kinds of noise are classes C .. 2C - 1 of a classifier with 2C outputs. Real features are aligned with those of
  the noise of their class, which get no gradient from it, in the first `align_epochs` passes of every round; with a
  fixed number of local steps, passes are counted by the client's own size.

  The noise is a function of `seed` alone, so that nobody sends it: the same for all clients and rounds. Models are
  evaluated by their first C outputs, and so are real samples trained (`joint`: by all, as in the code): otherwise the
  extra outputs would change the loss even with all weights at 0. Without `joint`, lambda_noise = alignment = 0 changes
  nothing.

  Deviations: noise is drawn in normalised pixels, not stored as clipped images; the generator is a small random
  network; noise is not augmented; BatchNorm takes its statistics from the real samples only.
  """

  lambda_noise: float = field(
    default=1.0, help='weight of the cross-entropy on noise (scripts 1.0, FedCOG 1.0)', low=0.0
  )
  alignment: float = field(
    default=1.0, help='weight of the alignment of features (code 1.0)', low=0.0
  )
  noise_contrast: float = field(
    default=0.1,
    help='weight, within the alignment, of the contrastive loss on noise alone (code 0.1)',
    low=0.0,
  )
  temperature: float = field(
    default=0.07, help='tau of the contrastive losses (code 0.07)', above=0.0
  )
  align_epochs: int = field(
    default=5,
    help='passes of a round that are aligned: steps 0 .. 5 ceil(size / batch) - 1 (code 5)',
    low=0,
    high=1000,
  )
  noise_batch: int = field(
    default=128,
    help='noise images in a local step, at most the whole set (code 128)',
    low=1,
    high=10**9,
  )
  images_per_class: int = field(
    default=100, help='noise images of a class (code 5000)', low=1, high=10**5
  )
  source: str = field(
    default='gaussian',
    help="noise: 'gaussian', or from an untrained 'generator' (paper: StyleGAN)",
    choices=('gaussian', 'generator'),
  )
  spread: float = field(
    default=0.5,
    help='standard deviation within a class, the class means having 1 (code 0.5 for Gaussian noise)',
    low=0.0,
  )
  joint: bool = field(
    default=False,
    help='cross-entropy of real samples over all 2C outputs, as in the code, instead of the first C',
  )
  seed: int = field(
    default=0, help='seed of the noise, the same for all seeds of a run', low=0, high=2**31 - 1
  )

  def requires(self):
    return frozenset({'one class', 'pixels'})

  def model(self, model, shape):
    return _with_extra_outputs(model, shape)

  def common(self, task, key, round, w):
    """Returns the noise, by a seed of its own: the key is another one in every round."""
    key, shape = stream(self.seed, Purpose.SHARED), task.data.x.shape[1:]
    return noise_set(key, self.source, shape, task.num_classes, self.images_per_class, self.spread)

  def prepare(self, client):  # the key of the noise's order, and how many steps are aligned
    per_pass = -(-client.shard.size // client.task.local.batch_size)
    return fold(client.key, 0, ORDER), self.align_epochs * per_pass

  def loss(self, client, loss_fn, w, step):
    noise, (key, aligned_steps) = client.broadcast, client.prepared
    images, batch = noise.y.shape[0], step.y.shape[0]
    size = min(self.noise_batch, images)
    rows = minibatch(key, images, size, step.index)
    x, y = render(noise, rows, step.x.shape[1:]).astype(step.x.dtype), noise.y[rows]
    # Real samples and noise share a pass; the mask keeps the latter out of the loss without this layer.
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
    pull = self._alignment(real, virtual, both.y, step.mask)
    alignment = jnp.where(step.index < aligned_steps, self.alignment, 0.0)
    out = out._replace(logits=out.logits[:batch], features=real)
    return value + self.lambda_noise * of_noise + alignment * pull, out

  def client_metrics(self, client, trained):
    task, noise = client.task, client.broadcast
    images = noise.y.shape[0]
    # All kinds of noise.
    rows = jnp.linspace(0, images - 1, min(self.noise_batch, images)).astype(jnp.int32)
    x = render(noise, rows, task.data.x.shape[1:]).astype(task.data.mean.dtype)
    out = task.model.apply(trained, x, train=False)
    logits = jnp.concatenate([out.logits, extra_logits(trained.params, out.features)], axis=1)
    y = noise.y[rows] + task.num_classes
    return {'noise_loss': optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()}

  def _alignment(self, real: Array, virtual: Array, y: Array, mask: Array) -> Array:
    """Returns SupCon(real, noise) + noise_contrast SupCon(noise), [].

    Args:
      real: features of the real samples, [batch, features].
      virtual: features of the noise, [size, features].
      y: labels of both, [batch + size].
      mask: [batch], 1 for a real sample and 0 for padding.
    """
    batch, ones = real.shape[0], jnp.ones(virtual.shape[0], mask.dtype)
    features = jnp.concatenate([real, jax.lax.stop_gradient(virtual)])
    pull = contrastive_loss(features, y, jnp.concatenate([mask, ones]), self.temperature)
    alone = contrastive_loss(virtual, y[batch:], ones, self.temperature)
    return pull + self.noise_contrast * alone


_with_extra_outputs = functools.cache(with_extra_outputs)
