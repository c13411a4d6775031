"""Common parts of methods whose clients send sets of images (FedDM, FedDualMatch)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, bytes_of, gather
from fedjax_syn.algorithms.set_sharing.distribution_matching import Losses
from fedjax_syn.core import microbatches
from fedjax_syn.core.contexts import Message, Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import optimize
from fedjax_syn.core.types import Array, Measured, Params, PRNGKey, Stats, Variables
from fedjax_syn.layer import Layer, Numbers


class SetSharing(Layer):
  """Clients distil sets of images and send them; the server trains on the sets.

  Clients send no model, so that `server_update` alone changes the global one. `_present` of a
  subclass says of which classes a client sends images.
  """

  images_per_class: int = field(10, 'distilled images of each class', low=1, high=10**5)

  def requires(self):
    return frozenset({'individual updates', 'one class', 'real values'})

  def message_bytes(self, task, class_counts):
    return bytes_of(self._present(class_counts), self.images_per_class, task.data.x.shape[1:])

  def aggregate(self, round):
    return round.params, {}

  def _present(self, class_counts: Any) -> Any:
    """Returns the classes that a client sends images of; [..., classes] both."""
    raise NotImplementedError

  def _message(self, own: ClassSet, losses: Losses, iterations: int) -> tuple[Message, Numbers]:
    """Returns the message with a set, and numbers: the mean loss after distillation among them."""
    classes = jnp.arange(len(own.present), dtype=jnp.int32)
    loss = losses(iterations)
    left = jnp.where(own.present, jax.lax.map(lambda c: loss(own.x[c], c), classes), 0)
    numbers: Numbers = {
      # A client with too few samples of every class has distilled nothing.
      'loss': Measured(left.sum() / jnp.maximum(own.present.sum(), 1), own.present.any()),
      'finite': jnp.isfinite(own.x).all(),
      'classes': own.present.sum().astype(own.x.dtype),
    }
    weight = own.present.any().astype(own.x.dtype)
    # Numbers, so that sums of messages are defined.
    sent = {'x': own.x, 'present': own.present.astype(own.x.dtype)}
    return Message(weight, {self.name: sent}), numbers

  def _received(self, payload: dict[str, Any]) -> ClassSet:
    """Returns the sets in the messages of a round, leaves [clients, ...]."""
    sent = payload[self.name]
    return ClassSet(sent['x'], sent['present'] > 0)

  def _none_yet(self, task: Task) -> ClassSet:
    """Returns empty sets in the shape of a round's, leaves [cohort, ...]."""
    shape = task.cohort_size, task.num_classes, self.images_per_class, *task.data.x.shape[1:]
    return ClassSet(jnp.zeros(shape), jnp.zeros(shape[:2], bool))


def blank(start: Array, present: Array) -> ClassSet:
  """Returns a set of images [classes, images, ...], with zeros for absent classes."""
  return ClassSet(start * present.reshape(-1, *[1] * (start.ndim - 1)), present)


def listed(sets: ClassSet, iterations: int) -> dict[str, np.ndarray] | None:
  """Lists the images that the clients of the last round sent, for files and figures.

  Args:
    sets: leaves [cohort, ...].
    iterations: of their distillation.

  Returns:
    One snapshot, as in synthetic.npz: 'x' [1, images, height, width, channels], 'y' [1, images,
    classes] one-hot, 'iterations' [1]; None if there is no image.
  """
  x, y, order, count = map(np.asarray, gather(sets))
  rows = order[: int(count)]
  if not len(rows):
    return None
  labels = np.eye(sets.present.shape[-1], dtype=np.float32)[y[rows]]
  return {'x': x[rows][None], 'y': labels[None], 'iterations': np.array([iterations])}


def train(
  key: PRNGKey,
  task: Task,
  w: Params,
  stats: Stats,
  sets: list[ClassSet],
  optimizer: optax.GradientTransformation,
  *,
  steps: int,
  batch_size: int,
) -> Params:
  """Trains on the union of sets.

  Args:
    key: for the batches.
    task: gives the network.
    w: the start.
    stats: running statistics, held fixed.
    sets: each with leaves [clients, ...].
    optimizer: an optax optimizer.
    steps: number of steps.
    batch_size: images in a step, drawn with replacement from all that are present.

  Returns:
    The trained parameters; w itself where no image is present.
  """
  union = ClassSet(*(jnp.concatenate(leaves) for leaves in zip(*sets, strict=True)))
  x, y, order, count = gather(union)

  def losses(w, x, y):
    logits = task.model.apply(Variables(w, stats), x, train=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)

  batches = microbatches.round_microbatches(batch_size, task.model, x[0], task.mesh)
  if batches.mesh is None:
    image = x.shape[1:], x.dtype
    number = microbatches.num_microbatches(task.model, *image, batch_size, task.backend)
    batches = batches._replace(number=number)
  loss = microbatches.microbatched(losses, *batches)

  def batch_loss(w, i):
    drawn = jax.random.randint(fold(key, i), (batch_size,), 0, jnp.maximum(count, 1))
    rows = order[drawn]
    return loss(w, x[rows], y[rows])

  trained, _ = optimize(batch_loss, optimizer, w, jnp.arange(steps))
  return jax.tree.map(lambda t, w: jnp.where(count > 0, t, w), trained, w)


def perturb_weights(key: PRNGKey, params: Params, radius: Array | float) -> Params:
  """Draws parameters from the ball B(w; R), by a standard normal vector cut to length R.

  Args:
    key: for the vector.
    params: w.
    radius: R, [].

  Returns:
    The parameters, structure of w. With more than a few dozen parameters they lie on the sphere.
    Source: FedDM's code; FedDualMatch, Section 4.1.
  """
  leaves, structure = jax.tree.flatten(params)
  drawn = [jax.random.normal(fold(key, i), w.shape, w.dtype) for i, w in enumerate(leaves)]
  direction = jax.tree.unflatten(structure, drawn)
  norm = optax.tree.norm(direction)
  scale = jnp.minimum(norm, radius) / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
  return jax.tree.map(lambda w, d: w + scale.astype(w.dtype) * d, params, direction)
