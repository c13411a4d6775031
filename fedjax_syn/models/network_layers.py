"""Layers: convolutions in several forms, norms that respect padding, pooling.

A `Form` says how activations lie in memory and how they are convolved. Parameters have the same
names and shapes in every form, so a checkpoint does not depend on it; all forms give the same
values and derivatives, and which is fast depends on the backend.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array
from fedjax_syn.models.init import Init

EPSILON = 1e-5  # PyTorch's, in both norms; Flax's default is 1e-6 for GroupNorm
DECAY = 0.9  # running = 0.9 * running + 0.1 * batch: what PyTorch calls momentum 0.1


@dataclasses.dataclass(frozen=True)
class Form:
  """How activations lie in memory and are convolved; height and width are always axes 1 and 2."""

  convolve: Callable[[Array, Array, int], Array]  # (padded x, kernel [k, k, in, out], stride) -> y
  batch: int  # axis
  channel: int  # axis

  def swap(self, x: Array) -> Array:
    """Takes [batch, height, width, channels] to this form, and back: it is its own inverse."""
    return x if self.batch == 0 else jnp.transpose(x, (3, 1, 2, 0))

  def along(self, v: Array, axis: int) -> Array:
    """Shapes a vector so that it broadcasts along one of the four axes."""
    return v.reshape([-1 if a == axis else 1 for a in range(4)])


def _pad(x: Array, padding: int, value: float = 0.0) -> Array:
  border = (0, 0), (padding, padding), (padding, padding), (0, 0)
  return jnp.pad(x, border, constant_values=value) if padding else x


def _shifts(x: Array, size: int, stride: int, axis: int) -> list[Array]:
  """The `size` shifted views of x that a window sliding along one axis sees."""
  last = x.shape[axis] - size  # where the window starts in its last place, at most
  return [jax.lax.slice_in_dim(x, i, i + last + 1, stride, axis) for i in range(size)]


def _patches(x: Array, size: int, stride: int, channel: int) -> Array:
  """Stacks, along the channels, what a square window sees: in the order (row, column, channel)."""
  for axis in (2, 1):  # one axis after the other: 2 * size views, not size * size
    x = jnp.concatenate(_shifts(x, size, stride, axis), axis=channel)
  return x


def _convolve_xla(x: Array, kernel: Array, stride: int) -> Array:
  layout = 'NHWC', 'HWIO', 'NHWC'
  return jax.lax.conv_general_dilated(
    x, kernel, (stride, stride), 'VALID', dimension_numbers=layout
  )


def _convolve_patches(x: Array, kernel: Array, stride: int) -> Array:
  patches = _patches(x, kernel.shape[0], stride, channel=3)
  return patches @ kernel.reshape(-1, kernel.shape[-1])


def _convolve_chwn_plain(x: Array, kernel: Array, stride: int) -> Array:
  patches = _patches(x, kernel.shape[0], stride, channel=0)
  # Pixels times channels, then transposed: of the direct product, XLA transposes the patches.
  matrix = kernel.reshape(-1, kernel.shape[-1]).T
  flat = patches.reshape(patches.shape[0], -1)
  y = jax.lax.dot_general(flat, matrix, (((0,), (1,)), ((), ())))
  return y.T.reshape(-1, *patches.shape[1:])


_convolve_chwn = jax.custom_jvp(_convolve_chwn_plain, nondiff_argnums=(2,))


def _convolve_chwn_jvp(stride: int, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
  (x, kernel), (dx, dkernel) = primals, tangents
  zero = lambda v: isinstance(v, jax.custom_derivatives.SymbolicZero)
  y = _convolve_chwn(x, kernel, stride)
  if zero(dkernel):  # of a frozen network, by its images
    return y, _copy(_convolve_chwn(dx, kernel, stride))
  dy = _convolve_chwn(x, dkernel, stride)
  return y, dy if zero(dx) else dy + _convolve_chwn(dx, kernel, stride)


_convolve_chwn.defjvp(_convolve_chwn_jvp, symbolic_zeros=True)
# Older versions cannot transpose a loop in a rule (0.8.1 raises a TypeError); there images take
# longer to generate.
COPIES = jax.__version_info__ >= (0, 10)


def _copy(x: Array) -> Array:
  """Copies an array in a loop over its first axis, so that it and its cotangent are in memory.

  Without it XLA fuses the gradients of ReLU and pooling into a product whose operand is flat, and
  finds each element's place by divisions: 15 times the work of the element itself.
  """
  return jax.lax.map(lambda v: v * 1, x)


# XLA's CPU backend runs a convolution inside scan or map naively and on one thread, and a vmapped
# one as a grouped convolution; shifted views and one matrix product stay fast in both.
FORMS = {
  'xla': Form(_convolve_xla, batch=0, channel=3),
  'patches': Form(_convolve_patches, batch=0, channel=3),
  'chwn': Form(_convolve_chwn if COPIES else _convolve_chwn_plain, batch=3, channel=0),
}


class Conv(nn.Module):
  """A convolution with square kernels, in any form.

  Attributes:
    features: output channels.
    size: side of the kernel, in pixels.
    form: one of `FORMS`.
    weights: one of `INITS`.
    stride: in pixels.
    padding: zeros added on each side, in pixels.
    bias: whether to add one.
  """

  features: int
  size: int
  form: Form
  weights: Init
  stride: int = 1
  padding: int = 0
  bias: bool = True

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = self.size, self.size, x.shape[self.form.channel], self.features
    fan_in = math.prod(shape[:3])
    kernel = self.param('kernel', self.weights.kernel, shape, fan_in)
    x, kernel = nn.dtypes.promote_dtype(x, kernel)
    y = self.form.convolve(_pad(x, self.padding), kernel, self.stride)
    if not self.bias:
      return y
    bias = self.param('bias', self.weights.bias, shape[3:], fan_in)
    return y + self.form.along(bias, self.form.channel)


class Dense(nn.Module):
  """A matrix product and a bias: [batch, in] -> [batch, features]."""

  features: int
  weights: Init

  @nn.compact
  def __call__(self, x: Array) -> Array:
    fan_in = x.shape[-1]
    kernel = self.param('kernel', self.weights.kernel, (fan_in, self.features), fan_in)
    bias = self.param('bias', self.weights.bias, (self.features,), fan_in)
    return x @ kernel + jnp.expand_dims(bias, tuple(range(x.ndim - 1)))


def dropout(module: nn.Module, rate: float, x: Array) -> Array:
  """Drops values at a rate and scales the others by 1 / (1 - rate), where the module has a key."""
  if not rate or not module.has_rng('dropout'):
    return x
  return nn.Dropout(rate, deterministic=False, parent=module)(x)


class GroupNorm(nn.Module):
  """Normalises each sample over space and groups of channels, then scales and shifts each channel.

  Attributes:
    form: one of `FORMS`.
    groups: number of groups; 0 is one per channel (DynaFed's ConvNet), 1 is layer normalisation.

  Source: Wu and He (2018), Eqs. 1-7.
  """

  form: Form
  groups: int = 0

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    channel, channels = self.form.channel, x.shape[self.form.channel]

    def moment(z):  # mean over space and, of these small arrays, over the channels of a group
      m = z.mean((1, 2), keepdims=True)
      if self.groups in (0, channels):
        return m
      split = (*m.shape[:channel], self.groups, -1, *m.shape[channel + 1 :])
      shared = m.reshape(split).mean(channel + 1, keepdims=True)
      return jnp.repeat(shared, channels // self.groups, channel + 1).reshape(m.shape)

    # Two passes: a one-pass variance loses its digits to the mean, and measures no faster.
    wide = _wide(x)
    centred = wide - moment(wide)
    scale, bias = _affine(self, channels)
    y = centred * (jax.lax.rsqrt(moment(centred * centred) + EPSILON) * scale) + bias
    return y.astype(x.dtype)


class BatchNorm(nn.Module):
  """Normalises each channel over batch and space; padding changes neither statistics nor samples.

  In training the moments are those of the samples that the mask keeps, and the running ones move a
  tenth of the way towards them, or not at all if the mask keeps none. Both variances are the biased
  ones (PyTorch stores the unbiased one).

  Source: Ioffe and Szegedy (2015), Algorithm 1.
  """

  form: Form

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    form, channels = self.form, x.shape[self.form.channel]
    mean = self.variable('batch_stats', 'mean', jnp.zeros, channels)
    var = self.variable('batch_stats', 'var', jnp.ones, channels)
    m, v, dtype, x = mean.value, var.value, x.dtype, _wide(x)  # m, v: [channels]
    if train:
      kept = form.along(jnp.ones(x.shape[form.batch]) if mask is None else mask, form.batch) > 0
      count = kept.sum() * x.shape[1] * x.shape[2]
      axes = 1, 2, form.batch

      def average(z):  # selected, not multiplied: 0 * inf is NaN
        return jnp.where(kept, z, 0).sum(axes) / jnp.maximum(count, 1)

      m = average(x)
      v = average(jnp.square(x - form.along(m, form.channel)))
      for running, batch in ((mean, m), (var, v)):
        moved = DECAY * running.value + (1 - DECAY) * batch
        running.value = jnp.where(count > 0, moved, running.value)
    m, v = form.along(m, form.channel), form.along(v, form.channel)
    scale, bias = _affine(self, channels)
    return ((x - m) * (jax.lax.rsqrt(v + EPSILON) * scale) + bias).astype(dtype)


def _wide(x: Array) -> Array:
  """Returns bfloat16 numbers as float32: of narrower ones no mean or variance can be taken."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _affine(module: nn.Module, channels: int) -> tuple[Array, Array]:
  scale = module.param('scale', nn.initializers.ones, (channels,))
  bias = module.param('bias', nn.initializers.zeros, (channels,))
  return tuple(module.form.along(v, module.form.channel) for v in (scale, bias))


def _pool(x: Array, combine: Callable[[Array, Array], Array], size: int) -> Array:
  for axis in (1, 2):
    x = functools.reduce(combine, _shifts(x, size, 2, axis))
  return x


def avg_pool(x: Array) -> Array:
  """Averages 2 x 2 pixels; an odd last row or column is dropped, as in PyTorch."""
  return _pool(x, operator.add, 2) / 4


def max_pool(x: Array, size: int = 2, padding: int = 0) -> Array:
  """Takes the largest of size x size pixels, every two pixels.

  Args:
    x: activations in any form.
    size: side of the window, in pixels.
    padding: pixels of minus infinity on each side.

  Returns:
    Activations in the same form. Ties share the gradient; after ReLU they matter only at 0, where
    there is none.
  """
  return _pool(_pad(x, padding, -jnp.inf), jnp.maximum, size)


NORMS: dict[str, Callable[..., Callable[..., Array]]] = {
  'group': GroupNorm,
  'layer': functools.partial(GroupNorm, groups=1),
  'batch': BatchNorm,
  'none': lambda form, name: lambda x, train, mask: x,
}
POOLINGS = {'avg': avg_pool, 'max': max_pool, 'none': lambda x: x}
