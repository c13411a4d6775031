"""ResNet-18 (He et al., 2016); small images get the stem that is usual for CIFAR."""

import functools
from typing import Any

import flax.linen as nn

from fedjax_syn.core.types import Array
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import NORMS, Conv, Form, GroupNorm, max_pool

GROUPS = 32  # Wu and He (2018); one group per channel would leave nothing of a 1x1 last stage
SMALL = 64  # pixels; below, the stem neither strides nor pools


class Block(nn.Module):
  """Two 3x3 convolutions around which the input is added."""

  width: int
  stride: int
  norm: str
  form: Form
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    conv = functools.partial(Conv, self.width, form=self.form, weights=self.weights, bias=False)
    norm = functools.partial(_norm, self.norm, self.form, self.width)
    z = conv(3, stride=self.stride, padding=1, name='conv_0')(x)
    z = nn.relu(norm(name='norm_0')(z, train, mask))
    z = conv(3, padding=1, name='conv_1')(z)
    z = norm(name='norm_1')(z, train, mask)
    if self.stride != 1 or x.shape[self.form.channel] != self.width:
      x = conv(1, stride=self.stride, name='conv_skip')(x)
      x = norm(name='norm_skip')(x, train, mask)
    return nn.relu(x + z)


class ResNet18(nn.Module):
  """Four stages of two blocks; each doubles the channels and, but the first, halves the image."""

  width: int
  norm: str
  small: bool
  form: Form
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    size, stride = (3, 1) if self.small else (7, 2)
    conv = functools.partial(Conv, stride=stride, padding=size // 2, bias=False, name='conv')
    z = conv(self.width, size, self.form, self.weights)(self.form.swap(x))
    z = nn.relu(_norm(self.norm, self.form, self.width, name='norm')(z, train, mask))
    z = z if self.small else max_pool(z, size=3, padding=1)
    for stage in range(4):
      for i in range(2):
        stride = 2 if stage > 0 and i == 0 else 1
        width, name = self.width * 2**stage, f'block_{stage}_{i}'
        z = Block(width, stride, self.norm, self.form, self.weights, name=name)(z, train, mask)
      self.sow('stages', 'outputs', self.form.swap(z))
    return self.form.swap(z).mean((1, 2))


def _norm(norm: str, form: Form, width: int, *, name: str) -> nn.Module:
  groups = next(g for g in range(min(GROUPS, width), 0, -1) if width % g == 0)
  norms: dict[str, Any] = {**NORMS, 'group': functools.partial(GroupNorm, groups=groups)}
  return norms[norm](form, name=name)


def resnet18(
  *,
  shape: tuple[int, int, int],
  width: int,
  norm: str,
  form: Form,
  weights: Init,
  **unused: Any,
) -> ResNet18:
  """Returns the body of a ResNet-18. Default width of the first stage: 64."""
  return ResNet18(width or 64, norm, min(shape[:2]) < SMALL, form, weights)
