"""What methods whose clients send sets of images have in common (FedDM, FedDualMatch)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.set_sharing import server as sets_lib
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, bytes_of, gather
from fedjax_syn.core.contexts import Message, Task
from fedjax_syn.core.types import Array, Measured
from fedjax_syn.layer import Layer, Numbers

# (images of a class [images, ...], class number, iteration) -> its loss, []
ClassLoss = Callable[[Array, Array, Any], Array]


class SetSharing(Layer):
  """Clients distil sets of images and send them; the server trains on the sets.

  A client sends no model: the global one stays as it is until `server_update`. A subclass has `images_per_class`, and
  says by `_present` of which classes a client sends images.
  """

  def requires(self):
    return frozenset({'individual updates', 'one class', 'pixels'})

  def message_bytes(self, task, class_counts):
    return bytes_of(self._present(class_counts), self.images_per_class, task.data.x.shape[1:])

  def aggregate(self, round):
    return round.params, {}

  def _present(self, class_counts: Any) -> Any:
    """Returns the classes that a client sends images of; [..., classes] both."""
    raise NotImplementedError

  def _message(self, own: ClassSet, loss: ClassLoss, iterations: int) -> tuple[Message, Numbers]:
    """Returns the message with a set, and what its distillation left of the loss."""
    classes = jnp.arange(len(own.present), dtype=jnp.int32)
    left = jnp.where(own.present, jax.lax.map(lambda c: loss(own.x[c], c, iterations), classes), 0)
    numbers = {
      # A client that has too little of every class has distilled nothing.
      'loss': Measured(left.sum() / jnp.maximum(own.present.sum(), 1), own.present.any()),
      'finite': jnp.isfinite(own.x).all(),
      'classes': own.present.sum().astype(own.x.dtype),
    }
    weight = own.present.any().astype(own.x.dtype)
    return Message(weight, {self.name: sets_lib.sent(own)}), numbers

  def _received(self, payload: dict[str, Any]) -> ClassSet:
    """Returns the sets that the clients of a round sent, leaves [clients, ...]."""
    return sets_lib.received(payload[self.name])

  def _none_yet(self, task: Task) -> ClassSet:
    """Returns sets without an image in the shape of a round's, leaves [cohort, ...]."""
    shape = task.cohort_size, task.num_classes, self.images_per_class, *task.data.x.shape[1:]
    return ClassSet(jnp.zeros(shape), jnp.zeros(shape[:2], bool))


def blank(start: Array, present: Array) -> ClassSet:
  """Returns a set to begin with: images [classes, images, height, width, channels], those of absent classes are zeros."""
  return ClassSet(start * present.reshape(-1, 1, 1, 1, 1), present)


def listed(sets: ClassSet, iterations: int) -> dict[str, np.ndarray] | None:
  """Lists the images that the clients of the last round sent, for files and pictures.

  Args:
    sets: leaves [cohort, ...].
    iterations: by which they were distilled.

  Returns:
    One snapshot, as in synthetic.npz: 'x' [1, images, height, width, channels], 'y' [1, images, classes] of zeros and
    ones, 'iterations' [1]; None if nobody sent any.
  """
  x, y, order, count = map(np.asarray, gather(sets))
  rows = order[: int(count)]
  if not len(rows):
    return None
  labels = np.eye(sets.present.shape[-1], dtype=np.float32)[y[rows]]
  return {'x': x[rows][None], 'y': labels[None], 'iterations': np.array([iterations])}
