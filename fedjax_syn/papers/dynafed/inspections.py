"""What `launch/inspect_run.py` measures of a run of DynaFed, and the figures that it draws."""

import functools
import math
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms import chain
from fedjax_syn.algorithms.dynafed import gradient_error, privacy_check
from fedjax_syn.algorithms.dynafed.client_losses import round_losses
from fedjax_syn.algorithms.dynafed.dynafed import DynaFed
from fedjax_syn.algorithms.dynafed.dynamics import real_and_noise
from fedjax_syn.algorithms.dynafed.finetuning import finetune
from fedjax_syn.algorithms.dynafed.scratch import Scratch, train_from_scratch
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core.contexts import State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import PRNGKey, Variables
from fedjax_syn.data import federated
from fedjax_syn.plotting import diagnostics
from fedjax_syn.runs import checkpoint, metrics, restore, work_folder

SCRATCH_RATE = 1e-3
"""Of Adam; the paper names none."""
POINTS = 50
"""Of a curve, about."""


class FinishedRun(NamedTuple):
  """A finished run of DynaFed at one seed, ready to be measured."""

  run: restore.Restored
  """At its last checkpoint."""
  states: list[State]
  """From the end of the synthesis on: of the checkpoints, and w^L from the trajectory."""
  accuracy: float
  """The mean of the last five rounds."""
  sets: dict[str, SyntheticSet]
  """The learned set, and what it is compared with."""
  key: PRNGKey
  """Of all draws of the measurements."""


def open_run(
  folder: pathlib.Path, seed: int | None, data_dir: str | None = None, trusted: bool = False
) -> FinishedRun:
  """Opens a finished run.

  Args:
    folder: with a config.json.
    seed: which one; None is the first that did not diverge.
    data_dir: of the data set; None is where it was for the run.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if it is not the folder of a finished run with a synthetic set, the seed has none,
      or its data set is not there or another one.
  """
  opened = restore.read(folder, trusted)
  config = opened.config
  summary = work_folder.summary(folder, config.seeds)
  if summary is None:
    raise ValueError(f'{folder}: is not finished; continue with launch/main.py --workdir={folder}')
  if DynaFed.name not in config.algorithm.split('+'):
    raise ValueError(f'{folder}: algorithm={config.algorithm!r} learns no synthetic set')
  finished = [s for s in config.seeds if summary['status'][str(s)]['status'] == 'finished']
  if not finished:
    raise ValueError(f'{folder}: no seed of the run finished, all diverged')
  if seed not in (None, *finished):
    have = ', '.join(map(str, finished))
    raise ValueError(
      f'{folder}: --seed={seed} did not finish or is not a seed of the run; finished: {have}'
    )
  seed = finished[0] if seed is None else seed
  done = config.blocks[DynaFed.name].iterations
  length = config.blocks[DynaFed.name].length
  by_round = {}  # of several checkpoints of a round the last one, after the synthesis
  for path in opened.checkpoints(seed):
    state = checkpoint.read(path).tree
    if int(state.server[DynaFed.name].iteration) == done:
      by_round[int(state.round)] = state
  if not by_round:
    raise ValueError(f'{folder}: no checkpoint of seed {seed} holds a synthetic set')
  states = [by_round[r] for r in sorted(by_round)]
  if length not in by_round and not states[0].stats:
    states.insert(0, before_finetuning(states[0], length))
  run = restore.bind(opened, seed, states[-1], data_dir)
  per_seed = summary['test_accuracy']['mean_last_5']['per_seed']
  key = stream(seed, Purpose.EVALUATE, 1)
  accuracy = per_seed[config.seeds.index(seed)]
  return FinishedRun(run, states, accuracy, _sets(run, key), key)


def before_finetuning(state: State, length: int) -> State:
  """Returns the state after round L and the synthesis, as far as a later state knows it.

  Args:
    state: of a later round, and without running statistics, which nothing records.
    length: L.

  Returns:
    w^L from the trajectory, with the set; the layers' other states are those of the later round.
  """
  w = jax.tree.map(lambda path: path[length], state.server[DynaFed.name].trajectory)
  return state._replace(round=jnp.int32(length), params=w)


