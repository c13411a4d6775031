"""FedCOG, distribution and gradient matching in plain PyTorch, from the papers' formulas.

The peers of the workloads w5, w6 and w7. Each function is one step or one client of the papers;
`peer_torch.py` times what the last part of this file puts together.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from benchmarks.torch_networks import CLASSES, DEVICE, Network, make_model

Weights = dict[str, torch.Tensor]
Run = Callable[[Sequence[int]], object]  # (clients) -> one unit of work


def frozen(model: nn.Module) -> nn.Module:
  """Sets a network to evaluation, and its parameters to constants."""
  return model.eval().requires_grad_(False)


# -- FedCOG (Ye et al., 2024).


def jensen_shannon(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
  """Returns the JS divergence of each row, in nats (Eq. 2)."""
  p, q = log_p.exp(), log_q.exp()
  log_m = ((p + q) / 2).log()
  return 0.5 * (p * (log_p - log_m) + q * (log_q - log_m)).sum(1)


def generate(
  global_model: nn.Module,
  local_model: nn.Module | None,
  start: torch.Tensor,
  y: torch.Tensor,
  *,
  steps: int,
  lr: float = 0.01,
  lambda_dis: float = 0.1,
) -> torch.Tensor:
  """Minimises Eq. 1 over images; both networks are frozen, and None is no local model."""
  x = start.clone().requires_grad_()
  optimizer = torch.optim.Adam([x], lr=lr, betas=(0.5, 0.9))
  for _ in range(steps):
    optimizer.zero_grad()
    log_p = functional.log_softmax(global_model(x), 1)
    loss = functional.nll_loss(log_p, y)
    if local_model is not None:
      log_q = functional.log_softmax(local_model(x), 1)
      loss = loss + lambda_dis * (1 - jensen_shannon(log_p, log_q).mean())
    loss.backward()
    optimizer.step()
  return x.detach()


def complementary_labels(counts: torch.Tensor, samples: int) -> torch.Tensor:
  """Chooses target labels in proportion to what a client lacks (A.1.1); counts [classes]."""
  lacking = (counts.max() - counts).double()
  exact = samples * lacking / lacking.sum()
  whole = exact.floor()
  missing = samples - int(whole.sum())
  whole[(exact - whole).argsort(descending=True)[:missing]] += 1
  return torch.arange(len(counts), device=counts.device).repeat_interleave(whole.long())


def distilled_loss(
  model: nn.Module,
  real: tuple[torch.Tensor, torch.Tensor],
  generated: tuple[torch.Tensor, torch.Tensor],
  share: float,
) -> torch.Tensor:
  """Returns Eq. 3 with the weights of A.3.2; both kinds of samples share a forward pass.

  Args:
    model: in training.
    real: images and labels.
    generated: images and the global model's log-probabilities.
    share: N_gen / (N_real + N_gen).
  """
  (x, y), (x_generated, log_p) = real, generated
  logits = model(torch.cat([x, x_generated]))
  loss = functional.cross_entropy(logits[: len(x)], y)
  log_q = functional.log_softmax(logits[len(x) :], 1)
  kd = functional.kl_div(log_q, log_p, reduction='batchmean', log_target=True)
  return (1 - share) * loss + share * kd


def _batches(rows: int, size: int):
  """Yields rows of batches without end, shuffled in every pass."""
  while True:
    yield from torch.randperm(rows, device=DEVICE).split(size)


def fedcog(work: dict, data: dict) -> Run:
  """Returns a round of FedCOG after T0, (clients) -> None."""
  shards = client_shards(data)
  model, teacher, previous = make_model(work), make_model(work), make_model(work)
  last: dict[int, Weights] = {}

  def train_client(client, begin):
    x, y = shards[client]
    counts = torch.bincount(y, minlength=CLASSES)
    lacking = (counts.max() - counts).sum().item()
    targets = complementary_labels(counts, work['samples'])
    if client in last:
      previous.load_state_dict(last[client])
    local_model = frozen(previous) if client in last else None
    start = torch.randn(len(targets), *x.shape[1:], device=DEVICE)
    images = generate(teacher, local_model, start, targets, steps=work['steps'])
    with torch.no_grad():
      log_p = functional.log_softmax(teacher(images), 1)
    model.load_state_dict(begin)
    rates = {'lr': work['lr'], 'momentum': 0.9, 'weight_decay': 1e-5}
    optimizer = torch.optim.SGD(model.parameters(), **rates)
    batches = _batches(len(x), work['batch']), _batches(len(images), work['batch'])
    for _, rows, drawn in zip(range(work['local_steps']), *batches, strict=False):
      optimizer.zero_grad()
      real, generated = (x[rows], y[rows]), (images[drawn], log_p[drawn])
      distilled_loss(model, real, generated, lacking / (lacking + len(x))).backward()
      optimizer.step()
    last[client] = {name: value.clone() for name, value in model.state_dict().items()}

  def run(clients):
    begin = {name: value.clone() for name, value in model.state_dict().items()}
    teacher.load_state_dict(begin)
    frozen(teacher)
    present = [client for client in clients if len(shards[client][0])]
    for client in present:
      train_client(client, begin)
    mean = {name: sum(last[c][name] for c in present) / len(present) for name in begin}
    model.load_state_dict(mean)

  return run


# -- Distribution matching: LDM of FedDualMatch, and FedDM (Xiong et al., 2023).


def perturbed(weights: Weights, radius: float) -> Weights:
  """Draws weights from the ball of a radius: a normal vector cut to that length."""
  drawn = {name: torch.randn_like(value) for name, value in weights.items()}
  norm = torch.stack([d.square().sum() for d in drawn.values()]).sum().sqrt().item()
  return {name: value + min(norm, radius) / norm * drawn[name] for name, value in weights.items()}


def class_means(
  layers: Callable[[torch.Tensor], list[torch.Tensor]], x: torch.Tensor, y: torch.Tensor
) -> list[torch.Tensor]:
  """Returns the mean of each layer by class, [classes, features] each, without gradients."""
  with torch.no_grad():
    parts = [[z.flatten(1) for z in layers(batch)] for batch in x.split(256)]
    member = functional.one_hot(y, CLASSES).float()
    counts = member.sum(0).clamp(min=1)[:, None]
    return [member.T @ torch.cat(z) / counts for z in zip(*parts, strict=True)]


def matching_loss(
  layers: Callable[[torch.Tensor], list[torch.Tensor]],
  goal: list[torch.Tensor],
  x: torch.Tensor,
  counted: int,
) -> torch.Tensor:
  """Returns the squared distances of class means, summed over classes and layers.

  Args:
    layers: images -> outputs.
    goal: means of the real images, [classes, features] of each layer.
    x: images [classes, images, channels, height, width].
    counted: how many layers, from the last on.
  """
  outputs = layers(x.flatten(0, 1))[-counted:]
  means = [z.flatten(1).unflatten(0, x.shape[:2]).mean(1) for z in outputs]
  pairs = zip(goal[-counted:], means, strict=True)
  return sum((a - b).square().sum() for a, b in pairs)


def client_shards(data: dict) -> list[tuple[torch.Tensor, torch.Tensor]]:
  """Returns normalised images and labels of every client."""
  pixels = torch.tensor(data['x']).float() / 255
  x = (pixels - torch.from_numpy(data['mean'])) / torch.from_numpy(data['std'])
  x, y = x.permute(0, 3, 1, 2).contiguous().to(DEVICE), torch.from_numpy(data['y']).long()
  ends = zip(data['start'], data['size'], strict=True)
  rows = [torch.from_numpy(data['order'][a : a + n]).long() for a, n in ends]
  return [(x[r.to(DEVICE)], y[r].to(DEVICE)) for r in rows]


def _network_with(model: Network, weights: Weights) -> Network:
  model.load_state_dict(weights)
  return frozen(model)


def ldm_client(work: dict, model: Network, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  """Distils a client's classes layer by layer (Eq. 3, Algorithm 1); model has the global weights.

  Returns:
    Images [classes, images, channels, height, width].
  """
  drawn = _network_with(make_model(work), perturbed(model.state_dict(), work['radius']))
  present = y.unique()
  goal = [z[present] for z in class_means(drawn.stages, x, y)]
  images = torch.randn(len(present), work['images'], *x.shape[1:], device=DEVICE)
  optimizer = torch.optim.SGD([images.requires_grad_()], lr=1.0, momentum=0.5)
  for counted in range(1, len(goal) + 1):
    for _ in range(work['iterations']):
      optimizer.zero_grad()
      matching_loss(drawn.stages, goal, images, counted).backward()
      optimizer.step()
  return images.detach()


def feddm_client(work: dict, model: Network, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  """Distils a client's classes with a newly drawn model in each iteration; as `ldm_client`."""
  present = [c for c in range(CLASSES) if (y == c).sum() >= 10]
  if not present:
    return x.new_zeros(0, work['images'], *x.shape[1:])
  rows = [(y == c).nonzero()[:, 0] for c in present]
  draw = lambda r, count: r[torch.randint(len(r), (count,), device=DEVICE)]
  images = torch.stack([x[draw(r, work['images'])] for r in rows])
  optimizer = torch.optim.SGD([images.requires_grad_()], lr=1.0, momentum=0.5)
  drawn = make_model(work)

  def layers(x):
    features = drawn.stages(x)[-1]
    return [features, drawn.head(features)]

  for _ in range(work['iterations']):
    _network_with(drawn, perturbed(model.state_dict(), work['radius']))
    with torch.no_grad():
      real = [[z.flatten(1).mean(0) for z in layers(x[draw(r, 256)])] for r in rows]
    goal = [torch.stack(z) for z in zip(*real, strict=True)]
    optimizer.zero_grad()
    matching_loss(layers, goal, images, len(goal)).backward()
    optimizer.step()
  return images.detach()


