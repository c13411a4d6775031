"""A block of a ConvNet as one function with a derivative of its own, for frozen networks on a CPU.

The block is a convolution 3x3, a norm of each channel of each image, ReLU and pooling of 2 x 2
pixels. The pixels of an output are kept in four arrays, one for each place in a window of the
pooling. So pooling and its gradient are sums and copies of whole arrays, channels lie side by side
in memory, and a tile of Winograd's convolution has one pixel in each array. The backward pass reads
the output of the convolution twice: the sums that the norm needs follow from the pooled output.

Reverse mode differentiates it once; training takes the layers of `network_layers`. Second
derivatives are refused: compiled by XLA for a CPU (jaxlib 0.10.2) they came out wrong, by a third
for images of 16 x 16 pixels and more, where the same operations run one by one were right.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.types import Array
from fedjax_syn.models.network_layers import EPSILON

# Winograd's F(2 x 2, 3 x 3): y = A' [(G k G') * (B' d B)] A for tiles d of 4 x 4 pixels. Source:
# Lavin and Gray (2016), Section 4.1. `WINDOW` is A (x) A, [pixel of the output, pixel of a tile].
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
WINDOW = np.einsum('ai,bj->abji', A, A).reshape(4, 16)
LEAST_CHANNELS = 8  # of Winograd's form; with fewer its sums take longer than its products save
# In padded images, pixel i of tile k is pixel k + offset of the rows of one parity.
PARITIES = (1, 0), (0, 1), (1, 1), (0, 2)  # (parity, offset)


def _split(x: Array) -> Array:
  """[batch, height, width, channels] -> [2, 2, batch, height / 2, width / 2, channels]."""
  return jnp.stack([jnp.stack([x[:, a::2, b::2] for b in (0, 1)]) for a in (0, 1)])


def _join(parts: Array) -> Array:
  _, _, batch, height, width, channels = parts.shape
  return parts.transpose(2, 3, 0, 4, 1, 5).reshape(batch, 2 * height, 2 * width, channels)


def _padded(parts: Array) -> Array:
  return jnp.pad(parts, ((0, 0),) * 3 + ((1, 1), (1, 1), (0, 0)))


def _winograd(parts: Array, kernel: Array) -> Array:
  """Convolves, padded by one pixel: [2, 2, batch, h, w, in] -> [4, batch, h * w, out]."""
  _, _, batch, h, w, channels = parts.shape
  g, window = jnp.asarray(G, kernel.dtype), jnp.asarray(WINDOW, kernel.dtype)
  weights = jnp.einsum('ia,jb,abco->jico', g, g, kernel).reshape(16, channels, -1)
  tile = lambda d: jnp.stack([d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]])  # B' d
  padded = _padded(parts)
  rows = tile([padded[a, :, :, r : r + h] for a, r in PARITIES])
  tiles = tile([rows[:, b, :, :, s : s + w] for b, s in PARITIES]).reshape(16, -1, channels)
  products = jnp.einsum('btc,bco->bto', tiles, weights).reshape(16, -1)
  return (window @ products).reshape(4, batch, h * w, -1)


def _by_window(parts: Array, kernel: Array) -> Array:
  """`_winograd` for few channels: one product with what each window sees."""
  _, _, batch, h, w, channels = parts.shape
  padded = _padded(parts)
  at = [[padded[a, b, :, r : r + h, s : s + w] for b, s in PARITIES] for a, r in PARITIES]
  places = [(i, j) for i in range(3) for j in range(3)]
  seen = [[at[a + i][b + j] for i, j in places] for a in (0, 1) for b in (0, 1)]
  windows = jnp.stack([jnp.concatenate(arrays, axis=-1) for arrays in seen])
  y = windows.reshape(-1, 9 * channels) @ kernel.reshape(9 * channels, -1)
  return y.reshape(4, batch, h * w, -1)


def _convolve(parts: Array, kernel: Array) -> Array:
  return (_winograd if min(kernel.shape[2:]) >= LEAST_CHANNELS else _by_window)(parts, kernel)


def _of_images(dy: Array, kernel: Array, shape: tuple[int, ...]) -> Array:
  """The gradient of a convolution's input, [2, 2, batch, h, w, in]; dy [4, batch, h * w, out]."""
  _, _, batch, h, w, channels = shape
  if channels >= LEAST_CHANNELS:  # a convolution with the kernel turned
    turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    return _convolve(dy.reshape(2, 2, batch, h, w, -1), turned).reshape(shape)
  # The four pixels of an output each have their place in a tile of 4 x 4; tiles are added up.
  place = lambda a, b: jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0)))
  kernels = jnp.stack([place(a, b) for a in (0, 1) for b in (0, 1)])
  kernels = kernels.transpose(0, 4, 3, 1, 2).reshape(4, kernel.shape[3], -1)
  tiles = _over(jnp.einsum('pto,pok->ptk', dy.reshape(4, -1, kernel.shape[3]), kernels))
  tiles = tiles.reshape(batch, h, w, channels, 4, 4)
  rows = _overlap([tiles[..., i, :] for i in range(4)], axis=1)
  return jnp.stack([jnp.stack(_overlap([r[..., j] for j in range(4)], axis=2)) for r in rows])


