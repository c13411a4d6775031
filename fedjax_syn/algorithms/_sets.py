"""What methods whose clients send sets of images have in common (FedDM, FedDualMatch): what goes up, and the method's frame."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.method import Client, Message, Method, ServerTransform, Task, Visit
from fedjax_syn.server import sets as sets_lib
from fedjax_syn.synthesis.class_sets import ClassSet, bytes_of, gather
from fedjax_syn.typing import Array, Measured

# (images of a class [images, ...], class number, step) -> its loss, []
ClassLoss = Callable[[Array, Array, Any], Array]
# visit -> the distilled set, the loss by which it was distilled, and its steps
Distil = Callable[[Visit], tuple[ClassSet, ClassLoss, int]]


def client(name: str, task: Task, distil: Distil, images_per_class: int, least: int) -> Client:
  """Makes a client that sends what it distils.

  Args:
    name: the method's, of the message's part and of what is logged.
    task: the experiment.
    distil: what the client does in a round; its set has the classes with at least `least` samples.
    images_per_class: of the set.
    least: see above.

  Returns:
    The client: it keeps nothing between rounds, and its bytes are those of the classes that it has.
  """

  def update(visit):
    own, loss, steps = distil(visit)
    classes = jnp.arange(task.num_classes, dtype=jnp.int32)
    left = jnp.where(own.present, jax.lax.map(lambda k: loss(own.x[k], k, steps), classes), 0)
    metrics = {
      # A client that has too little of every class has distilled nothing.
      'loss': Measured(left.sum() / jnp.maximum(own.present.sum(), 1), own.present.any()),
      'finite': jnp.isfinite(own.x).all(),
      f'{name}/classes': own.present.sum().astype(own.x.dtype),
    }
    weight = own.present.any().astype(own.x.dtype)
    return Message(weight, {name: sets_lib.sent(own)}), {}, metrics

  shape = task.data.x.shape[1:]
  bytes_up = lambda counts: bytes_of(counts >= least, images_per_class, shape)
  return Client(lambda initial, shard: {}, update, bytes_up)


def blank(start: Array, present: Array) -> ClassSet:
  """A set to begin with: images [classes, images, height, width, channels], absent classes are zeros."""
  return ClassSet(start * present.reshape(-1, 1, 1, 1, 1), present)


def none_yet(task: Task, images_per_class: int) -> ClassSet:
  """What a server holds before the first round: no image, in the shape of a round's sets, leaves [slots, ...]."""
  shape = task.slots, task.num_classes, images_per_class, *task.data.x.shape[1:]
  return ClassSet(jnp.zeros(shape), jnp.zeros(shape[:2], bool))


def learned(sets: ClassSet, iterations: int) -> dict[str, np.ndarray] | None:
  """Lists the images that the clients of the last round sent, for files and pictures.

  Args:
    sets: leaves [slots, ...].
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


def method(
  name: str,
  base: Method | None,
  client: Callable[[Task], Client],
  server: Callable[[Task], ServerTransform],
  hyper: dict[str, float],
) -> Method:
  """Makes a method of such clients and of the server that trains on what they send.

  Args:
    name: the method's.
    base: None or plain FedAvg, whose participation it shares.
    client: see `client`.
    server: looks at every client's set.
    hyper: numbers that change no shape.

  Raises:
    ValueError: in one line, if it is put around another method.
  """
  if base is not None and base.name != 'fedavg':
    raise ValueError(
      f'{name!r} cannot be put around {base.name!r}: its clients send data and train no model'
    )
  return Method(
    name,
    client,
    # Clients send no models: the model stays where it is until the server trains it.
    aggregate=lambda task: lambda key, old, messages: (old, {}),
    server_transforms=(server,),
    every_message=True,
    needs=('one_class', 'pixels'),
    hyper={name: hyper},
  )
