"""A block of a ConvNet as one function with a derivative of its own, for CPUs.

The block is a convolution 3x3, a norm of each channel of each image, ReLU and pooling of 2 x 2
pixels; channels lie side by side in memory. The backward pass reads the output of the convolution
once: the sums that the norm needs follow from two sums over each window, which the forward pass
keeps. A gradient of weights is a convolution too, of images that are the channels of one another
(XLA's own form is slow on a CPU).

Reverse mode and its derivatives of all orders work; forward mode over the block itself does not,
and needs `layers_one_by_one`.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array
from fedjax_syn.models.network_layers import EPSILON

FEW_CHANNELS = 8  # fewer inputs than this: XLA's convolution has too few columns
# Older versions of XLA run a convolution in a loop on a CPU naively.
FAST = jax.__version_info__ >= (0, 10)
_LAYOUT = 'NHWC', 'HWIO', 'NHWC'
_BORDER = (0, 0), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)
_PLACES = [(i, j) for i in range(3) for j in range(3)]  # in a kernel
_separate = contextvars.ContextVar('separate', default=False)


@contextlib.contextmanager
def layers_one_by_one() -> Iterator[None]:
  """Networks called within take no blocks, so that forward mode can differentiate them."""
  token = _separate.set(True)
  try:
    yield
  finally:
    _separate.reset(token)


def wanted() -> bool:
  """Returns whether networks may take blocks."""
  return FAST and not _separate.get()


def _plain_product(x: Array, kernel: Array, padding: int) -> Array:
  border = [(padding, padding)] * 2
  return jax.lax.conv_general_dilated(x, kernel, (1, 1), border, dimension_numbers=_LAYOUT)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _convolve(x: Array, kernel: Array, padding: int) -> Array:
  """Convolves [batch, h, w, in], with a border of zeros; XLA would group vmapped kernels."""
  one = functools.partial(_plain_product, padding=padding)
  return jax.custom_batching.sequential_vmap(one)(x, kernel)


@_convolve.defjvp
def _convolve_jvp(padding, primals, tangents):
  (x, kernel), (dx, dkernel) = primals, tangents
  tangent = _plain_product(dx, kernel, padding) + _plain_product(x, dkernel, padding)
  return _convolve(x, kernel, padding), tangent


def _of_kernel(x: Array, dy: Array) -> Array:
  """The gradient of a convolution by the kernel."""
  h, w = dy.shape[1:3]
  if x.shape[3] < FEW_CHANNELS:
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = jnp.stack([padded[:, i : i + h, j : j + w] for i, j in _PLACES])
    return jnp.einsum('tbhwc,bhwo->tco', windows, dy).reshape(3, 3, x.shape[3], -1)
  # A convolution whose kernel is dy: images are channels, and channels of x are images. XLA would
  # compute x, the output of the block before, again for the transpose.
  x = jax.lax.optimization_barrier(x)
  dkernel = _convolve(x.transpose(3, 1, 2, 0), dy.transpose(1, 2, 0, 3), 1)
  return dkernel.transpose(1, 2, 0, 3)


def _of_images(dy: Array, kernel: Array) -> Array:
  """The gradient of a convolution by the images."""
  if kernel.shape[2] >= FEW_CHANNELS:  # a convolution with the kernel turned
    return _convolve(dy, kernel[::-1, ::-1].transpose(0, 1, 3, 2), 1)
  # What each pixel of dy adds to the nine around it; shifted arrays are added up.
  each = jnp.pad(jnp.einsum('bhwo,ijco->bhwijc', dy, kernel), _BORDER)
  h, w = dy.shape[1:3]
  moved = [each[:, 2 - i : 2 - i + h, 2 - j : 2 - j + w, i, j] for i, j in _PLACES]
  return sum(moved[1:], moved[0])


def _windows(z: Array) -> Array:
  """Adds up 2 x 2 pixels: [batch, h, w, channels] -> [batch, h / 2, w / 2, channels]."""
  return z[:, ::2, ::2] + z[:, ::2, 1::2] + z[:, 1::2, ::2] + z[:, 1::2, 1::2]


def _of_window(z: Array) -> Array:
  """[batch, h, w, channels] -> [batch, h, 1, w, 1, channels], one value for a window's pixels."""
  return z[:, :, None, :, None]


def _sum(z: Array) -> Array:
  """Sums over an image's pixels: [batch, h, w, channels] -> [batch, 1, 1, channels].

  Rows are added up first, as vectors; XLA joins the two sums if it may, and takes three times as
  long.
  """
  batch, h, w, channels = z.shape
  rows = jax.lax.optimization_barrier(z.reshape(batch, h, w * channels).sum(1))
  return rows.reshape(batch, 1, w, channels).sum(2, keepdims=True)


@jax.custom_vjp
def block(x: Array, kernel: Array, scale: Array, shift: Array) -> Array:
  """Applies a convolution 3x3 padded by one pixel, a norm by channel, ReLU and average pooling.

  The norm makes any bias of the convolution vanish.

  Args:
    x: [batch, height, width, in], height and width even.
    kernel: [3, 3, in, out].
    scale: of the norm, [out].
    shift: of the norm, [out].

  Returns:
    [batch, height / 2, width / 2, out].
  """
  return _forward(x, kernel, scale, shift)[0]


def _forward(x, kernel, scale, shift):
  y = _convolve(x, kernel, 1)
  share = 1 / (y.shape[1] * y.shape[2])
  mean = _sum(y) * share
  variance = _sum(jnp.square(y - mean)) * share
  inverse = jax.lax.rsqrt(variance + EPSILON)
  slope, offset = _affine(mean, inverse, scale, shift)
  active = y * slope + offset > 0  # where ReLU passes
  count = _windows(active.astype(y.dtype))
  passing = _windows(jnp.where(active, y, 0))
  out = (slope * passing + offset * count) / 4
  return out, (x, kernel, scale, shift, y, mean, inverse, count, passing)


def _affine(mean, inverse, scale, shift):
  """The norm as y * slope + offset, [batch, 1, 1, channels] both."""
  slope = inverse * scale
  return slope, shift - mean * slope


def _backward(residuals, cotangent):
  x, kernel, scale, shift, y, mean, inverse, count, passing = residuals
  each = cotangent / 4  # of each pixel of a window
  total = (each * count).sum((1, 2), keepdims=True)
  of_y = (each * passing).sum((1, 2), keepdims=True)
  dscale = inverse * (of_y - mean * total)  # of each image
  batch, h, w, channels = y.shape
  share = 1 / (h * w)
  slope, offset = _affine(mean, inverse, scale, shift)
  curve = scale * dscale * inverse**2 * share
  level = slope * total * share - mean * curve
  # In windows: the indices of a pixel's window need no division, which XLA would not vectorise.
  y = y.reshape(batch, h // 2, 2, w // 2, 2, channels)
  active = y * _of_window(slope) + _of_window(offset) > 0
  base = -_of_window(level) - y * _of_window(curve)
  # The choice comes last: XLA would join a sum to each convolution that reads it, at a lower speed.
  dy = jnp.where(active, base + _of_window(slope * each), base).reshape(batch, h, w, channels)
  # Gradients that nobody uses, as those of a frozen network's weights, XLA removes.
  return _of_images(dy, kernel), _of_kernel(x, dy), dscale.sum((0, 1, 2)), total.sum((0, 1, 2))


block.defvjp(_forward, _backward)