def _overlap(t: list[Array], axis: int) -> tuple[Array, Array]:
  """Adds up the pixels of overlapping tiles along an axis: those at even and at odd places."""

  def moved(v, steps):
    ends = [(0, 0)] * v.ndim
    ends[axis] = (max(steps, 0), max(-steps, 0))
    start, size = max(-steps, 0), v.shape[axis]
    return jax.lax.slice_in_dim(jnp.pad(v, ends), start, start + size, axis=axis)

  return t[1] + moved(t[3], 1), t[2] + moved(t[0], -1)


def _over(parts: Array) -> Array:
  """Adds up the four arrays; XLA's reduction over this axis took ten times as long."""
  return parts[0] + parts[1] + parts[2] + parts[3]


def _sum(parts: Array) -> Array:
  """Sums over an image's pixels: [4, batch, pixels, channels] -> [batch, channels]."""
  return _over(parts.sum(2))


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
  parts = _split(x)
  y = _convolve(parts, kernel)
  share = 1 / (4 * y.shape[2])
  mean = _sum(y) * share
  inverse = jax.lax.rsqrt(_sum(jnp.square(y - mean[:, None])) * share + EPSILON)
  slope, offset = _affine(mean, inverse, scale, shift)
  out = _over(jnp.maximum(y * slope + offset, 0)) / 4
  _, _, batch, h, w, _ = parts.shape
  return out.reshape(batch, h, w, -1), (parts, kernel, scale, shift, y, mean, inverse, out)


def _affine(mean, inverse, scale, shift):
  """The norm as y * slope + offset, [batch, 1, channels] both."""
  slope = (inverse * scale)[:, None]
  return slope, shift - mean[:, None] * slope


@jax.custom_jvp
def _differentiated_once(gradients):
  return gradients


@_differentiated_once.defjvp
def _refuse(primals, tangents):
  raise NotImplementedError(
    "a ConvNet's stages have no second derivative in the form 'chwn'; use model.conv='xla'"
  )


def _backward(residuals, cotangent):
  parts, kernel, scale, shift, y, mean, inverse, out = residuals
  cotangent = cotangent.reshape(out.shape) / 4  # of each pixel of a window
  slope, offset = _affine(mean, inverse, scale, shift)
  passed = jnp.where(y * slope + offset > 0, cotangent, 0)
  share = 1 / (4 * y.shape[2])
  # Where ReLU passes, normalised * scale + shift is what it passes, so `with_normalised` is the sum
  # of passed * normalised * scale.
  total = _sum(passed)
  with_normalised = 4 * (cotangent * out).sum(1) - shift * total
  curve = (with_normalised * inverse**2 * share)[:, None]
  dy = slope * passed - (slope * total[:, None] * share - mean[:, None] * curve) - y * curve
  dx = _join(_of_images(dy, kernel, parts.shape))
  # Weights of a frozen network need no gradient: XLA removes what nobody uses.
  (dkernel,) = jax.linear_transpose(lambda k: _convolve(parts, k), kernel)(dy)
  normalised = (y - mean[:, None]) * inverse[:, None]
  dscale = _sum(passed * normalised).sum(0)
  return _differentiated_once((dx, dkernel, dscale, total.sum(0)))


block.defvjp(_forward, _backward)
