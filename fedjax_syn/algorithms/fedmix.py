"""FedMix: mixup with averages that clients exchange before round 1 (Yoon et al., 2021, Eq. 4)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer
from fedjax_syn.models.blocks import layers_one_by_one

ROWS = 128  # samples of a client that are summed at once


class FedMix(Layer):
  """Approximates mixup with the other clients' data by one averaged image and label from each.

  With l = `mixing` and an average (x_g, y_g) drawn for each batch, the loss of a sample is (1 - l)
  CE(f((1 - l) x), y) + l CE(f((1 - l) x), y_g) + l (1 - l) <dCE(f(u), y)/du at u = (1 - l) x, x_g>.
  The last term is computed for each sample and averaged; the gradient of a batch mean would divide
  it by the batch size twice. Terms that the layers before this one add (FedProx, MOON, ...) are not
  mixed and keep their weight. FedMix comes last in a chain, since layers after it would see scaled
  samples. l = 0 changes nothing.

  Deviation: each client sends one average over all of its samples (as Flower's baseline does), not
  one per batch.
  """

  mixing: float = field(0.05, 'lambda, the weight of the averaged sample', low=0.0, high=1.0)

  def requires(self):
    return frozenset({'one class', 'real values'})

  def setup(self, task, key, shard):
    """Returns mean row [*shape], mean label [classes], and whether it has samples, []."""
    image_sum = lambda x, y, mask: jnp.tensordot(mask, x, axes=1)
    total = federated.sum_batches(task.data, shard, ROWS, image_sum)
    size = jnp.maximum(shard.size, 1)
    return total / size, shard.class_counts / size, (shard.size > 0).astype(total.dtype)

  def loss(self, client, loss_fn, w, step):
    images, labels, present = client.broadcast  # [clients, *shape], [clients, classes], [clients]
    l, g = self.mixing, jax.random.categorical(step.key, jnp.log(present))
    scaled = step._replace(x=(1 - l) * step.x)

    def per_sample(u):  # CE(f(u), y), [batch]
      value, out = loss_fn(w, scaled._replace(x=u))
      own = optax.softmax_cross_entropy_with_integer_labels(out.logits, step.y)
      return own, (value, out)

    x_g = jnp.broadcast_to(images[g], step.x.shape)
    with layers_one_by_one():
      own, along, (value, out) = jax.jvp(per_sample, (scaled.x,), (x_g,), has_aux=True)
    y_g = jnp.broadcast_to(labels[g], out.logits.shape)
    other = optax.softmax_cross_entropy(out.logits, y_g)
    mean = lambda v: jnp.sum(v * step.mask) / jnp.maximum(step.mask.sum(), 1)
    if client.task.chain.having('loss', client.task)[0] is self:  # Eq. 4
      return (1 - l) * value + l * mean(other) + l * (1 - l) * mean(along), out
    # The value is weight * mean(own), and what the layers before this one have added to that.
    change = l * mean(other) + l * (1 - l) * mean(along) - l * mean(own)
    return value + (change if out.weight is None else out.weight * change), out

  def server_init(self, task, key, params, messages):
    return messages

  def broadcast(self, averages):
    return averages

  def server_metrics(self, averages):
    images, labels, present = averages
    return {'averages': present.sum()}