def _sets(run: restore.Restored, key: PRNGKey) -> dict[str, SyntheticSet]:
  """The learned set, as many real images and as much noise."""
  data, syn = run.problem.data, run.state.server[DynaFed.name].syn
  rows = jax.random.randint(fold(key, 0), (len(syn.x),), 0, len(data.y))
  x, y = federated.normalise(data, data.x[rows]), data.y[rows]
  others = real_and_noise(fold(key, 1), x, y, syn, run.problem.dataset.num_classes)
  return {'synthetic': syn, **others}


def inspect(
  finished: FinishedRun, folder: pathlib.Path, steps: int, clients: int
) -> dict[str, Any]:
  """Measures a run and draws its figures.

  Args:
    finished: the run.
    folder: the run's folder.
    steps: of training from scratch.
    clients: how many clients' losses are drawn.

  Returns:
    JSON values; what is not finite is None.
  """
  run, figures = finished.run, folder / 'figures'
  scratch, trained = from_scratch(finished, figures, steps)
  report = {
    'algorithm': run.config.algorithm,
    'dataset': run.problem.dataset.name,
    'seed': run.seed,
    'gradient_error': gradients(finished, figures),
    'privacy': privacy(finished, figures, trained['synthetic'].variables),
    'from_scratch': scratch,
    'client_losses': client_losses(finished, figures, clients),
    'rounds_to_running_mean': rounds_to_compared(folder),
  }
  return _plain(report)


def gradients(finished: FinishedRun, figures: pathlib.Path) -> dict[str, Any]:
  """Measures Assumption 3 along the trajectory and at the checkpoints after it."""
  run, states = finished.run, finished.states
  block = run.config.blocks[DynaFed.name]
  first = 0 if block.include_initial else 1
  later = [s for s in states if s.round > block.length]
  path = states[-1].server[DynaFed.name].trajectory
  points = jax.tree.map(
    lambda path, *after: jnp.concatenate([path[first:], *(leaf[None] for leaf in after)]),
    path,
    *(state.params for state in later),
  )
  rounds = [*range(first, block.length + 1), *(int(s.round) for s in later)]
  model, data = run.engine.model, run.problem.data
  errors = gradient_error.gradient_errors(
    model, cross_entropy, data, points, states[0].stats, finished.sets
  )
  lines = {label: gradient_error.fit(e) for label, e in errors.items()}
  diagnostics.gradient_error(errors, lines, rounds, figures / 'gradient_error.png', run.title)
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


def privacy(finished: FinishedRun, figures: pathlib.Path, trained: Variables) -> dict[str, Any]:
  """Measures distances to the nearest training images, and two membership attacks.

  Each attack is repeated on what was computed without the data: the set before learning, and a
  network before training.
  """
  run = finished.run
  data, dataset, model = run.problem.data, run.problem.dataset, run.engine.model
  train, test = dataset.train, dataset.test
  synthetic = np.asarray(finished.sets['synthetic'].x)
  before = np.asarray(run.state.server[DynaFed.name].snapshots.x[0])
  near = functools.partial(privacy_check.nearest_distances, data)
  seen = [privacy_check.as_seen(data, split) for split in (train, test)]
  distances = {'synthetic': near(synthetic, seen[0].x), 'held out': near(seen[1].x, seen[0].x)}
  nearest = privacy_check.nearness(distances['synthetic'], distances['held out'])
  diagnostics.privacy(distances, nearest.held_out_low, figures / 'privacy.png', run.title)

  def by_distance(references: np.ndarray) -> dict[str, float]:
    return privacy_check.membership(*(-near(s.x, references) for s in seen))._asdict()

  def by_loss(variables: Variables) -> dict[str, float]:
    losses = functools.partial(privacy_check.sample_losses, model, data, variables)
    return privacy_check.membership(*(-losses(*split) for split in (train, test)))._asdict()

  membership = {
    'distance': by_distance(synthetic),
    'distance, set before learning': by_distance(before),
    'loss': by_loss(trained),
    'loss, network before training': by_loss(model.init(fold(finished.key, 2))),
  }
  return {'nearest': nearest._asdict(), 'membership': membership}


