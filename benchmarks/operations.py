"""The operations of some work.

Operations are those of matrix products and convolutions by definition, two for each multiplication.
Work that a program repeats to save memory counts once.
"""

import math
from collections.abc import Callable

import jax
import numpy as np

from benchmarks.workloads import CLASSES, ClientMatching, Generation, Rounds, ServerMatching, Unroll
from fedjax_syn.core.types import Model

Work = Rounds | Unroll


def _mlp(work: Work) -> list[int]:
  sizes = [math.prod(work.shape), *[work.width] * work.depth, CLASSES]
  return [2 * a * b for a, b in zip(sizes, sizes[1:], strict=False)]


def _convnet(work: Work) -> list[int]:
  height, width, channels = (32, 32, 1) if work.shape == (28, 28, 1) else work.shape
  layers = []
  for _ in range(work.depth):
    layers.append(2 * 9 * channels * work.width * height * width)
    height, width, channels = height // 2, width // 2, work.width
  return [*layers, 2 * height * width * channels * CLASSES]


def _cnn(work: Work) -> list[int]:
  height, width, channels = work.shape
  a, b, hidden = work.width, 2 * work.width, 4 * work.width
  pooled = (height - 4) // 2 * ((width - 4) // 2) * b
  first = 2 * 9 * channels * a * (height - 2) * (width - 2)
  second = 2 * 9 * a * b * (height - 4) * (width - 4)
  return [first, second, 2 * pooled * hidden, 2 * hidden * CLASSES]


def _lenet(work: Work) -> list[int]:
  (height, width, channels), layers = work.shape, []
  for outputs in (6, 16):
    height, width = height - 4, width - 4
    layers.append(2 * 25 * channels * outputs * height * width)
    height, width, channels = height // 2, width // 2, outputs
  sizes = [height * width * channels, 120, 84, CLASSES]
  return layers + [2 * a * b for a, b in zip(sizes, sizes[1:], strict=False)]


LAYERS: dict[str, Callable[[Work], list[int]]] = {
  'mlp': _mlp,
  'convnet': _convnet,
  'cnn': _cnn,
  'lenet': _lenet,
}


def forward_operations(work: Work) -> list[int]:
  """Returns the operations of each layer for one image."""
  return LAYERS[work.model](work)


def training_operations(work: Work) -> int:
  """Returns the operations of one image in a training step.

  A layer y = W x needs 3 products: W x, W' dy and dy x'. The first layer does not need W' dy.
  """
  layers = forward_operations(work)
  return 3 * sum(layers) - layers[0]


def round_operations(work: Rounds, class_counts: np.ndarray) -> int:
  """Returns the operations of a round.

  Args:
    work: the rounds.
    class_counts: of the round's clients, [clients, classes].
  """
  layers = forward_operations(work)
  rows, classes = int(class_counts.sum()), int((class_counts > 0).sum())
  if isinstance(work, Generation):
    # y = W x and W' dy of two networks for each step; the distilled predictions once.
    generated = work.samples * (work.steps * 4 + 1) * sum(layers)
    local = work.local_steps * 2 * work.batch * training_operations(work)
    return len(class_counts) * (generated + local)
  if isinstance(work, ClientMatching):
    # y = W x and W' dy for each image and iteration, and y = W x of real images.
    if work.method == 'feddm':
      real = work.iterations * 256 * classes * sum(layers)
      return real + work.iterations * classes * work.images * 2 * sum(layers)
    stages = layers[:-1]
    images = classes * work.images * work.iterations * len(stages)
    return (rows + 2 * images) * sum(stages)
  if isinstance(work, ServerMatching):
    # Two gradients for R_t and the target; 9 products in each step, as in `matching_operations`.
    step = 9 * sum(layers) - 3 * layers[0]
    return classes * work.images * (work.steps * step + 2 * training_operations(work))
  return rows * work.epochs * training_operations(work)


def matching_operations(work: Unroll) -> int:
  """Returns the operations of an outer iteration: the inner steps and their adjoint.

  A step needs 3 products a layer (y = W x, W' dy, dy x'). The adjoint differentiates each product
  in both factors: 6 more. The first layer needs y = W x and dy x' in the step, and in the adjoint
  one product for each of these (the images are constants there) and two for W' dy, the gradient of
  the images.
  """
  layers = forward_operations(work)
  return work.images * work.steps * (9 * sum(layers) - 3 * layers[0])


def parameter_count(model: Model) -> int:
  """Returns how many parameters a model has."""
  shapes = jax.eval_shape(lambda: model.init(jax.random.key(0)).params)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
