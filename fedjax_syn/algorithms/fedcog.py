"""FedCOG: clients generate data that complement theirs and distil the global model on them (Ye et al., ICLR 2024)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.losses import negative_log_likelihood, per_sample
from fedjax_syn.method import ClientTransform, Method, ServerTransform
from fedjax_syn.models.generator import image_generator
from fedjax_syn.synthesis import complementary as comp
from fedjax_syn.synthesis.synthetic import minibatch
from fedjax_syn.typing import Array, Output, PRNGKey, Variables

SOURCES = ('noise', 'global', 'global+local')


@dataclasses.dataclass(frozen=True)
class Config:
  start: int = field(
    50, 'T0: generation from round T0 + 1 on (paper and code 50)', low=0, high=2**31 - 1
  )
  samples: int = field(
    256, 'generated samples of a client in a round (paper and code 256)', low=1, high=10**6
  )
  steps: int = field(100, 'generation steps (paper 100, code 500)', low=0, high=10**7)
  lr: float = field(0.01, "generation's rate, Adam with betas 0.5 and 0.9 (code)", above=0.0)
  source: str = field(
    'global+local',
    "Table 5: 'noise', 'global' (no disagreement) or 'global+local'",
    choices=SOURCES,
  )
  lambda_dis: float = field(0.1, 'weight of the disagreement (paper and code 0.1)', low=0.0)
  divergence: str = field(
    'paper',
    "Jensen-Shannon as in Eq. 2, or clipped as in the 'code'",
    choices=tuple(comp.DIVERGENCES),
  )
  labels: str = field(
    'complementary',
    "target labels: 'complementary' (A.1.1, code) or 'uniform'",
    choices=('complementary', 'uniform'),
  )
  weights: str = field(
    'free',
    "'free': by what is lacking (A.3.2, code), or 'fixed': 1 and lambda_kd",
    choices=('free', 'fixed'),
  )
  lambda_kd: float = field(
    0.01, "weight of the distillation for weights='fixed' (paper 0.01)", low=0.0
  )
  supervision: str = field(
    'soft',
    "'soft': the global model's predictions, or 'hard': the target labels",
    choices=('soft', 'hard'),
  )
  kd_batch: int = field(64, 'generated samples in a local step (code 64)', low=1, high=10**9)
  batch: int = field(
    0,
    'samples generated at a time: memory and time, not result; 0: what is fast here (32 on a CPU, else all)',
    low=0,
    high=10**9,
  )
  shared: bool = field(
    False, "one set for all clients, from the global model alone (A.2); needs source 'global'"
  )
  generator: bool = field(False, 'a convolutional generator between noise and images (A.5.1)')
  total_variation: float = field(0.0, 'weight of the total variation (code: none)', low=0.0)
  statistics: float = field(0.0, 'weight of the BatchNorm statistics (code: 0)', low=0.0)


def check(block: Config, rounds: int) -> None:
  """Refuses settings that cannot work together, with one line.

  Args:
    block: the fields.
    rounds: rounds of the run.

  Raises:
    ValueError: naming the key, the value and what would work.
  """
  if block.start >= rounds:
    raise ValueError(
      f'fedcog.start={block.start} must be smaller than rounds={rounds}: nothing would be generated'
    )
  if block.shared and block.source == 'global+local':
    raise ValueError(
      "fedcog.shared=True needs fedcog.source='global' or 'noise': local models differ by client"
    )
  if block.batch and (block.generator or block.statistics):
    raise ValueError(
      f'fedcog.batch={block.batch}: with a generator or BatchNorm statistics samples depend on each other; use 0'
    )


class Generated(NamedTuple):
  """A client's complementary data of one round."""

  x: Array  # [samples, height, width, channels], or embedded tokens [samples, length, width]
  y: Array  # target labels, [samples] or multi-hot [samples, labels]
  log_p: Array  # the global model's predictions, `Objective.log_distribution` of its logits


class Previous(NamedTuple):
  """Per-client state: the local model at the end of the client's last visit."""

  model: Variables
  visited: Array  # [], bool


