"""The library from Python: train without config or folder, and open what a run left behind."""

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_syn import algorithms, models
from fedjax_syn import engine as engine_lib
from fedjax_syn.algorithms import chain
from fedjax_syn.chains import Chain
from fedjax_syn.config import Resolved, combinations, parsing
from fedjax_syn.core import own_metrics, paths, privacy
from fedjax_syn.core.contexts import Run, State
from fedjax_syn.core.texts import shown
from fedjax_syn.core.types import Model, Variables
from fedjax_syn.data import checks, datasets, held_out
from fedjax_syn.data.settings import Data
from fedjax_syn.data.split import Split
from fedjax_syn.layer import Layer
from fedjax_syn.runs import (
  assemble,
  checkpoint,
  early_stop,
  final_files,
  loop,
  pretrained,
  restore,
  stored_files,
  work_folder,
)
from fedjax_syn.runs import progress as progress_lib
from fedjax_syn.runs.arguments import FIELDS
from fedjax_syn.runs.clock import Clock


class Result(NamedTuple):
  """What `run` returns."""

  history: list[dict[str, Any]]  # one line per evaluated round and seed, as in metrics.jsonl
  variables: dict[int, Variables | None]  # the last model by seed; None for one that diverged
  synthetic: dict[int, dict[str, np.ndarray] | None]
  """By seed, as in synthetic.npz; None without one."""
  states: dict[int, State]  # by seed, all that training left: also what server and clients keep
  engine: engine_lib.Engine  # continues from a state, evaluates, counts bytes
  best: Mapping[int, Variables | None] = types.MappingProxyType({})
  """By seed, the model with the best accuracy on held-out rows; None without such rows."""


class Loaded(NamedTuple):
  """What `load` returns."""

  model: Model
  variables: Variables
  synthetic: dict[str, np.ndarray] | None  # as in synthetic.npz; None if the method learns none


def run(
  method: Chain | Layer,
  dataset: datasets.Dataset | str,
  model: Model | str,
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  clients: int = 10,
  partition: str = 'iid',
  alpha: float = 0.1,
  participation: float = 1.0,
  eval_every: int = 1,
  personal_every: int = 0,
  data_dir: str = '',
  partition_seed: int = 0,
  placement: str = 'device',
  unseen_clients: float = 0.0,
  label_noise: float = 0.0,
  validation: float = 0.0,
  patience: int = 0,
  sampler: str = 'fixed',
  weights: str = '',
  metrics: Sequence[str] = (),
  progress: bool = True,
  layout: engine_lib.Layout = engine_lib.Layout(),  # noqa: B008 (an immutable NamedTuple)
) -> Result:
  """Trains a method, without config or folder.

  Args:
    method: a chain of layers, `fs.chain(fs.FedProx(mu=0.01), fs.DynaFed())`, or one layer.
    dataset: a data set, or the name of one.
    model: a model for the data set's shape, or the name of one.
    rounds: how many.
    seeds: each is trained from its own initial model; `layout.seeds` of them at a time.
    clients: registered clients.
    partition: division of the rows among clients.
    alpha: concentration, for Dirichlet partitions.
    participation: share of the clients in a round, 0 < p <= 1.
    eval_every: rounds between evaluations; the last five rounds always are evaluated.
    personal_every: evaluated rounds that are multiples, and the last, measure the clients' own
      models; 0: none.
    data_dir: folder of the data sets, if `dataset` is a name.
    partition_seed: shared by all seeds.
    placement: where the training rows are: on every 'device', or in memory of the 'host', which
      gives a round its clients' rows.
    unseen_clients: share of the data set's own clients that never train; 'unseen/test/accuracy'
      measures them.
    label_noise: share of the training rows whose label is replaced by another class.
    validation: share of the training rows that is held out, for 'validation/accuracy'.
    patience: evaluations without a better accuracy on held-out rows after which a seed ends; 0:
      never.
    sampler: how the clients of a round are drawn: 'fixed', 'poisson', or a function of your own, as
      'module:function' or 'FILE.py:function'.
    weights: a file to begin from, .safetensors or .npz; see docs/study.md.
    metrics: functions of your own, (y, logits), as 'module:function' or 'FILE.py:function'.
    progress: whether a bar is shown on a terminal and in a notebook; elsewhere nothing is.
    layout: how clients lie on devices.

  Returns:
    History, models, learned sets, and the last states with the engine that made them.

  Raises:
    ValueError: if the parts do not fit together.
  """
  given = locals()
  with contextlib.closing(progress_lib.of_python(progress)) as show:
    show.doing('reading the data')
    trial = prepare(method, dataset, model, {name: given[name] for name in FIELDS}, layout)
    return _train(trial, show)


