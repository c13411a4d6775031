"""Fine-tuning on the synthetic set (DynaFed, Algorithm 2, line 12)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.dynafed import synthetic_set
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.algorithms.dynafed.unroll import augmentation, inner_loss
from fedjax_syn.core import microbatches
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import optimize
from fedjax_syn.core.types import Model, Params, PRNGKey, PyTree, Variables

if TYPE_CHECKING:
  from fedjax_syn.algorithms.dynafed.dynafed import DynaFed


def finetune(
  layer: 'DynaFed',
  model: Model,
  w: Variables,
  syn: SyntheticSet,
  key: PRNGKey,
  record: Callable[[Params], PyTree] = lambda w: None,
  mesh: jax.sharding.Mesh | None = None,
) -> tuple[Params, PyTree]:
  """Fine-tunes a model on D_syn with a fresh Adam (Algorithm 2, line 12).

  Args:
    layer: gives steps, rate, batch size and augmentation.
    model: the network.
    w: the aggregated global model; its running statistics are held fixed.
    syn: D_syn; its own step size is not used.
    key: for augmentation and batches.
    record: what to keep of the parameters after every step.
    mesh: of the devices that share the images, in a program of all of them; None: one.

  Returns:
    The parameters, and the records, leaves [steps, ...].
  """
  images = min(layer.finetune_batch or len(syn.x), len(syn.x))
  batches = microbatches.round_microbatches(images, model, syn.x[0], mesh)
  inner = inner_loss(model, w.stats, augmentation(layer.finetune_augment), *batches)

  def loss(params, i):
    x, y = synthetic_set.batch(syn, key, layer.finetune_batch, i)
    return inner(params, x, y, fold(key, i))

  steps = jnp.arange(layer.finetune_steps)
  return optimize(loss, optax.adam(layer.finetune_lr), w.params, steps, record)
