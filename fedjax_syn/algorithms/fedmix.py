"""FedMix: mixup with averages that the clients exchange beforehand (Yoon et al., 2021, Eq. 4)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method, ServerTransform


@dataclasses.dataclass(frozen=True)
class Config:
  mixing: float = field(0.05, 'lambda, the weight of the averaged sample', low=0.0, high=1.0)


def fedmix(base: Method | None = None, *, mixing: float = 0.05) -> Method:
  """Approximates mixup with the other clients' data by one averaged image and label from each.

  With l = `mixing` and an average (x_g, y_g) drawn per batch, a sample's loss is
  (1 - l) CE(f((1 - l) x), y) + l CE(f((1 - l) x), y_g) + l (1 - l) <dCE(f(u), y)/du at u = (1 - l) x, x_g>.
  The last term is taken per sample and averaged; a batch-mean gradient would divide it by the batch twice.
  Only the loss of the samples is mixed: what the base's layers add to it (FedProx, MOON, ...) keeps its weight.

  Args:
    base: a method that trains locally; FedAvg by default.
    mixing: lambda; 0 is the base itself.

  Returns:
    The method. Deviation: each client sends one average over all of its samples (as Flower's baseline
    does), not one per batch. In a chain it comes last: layers around it would see its scaled samples.
  """
  base = base or fedavg()

  def client(task):
    def enrol(
      key, shard
    ):  # the mashed sample: mean image [H, W, C] and mean label [classes], and whether there is one
      def part(i, total):
        x, _, mask = federated.batch(task.data, shard, i, 128)
        return total + jnp.tensordot(mask, x, axes=1)

      zero = jnp.zeros(task.data.x.shape[1:], task.data.mean.dtype)
      total = jax.lax.fori_loop(0, -(-shard.size // 128), part, zero)
      size = jnp.maximum(shard.size, 1)
      return total / size, shard.class_counts / size, (shard.size > 0).astype(total.dtype)

    adds = any(build(task).loss is not None for build in base.client_transforms)

    def prepare(visit):
      return visit.broadcast['fedmix']

    def loss(ctx, loss_fn):
      images, labels, present = ctx  # [clients, H, W, C], [clients, classes], [clients]
      l = task.hyper['fedmix']['mixing']

      def mixed(params, step):
        g = jax.random.categorical(step.key, jnp.log(present))
        scaled = step._replace(x=(1 - l) * step.x)

        def per_sample(x):
          value, out = loss_fn(params, scaled._replace(x=x))
          own = optax.softmax_cross_entropy_with_integer_labels(out.logits, step.y)
          return own, (value, out)

        direction = jnp.broadcast_to(images[g], step.x.shape)
        own, along, (value, out) = jax.jvp(per_sample, (scaled.x,), (direction,), has_aux=True)
        other = optax.softmax_cross_entropy(
          out.logits, jnp.broadcast_to(labels[g], out.logits.shape)
        )
        mean = lambda v: jnp.sum(v * step.mask) / jnp.maximum(step.mask.sum(), 1)
        if not adds:
          return (1 - l) * value + l * mean(other) + l * (1 - l) * mean(along), out
        # The value is weight * mean(own), and what layers have added to that.
        change = l * mean(other) + l * (1 - l) * mean(along) - l * mean(own)
        return value + (change if out.weight is None else out.weight * change), out

      return mixed

    return ClientTransform(name='fedmix', enrol=enrol, prepare=prepare, loss=loss)

  def server(task):
    return ServerTransform(
      name='fedmix',
      init=lambda key, params, enrolled: enrolled,
      broadcast=lambda means: means,
      metrics=lambda means: {'averages': means[2].sum()},
    )

  return base.extend(
    'fedmix', client=client, server=server, needs=('one_class', 'pixels'), hyper={'mixing': mixing}
  )
