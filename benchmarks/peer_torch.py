"""The plain PyTorch loop of `launch/benchmark.py --peer=torch`, in a process of its own.

It reads lines of JSON from stdin and answers each of them by one line on stdout. The first line is
the work, whose field `data` is a file of arrays. Each further line, {"clients": [...]}, is one unit
of work, answered by its seconds. It does not import JAX: the threads of JAX and PyTorch would
compete for the cores.
"""

import json
import math
import resource
import sys
import time

import numpy as np
import torch
from torch.nn import functional

from benchmarks import torch_methods
from benchmarks.torch_networks import CLASSES, DEVICE, make_model

OPTIMIZERS = {'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}


def rounds(work: dict, data: dict[str, np.ndarray]) -> torch_methods.Run:
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

  def run(clients):
    begin = {name: value.clone() for name, value in model.state_dict().items()}
    present = [shards[client] for client in clients if len(shards[client])]
    total = {name: torch.zeros_like(value) for name, value in begin.items()}
    for shard in present:
      model.load_state_dict(begin)
      train(model, x, y, shard, work)
      for name, value in model.state_dict().items():
        total[name] += value
    if present:
      model.load_state_dict({name: value / len(present) for name, value in total.items()})

  return run


def train(
  model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, shard: torch.Tensor, work: dict
) -> None:
  """Trains a client from where the model stands; shard has its rows of x and y."""
  optimizer = OPTIMIZERS[work['optimizer']](model.parameters(), lr=work['lr'])
  for _ in range(work['epochs']):
    for rows in shard[torch.randperm(len(shard), device=DEVICE)].split(work['batch']):
      optimizer.zero_grad()
      functional.cross_entropy(model(x[rows]), y[rows]).backward()
      optimizer.step()


def unrolled_distance(
  model: torch.nn.Module,
  start: torch_methods.Weights,
  target: torch_methods.Weights,
  learned: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
  steps: int,
) -> torch.Tensor:
  """Returns DynaFed's loss: the distance to the target after steps of gradient descent.

  Args:
    model: the network.
    start: w^t.
    target: of the trajectory.
    learned: images, logits of their labels, logarithm of the step size.
    steps: s'.
  """
  x, y, log_step = learned
  w = {name: value.clone().requires_grad_() for name, value in start.items()}
  labels, step = y.softmax(1), log_step.exp()
  for _ in range(steps):
    loss = functional.cross_entropy(torch.func.functional_call(model, w, (x,)), labels)
    grads = torch.autograd.grad(loss, tuple(w.values()), create_graph=True)
    w = {name: p - step * g for (name, p), g in zip(w.items(), grads, strict=True)}
  apart = sum((start[name] - target[name]).square().sum() for name in start)
  return sum((w[name] - target[name]).square().sum() for name in w) / apart


class LearnedSet:
  """Images, labels and step size of DynaFed, with their optimizer."""

  def __init__(self, images: int, shape: list[int]):
    """Draws images; labels are uniform, and the step size is 0.04."""
    height, width, channels = shape
    self.x = torch.randn(images, channels, height, width, device=DEVICE, requires_grad=True)
    self.y = torch.zeros(images, CLASSES, device=DEVICE, requires_grad=True)
    self.log_step = torch.tensor(math.log(0.04), device=DEVICE, requires_grad=True)
    groups = [{'params': [self.x, self.y], 'lr': 5e-2}, {'params': [self.log_step], 'lr': 1e-2}]
    self.optimizer = torch.optim.Adam(groups)

  def match(self, model, start, target, steps: int) -> None:
    """Takes one step of trajectory matching."""
    learned = self.x, self.y, self.log_step
    distance = unrolled_distance(model, start, target, learned, steps)
    for leaf, gradient in zip(learned, torch.autograd.grad(distance, learned), strict=True):
      leaf.grad = gradient
    self.optimizer.step()


def unroll(work: dict, data: dict[str, np.ndarray]) -> torch_methods.Run:
  """Returns an outer iteration of trajectory matching: a step of images, labels and step size."""
  del data
  model = make_model(work)
  start = {name: value.detach() for name, value in model.named_parameters()}
  target = {name: value.detach() for name, value in make_model(work).named_parameters()}
  learned = LearnedSet(work['images'], work['shape'])
  return lambda clients: learned.match(model, start, target, work['steps'])


KINDS = {
  'Rounds': rounds,
  'Unroll': unroll,
  'Generation': torch_methods.fedcog,
  'ClientMatching': torch_methods.client_matching,
  'ServerMatching': torch_methods.server_matching,
}


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
  """Answers lines until there are no more; given a work as argument, runs it once."""
  if len(sys.argv) > 1:
    from benchmarks import torch_dynafed

    accuracy = torch_dynafed.run(json.loads(sys.argv[1]))
    print(f'PyTorch {torch.__version__.partition("+")[0]}\naccuracy {accuracy:.3f}')
    return
  work = json.loads(sys.stdin.readline())
  data = dict(np.load(work['data'], allow_pickle=False)) if work['data'] else {}
  run = KINDS[work['kind']](work, data)
  before = peak_bytes()
  version = f'PyTorch {torch.__version__.partition("+")[0]}'
  threads = torch.get_num_threads()
  print(json.dumps({'version': version, 'device': str(DEVICE), 'threads': threads}), flush=True)
  for line in sys.stdin:
    clients = json.loads(line)['clients']
    began, cpu = time.perf_counter(), time.process_time()
    run(clients)
    synchronise()
    answer = {'seconds': time.perf_counter() - began, 'cpu_seconds': time.process_time() - cpu}
    print(json.dumps(answer | {'peak_bytes': peak_bytes() - before}), flush=True)


if __name__ == '__main__':
  main()
