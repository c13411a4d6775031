"""Fine-tuning a model on the synthetic set (DynaFed, Algorithm 2, line 12)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, minibatch
from fedjax_syn.algorithms.dynafed.trajectory import InnerLoss
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Params, PRNGKey, PyTree


def finetune(
  loss: InnerLoss,
  optimizer: optax.GradientTransformation,
  w: Params,
  syn: SyntheticSet,
  key: PRNGKey,
  steps: int,
  *,
  batch_size: int = 0,
  record: Callable[[Params], PyTree] = lambda w: None,
) -> tuple[Params, PyTree]:
  """Takes steps on a synthetic set, with a fresh optimizer.

  Args:
    loss: the inner loss, of images, label logits and a key for their augmentation.
    optimizer: an optax optimizer.
    w: the aggregated global model.
    syn: images [n, ...] and label logits [n, classes]; the set's own step size is not used.
    key: for augmentation and batches.
    steps: how many.
    batch_size: images per step; 0 is all of them.
    record: what to keep of the model after every step.

  Returns:
    The fine-tuned model, and the records, leaves [steps, ...].
  """
  images = syn.x.shape[0]

  def step(carry, i):
    w, opt_state = carry
    x, y = syn.x, syn.y
    if 0 < batch_size < images:
      rows = minibatch(fold(key, 0, 1), images, batch_size, i)
      x, y = x[rows], y[rows]
    grads = jax.grad(loss)(w, x, y, fold(key, i))
    updates, opt_state = optimizer.update(grads, opt_state, w)
    w = optax.apply_updates(w, updates)
    return (w, opt_state), record(w)

  (w, _), records = jax.lax.scan(step, (w, optimizer.init(w)), jnp.arange(steps))
  return w, records
