"""Distillation on the server: a student learns a teacher's class probabilities."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.contexts import Task
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.types import Array, Params, PRNGKey, Stats, Variables
from fedjax_syn.data import federated
from fedjax_syn.server.models import in_batches


def draw_batches(key: PRNGKey, rows: int, batch_size: int, steps: int) -> Array:
  """Draws row numbers [steps, batch] without replacement, from successive permutations."""
  passes = -(-steps * batch_size // rows)
  order = jax.vmap(lambda i: jax.random.permutation(fold(key, i), rows))(jnp.arange(passes))
  return order.reshape(-1)[: steps * batch_size].reshape(steps, batch_size)


def distil(
  key: PRNGKey,
  task: Task,
  teacher: Callable[[Array], Array],
  student: Params,
  stats: Stats,
  optimizer: optax.GradientTransformation,
  *,
  steps: int,
  batch_size: int,
  average_from: int = -1,
  average_every: int = 1,
  score: Callable[[Params], Array] | None = None,
  score_every: int = 1,
) -> tuple[Params, Array]:
  """Trains a student on the server's samples (`task.data.proxy`) without their labels.

  The teacher sees every sample once, before the first step: with few samples and many steps that is
  far less work than to ask it in every step.

  Args:
    key: for the batches.
    task: the experiment.
    teacher: uint8 images [rows, ...] -> class probabilities [rows, classes].
    student: where to begin.
    stats: the student's running statistics, held fixed.
    optimizer: fresh.
    steps: gradient steps.
    batch_size: samples in a step, at most all.
    average_from: return the mean of the parameters after the steps average_from, average_from +
      average_every, ... (stochastic weight averaging; counted from 0); -1 returns the last ones.
    average_every: see above.
    score: parameters -> a number, higher is better; of the student at first and after every
      `score_every` steps the best one is returned, so that a bad teacher cannot do harm.
    score_every: see above.

  Returns:
    The student, and the KL divergence from the teacher in the last step, [].
  """
  x = task.data.proxy.x
  batch_size = min(batch_size, x.shape[0])
  wanted = min(x.shape[0], steps * batch_size)
  x = x[jax.random.permutation(fold(key, 0, 1), x.shape[0])[:wanted]]
  targets = in_batches(teacher, x)
  batches = draw_batches(fold(key, 0, 2), wanted, min(batch_size, wanted), steps)

  def loss(w, rows):
    images = federated.normalise(task.data, x[rows])
    out = task.model.apply(Variables(w, stats), images, train=False)
    log_p = jax.nn.log_softmax(out.logits)
    return optax.losses.kl_divergence(log_p, targets[rows]).mean()

  descend = training_step(loss, optimizer)

  def step(carry, inputs):
    w, opt_state, mean, count, best = carry
    i, rows = inputs
    (w, opt_state), value = descend((w, opt_state), rows)
    if average_from >= 0:
      take = (i >= average_from) & ((i - average_from) % average_every == 0)
      count = count + take
      share = jnp.where(take, 1 / jnp.maximum(count, 1), 0)
      mean = jax.tree.map(lambda m, p: m + share.astype(p.dtype) * (p - m), mean, w)
    if score is not None:
      best = jax.lax.cond((i + 1) % score_every == 0, lambda: better(best, w), lambda: best)
    return (w, opt_state, mean, count, best), value

  def better(best, w):
    new = score(w)
    return jax.tree.map(lambda a, b: jnp.where(new > best[0], a, b), (new, w), best)

  best: Any = None if score is None else (score(student), student)
  start = (student, optimizer.init(student), student, jnp.zeros((), jnp.int32), best)
  (w, _, mean, _, best), values = jax.lax.scan(step, start, (jnp.arange(steps), batches))
  if score is not None:
    return best[1], values[-1]
  return (mean if average_from >= 0 else w), values[-1]
