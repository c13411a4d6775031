"""The library's networks in PyTorch, for the peers of `launch/benchmark.py`."""

from collections.abc import Sequence

import torch
from torch import nn

CLASSES = 10
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Network(nn.Module):
  """Blocks, then a head on their last output; the blocks' outputs are the network's stages."""

  def __init__(self, blocks: Sequence[nn.Module], head: nn.Module):
    """Joins the blocks and the head."""
    super().__init__()
    self.blocks, self.head = nn.ModuleList(blocks), head

  def stages(self, x: torch.Tensor) -> list[torch.Tensor]:
    """Returns the output of each block; x [batch, channels, height, width]."""
    outputs = []
    for block in self.blocks:
      x = block(x)
      outputs.append(x)
    return outputs

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """Returns logits, [batch, classes]."""
    return self.head(self.stages(x)[-1])


def mlp(shape: Sequence[int], width: int, depth: int) -> Network:
  """Flattened image, `depth` hidden layers with ReLU, logits."""
  height, wide, channels = shape
  sizes = [height * wide * channels, *[width] * depth]
  pairs = zip(sizes, sizes[1:], strict=False)
  blocks = [nn.Sequential(nn.Flatten(), nn.Linear(a, b), nn.ReLU()) for a, b in pairs]
  return Network(blocks, nn.Linear(sizes[-1], CLASSES))


def convnet(shape: Sequence[int], width: int, depth: int) -> Network:
  """`depth` blocks of conv 3x3, one norm group per channel, ReLU, average pooling; logits."""
  height, wide, channels = shape
  padding = 3 if tuple(shape) == (28, 28, 1) else 1
  blocks: list[nn.Module] = []
  for _ in range(depth):
    layers = [nn.Conv2d(channels, width, 3, padding=padding), nn.GroupNorm(width, width)]
    blocks.append(nn.Sequential(*layers, nn.ReLU(), nn.AvgPool2d(2)))
    height, wide = ((side + 2 * padding - 2) // 2 for side in (height, wide))
    channels, padding = width, 1
  head = nn.Sequential(nn.Flatten(), nn.Linear(height * wide * width, CLASSES))
  return Network(blocks, head)


def cnn(shape: Sequence[int], width: int, depth: int) -> Network:
  """Two convolutions 3x3 without padding, max pooling, a dense layer, logits."""
  del depth
  height, wide = ((side - 4) // 2 for side in shape[:2])
  first = nn.Sequential(nn.Conv2d(shape[2], width, 3), nn.ReLU())
  second = nn.Sequential(nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2))
  hidden = nn.Linear(height * wide * 2 * width, 4 * width)
  head = nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(4 * width, CLASSES))
  return Network([first, second], head)


def lenet(shape: Sequence[int], width: int, depth: int) -> Network:
  """Two convolutions 5x5 without padding and max pooling, 120 and 84 hidden units, logits."""
  del width, depth
  height, wide = (((side - 4) // 2 - 4) // 2 for side in shape[:2])
  pairs = (shape[2], 6), (6, 16)
  blocks = [nn.Sequential(nn.Conv2d(a, b, 5), nn.ReLU(), nn.MaxPool2d(2)) for a, b in pairs]
  dense = [nn.Linear(16 * height * wide, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
  return Network(blocks, nn.Sequential(nn.Flatten(), *dense, nn.Linear(84, CLASSES)))


MODELS = {'mlp': mlp, 'convnet': convnet, 'cnn': cnn, 'lenet': lenet}


def make_model(work: dict) -> Network:
  """Builds the network of some work."""
  return MODELS[work['model']](work['shape'], work['width'], work['depth']).to(DEVICE)
