"""Whole runs side by side in one program: several values of a method's numbers, several seeds."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn import engine as engine_lib
from fedjax_syn.algorithms import chain
from fedjax_syn.chains import Chain
from fedjax_syn.core import privacy
from fedjax_syn.core.contexts import State
from fedjax_syn.core.layer_classes import traced_fields
from fedjax_syn.core.texts import shown
from fedjax_syn.core.types import Model, Variables
from fedjax_syn.data.datasets import Dataset
from fedjax_syn.layer import Layer, overrides
from fedjax_syn.runs import api, loop
from fedjax_syn.runs import progress as progress_lib
from fedjax_syn.runs.clock import Clock


class SweepRun(NamedTuple):
  """One run of `sweep`."""

  values: dict[str, float]  # by key, as in {'fedprox.mu': 0.1}
  seed: int
  history: list[dict[str, Any]]  # one line per evaluated round, as in metrics.jsonl
  variables: Variables | None  # the last model; None if the run diverged


def sweep(
  method: Chain | Layer,
  values: Mapping[str, Sequence[float]],
  dataset: Dataset | str,
  model: Model | str,
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  clients: int = 10,
  partition: str = 'iid',
  alpha: float = 0.1,
  participation: float = 1.0,
  eval_every: int = 1,
  data_dir: str = '',
  partition_seed: int = 0,
  progress: bool = True,
  layout: engine_lib.Layout = engine_lib.Layout(),  # noqa: B008 (an immutable NamedTuple)
) -> list[SweepRun]:
  """Trains every combination of values with every seed, all of them in one vmapped program.

  Memory grows with the number of runs. It is meant for a GPU or TPU that one run leaves idle, where
  it was not measured. On a CPU it does not pay: `run` in a loop is as fast, compiles nothing for
  another value, and its program compiles sooner (docs/compose.md has the figures).

  Args:
    method: a chain of layers, or one layer.
    values: by key, as in a config: {'fedprox.mu': (0.01, 0.1), 'client.lr': (0.1, 0.01)}. The
      fields must be traced.
    dataset: see `run`; the others too.
    model: see `run`.
    rounds: how many.
    seeds: of every combination.
    clients: registered clients.
    partition: division of the rows among clients.
    alpha: concentration, for Dirichlet partitions.
    participation: share of the clients in a round.
    eval_every: rounds between evaluations; the last five rounds always are evaluated.
    data_dir: folder of the data sets.
    partition_seed: shared by all runs.
    progress: see `run`.
    layout: how clients lie on devices.

  Returns:
    A run for each combination and seed, seeds innermost.

  Raises:
    ValueError: if a key is no traced field, a value is refused, a layer works between rounds
      (DynaFed), or the method adds noise for privacy, whose epsilon would have to cover all runs.
  """
  given = locals()
  method = chain(method)
  values = {key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in values.items()}
  traced = _traced(method)
  _check(method, values, traced)
  every = itertools.product(*values.values())
  combinations = [dict(zip(values, combination, strict=True)) for combination in every]
  fields = {name: given.get(name, api.DEFAULTS.get(name)) for name in api.FIELDS}
  with contextlib.closing(progress_lib.of_python(progress)) as show:
    show.doing('reading the data')
    trial = api.prepare(method, dataset, model, fields, layout)
    methods = [api.resolve(_replace(method, c, traced), trial.sampling) for c in combinations]
    return _train(trial, combinations, methods, show)


def _train(
  trial: api.Trial,
  combinations: Sequence[dict[str, float]],
  methods: Sequence[Chain],
  show: progress_lib.Reporter,
) -> list[SweepRun]:
  """Trains every combination with every seed; see `sweep`."""
  task, name = trial.engine.task(), trial.engine.chain.name
  if any(privacy.promises(one.mechanism(task)) for one in (trial.engine.chain, *methods)):
    raise ValueError(f'sweep: {name!r} adds noise, and no epsilon would cover all runs; use run')
  runs = [(combination, seed) for combination in combinations for seed in trial.seeds]
  engines = [trial.engine.with_values(one) for one in methods for _ in trial.seeds]
  beside = SideBySide(engines, [seed for _, seed in runs])
  states = {i: engines[i].init(seed) for i, (_, seed) in enumerate(runs)}
  history: list[list[dict[str, Any]]] = [[] for _ in runs]
  variables: list[Variables | None] = [None] * len(runs)
  tell = progress_lib.Steps(show)
  show.begin(f'{name}, {len(runs)} runs side by side', trial.plan.rounds, 0)
  with Clock() as clock:
    for step in loop.train(beside, trial.plan, states, clock, tell=tell):
      i = step.seed  # the number of the run
      if step.last:
        show.rounds(step.round, {})
      if step.kind == 'evaluated':
        line = {'round': step.round, 'seed': runs[i][1], **step.report}
        history[i].append({**line, 'seconds': clock.seconds()['total']})
      w = Variables(step.state.params, step.state.stats)
      variables[i] = None if step.kind == 'diverged' else w
  show.end()
  return [SweepRun(*run, history[i], variables[i]) for i, run in enumerate(runs)]


class SideBySide:
  """Engines of the same programs as one `loop.Trainer`; its seeds number the runs."""

  def __init__(self, engines: Sequence[engine_lib.Engine], seeds: Sequence[int]):
    self.engines, self.seeds = engines, seeds
    self.next_stop = engines[0].next_stop

  def pending(self, state: State) -> bool:
    """Nothing works between rounds."""
    return False

  def server_work(
    self, seed: int, state: State, seconds: float
  ) -> tuple[State, bool, dict[str, Any]]:
    """Is never called, because nothing is pending."""
    raise NotImplementedError

  def run_side_by_side(
    self, numbers: Sequence[int], states: Sequence[State], count: int
  ) -> tuple[tuple[State, ...], list[dict[str, float]]]:
    """Runs rounds of the runs that have not diverged.

    The others' places are filled with copies, so that the program stays the same.
    """
    live = dict(zip(numbers, states, strict=True))
    copy = lambda: jax.tree.map(jnp.copy, states[0])
    filled = [live[i] if i in live else copy() for i in range(len(self.seeds))]
    chains = stack([engine.chain for engine in self.engines])
    new, reports = self.engines[0].run_side_by_side(self.seeds, filled, count, chains)
    return tuple(new[i] for i in numbers), [reports[i] for i in numbers]


def stack(chains: Sequence[Chain]) -> Chain:
  """Returns chains as one: leaves [chains] where their numbers differ, else the number."""

  def one(*values: Any) -> Any:
    return values[0] if len(set(values)) == 1 else jnp.asarray(values, jnp.result_type(float))

  return jax.tree.map(one, *chains)


Traced = Mapping[str, tuple[Layer, str]]  # by key, a layer and the name of its field


def _traced(method: Chain) -> Traced:
  return {
    layer._key(name): (layer, name)
    for layer in method
    for name in traced_fields(type(layer))  # type: ignore[arg-type]
  }


def _replace(method: Chain, combination: Mapping[str, float], traced: Traced) -> Chain:
  changes: dict[str, dict[str, float]] = {}
  for key, value in combination.items():
    layer, name = traced[key]
    changes.setdefault(layer.name, {})[name] = value
  return method.replace(**changes)


def _check(method: Chain, values: Mapping[str, Sequence[float]], traced: Traced) -> None:
  for key, several in values.items():
    if key not in traced:
      raise ValueError(
        f'sweep: {shown(key)} is no traced field of {method.name!r}; traced: {", ".join(traced)}'
      )
    if not isinstance(several, Sequence) or isinstance(several, str) or not len(several):
      raise ValueError(
        f'sweep: {key}={shown(several)} must be a sequence of values, as in (0.01, 0.1)'
      )
  for layer in method:
    if overrides(layer, 'server_work'):
      raise ValueError(
        f'sweep: {layer.name!r} works between rounds, which runs side by side cannot; use run for'
        ' each value, which compiles nothing'
      )
