"""The sets that clients send, of a finished run of FedDM or FedDualMatch: distilled once more, measured and drawn.

Measuring needs the model that they were distilled for: from the last checkpoint the round after it is distilled, as
the run would. The sets of the last round itself are in synthetic/, and `export.py` writes them.
"""

import dataclasses
import functools
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from fedjax_syn.engine.messages import make_message
from fedjax_syn.engine.visits import servers_of
from fedjax_syn.method import Method, State, Task

from fedjax_syn import algorithms, assemble, checkpoint, figures, run_folder
from fedjax_syn import config as config_lib
from fedjax_syn import trusted as trust
from fedjax_syn.algorithms import feddm
from fedjax_syn.client.optimizers import optimizer
from fedjax_syn.data import federated
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.losses import objective_of
from fedjax_syn.server import sets as sets_lib
from fedjax_syn.synthesis import ball, gradient, set_diagnostics
from fedjax_syn.synthesis import distribution as dm
from fedjax_syn.synthesis.class_sets import ClassSet
from fedjax_syn.typing import Variables

SERVER_OPTIMIZERS = {
  'feddm': feddm.server_optimizer,
  'feddualmatch': lambda block, lr: optimizer(block.server_optimizer)(lr),
}
NAMES = tuple(SERVER_OPTIMIZERS)
MODELS = 3  # drawn within the ball, for numbers that hold for all models in it
POINTS = 5  # along fine-tuning, for sigma_g


class Subject(NamedTuple):
  """A finished run at its last checkpoint."""

  config: config_lib.Resolved
  problem: assemble.Problem
  method: Method
  task: Task
  state: State
  seed: int

  @property
  def name(self) -> str:
    """The method's."""
    return self.method.name


def open_subject(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> Subject:
  """Opens a run.

  Args:
    folder: with a config.json and a checkpoint of the seed.
    seed: which of its seeds; None is the first that has a model.
    data_dir: where the data set lies; None is where it lay for the run.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if its clients send no sets, it has no checkpoint, or its data set is not there.
  """
  stored = run_folder.config(folder)
  if stored is None:
    raise ValueError(f'{folder}: holds no config.json; name the folder of a run')
  config = trust.check(stored['config'], folder, trusted)
  if config.algorithm not in NAMES:
    raise ValueError(f'{folder}: algorithm={config.algorithm!r}: its clients send no sets')
  newest = {checkpoint.seed_of(p): p for p in checkpoint.found(folder / 'checkpoints')}
  seeds = [s for s in (config.seeds if seed is None else [seed]) if s in newest]
  states = ((s, checkpoint.read(newest[s]).tree) for s in seeds)
  seed, state = next(((s, t) for s, t in states if t is not None), (seed, None))
  if state is None:
    which = 'any seed' if seed is None else f'seed {seed}'
    raise ValueError(f'{folder}: no checkpoint of {which} holds a model')
  if data_dir is not None:
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=data_dir))
  try:
    problem = assemble.load(config)
  except OSError as error:
    raise ValueError(str(error)) from error
  if problem.dataset.checksum != stored['dataset']['checksum']:
    raise ValueError(f'data.name={config.data.name!r}: differs from the data set of the run')
  method, data = algorithms.create(config.algorithm, config), problem.data
  num_clients, num_classes = data.class_counts.shape
  objective = objective_of(data.y)
  task = Task(
    problem.model,
    objective.loss,
    data,
    num_clients,
    num_classes,
    method.hyper,
    first_round=1,
    cohort=config.client.participation * num_clients,
    objective=objective,
  )
  return Subject(config, problem, method, task, jax.tree.map(jnp.asarray, state), seed)


