"""FedCOG: clients distil the global model on generated complementary data (Ye et al., 2024)."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedcog import generation
from fedjax_syn.core import clients
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.objectives import negative_log_likelihood, per_sample
from fedjax_syn.core.sampling import minibatch
from fedjax_syn.core.types import Array, Output, PRNGKey, Variables
from fedjax_syn.layer import Layer, when

SOURCES = ('noise', 'global', 'global+local')

# Rounds after T0: `phases` ends a phase after round T0, and `first_round` is that of the phase.
generating = when(lambda self, task: task.first_round > self.start)


class Generated(NamedTuple):
  """D^_k, the complementary data of client k in one round."""

  x: Array  # [samples, height, width, channels], or embedded tokens [samples, length, width]
  y: Array  # target labels, [samples] or multi-hot [samples, labels]
  log_p: Array  # log p(theta^t; x) of the global model, `Objective.log_distribution` of its logits


class Previous(NamedTuple):
  """Per-client state: theta_k^{t-1,tau}, the local model after the client's last local training."""

  model: Variables
  visited: Array  # [], bool: whether the client has trained


class Prepared(NamedTuple):
  """What a client computes before its local steps."""

  key: PRNGKey  # of the order in which generated samples are used
  generated: Generated
  real_weight: Array | float  # of L_c: 1 in Eq. 3, N_real / (N_real + N_gen) in A.3.2
  kd_weight: Array | float  # of L_kd: lambda_kd in Eq. 3, N_gen / (N_real + N_gen) in A.3.2