def client_matching(work: dict, data: dict) -> Run:
  """Returns the distillation of the chosen clients, (clients) -> their images."""
  shards, model = client_shards(data), make_model(work)
  one = {'feddualmatch': ldm_client, 'feddm': feddm_client}[work['method']]
  return lambda clients: [one(work, model, *shards[client]) for client in clients]


# -- Gradient matching on the server (FedDualMatch, Eq. 4).


def set_gradient(
  model: nn.Module, weights: Weights, x: torch.Tensor, y: torch.Tensor, create_graph: bool = False
) -> tuple[torch.Tensor, ...]:
  """Returns the gradient of the mean cross-entropy in the weights."""
  loss = functional.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
  return torch.autograd.grad(loss, tuple(weights.values()), create_graph=create_graph)


def gradient_distance(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> torch.Tensor:
  """Returns the sum over output units of 1 - cos; leaves of one axis do not count."""
  total = a[0].new_zeros(())
  for g, h in zip(a, b, strict=True):
    if g.ndim > 1:
      g, h = g.flatten(1), h.flatten(1)
      total = total + (1 - (g * h).sum(1) / (g.norm(dim=1) * h.norm(dim=1) + 1e-6)).sum()
  return total


def match_gradients(
  model: nn.Module,
  weights: Weights,
  target: Sequence[torch.Tensor],
  x: torch.Tensor,
  y: torch.Tensor,
  *,
  steps: int,
  lr: float = 0.1,
) -> tuple[torch.Tensor, torch.Tensor]:
  """Moves a set so that its gradient approaches a target.

  Returns:
    The images, and the distance before the last step.
  """
  x = x.clone().requires_grad_()
  for _ in range(steps):
    distance = gradient_distance(set_gradient(model, weights, x, y, create_graph=True), target)
    (slope,) = torch.autograd.grad(distance, x)
    with torch.no_grad():
      x -= lr * slope
  return x.detach(), distance.detach()


def mean_gradient(
  gradients: Sequence[Sequence[torch.Tensor]], sizes: Sequence[int]
) -> list[torch.Tensor]:
  """Returns the mean of the clients' gradients, weighted by their images."""
  total = sum(sizes)
  weighted = [[g * (n / total) for g in one] for one, n in zip(gradients, sizes, strict=True)]
  return [sum(leaves) for leaves in zip(*weighted, strict=True)]


def server_matching(work: dict, data: dict) -> Run:
  """Returns the server's part of a round, R_t and matching at one model: (clients) -> sets."""
  model = make_model(work)
  weights = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
  sets = []
  for x, y in client_shards(data):
    labels = y.unique().repeat_interleave(work['images'])
    sets.append((torch.randn(len(labels), *x.shape[1:], device=DEVICE), labels))

  def run(clients):
    chosen = [sets[client] for client in clients if len(sets[client][0])]
    sizes = [len(x) for x, _ in chosen]
    gradients = [set_gradient(model, weights, x, y) for x, y in chosen]
    union = mean_gradient(gradients, sizes)
    apart = [
      sum((g - u).square().sum() for g, u in zip(one, union, strict=True)) for one in gradients
    ]
    radius = 1e-3 * max(apart).sqrt().item()
    at = {name: w.detach().requires_grad_() for name, w in perturbed(weights, radius).items()}
    target = mean_gradient([set_gradient(model, at, x, y) for x, y in chosen], sizes)
    return [match_gradients(model, at, target, x, y, steps=work['steps'])[0] for x, y in chosen]

  return run