DEFAULTS: Mapping[str, Any] = types.MappingProxyType(dict(run.__kwdefaults__ or {}))
"""Of the arguments of `run`, by name."""


def _train(trial: 'Trial', show: progress_lib.Reporter) -> Result:
  """Trains all seeds; see `run`."""
  engine, seeds, width = trial.engine, trial.seeds, trial.engine.layout.seeds
  history: list[dict[str, Any]] = []
  variables, last, best = {}, {}, dict.fromkeys(seeds)
  over = lambda seed: early_stop.is_over(history, seed, trial.patience)
  tell = progress_lib.Steps(show)
  with Clock() as clock:
    for first in range(0, len(seeds), width):
      group = seeds[first : first + width]
      show.begin(progress_lib.label(engine.chain.name, group, seeds), trial.plan.rounds, 0)
      states = {seed: trial.begin(seed) for seed in group}
      for step in loop.train(engine, trial.plan, states, clock, over=over, tell=tell):
        if step.kind == 'server_work':
          show.server_work(step.report)
        elif step.last:
          show.rounds(step.round, step.report)
        if step.kind == 'evaluated':
          line = {'round': step.round, 'seed': step.seed, **step.report}
          history.append({**line, 'seconds': clock.seconds()['total']})
          if early_stop.best_line(history, step.seed) is history[-1]:  # training consumes states
            best[step.seed] = jax.device_get(Variables(step.state.params, step.state.stats))
        diverged = step.kind == 'diverged'
        if diverged:
          warnings.warn(
            f'seed {step.seed} diverged in round {step.report["diverged_round"]:g}', stacklevel=3
          )
        w = Variables(step.state.params, step.state.stats)
        variables[step.seed], last[step.seed] = None if diverged else w, step.state
      show.end()
  learned = {
    seed: None if variables[seed] is None else engine.artifacts(state)
    for seed, state in last.items()
  }
  return Result(history, variables, learned, last, engine, best)


class Trial(NamedTuple):
  """A method bound to data and model, ready to be trained and evaluated."""

  engine: engine_lib.Engine
  seeds: tuple[int, ...]
  plan: loop.Plan
  sampling: privacy.Sampling  # who sees what, over all seeds and rounds
  begin: Callable[[int], State]  # the state at round 0, by seed
  patience: int = 0


def prepare(
  method: Chain | Layer,
  dataset: datasets.Dataset | str,
  model: Model | str,
  given: Mapping[str, Any],
  layout: engine_lib.Layout,
) -> Trial:
  """Checks the arguments of `run`, reads and partitions the data, and binds the method.

  Args:
    method: see `run`.
    dataset: see `run`.
    model: see `run`.
    given: the arguments of `FIELDS`, by name.
    layout: see `run`.

  Raises:
    ValueError: if the parts do not fit together.
  """
  checked = parsing.from_arguments(FIELDS, given)
  combinations.check_together(
    {FIELDS[k]: v for k, v in checked.items()}, {v: k for k, v in FIELDS.items()}.__getitem__
  )
  rounds, seeds = checked['rounds'], checked['seeds']
  clients, participation = checked['clients'], checked['participation']
  sampling = privacy.Sampling(checked['sampler'], clients, participation, rounds, len(seeds))
  method = resolve(method, sampling)
  layout = _layout(layout)
  for word in checked['metrics']:
    own_metrics.load(word)
  dataset = _dataset(dataset, checked)
  if not isinstance(model, str | Model):
    raise ValueError(f'model={shown(model)}: must be a Model or the name of one')
  if isinstance(model, str):
    shape, classes = dataset.shape, dataset.num_classes
    model = models.create(model, shape=shape, num_classes=classes, kind=dataset.kind)
  same = 'partition', 'clients', 'alpha', 'unseen_clients', 'label_noise'
  of_data = {key: checked[key] for key in same}
  data = Data(**of_data, seed=checked['partition_seed'], placement=checked['placement'])
  problem = assemble.problem_of(dataset, data, lambda: model)
  engine = engine_lib.Engine(
    method,
    model,
    problem.data,
    participation=sampling.participation,
    sampler=sampling.sampler,
    layout=layout,
    rounds=rounds,
  )
  if (mechanism := engine.mechanism) is not None and privacy.promises(mechanism):
    assemble.check_noise([mechanism], problem, sampling)
  splits: dict[str, Split | None] = {'test': dataset.test, 'validation': dataset.validation}
  splits |= {f'test/{name}': split for name, split in dataset.test_by_domain().items()}
  evaluators = assemble.evaluators(engine, splits)
  every = checked['personal_every']
  measured = assemble.round_measures(engine, problem, evaluators, every, rounds)
  measured += final_files.own_measures(evaluators, checked['metrics'])
  plan = loop.Plan(rounds, checked['eval_every'], measures=measured)
  begin = functools.partial(pretrained.begin, engine, model, checked['weights'])
  return Trial(engine, tuple(seeds), plan, sampling, begin, checked['patience'])


