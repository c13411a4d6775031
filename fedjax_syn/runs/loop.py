"""The rounds of seeds side by side as a stream of steps; the caller logs, saves and shows them."""

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedjax_syn.core import processes
from fedjax_syn.core.contexts import State
from fedjax_syn.engine.measures import Measure, Values, take
from fedjax_syn.runs import metrics
from fedjax_syn.runs.clock import Clock

STRETCH_SECONDS = 2.0  # bounds how long a request to stop has to wait
CHUNK_SECONDS = 2.0  # the same, for work between rounds
LAST = 5  # rounds that are evaluated whatever `eval_every` is


class Trainer(Protocol):
  """What `train` uses of `fedjax_syn.engine.Engine`."""

  def next_stop(self, round: int) -> int | None:
    """Returns the end of the phase that a round is in; None without one."""

  def pending(self, state: State) -> bool:
    """Returns whether the server works before the next round."""

  def server_work(
    self, seed: int, state: State, seconds: float
  ) -> tuple[State, bool, dict[str, Any]]:
    """Works for some seconds; returns the state, whether the work is done, and a report."""

  def run_side_by_side(
    self, seeds: Sequence[int], states: Sequence[State], rounds: int
  ) -> tuple[tuple[State, ...], Sequence[dict[str, Any]]]:
    """Runs rounds of several seeds; returns their states and reports."""


class Plan(NamedTuple):
  """How far to train, and what to measure in which rounds."""

  rounds: int
  eval_every: int = 1
  pause_every: int = 0
  """Rounds between stops for a checkpoint; 0: none."""
  measures: tuple[Measure, ...] = ()
  """In the order of a line's keys."""


class Step(NamedTuple):
  """Where a seed stands after a stretch of rounds or a chunk of work between them."""

  kind: str
  """'evaluated', 'rounds', 'server_work' or 'diverged'."""
  state: State
  report: dict[str, Any]
  phase_end: bool = False
  """The program changes here, or the work between rounds is done."""
  seed: int = 0
  last: bool = True
  """All seeds have come as far: a moment to save them."""
  measured: Mapping[str, Values] = types.MappingProxyType({})
  """By measure, in an evaluated round."""

  @property
  def round(self) -> int:
    """Rounds done."""
    return int(self.state.round)