def distil(subject: Subject) -> ClassSet:
  """Distils every client's set of the round after the checkpoint, leaves [clients, ...]."""
  task_of = lambda data, hyper, first_round: subject.task._replace(data=data, hyper=hyper)
  message = make_message(subject.method, task_of, subject.task.data, subject.task.hyper)
  sent = (message(subject.seed, subject.state, k) for k in range(subject.task.num_clients))
  found = [sets_lib.received(one.body[subject.name]) for one in sent]
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def measure(subject: Subject, sets: ClassSet) -> dict[str, float | None]:
  """Measures what FedDualMatch's theory assumes and its figures show.

  Args:
    subject: the run.
    sets: from `distil`.

  Returns:
    'spread_data', 'spread_before', 'spread_after' (of the clients' gradients on their data, their sets, and their sets
    after gradient matching; None for FedDM, which has none), means over a few models within the ball; 'sigma_d',
    'sigma_d_same_shares', the largest over these models and the clients; 'sigma_g', the largest along fine-tuning.
  """
  block = subject.config.blocks[subject.name]
  task, (w, stats) = subject.task, (subject.state.params, subject.state.stats)
  matching = subject.name == 'feddualmatch' and block.matches > 0
  layers = block.layers if subject.name == 'feddualmatch' else 'last+logits'
  key = stream(subject.seed, Purpose.DIAGNOSE, 2)
  radius = block.radius
  if subject.name == 'feddualmatch':
    radius = gradient.radius(task.model, w, stats, sets, block.radius_lr)

  @jax.jit
  def at(i, data, sets):
    drawn = ball.sample(fold(key, i), w, radius)
    variables = Variables(drawn, stats)
    own = sets.present.any(axis=-1)
    embed = lambda x: dm.layers(task.model, variables, x, layers)
    real = set_diagnostics.on_data(task.model, task.loss, data, variables)
    found = {
      'spread_data': set_diagnostics.spread(real, data.size > 0),
      'spread_before': set_diagnostics.spread(
        set_diagnostics.on_sets(task.model, drawn, stats, sets), own
      ),
    }
    if matching:
      target = gradient.union_gradient(task.model, drawn, stats, sets)
      match = lambda s: gradient.match(
        task.model, drawn, stats, s, target, block.match_steps, block.match_lr
      )
      matched, _ = jax.lax.map(match, sets)
      after = set_diagnostics.on_sets(task.model, drawn, stats, matched)
      found['spread_after'] = set_diagnostics.spread(after, own)

    def features(inputs):
      client, own = inputs
      shard = federated.shard_of(data, client)
      return set_diagnostics.feature_difference(embed, data, shard, own)

    clients = jnp.arange(task.num_clients, dtype=jnp.int32)
    stated, same = jax.lax.map(features, (clients, sets))
    return found, {'sigma_d': stated.max(), 'sigma_d_same_shares': same.max()}

  spreads, largest = zip(*(at(i, task.data, sets) for i in range(MODELS)), strict=True)
  mean = {name: float(np.mean([s[name] for s in spreads])) for name in spreads[0]}
  high = {name: float(max(s[name] for s in largest)) for name in largest[0]}
  return {'spread_after': None, **mean, **high, 'sigma_g': _sigma_g(subject, sets)}


def _sigma_g(subject: Subject, sets: ClassSet) -> float:
  """The largest mean difference at some points of fine-tuning on S, as the server of the method fine-tunes."""
  block, task = subject.config.blocks[subject.name], subject.task
  w, stats = subject.state.params, subject.state.stats
  rule = SERVER_OPTIMIZERS[subject.name](block, block.server_lr)
  key = stream(subject.seed, Purpose.DIAGNOSE, 3)

  @functools.partial(jax.jit, static_argnums=1)
  def at(sets, steps):
    tuned = sets_lib.train(
      key,
      task,
      w,
      stats,
      [sets],
      rule,
      steps=steps,
      batch_size=block.server_batch,
    )
    return set_diagnostics.gradient_difference(task.model, tuned, stats, sets)

  points = np.linspace(0, block.server_steps, POINTS).astype(int)
  return max(float(at(sets, int(steps))) for steps in points)


def draw(subject: Subject, sets: ClassSet, path: pathlib.Path) -> None:
  """Draws the set of the client with the most classes.

  Args:
    subject: the run.
    sets: from `distil`.
    path: where the picture goes.
  """
  client = int(sets.present.sum(axis=-1).argmax())
  present = np.flatnonzero(np.asarray(sets.present[client]))
  x = np.asarray(sets.x[client])[present]
  labels = np.eye(subject.task.num_classes)[np.repeat(present, x.shape[1])]
  dataset = subject.problem.dataset
  title = f'{dataset.title}, {subject.name}, client {client}, round {int(subject.state.round) + 1}'
  path.parent.mkdir(parents=True, exist_ok=True)
  figures.synthetic_sets(
    x.reshape(1, -1, *x.shape[2:]),
    labels[None],
    [_steps(subject)],
    dataset.normalisation,
    path,
    title,
  )


def _steps(subject: Subject) -> int:
  """By how many iterations a set is distilled, in all its stages."""
  servers = servers_of(subject.method, subject.task)
  learned = (t.synthetic(subject.state.server[t.name]) for t in servers if t.synthetic is not None)
  return next(int(found['iterations'][-1]) for found in learned if found is not None)


def inspect(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> dict:
  """Distils, measures and draws; leaves figures/client_set.png.

  Returns:
    What `measure` found, with the run's algorithm, data set and seed.

  Raises:
    ValueError: see `open_subject`.
  """
  subject = open_subject(folder, seed, data_dir, trusted)
  with jax.default_matmul_precision(subject.config.precision):
    sets = distil(subject)
    draw(subject, sets, folder / 'figures' / 'client_set.png')
    found = measure(subject, sets)
  head = {'algorithm': subject.name, 'dataset': subject.problem.dataset.name, 'seed': subject.seed}
  return {**head, **found}