class FedCOG(Layer):
  """Generates data before local training and distils the global model on them.

  It does so from round T0 + 1 on. Line numbers are those of the paper's Algorithm 1, which counts
  rounds from 0; here they count from 1. The paper's theta is w: the global model theta^t in
  generation, the local model theta_k^{t,r} in the loss. FedAvg does lines 3, 6, 9 and 10; messages
  are the same as without this layer.

  Every client keeps its last local model, in the rounds before T0 too. A client that has not
  trained yet has no local model for Eq. 2: its data come from the global model alone (the authors'
  code takes an untrained network instead). The distilled predictions are those on the final images
  (code: those of the iteration with the lowest loss). weights='free' scales the whole loss of the
  layers before this one, not L_c alone.

  With several labels per sample, each label is a distribution over absent and present. Losses,
  divergences and distillation are then means over the labels, and `generation.label_sets` chooses
  the target labels. For tokens, the generated data are embeddings (A.1.2). The model in training
  embeds the real tokens, and the layers before this one compute their loss from these embeddings.
  """

  start: int = field(
    50, 'T0: generation from round T0 + 1 on (paper and code 50)', low=0, high=2**31 - 1
  )
  samples: int = field(256, 'generated samples of a client (paper and code 256)', low=1, high=10**6)
  steps: int = field(100, 'generation steps (paper 100, code 500)', low=0, high=10**7)
  lr: float = field(0.01, 'generation rate, Adam with betas 0.5 and 0.9 (code)', above=0.0)
  source: str = field(
    'global+local',
    "Table 5: 'noise', 'global' (no disagreement) or 'global+local'",
    choices=SOURCES,
  )
  lambda_dis: float = field(0.1, 'weight of the disagreement (paper and code 0.1)', low=0.0)
  divergence: str = field(
    'paper',
    "Jensen-Shannon as in Eq. 2, or clipped as in the 'code'",
    choices=tuple(generation.DIVERGENCES),
  )
  labels: str = field(
    'complementary',
    "target labels: A.1.1 (code) or 'uniform'",
    choices=('complementary', 'uniform'),
  )
  weights: str = field(
    'free',
    "of L_c and L_kd: A.3.2 (code), or 'fixed': 1 and lambda_kd (Eq. 3)",
    choices=('free', 'fixed'),
  )
  lambda_kd: float = field(0.01, "weight of L_kd for weights='fixed' (paper 0.01)", low=0.0)
  supervision: str = field(
    'soft', "the global model's predictions, or 'hard': the target labels", choices=('soft', 'hard')
  )
  kd_batch: int = field(64, 'generated samples in a local step (code 64)', low=1, high=10**9)
  generator: bool = field(False, 'a convolutional generator between noise and images (A.5.1)')

  shares_on = clients.GENERATION

  def client_init(self, task, initial, shard):
    return Previous(initial, jnp.zeros((), bool))

  @generating
  def prepare(self, client):  # line 5: D^_k, and the weights of L_c and L_kd
    task, counts = client.task, client.shard.class_counts
    labels_each = counts.sum() / jnp.maximum(client.shard.size, 1)  # labels per sample
    uniform = self.labels == 'uniform'  # else A.1.1
    lacking = jnp.zeros(task.num_classes) if uniform else generation.complement(counts)
    if task.data.y.ndim > 1:
      y = generation.label_sets(lacking, labels_each, self.samples)
    else:
      y = generation.class_labels(lacking, self.samples)
    w = Variables(client.params, client.stats)
    previous = client.state if self.source == 'global+local' else None
    generated = self._generate(task, fold(client.key, 0), w, previous, y)
    weights = generation.loss_weights(counts) if self.weights == 'free' else (1.0, self.lambda_kd)
    return Prepared(fold(client.key, 0, 1), generated, *weights)

  def _generate(
    self, task: Task, key: PRNGKey, w: Variables, previous: Previous | None, y: Array
  ) -> Generated:
    """Minimises L_gen (Eq. 1) over inputs with labels y; returns them with predictions of w."""

    def log_p(model, x):
      return task.objective.log_distribution(task.model.apply(model, x, train=False).logits)

    def l_gen(x, y):  # Eq. 1 for each sample, whose mean `minimise` takes: L_c + lambda_dis L_dis
      log_p_global = log_p(w, x)
      loss = negative_log_likelihood(log_p_global, y)  # L_c
      if previous is not None:
        # One pass of both models under vmap has as many operations; on a CPU it took 1.15 times as
        # long on Fashion-MNIST's images and 0.85 times on CIFAR's.
        log_p_local = log_p(previous.model, x)
        # Eq. 2: L_dis = 1 - JS(p, q), JS = (KL(p, m) + KL(q, m)) / 2, p of the global and q of the
        # local model, m = (p + q) / 2 (the paper's p with a bar). divergence='code' clips and
        # exchanges KL's arguments.
        l_dis = 1 - per_sample(generation.DIVERGENCES[self.divergence](log_p_global, log_p_local))
        loss += jnp.where(previous.visited, self.lambda_dis, 0.0) * l_dis
      return loss

    shape = generation.input_shape(task.model, w.params, task.data.x)
    inputs, images = generation.starting_point(key, self.samples, shape, self.generator)
    steps, loss = 0 if self.source == 'noise' else self.steps, lambda x, y: l_gen(images(x), y)
    batch_size = 0 if self.generator else generation.AT_A_TIME.get(task.backend, 0)
    group = None if self.generator else task.group
    inputs = generation.minimise(
      loss, inputs, y, steps=steps, lr=self.lr, batch_size=batch_size, group=group
    )
    x = images(inputs)
    return Generated(x, y, clients.in_group(functools.partial(log_p, w), group, x))

  @generating
  def loss(self, client, loss_fn, w, step):  # line 8: Eq. 3 on a batch of each data set
    task, (key, generated, real_weight, kd_weight) = client.task, client.prepared
    num_real, num_generated = step.y.shape[0], min(self.kd_batch, self.samples)
    rows = minibatch(key, self.samples, num_generated, step.index)
    embed = task.model.embed or (lambda params, x: x)
    # Real and generated samples share a pass. The mask keeps the generated ones out of L_c and of
    # other layers' losses.
    joint = step._replace(
      x=jnp.concatenate([embed(w, step.x), generated.x[rows]]),
      y=jnp.concatenate([step.y, generated.y[rows]]),
      mask=jnp.concatenate([step.mask, jnp.zeros(num_generated, step.mask.dtype)]),
    )
    l_c, out = loss_fn(w, joint)
    log_q = task.objective.log_distribution(out.logits[num_real:])  # log p(theta; x)
    if self.supervision == 'soft':  # Eq. 3: KL(p(theta^t; x), p(theta; x))
      l_kd = optax.losses.kl_divergence_with_log_targets(log_q, generated.log_p[rows])
    else:
      l_kd = negative_log_likelihood(log_q, generated.y[rows])
    weight = real_weight if out.weight is None else real_weight * out.weight
    out = Output(out.logits[:num_real], out.features[:num_real], out.stats, weight)
    return real_weight * l_c + kd_weight * l_kd.mean(), out  # Eq. 3: L_c + lambda_kd L_kd

  def finish(self, client, trained, steps):
    return None, Previous(trained, jnp.ones((), bool))

  @generating
  def client_metrics(self, client, trained):
    generated = client.prepared.generated
    recognised = jnp.argmax(generated.log_p, axis=-1) == generated.y
    return {'recognised': recognised.mean(), 'kd_weight': client.prepared.kd_weight}

  def resolve(self, run):
    if self.start >= run.rounds:
      raise ValueError(
        f'fedcog.start={self.start} must be smaller than rounds={run.rounds}: nothing would be'
        ' generated'
      )
    return self

  def phases(self):
    return (self.start,) if self.start else ()

  def requires(self):
    return frozenset({'pixels'} if self.generator else ())

  def conflicts(self):
    if self.weights == 'fixed':
      return {}
    return {
      'fednova+proximal term inside': "'fednova' knows the proximal term of 'fedprox' by its mu,"
      " and fedcog.weights='free' scales it by client: use fedcog.weights='fixed', or"
      ' fedcog+fedprox'
    }
