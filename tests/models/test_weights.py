"""Pretrained weights: names, axes, heads of another size, and the same logits as PyTorch's."""

import functools

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core.types import Variables
from fedjax_syn.models import weights

CREATE = functools.partial(models.create, 'mlp', shape=(8, 8, 1), width=6, depth=1)


def of_file(variables, drop=()):
  return {k: np.asarray(v) for k, v in weights.named(variables).items() if k not in drop}


def test_a_model_is_read_by_flax_names_and_a_head_of_another_size_is_new():
  ten, four = CREATE(num_classes=10), CREATE(num_classes=4)
  stored, drawn = ten.init(jax.random.key(1)), four.init(jax.random.key(2))
  arrays = of_file(stored)
  slashes = {k.replace('.', '/'): v for k, v in arrays.items()}  # as flax flattens them
  bare = {k.removeprefix('params.'): v for k, v in arrays.items()}
  for given in (arrays, slashes, bare):
    filled, lines = weights.fill(four, four, given, drawn, 'F')
    got = weights.named(filled)
    for name, leaf in arrays.items():
      wanted = weights.named(drawn)[name] if '.head.' in name else leaf
      np.testing.assert_array_equal(got[name], wanted)
    assert sum(line.endswith('made anew') for line in lines) == 2


@pytest.mark.parametrize(
  ('change', 'line'),
  [
    (lambda a: a.pop('params.body.dense_0.bias'), r'F: has no params.body.dense_0.bias \[6\]'),
    (lambda a: a.update(more=np.zeros(2)), 'F: has more, which model.name=mlp has not'),
    (
      lambda a: a.update({'params.body.dense_0.bias': np.zeros(7)}),
      r'shape \[7\], and params.body.dense_0.bias .* \[6\]',
    ),
    (lambda a: a.update({'fc.weight': np.zeros((10, 6))}), "has PyTorch's names"),
  ],
)
def test_what_does_not_fit_is_refused(change, line):
  model = CREATE(num_classes=10)
  drawn = model.init(jax.random.key(0))
  arrays = of_file(drawn)
  change(arrays)
  with pytest.raises(ValueError, match=line):
    weights.fill(model, model, arrays, drawn, 'F')


@pytest.mark.parametrize('name', ['w.pt', 'w.npz', 'w.safetensors'])
def test_a_file_of_another_kind_or_a_damaged_one_is_refused(name, tmp_path):
  with pytest.raises(ValueError, match='no such file'):
    weights.read(tmp_path / name)
  (tmp_path / name).write_bytes(b'\x80\x02]q\x00.')
  with pytest.raises(ValueError, match='safetensors.torch.save_file' if name == 'w.pt' else 'read'):
    weights.read(tmp_path / name)


def torch_names(variables):
  """A ResNet-18 of ours under torchvision's names, worked out the other way round."""
  out, axes = {}, {4: (3, 2, 0, 1), 2: (1, 0)}
  modules = {v: k for k, v in weights.TORCH_BLOCK.items()}
  top = {v: k for k, v in weights.TORCH_TOP.items()}
  leaf_names = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias'}
  leaf_names |= {'mean': 'running_mean', 'var': 'running_var'}
  for name, leaf in weights.named(variables).items():
    _, *module, last = name.split('.')
    if module[-1] in modules and len(module) == 3:
      stage, block = module[1].split('_')[1:]
      place = f'layer{int(stage) + 1}.{block}.{modules[module[-1]]}'
    else:
      place = top['.'.join(module)]
    array = np.asarray(leaf)
    out[f'{place}.{leaf_names[last]}'] = array.transpose(axes.get(array.ndim, (0,)))
  return out


def test_every_array_of_a_resnet_has_its_name_in_pytorch():
  model = models.create(
    'resnet18', shape=(64, 64, 3), num_classes=5, width=4, norm='batch', conv='xla'
  )
  stored, drawn = model.init(jax.random.key(1)), model.init(jax.random.key(2))
  arrays = torch_names(stored) | {'bn1.num_batches_tracked': np.array(3)}
  assert len(arrays) == len(jax.tree.leaves(stored)) + 1
  assert arrays['layer2.0.downsample.0.weight'].shape == (8, 4, 1, 1)
  filled, lines = weights.fill(model, model, arrays, drawn, 'F')
  jax.tree.map(np.testing.assert_array_equal, filled, stored)
  assert (
    'params.body.block_1_0.conv_skip.kernel [1, 1, 4, 8] from layer2.0.downsample.0.weight' in lines
  )
  group = models.create('resnet18', shape=(64, 64, 3), num_classes=5, width=4, conv='xla')
  with pytest.raises(ValueError, match='which model.name=resnet18 has not; see model.norm'):
    weights.fill(group, group, arrays, group.init(jax.random.key(0)), 'F')


def torch_resnet18(torch):
  """torchvision's ResNet-18, written out."""
  nn = torch.nn

  class Block(nn.Module):
    def __init__(self, before, width, stride):
      super().__init__()
      self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
      self.bn1 = nn.BatchNorm2d(width)
      self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
      self.bn2 = nn.BatchNorm2d(width)
      if stride != 1 or before != width:
        skip = nn.Conv2d(before, width, 1, stride, bias=False)
        self.downsample = nn.Sequential(skip, nn.BatchNorm2d(width))

    def forward(self, x):
      z = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
      return torch.relu(z + (self.downsample(x) if hasattr(self, 'downsample') else x))

  class ResNet(nn.Module):
    def __init__(self):
      super().__init__()
      self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
      self.bn1 = nn.BatchNorm2d(64)
      for i in range(4):
        before, width = 64 * 2 ** max(i - 1, 0), 64 * 2**i
        blocks = Block(before, width, 1 + (i > 0)), Block(width, width, 1)
        setattr(self, f'layer{i + 1}', nn.Sequential(*blocks))
      self.fc = nn.Linear(512, 1000)

    def forward(self, x):
      z = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
      for i in range(4):
        z = getattr(self, f'layer{i + 1}')(z)
      return self.fc(z.mean((2, 3)))

  return ResNet()


def test_pytorchs_resnet18_gives_the_same_logits(tmp_path):
  torch = pytest.importorskip('torch')  # the extra benchmark
  torch.manual_seed(0)
  theirs = torch_resnet18(torch)
  x = torch.randn(8, 3, 64, 64)
  theirs(x)  # moves the running statistics
  theirs.eval()
  arrays = {name: value.numpy() for name, value in theirs.state_dict().items()}
  np.savez(tmp_path / 'resnet18.npz', **arrays)
  model = models.create('resnet18', shape=(64, 64, 3), num_classes=1000, norm='batch', conv='xla')
  drawn = model.init(jax.random.key(0))
  filled, _ = weights.fill(model, model, weights.read(tmp_path / 'resnet18.npz'), drawn, 'F')
  ours = model.apply(Variables(*filled), x.numpy().transpose(0, 2, 3, 1)).logits
  np.testing.assert_allclose(ours, theirs(x).detach().numpy(), atol=1e-4)
  assert fs.__version__
