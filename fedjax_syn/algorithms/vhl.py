"""VHL: clients calibrate their features on a common data set of noise (Tang et al., 2022)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.method import ClientTransform, Method, ServerTransform
from fedjax_syn.models.extra_outputs import extra_logits, with_extra_outputs
from fedjax_syn.synthesis.synthetic import minibatch
from fedjax_syn.synthesis.virtual import contrastive_loss, noise_set, render

ORDER = 7  # the use of a visit's key; local training has the first ones


@dataclasses.dataclass(frozen=True)
class Config:
  lambda_noise: float = field(
    1.0, 'weight of the cross-entropy on noise (scripts 1.0, FedCOG 1.0)', low=0.0
  )
  alignment: float = field(1.0, 'weight of the alignment of features (code 1.0)', low=0.0)
  noise_contrast: float = field(
    0.1, 'weight, within the alignment, of the contrastive loss on noise alone (code 0.1)', low=0.0
  )
  temperature: float = field(0.07, 'tau of the contrastive losses (code 0.07)', above=0.0)
  align_epochs: int = field(
    5,
    'passes of a visit that are aligned: steps 0 .. 5 ceil(size / batch) - 1 (code 5)',
    low=0,
    high=1000,
  )
  noise_batch: int = field(
    128, 'noise images in a local step, at most the whole set (code 128)', low=1, high=10**9
  )
  images_per_class: int = field(100, 'noise images of a class (code 5000)', low=1, high=10**5)
  source: str = field(
    'gaussian',
    "noise: 'gaussian', or from an untrained 'generator' (paper: StyleGAN)",
    choices=('gaussian', 'generator'),
  )
  spread: float = field(
    0.5,
    'standard deviation within a class, the class means having 1 (code 0.5 for Gaussian noise)',
    low=0.0,
  )
  joint: bool = field(
    False,
    'cross-entropy of real samples over all 2C outputs, as in the code, instead of the first C',
  )
  seed: int = field(0, 'seed of the noise, the same for all seeds of a run', low=0, high=2**31 - 1)


def vhl(base: Method | None = None, **fields) -> Method:
  """Adds lambda CE(noise) + alignment (SupCon(real, noise) + 0.1 SupCon(noise)) to the local loss.

  The C kinds of noise are classes C .. 2C - 1 of a classifier with 2C outputs. Real features are aligned
  with those of the noise of their class, which get no gradient from it, in the first `align_epochs`
  passes of every visit; with a fixed number of local steps, passes are counted by the client's own size.

  Args:
    base: a method that trains locally; FedAvg by default.
    **fields: see `Config`; lambda_noise = alignment = 0 is the base itself, unless `joint`.

  Returns:
    The method. The noise is a function of `seed` alone, so that nobody sends it: the same for all
    clients and rounds. Models are evaluated by their first C outputs, and so are real samples trained
    (`joint`: by all, as in the code): otherwise the extra outputs would change the loss even with all
    weights at 0. Deviations: noise is drawn in normalised pixels, not stored as clipped images; the
    generator is a small random network; noise is not augmented; BatchNorm takes its statistics from
    the real samples only.

  Raises:
    TypeError: if a field does not exist.
  """
  c = Config(**fields)
  base = base or fedavg()

  def client(task):
    images = task.num_classes * c.images_per_class
    size, h = min(c.noise_batch, images), task.hyper['vhl']

    def prepare(visit):
      per_pass = -(-visit.shard.size // base.client.batch_size)
      return fold(visit.key, 0, ORDER), visit.broadcast['vhl'], c.align_epochs * per_pass

    def loss(ctx, loss_fn):
      key, virtual, aligned_steps = ctx

      def homogenised(params, step):
        rows = minibatch(key, images, size, step.index)
        x = render(virtual, rows, step.x.shape[1:]).astype(step.x.dtype)
        y, batch = virtual.y[rows], step.y.shape[0]
        # Real samples and noise share a pass; the mask keeps the latter out of the base's loss.
        both = step._replace(
          x=jnp.concatenate([step.x, x]),
          y=jnp.concatenate([step.y, y]),
          mask=jnp.concatenate([step.mask, jnp.zeros(size, step.mask.dtype)]),
        )
        value, out = loss_fn(params, both)
        logits = jnp.concatenate([out.logits, extra_logits(params, out.features)], axis=1)
        if c.joint:  # from CE over C outputs to CE over 2C
          more = jax.nn.logsumexp(logits, axis=1) - jax.nn.logsumexp(out.logits, axis=1)
          value += jnp.sum(more * both.mask) / jnp.maximum(both.mask.sum(), 1)
        noise = optax.softmax_cross_entropy_with_integer_labels(
          logits[batch:], y + task.num_classes
        ).mean()
        real, virtual_features = out.features[:batch], out.features[batch:]
        ones = jnp.ones(size, step.mask.dtype)
        pull = contrastive_loss(
          jnp.concatenate([real, jax.lax.stop_gradient(virtual_features)]),
          both.y,
          jnp.concatenate([step.mask, ones]),
          h['temperature'],
        )
        pull += h['noise_contrast'] * contrastive_loss(virtual_features, y, ones, h['temperature'])
        alignment = jnp.where(step.index < aligned_steps, h['alignment'], 0.0)
        out = out._replace(logits=out.logits[:batch], features=real)
        return value + h['lambda_noise'] * noise + alignment * pull, out

      return homogenised

    def metrics(ctx, visit, trained):
      _, virtual, _ = ctx
      rows = jnp.linspace(0, images - 1, size).astype(jnp.int32)  # all kinds of noise
      x = render(virtual, rows, task.data.x.shape[1:]).astype(task.data.mean.dtype)
      out = task.model.apply(trained, x, train=False)
      logits = jnp.concatenate([out.logits, extra_logits(trained.params, out.features)], axis=1)
      y = virtual.y[rows] + task.num_classes
      loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
      return {'noise_loss': loss}

    return ClientTransform('vhl', prepare=prepare, loss=loss, metrics=metrics)

  def server(task):
    def shared(key, round, w):  # by a seed of its own: the key is another one in every round
      return noise_set(
        stream(c.seed, Purpose.SHARED),
        c.source,
        task.data.x.shape[1:],
        task.num_classes,
        c.images_per_class,
        task.hyper['vhl']['spread'],
      )

    return ServerTransform('vhl', shared=shared)

  rates = ('lambda_noise', 'alignment', 'noise_contrast', 'temperature', 'spread')
  return base.extend(
    'vhl',
    client=client,
    server=server,
    adapt=with_extra_outputs,
    needs=('one_class', 'pixels'),
    hyper={name: getattr(c, name) for name in rates},
  )