def fedcog(base: Method | None = None, **fields) -> Method:
  """Puts generation and distillation around local training, from round T0 + 1 on (Algorithm 1).

  Generation (Eq. 1) moves inputs down CE(global) + lambda_dis (1 - JS(global, previous local model)); local training
  (Eq. 3) adds the KL divergence from the global model's predictions on them. What a client sends stays what it was.

  Args:
    base: a method that trains locally; FedAvg by default.
    **fields: see `Config`.

  Returns:
    The method. A client's previous local model is that of its last visit, before T0 too; one that has not
    trained yet has none to disagree with, so that its data come from the global model alone (in the
    authors' code: from an untrained network of its own). The predictions are those on the images that are
    kept (code: of the iteration with the lowest loss). weights='free' scales all of the base's loss.

    With several labels per sample, losses, divergences and distillation are means over the labels, each a
    distribution over absent and present; target labels are those of `complementary.label_sets`.

    Of tokens the data are generated where they are real-valued, behind the global model's embedding (A.1.2); so
    the base's loss sees real samples embedded too, by the model that is trained.

  Raises:
    TypeError: if a field does not exist.
    ValueError: if the fields do not go together.
  """
  c = Config(**fields)
  check(c, c.start + 1)
  base = base or fedavg()

  def generate(task, key: PRNGKey, w: Variables, previous: Previous | None, y: Array) -> Generated:
    shape = comp.input_shape(task.model, w.params, task.data.x)
    h = task.hyper['fedcog']

    def log_p(model, x):
      return task.objective.log_distribution(task.model.apply(model, x, train=False).logits)

    def losses(x, y):
      own = log_p(w, x)
      loss = negative_log_likelihood(own, y)
      if previous is not None:
        # A pass of its own: both models under one vmap need as many operations, and on a CPU took 1.15 times as long
        # on Fashion-MNIST's images and 0.85 times on CIFAR's.
        js = per_sample(comp.DIVERGENCES[c.divergence](own, log_p(previous.model, x)))
        loss += jnp.where(previous.visited, h['lambda_dis'], 0.0) * (1 - js)
      if c.total_variation:
        loss += h['total_variation'] * comp.total_variation(x)
      if c.statistics:
        loss += h['statistics'] * comp.statistics_gap(task.model, w, x)
      return loss

    steps = 0 if c.source == 'noise' else c.steps
    if c.generator:
      made = image_generator(shape)
      start = made.init(fold(key, 0)), comp.noise(fold(key, 0, 1), c.samples, (made.noise,))
      through = lambda inputs, y: losses(made.apply(*inputs), y)
      x = made.apply(*comp.optimise(through, start, y, steps=steps, lr=h['lr']))
    else:
      x = comp.noise(fold(key, 0, 1), c.samples, shape)
      # BatchNorm statistics are those of all samples together.
      some = c.batch or (0 if c.statistics else comp.AT_A_TIME.get(jax.default_backend(), 0))
      x = comp.optimise(losses, x, y, steps=steps, lr=h['lr'], batch_size=some)
    return Generated(x, y, log_p(w, x))

  def uniform_targets(task, each):
    if task.data.y.ndim > 1:
      return comp.label_sets(jnp.zeros(task.num_classes), each, c.samples)
    return comp.uniform_labels(task.num_classes, c.samples)

  def complementary_targets(task, counts, each):
    if task.data.y.ndim > 1:
      return comp.label_sets(comp.complement(counts), each, c.samples)
    return comp.complementary_labels(counts, c.samples)

  def client(task):
    generating = task.first_round > c.start

    def prepare(visit):
      counts = visit.shard.class_counts
      if c.shared:
        generated = visit.broadcast['fedcog']
      else:
        each = counts.sum() / jnp.maximum(visit.shard.size, 1)  # labels per sample
        y = uniform_targets(task, each)
        if c.labels == 'complementary':
          y = complementary_targets(task, counts, each)
        previous = visit.state['fedcog'] if c.source == 'global+local' else None
        w = Variables(visit.params, visit.stats)
        generated = generate(task, fold(visit.key, 0), w, previous, y)
      lacking, held = comp.complement(counts).sum(), jnp.maximum(counts.sum(), 1)
      share = lacking / (lacking + held)  # A.3.2
      weights = (
        (1 - share, share) if c.weights == 'free' else (1.0, task.hyper['fedcog']['lambda_kd'])
      )
      return fold(visit.key, 0, 1), generated, weights

    def loss(ctx, loss_fn):
      key, generated, (real_weight, kd_weight) = ctx
      size = min(c.kd_batch, c.samples)
      inside = task.model.embed or (lambda params, x: x)

      def distilled(params, step):
        rows = minibatch(key, c.samples, size, step.index)
        batch = step.y.shape[0]
        # Real and generated samples share a pass; the mask keeps the latter out of the base's loss.
        joint = step._replace(
          x=jnp.concatenate([inside(params, step.x), generated.x[rows]]),
          y=jnp.concatenate([step.y, generated.y[rows]]),
          mask=jnp.concatenate([step.mask, jnp.zeros(size, step.mask.dtype)]),
        )
        value, out = loss_fn(params, joint)
        log_q = task.objective.log_distribution(out.logits[batch:])
        if c.supervision == 'soft':
          kd = optax.losses.kl_divergence_with_log_targets(log_q, generated.log_p[rows])
        else:
          kd = negative_log_likelihood(log_q, generated.y[rows])
        weight = real_weight if out.weight is None else real_weight * out.weight
        out = Output(out.logits[:batch], out.features[:batch], out.stats, weight)
        return real_weight * value + kd_weight * kd.mean(), out

      return distilled

    def metrics(ctx, visit, trained):
      _, generated, (_, kd_weight) = ctx
      agreed = jnp.argmax(generated.log_p, axis=-1) == generated.y
      return {'recognised': agreed.mean(), 'kd_weight': kd_weight}

    return ClientTransform(
      'fedcog',
      metrics=metrics if generating else None,
      init=lambda initial, shard: Previous(initial, jnp.zeros((), bool)),
      prepare=prepare if generating else None,
      loss=loss if generating else None,
      finish=lambda ctx, visit, trained, steps: (None, Previous(trained, jnp.ones((), bool))),
    )

  def server(task):
    def shared(key, round, w):
      return generate(task, key, w, None, uniform_targets(task, 1.0))

    return ServerTransform('fedcog', shared=shared if task.first_round > c.start else None)

  scaled = base.pull and c.weights == 'free'
  conflicts = {
    'fednova': "'fednova' knows the pull of 'fedprox' by its mu, and fedcog.weights='free' scales it by client: use"
    " fedcog.weights='fixed', or put fedprox around fedcog"
  }
  rates = ('lr', 'lambda_dis', 'lambda_kd', 'total_variation', 'statistics')
  return base.extend(
    'fedcog',
    client=client,
    server=server if c.shared else None,
    phases=(c.start,) if c.start else (),
    needs=('pixels',) if c.generator or c.total_variation else (),
    conflicts=conflicts if scaled else {},
    hyper={name: getattr(c, name) for name in rates},
  )
