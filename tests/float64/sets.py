"""Shared by methods whose clients send sets of images: feature means, the ball, the server."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.set_sharing.base import perturb_weights
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny


def in_ball(key, w, radius):
  """w plus a standard normal vector, cut to the radius.

  Around zeros and with a huge radius, the library returns the vector itself.
  """
  d = lib.flat(perturb_weights(key, lib.tree(np.zeros(tiny.SIZE)), 1e9))
  norm = np.linalg.norm(d)
  return w + d * min(norm, radius) / norm


def pull(w, x, d_features, d_logits):
  """The derivatives in the pixels, [images, pixels].

  They follow from the derivatives in the mean features and the mean logits of the images.
  """
  u = tiny.unpack(w)[0]
  slope = d_features @ u.T + tiny.input_gradient(w, d_logits[None])[0]
  return np.tile(slope / len(x), (len(x), 1))


def train_on(key, w, x, y, optimizer, *, steps, batch_size):
  """The server's steps on batches that are drawn with replacement from all images."""
  for i in range(steps):
    rows = np.asarray(jax.random.randint(fold(key, i), (batch_size,), 0, jnp.int64(len(x))))
    w = optimizer(w, tiny.gradient(w, x[rows], y[rows]))
  return w


def listed(sets):
  """Images and labels of several clients' sets {class: images}, each client's classes in order."""
  pairs = [(images, c) for own in sets for c, images in sorted(own.items())]
  y = np.concatenate([np.full(len(images), c) for images, c in pairs])
  return np.concatenate([images for images, _ in pairs]), y
