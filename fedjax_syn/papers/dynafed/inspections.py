"""What `launch/inspect_run.py` computes of a run: numbers for inspect.json, and the figures."""

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms import chain
from fedjax_syn.algorithms.dynafed import gradient_error, privacy_check
from fedjax_syn.algorithms.dynafed.client_losses import round_losses
from fedjax_syn.algorithms.dynafed.dynafed import DynaFed, finetune
from fedjax_syn.algorithms.dynafed.scratch import Scratch, train_from_scratch
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Variables
from fedjax_syn.papers.dynafed.finished_run import Subject
from fedjax_syn.plotting import diagnostics
from fedjax_syn.runs import metrics

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
  diagnostics.gradient_error(errors, lines, rounds, figures / 'gradient_error.png', subject.title)
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
  diagnostics.privacy(distances, nearest.held_out_low, figures / 'privacy.png', subject.title)

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
  diagnostics.from_scratch(runs, figures / 'from_scratch.png', subject.title, reference)
  sets = {label: {'steps': r.steps, 'accuracy': r.accuracy} for label, r in runs.items()}
  return {'optimizer': 'adam', 'lr': SCRATCH_RATE, 'sets': sets}, runs


def losses(subject: Subject, figures: pathlib.Path, shown: int) -> dict:
  """Losses through the first fine-tuned round; layers other than FedAvg are left out of its local training."""
  run, engine, data = subject.run, subject.engine, subject.problem.data
  state = jax.tree.map(jnp.asarray, run.states[0])
  number, c = int(state.round) + 1, run.config.client
  task = engine.task(number)._replace(chain=chain(engine.chain.layers[0]))
  clients = np.asarray(engine.setting.sample(np.int32(run.seed), number))
  clients = clients[clients < task.num_clients]
  clients = clients[np.asarray(data.size)[clients] > 0]
  contexts = [engine.client_context(run.seed, state, client) for client in clients]
  layer = engine.chain[DynaFed]
  key = fold(stream(run.seed, Purpose.SERVER, number), engine.chain.on_server.index(layer))

  def tune(w, stats, record):
    w = Variables(w, stats)
    return finetune(layer, engine.model, w, subject.sets['synthetic'], key, record)

  most = int(data.size[clients].max())
  local_steps = c.steps or c.epochs * -(-most // c.batch_size)
  measured = round_losses(
    task,
    contexts[0],
    jnp.stack([context.key for context in contexts]),
    jnp.asarray(clients),
    tune,
    every=math.ceil(local_steps / LOOKS),
  )
  drawn = np.asarray(jax.random.permutation(fold(subject.key, 3), jnp.asarray(clients)))[:shown]
  path, title = figures / 'client_losses.png', f'{subject.title}, round {number}'
  diagnostics.client_losses(measured, clients, drawn, path, title, subject.problem.client_names)
  rows = [list(clients).index(client) for client in drawn]
  return {
    'round': number,
    'local_training': task.chain.name,
    'clients': drawn,
    'at': measured.at,
    'steps': measured.steps[rows],
    'local': measured.local[rows],
    'tuned': measured.tuned[:, drawn].T,
    'mean': measured.mean,
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