def _dataset(dataset: datasets.Dataset | str, given: Mapping[str, Any]) -> datasets.Dataset:
  """Loads a data set, or checks one that was given, and holds rows out."""
  held: dict[str, Any] = {key: given[key] for key in ('unseen_clients', 'validation')}
  held['seed'] = given['partition_seed']
  if isinstance(dataset, str):
    return datasets.load(dataset, given['data_dir'], **held)
  dataset = checks.check(dataset, 'dataset')
  checks.check_clients(dataset, 'dataset')
  for doubt in checks.doubts(dataset):
    warnings.warn(doubt, stacklevel=4)
  return held_out.from_training(dataset, **held)


def resolve(method: Chain | Layer, sampling: privacy.Sampling) -> Chain:
  """Returns a method with what follows from the run filled in.

  Raises:
    ValueError: if it does not fit.
  """
  if not isinstance(method, Chain | Layer):
    example = 'fs.chain(fs.FedProx(mu=0.01))'
    if isinstance(method, type) and issubclass(method, Layer):
      example = f'fs.chain({method.__name__}())'
    raise ValueError(f'method={shown(method)}: must be a chain of layers, as in {example}')
  method = chain(method)
  return method.resolve(Run(sampling.rounds, sampling, (method.name,)))


def _layout(layout: engine_lib.Layout) -> engine_lib.Layout:
  if not isinstance(layout, engine_lib.Layout):
    raise ValueError(f'layout={shown(layout)}: must be a Layout, not {type(layout).__name__}')
  given = {f'layout.{name}': value for name, value in layout._asdict().items()}
  checked = parsing.from_arguments({key: key for key in given}, given)
  return engine_lib.Layout(**{key.partition('.')[2]: value for key, value in checked.items()})


def load(
  workdir: str | Path, seed: int | None = None, *, best: bool = False, trusted: bool = False
) -> Loaded:
  """Opens what a run left behind; the data set is not needed.

  Args:
    workdir: the run's folder.
    seed: which seed; by default the first that did not diverge.
    best: the model with the best accuracy on held-out rows instead of the last one, if the run
      kept it (`keep_best`, `patience`).
    trusted: whether code that the folder names (`module:function`) may be imported and called.

  Returns:
    Model, variables and learned set of the seed's last checkpoint.

  Raises:
    FileNotFoundError: if there is no run, or no checkpoint of the seed.
    ValueError: if something in it is damaged, or names code and is not trusted.
  """
  folder = paths.given(workdir, 'workdir')
  opened = restore.read(folder, trusted)
  config, stored = opened.config, opened.stored
  seeds = config.seeds if seed is None else (seed,)
  last = opened.last(seeds, earlier=seed is not None)
  if last is None:
    saved = {checkpoint.seed_of(p) for p in checkpoint.list_unsorted(folder / 'checkpoints')}
    have = ', '.join(map(str, sorted(saved))) or 'none'
    wanted = ', '.join(map(str, seeds))
    raise FileNotFoundError(
      f'workdir={folder}: no model of seed {wanted}; checkpoints there: {have}'
    )
  seed, state = last
  model = model_of(config, stored['dataset'])
  summary = work_folder.summary(folder) or {}
  ended = summary.get('status', {}).get(str(seed), {})
  if ended.get('status') == 'finished' and int(state.round) != summary.get('rounds', state.round):
    raise stored_files.DamagedError(
      f'{folder}: the last checkpoint of seed {seed} is missing; the one before is of round'
      f' {state.round}'
    )
  synthetic = work_folder.arrays(folder, work_folder.set_file(seed, config.seeds), summary) or None
  if wrong := work_folder.misfit(stored, None, (), [synthetic or {}]):
    raise stored_files.DamagedError(f'{folder}: {wrong}')
  variables = Variables(state.params, state.stats)
  if best:
    variables = early_stop.load_best(folder, seed, variables)
  return Loaded(model, variables, synthetic)


def model_of(config: Resolved, dataset: Mapping[str, Any]) -> Model:
  """Builds the model of a run, as its method changed it; the data set is not needed.

  Args:
    config: a checked config.
    dataset: 'shape', 'num_classes' and 'kind', as in config.json.
  """
  shape = tuple(dataset['shape'])
  kind = dataset.get('kind', '')  # older versions lack it
  model = assemble.build_model(config, shape, dataset['num_classes'], kind)
  return algorithms.create(config.algorithm, config).adapt(model, shape)