def next_evaluation(round: int, plan: Plan) -> int:
  """Returns the next round to evaluate: a multiple of `eval_every`, or one of the last five."""
  multiple = (round // plan.eval_every + 1) * plan.eval_every
  return min(multiple, max(round + 1, plan.rounds - LAST + 1))


def lines_of(
  plan: Plan, lines: Sequence[metrics.Line], next_stop: Callable[[int], int | None]
) -> list[metrics.Line]:
  """Returns the lines that a run of this plan logs: a shorter run has its last rounds too.

  Args:
    plan: of the run that resumes.
    lines: metrics lines of a run of the same settings, of any number of rounds.
    next_stop: the engine's; the end of a phase is evaluated.
  """
  stops, stop = set(), next_stop(0)
  while stop:
    stops.add(stop)
    stop = next_stop(stop)
  first: dict[int, int] = {}  # by seed, w^0 or where a branch begins
  out: list[metrics.Line] = []
  for line in lines:
    round = line['round']
    begins = first.setdefault(line['seed'], round) == round
    if begins or round in stops or next_evaluation(round - 1, plan) == round:
      logged = [m for m in plan.measures if m.due(plan.rounds)]  # others are of the end alone
      other = tuple(f'{m.name}/' for m in logged if not m.due(round))
      out.append({k: v for k, v in line.items() if not k.startswith(other)})
  if out == list(lines):
    return out
  for i, line in enumerate(out):  # what follows from several evaluations in a row
    line.pop('collapsed_since', None)
    if (since := metrics.collapsed_since(out[: i + 1], line['seed'])) is not None:
      line['collapsed_since'] = since
  return out


Tell = Callable[[str, str], object]
"""Is told what begins now, and the compiled program that does it; '' for a small one."""


def train(
  engine: Trainer,
  plan: Plan,
  states: Mapping[int, State],
  clock: Clock,
  *,
  resumed: bool = False,
  over: Callable[[int], bool] = lambda seed: False,
  tell: Tell = lambda text, program: None,
) -> Iterator[Step]:
  """Trains seeds side by side to the end of the plan; one that diverges leaves.

  How rounds are cut into stretches, by the plan and by the clock, changes no result: the engine
  derives every random number from seed and round.

  Args:
    engine: a `fedjax_syn.engine.Engine`.
    plan: how far to train, and what to measure in which rounds.
    states: by seed, where to begin, all at one round; they are consumed.
    clock: counts seconds as 'rounds', 'synthesis' and 'evaluation'.
    resumed: the states come from checkpoints of this run: they were evaluated before.
    over: asked of a seed after each evaluation, when its step has been taken; True: it leaves.
    tell: told what begins now.

  Yields:
    A step of each seed after every stretch, evaluation and chunk; after one of kind 'diverged' none
    of this seed follows. Its report has 'diverged_round' and, where they are known,
    'diverged_client' and 'reason'.
  """
  live = dict(states)

  def leaving(step):
    if step.kind == 'diverged':
      del live[step.seed]
    return step

  if not resumed:
    for seed in (seeds := list(live)):
      step = Step('rounds', live[seed], {}, seed=seed, last=seed == seeds[-1])
      yield (step := leaving(_evaluated(step, plan, clock, tell)))
      if step.kind == 'evaluated' and over(seed):
        del live[seed]
  per_round = math.nan  # seconds; unknown until the program of this phase has run once
  while live:
    while waiting := [seed for seed in live if engine.pending(live[seed])]:
      seed = waiting[0]
      tell('synthesis', 'the synthesis')
      with clock.part('synthesis'):
        live[seed], done, report = engine.server_work(seed, live[seed], CHUNK_SECONDS)
      kind = 'diverged' if report.get('diverged_round') else 'server_work'
      all_done = done and kind == 'server_work' and len(waiting) == 1
      yield leaving(Step(kind, live[seed], report, all_done, seed))
    round = int(next(iter(live.values())).round) if live else plan.rounds
    if round >= plan.rounds:
      return
    phase_end = engine.next_stop(round) or math.inf
    evaluation = min(next_evaluation(round, plan), phase_end)
    rounds = _stretch(round, plan, evaluation, per_round)
    which = f'round {round + 1}' if rounds == 1 else f'rounds {round + 1} to {round + rounds}'
    tell(which, f'the rounds up to {min(phase_end, plan.rounds)}')
    before = clock.parts['rounds']
    with clock.part('rounds'):
      new, reports = engine.run_side_by_side(tuple(live), tuple(live.values()), rounds)
    here, seeds = round + rounds, list(live)
    per_round = math.nan if here == phase_end else (clock.parts['rounds'] - before) / rounds
    live.update(zip(seeds, new, strict=True))
    for seed, report in zip(seeds, reports, strict=True):
      if fine := not report.get('diverged_round'):
        report = {k: v for k, v in report.items() if not k.startswith('diverged')}
      kind, ends = 'rounds' if fine else 'diverged', fine and here == phase_end
      step = Step(kind, live[seed], report, ends, seed, seed == seeds[-1])
      step = leaving(_evaluated(step, plan, clock, tell) if fine and here == evaluation else step)
      yield step
      if step.kind == 'evaluated' and over(seed):
        del live[seed]


def _stretch(round: int, plan: Plan, evaluation: float, per_round: float) -> int:
  """Returns how many rounds to run at once."""
  pause = (round // plan.pause_every + 1) * plan.pause_every if plan.pause_every else math.inf
  affordable = 1 if math.isnan(per_round) else max(1, int(STRETCH_SECONDS / max(per_round, 1e-6)))
  affordable = processes.broadcast_from_process_0(affordable)
  return int(min(evaluation - round, pause - round, plan.rounds - round, affordable))


def _evaluated(step: Step, plan: Plan, clock: Clock, tell: Tell) -> Step:
  """Measures; a number that is not finite is a divergence."""
  tell('evaluating', '')
  with clock.part('evaluation'):
    measured = take(plan.measures, step.round, step.seed, step.state)
  numbers = ((k, v) for one in measured.values() for k, v in one.items() if np.ndim(v) == 0)
  report = {**dict(numbers), **step.report}
  if all(math.isfinite(value) for value in report.values()):
    return step._replace(kind='evaluated', report=report, measured=measured)
  return step._replace(kind='diverged', report={'diverged_round': step.round})
