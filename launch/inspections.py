"""What `launch/inspect_run.py` computes of a run: numbers for inspect.json, and the figures."""

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from fedjax_syn.method import Task

from fedjax_syn import algorithms, diagnostic_figures, metrics
from fedjax_syn.algorithms.dynafed import augmentation
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.losses import cross_entropy
from fedjax_syn.synthesis import finetuning, gradient_error, privacy_check, trajectory
from fedjax_syn.synthesis.client_losses import round_losses
from fedjax_syn.synthesis.scratch import Scratch, train_from_scratch
from fedjax_syn.typing import Variables
from launch.finished_run import Subject

SCRATCH_RATE = 1e-3  # Adam's; the paper names none
LOOKS = 50  # points of a curve, about


def inspect(subject: Subject, folder: pathlib.Path, *, steps: int, clients: int) -> dict:
  """Measures a run and draws its figures.

  Args:
    subject: the run, opened.
    folder: the run's folder.
    steps: of training from scratch.
    clients: how many clients' losses are drawn.

  Returns:
    JSON values; what is not finite is None.
  """
  run, figures = subject.run, folder / 'figures'
  scratch, runs = from_scratch(subject, figures, steps)
  report = {
    'algorithm': run.config.algorithm,
    'dataset': subject.problem.dataset.name,
    'seed': run.seed,
    'gradient_error': gradients(subject, figures),
    'privacy': privacy(subject, figures, runs['synthetic'].variables),
    'from_scratch': scratch,
    'client_losses': losses(subject, figures, clients),
    'rounds_to_running_mean': table4(folder),
  }
  return _plain(report)


def gradients(subject: Subject, figures: pathlib.Path) -> dict:
  """Assumption 3 along the trajectory and at the checkpoints after it."""
  run, problem = subject.run, subject.problem
  block = run.config.blocks['dynafed']
  first, later = (
    0 if block.include_initial else 1,
    [s for s in run.states if s.round > block.length],
  )
  path = run.states[-1].server['dynafed'].trajectory
  points = jax.tree.map(
    lambda path, *after: jnp.concatenate([path[first:], *(leaf[None] for leaf in after)]),
    path,
    *(state.params for state in later),
  )
  rounds = [*range(first, block.length + 1), *(int(s.round) for s in later)]
  stats = run.states[0].stats
  errors = gradient_error.gradient_errors(
    subject.engine.model, cross_entropy, problem.data, points, stats, subject.sets
  )
  lines = {label: gradient_error.fit(e) for label, e in errors.items()}
  diagnostic_figures.gradient_error(
    errors, lines, rounds, figures / 'gradient_error.png', subject.title
  )
  sets = {
    label: {
      'error_norm': e.error_norm,
      'cosine': e.cosine,
      'median_cosine': np.nanmedian(e.cosine),
      **lines[label]._asdict(),
    }
    for label, e in errors.items()
  }
  return {'rounds': rounds, 'real_norm': errors['synthetic'].real_norm, 'sets': sets}


def privacy(subject: Subject, figures: pathlib.Path, trained: Variables) -> dict:
  """Nearest training images, and two attacks beside the same attacks on what knows nothing of the data."""
  data, dataset, model = subject.problem.data, subject.problem.dataset, subject.engine.model
  train, test = dataset.train, dataset.test
  synthetic = np.asarray(subject.sets['synthetic'].x)
  before = np.asarray(subject.run.states[-1].server['dynafed'].snapshots.x[0])
  near = functools.partial(privacy_check.nearest_distances, data)
  distances = {'synthetic': near(synthetic, train.x), 'held out': near(test.x, train.x)}
  nearest = privacy_check.nearness(distances['synthetic'], distances['held out'])
  diagnostic_figures.privacy(
    distances, nearest.held_out_low, figures / 'privacy.png', subject.title
  )

  def attack(score):
    return privacy_check.membership(score(*train), score(*test))._asdict()

  def by_loss(variables):
    return attack(lambda x, y: -privacy_check.sample_losses(model, data, variables, x, y))

  membership = {
    'distance': attack(lambda x, y: -near(x, synthetic)),
    'distance, set before learning': attack(lambda x, y: -near(x, before)),
    'loss': by_loss(trained),
    'loss, network before training': by_loss(model.init(fold(subject.key, 2))),
  }
  return {'nearest': nearest._asdict(), 'membership': membership}


