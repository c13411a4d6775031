"""The plain PyTorch loop of `launch/benchmark.py --peer=torch`, in a process of its own.

It reads lines of JSON from stdin and answers each of them by one line on stdout. The first line is
the work, whose field `data` is a file of arrays. Each further line, {"clients": [...]}, is one unit
of work, answered by its seconds. It does not import JAX: the threads of JAX and PyTorch would
compete for the cores.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CLASSES = 10
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def mlp(shape: Sequence[int], width: int, depth: int) -> nn.Module:
  """Flattened image, `depth` hidden layers with ReLU, logits."""
  sizes = [int(np.prod(shape)), *[width] * depth]
  layers: list[nn.Module] = [nn.Flatten()]
  for a, b in zip(sizes, sizes[1:], strict=False):
    layers += [nn.Linear(a, b), nn.ReLU()]
  return nn.Sequential(*layers, nn.Linear(sizes[-1], CLASSES))


def convnet(shape: Sequence[int], width: int, depth: int) -> nn.Module:
  """`depth` blocks of conv 3x3, one norm group per channel, ReLU, average pooling; logits."""
  height, wide, channels = shape
  padding = 3 if tuple(shape) == (28, 28, 1) else 1
  layers: list[nn.Module] = []
  for _ in range(depth):
    layers += [nn.Conv2d(channels, width, 3, padding=padding), nn.GroupNorm(width, width)]
    layers += [nn.ReLU(), nn.AvgPool2d(2)]
    height, wide = ((side + 2 * padding - 2) // 2 for side in (height, wide))
    channels, padding = width, 1
  return nn.Sequential(*layers, nn.Flatten(), nn.Linear(height * wide * width, CLASSES))


def cnn(shape: Sequence[int], width: int, depth: int) -> nn.Module:
  """Two convolutions 3x3 without padding, max pooling, a dense layer, logits."""
  del depth
  height, wide = ((side - 4) // 2 for side in shape[:2])
  return nn.Sequential(
    nn.Conv2d(shape[2], width, 3),
    nn.ReLU(),
    nn.Conv2d(width, 2 * width, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(height * wide * 2 * width, 4 * width),
    nn.ReLU(),
    nn.Linear(4 * width, CLASSES),
  )


MODELS = {'mlp': mlp, 'convnet': convnet, 'cnn': cnn}
OPTIMIZERS = {'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}


def make_model(work: dict) -> nn.Module:
  """Builds the network of some work."""
  return MODELS[work['model']](work['shape'], work['width'], work['depth']).to(DEVICE)


def rounds(work: dict, data: dict[str, np.ndarray]) -> Callable[[Sequence[int]], None]:
  """Returns a round of FedAvg, (clients) -> None, which updates the global model."""
  pixels = torch.from_numpy(data['x']).float() / 255
  x = ((pixels - torch.from_numpy(data['mean'])) / torch.from_numpy(data['std'])).to(DEVICE)
  x = x.permute(0, 3, 1, 2).contiguous()
  y = torch.from_numpy(data['y']).long().to(DEVICE)
  shards = [
    torch.from_numpy(data['order'][a : a + n]).long().to(DEVICE)
    for a, n in zip(data['start'], data['size'], strict=True)
  ]
  model = make_model(work)
  make_optimizer = OPTIMIZERS[work['optimizer']]

  def run(clients):
    begin = {name: value.clone() for name, value in model.state_dict().items()}
    present = [shards[client] for client in clients if len(shards[client])]
    total = {name: torch.zeros_like(value) for name, value in begin.items()}
    for shard in present:
      model.load_state_dict(begin)
      optimizer = make_optimizer(model.parameters(), lr=work['lr'])
      for rows in shard[torch.randperm(len(shard), device=DEVICE)].split(work['batch']):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
      for name, value in model.state_dict().items():
        total[name] += value
    if present:
      model.load_state_dict({name: value / len(present) for name, value in total.items()})

  return run


def unroll(work: dict, data: dict[str, np.ndarray]) -> Callable[[Sequence[int]], None]:
  """Returns an outer iteration of trajectory matching: a step of images, labels and step size."""
  del data
  model = make_model(work)
  start = {name: value.detach() for name, value in model.named_parameters()}
  target = {name: value.detach() for name, value in make_model(work).named_parameters()}
  apart = sum((start[name] - target[name]).square().sum() for name in start)
  height, width, channels = work['shape']
  x = torch.randn(work['images'], channels, height, width, device=DEVICE, requires_grad=True)
  y = torch.zeros(work['images'], CLASSES, device=DEVICE, requires_grad=True)
  log_step = torch.tensor(np.log(0.04), dtype=torch.float32, device=DEVICE, requires_grad=True)
  groups = [{'params': [x, y], 'lr': 5e-2}, {'params': [log_step], 'lr': 1e-2}]
  optimizer = torch.optim.Adam(groups)

  def run(clients):
    del clients
    w = {name: value.clone().requires_grad_() for name, value in start.items()}
    labels, step = y.softmax(1), log_step.exp()
    for _ in range(work['steps']):
      loss = functional.cross_entropy(torch.func.functional_call(model, w, (x,)), labels)
      grads = torch.autograd.grad(loss, tuple(w.values()), create_graph=True)
      w = {name: p - step * g for (name, p), g in zip(w.items(), grads, strict=True)}
    distance = sum((w[name] - target[name]).square().sum() for name in w) / apart
    learned = x, y, log_step
    for leaf, gradient in zip(learned, torch.autograd.grad(distance, learned), strict=True):
      leaf.grad = gradient
    optimizer.step()

  return run


KINDS = {'Rounds': rounds, 'Unroll': unroll}


def synchronise() -> None:
  """Waits for the accelerator."""
  if DEVICE.type == 'cuda':
    torch.cuda.synchronize()


def peak_bytes() -> int:
  """Returns the peak memory so far, of the accelerator or else of the process."""
  if DEVICE.type == 'cuda':
    return torch.cuda.max_memory_allocated()
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
  """Answers lines until there are no more."""
  work = json.loads(sys.stdin.readline())
  data = dict(np.load(work['data'], allow_pickle=False)) if work['data'] else {}
  run = KINDS[work['kind']](work, data)
  before = peak_bytes()
  print(json.dumps({'torch': torch.__version__, 'device': str(DEVICE)}), flush=True)
  for line in sys.stdin:
    clients = json.loads(line)['clients']
    began = time.perf_counter()
    run(clients)
    synchronise()
    seconds = time.perf_counter() - began
    print(json.dumps({'seconds': seconds, 'peak_bytes': peak_bytes() - before}), flush=True)


if __name__ == '__main__':
  main()