def from_scratch(
  finished: FinishedRun, figures: pathlib.Path, steps: int
) -> tuple[dict[str, Any], dict[str, Scratch]]:
  """Trains new networks on each set alone; returns the numbers, and what was trained."""
  run = finished.run
  test = run.problem.dataset.test
  evaluate: Any = run.engine.evaluator(test.x, test.y)
  train = functools.partial(
    train_from_scratch,
    fold(finished.key, 2),
    run.engine.model,
    evaluate=evaluate,
    optimizer=optax.adam(SCRATCH_RATE),
    steps=steps,
    every=math.ceil(steps / POINTS),
  )
  trained = {label: train(syn) for label, syn in finished.sets.items()}
  path = figures / 'from_scratch.png'
  diagnostics.from_scratch(trained, path, run.title, finished.accuracy)
  sets = {label: {'steps': r.steps, 'accuracy': r.accuracy} for label, r in trained.items()}
  return {'optimizer': 'adam', 'lr': SCRATCH_RATE, 'sets': sets}, trained


def client_losses(finished: FinishedRun, figures: pathlib.Path, shown: int) -> dict[str, Any]:
  """Measures losses through the first fine-tuned round; local training is FedAvg's alone."""
  run, key = finished.run, finished.key
  engine, data = run.engine, run.problem.data
  state = jax.tree.map(jnp.asarray, finished.states[0])
  number, c = int(state.round) + 1, run.config.client
  task = engine.task(number)._replace(chain=chain(engine.chain.layers[0]))
  clients = np.asarray(engine.setting.sample(jnp.int32(run.seed), jnp.int32(number)))
  clients = clients[clients < task.num_clients]
  clients = clients[np.asarray(data.size)[clients] > 0]
  contexts = [engine.client_context(run.seed, state, client) for client in clients]
  layer = engine.chain[DynaFed]
  of_server = fold(stream(run.seed, Purpose.SERVER, number), engine.chain.on_server.index(layer))

  def tune(params, stats, record):
    w, syn = Variables(params, stats), finished.sets['synthetic']
    return finetune(layer, engine.model, w, syn, of_server, record)

  most = int(data.size[clients].max())
  local_steps = c.steps or c.epochs * -(-most // c.batch_size)
  measured = round_losses(
    task,
    contexts[0],
    jnp.stack([context.key for context in contexts]),
    jnp.asarray(clients),
    tune,
    every=math.ceil(local_steps / POINTS),
  )
  drawn = np.asarray(jax.random.permutation(fold(key, 3), jnp.asarray(clients)))[:shown]
  path, title = figures / 'client_losses.png', f'{run.title}, round {number}'
  diagnostics.client_losses(measured, clients, drawn, path, title, run.problem.client_names)
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


def rounds_to_compared(folder: pathlib.Path) -> dict[str, Any] | None:
  """Returns the rounds until the best mean of five evaluations of the compared run, as in Table 4.

  Args:
    folder: of the run; None is returned if it was compared with nothing. Of several methods it is
      FedAvg, or the first.
  """
  method = lambda path: (work_folder.config(path) or {})['config']['algorithm']
  runs = sorted(work_folder.compared(folder), key=lambda path: method(path) != 'fedavg')
  other = metrics.read(runs[0] / 'metrics.jsonl') if runs else []
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
  """Returns JSON values: lists for arrays, None for what is not finite, strings for keys."""
  if isinstance(value, dict):
    return {str(key): _plain(item) for key, item in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist()
  if isinstance(value, list | tuple):
    return [_plain(item) for item in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