def from_scratch(
  subject: Subject, figures: pathlib.Path, steps: int
) -> tuple[dict, dict[str, Scratch]]:
  """Trains new networks on each set alone; returns the numbers, and the runs."""
  test, run = subject.problem.dataset.test, subject.run
  train = functools.partial(
    train_from_scratch,
    fold(subject.key, 2),
    subject.engine.model,
    evaluate=subject.engine.evaluator(test.x, test.y),
    optimizer=optax.adam(SCRATCH_RATE),
    steps=steps,
    every=math.ceil(steps / LOOKS),
  )
  runs = {label: train(syn) for label, syn in subject.sets.items()}
  per_seed = run.summary['test_accuracy']['mean_last_5']['per_seed']
  reference = per_seed[run.config.seeds.index(run.seed)]
  diagnostic_figures.from_scratch(runs, figures / 'from_scratch.png', subject.title, reference)
  sets = {label: {'steps': r.steps, 'accuracy': r.accuracy} for label, r in runs.items()}
  return {'optimizer': 'adam', 'lr': SCRATCH_RATE, 'sets': sets}, runs


def losses(subject: Subject, figures: pathlib.Path, shown: int) -> dict:
  """Losses through the first fine-tuned round; methods around FedAvg are left out of its local training."""
  run, data, model = subject.run, subject.problem.data, subject.engine.model
  config, state = run.config, jax.tree.map(jnp.asarray, run.states[0])
  block, number, c = config.blocks['dynafed'], int(state.round) + 1, config.client
  base = algorithms.create('fedavg', config)
  num_clients, num_classes = data.class_counts.shape
  sample = SAMPLERS[c.sampler](num_clients, c.participation)[1]
  clients = np.asarray(sample(stream(run.seed, Purpose.SAMPLE, number)))
  clients = clients[clients < num_clients]
  clients = clients[np.asarray(data.size)[clients] > 0]
  keys = jax.vmap(functools.partial(fold, stream(run.seed, Purpose.CLIENT, number)))(
    jnp.asarray(clients)
  )

  def tune(w, stats, record):
    loss = trajectory.inner_loss(model, stats, augmentation(block.finetune_augment))
    optimizer = getattr(optax, block.finetune_optimizer)(block.finetune_lr)
    key = fold(stream(run.seed, Purpose.SERVER, number), 0)
    return finetuning.finetune(
      loss,
      optimizer,
      w,
      subject.sets['synthetic'],
      key,
      block.finetune_steps,
      batch_size=block.finetune_batch,
      record=record,
    )

  most = int(data.size[clients].max())
  local_steps = c.steps or c.epochs * -(-most // c.batch_size)
  found = round_losses(
    base,
    Task(model, cross_entropy, data, num_clients, num_classes, base.hyper, number),
    Variables(state.params, state.stats),
    keys,
    jnp.asarray(clients),
    number,
    tune,
    every=math.ceil(local_steps / LOOKS),
  )
  drawn = np.asarray(jax.random.permutation(fold(subject.key, 3), jnp.asarray(clients)))[:shown]
  path, title = figures / 'client_losses.png', f'{subject.title}, round {number}'
  diagnostic_figures.client_losses(found, clients, drawn, path, title, subject.problem.client_names)
  rows = [list(clients).index(client) for client in drawn]
  return {
    'round': number,
    'local_training': base.name,
    'clients': drawn,
    'at': found.at,
    'steps': found.steps[rows],
    'local': found.local[rows],
    'tuned': found.tuned[:, drawn].T,
    'mean': found.mean,
  }


def table4(folder: pathlib.Path) -> dict | None:
  """Rounds until the best mean of five evaluations of the compared run is reached; None without such a run."""
  other = metrics.read(folder / 'compare' / 'metrics.jsonl')
  if not other:
    return None
  target, own = metrics.best_running_mean(other), metrics.read(folder / 'metrics.jsonl')
  return {
    'target': target,
    'rounds': metrics.rounds_to_running_mean(own, target),
    'compared': metrics.rounds_to_running_mean(other, target),
    'widest_gap': max(metrics.widest_gap(own), metrics.widest_gap(other)),
  }


def _plain(value: Any) -> Any:
  """JSON values: lists for arrays, None for what is not finite, strings for keys."""
  if isinstance(value, dict):
    return {str(key): _plain(item) for key, item in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist()
  if isinstance(value, list | tuple):
    return [_plain(item) for item in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
