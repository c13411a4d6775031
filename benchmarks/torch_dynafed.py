"""A whole run of DynaFed in plain PyTorch: the peer of the workload w8.

`python -m benchmarks.peer_torch '{"rounds": 60, "length": 20, "iterations": 300, ...}'` reads the
digits that come with scikit-learn, trains, synthesises (Pi et al., 2023, Algorithms 1 and 2 with
the settings of configs/dynafed_digits.py), tests every round, and prints the last accuracy.
"""

import numpy as np
import torch
from sklearn import datasets
from torch.nn import functional

from benchmarks import peer_torch
from benchmarks.torch_networks import CLASSES, make_model

CLIENTS, SAMPLED, SEGMENT, INNER_STEPS, IMAGES = 20, 8, 5, 20, 150
FINETUNE = {'steps': 20, 'lr': 1e-3}
NETWORK = {'model': 'mlp', 'shape': (8, 8, 1), 'width': 128, 'depth': 2}
LOCAL = {'optimizer': 'adam', 'lr': 3e-3, 'batch': 16, 'epochs': 1}


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
  """Returns normalised training and test images with labels; a fifth is for tests."""
  x, y = datasets.load_digits(return_X_y=True)
  order = np.random.default_rng(0).permutation(len(x))
  train, test = np.split(order, [len(x) * 4 // 5])
  x = (x - x[train].mean()) / x[train].std()
  images = torch.from_numpy(x).float().reshape(-1, 1, 8, 8)
  labels = torch.from_numpy(y).long()
  return (images[train], labels[train]), (images[test], labels[test])


def shards(y: torch.Tensor) -> list[torch.Tensor]:
  """Returns the rows of equal clients with one or two classes: the rows sorted by class, cut."""
  return list(y.argsort(stable=True)[: len(y) // CLIENTS * CLIENTS].split(len(y) // CLIENTS))


def synthesise(model, trajectory: list, iterations: int, length: int) -> peer_torch.LearnedSet:
  """Learns a set from the trajectory w^0 ... w^L (Algorithm 1)."""
  learned = peer_torch.LearnedSet(IMAGES, NETWORK['shape'])
  rng = np.random.default_rng(0)
  for _ in range(iterations):
    t = rng.integers(0, length - SEGMENT + 1)
    drawn = [trajectory[i] for i in rng.integers(t + 1, t + SEGMENT + 1, 2)]
    target = {name: (drawn[0][name] + drawn[1][name]) / 2 for name in drawn[0]}
    learned.match(model, trajectory[t], target, INNER_STEPS)
  return learned


def finetune(model, learned: peer_torch.LearnedSet) -> None:
  """Trains the global model on the set."""
  x, labels = learned.x.detach(), learned.y.detach().softmax(1)
  optimizer = torch.optim.Adam(model.parameters(), lr=FINETUNE['lr'])
  for _ in range(FINETUNE['steps']):
    optimizer.zero_grad()
    functional.cross_entropy(model(x), labels).backward()
    optimizer.step()


def run(work: dict) -> float:
  """Runs DynaFed; returns the accuracy on the test rows after the last round."""
  torch.manual_seed(0)
  rng = np.random.default_rng(0)
  (x, y), (x_test, y_test) = digits()
  clients, model, learned = shards(y), make_model(NETWORK), None
  copy = lambda: {name: value.detach().clone() for name, value in model.state_dict().items()}
  trajectory, accuracy = [copy()], 1 / CLASSES
  for number in range(1, work['rounds'] + 1):
    begin = copy()
    sent = []
    for client in rng.choice(CLIENTS, SAMPLED, replace=False):
      model.load_state_dict(begin)
      peer_torch.train(model, x, y, clients[client], LOCAL)
      sent.append(copy())
    model.load_state_dict({name: sum(w[name] for w in sent) / len(sent) for name in begin})
    if number <= work['length']:
      trajectory.append(copy())
    if number > work['length']:
      finetune(model, learned)
    with torch.no_grad():
      accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    if number == work['length']:
      learned = synthesise(model, trajectory, work['iterations'], work['length'])
  return accuracy
