"""The rounds of seeds side by side, as a stream of steps; what is done with them (files, bars) is the reader's business."""

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core import processes
from fedjax_syn.core.contexts import State
from fedjax_syn.engine.measures import Measure, Values, take
from fedjax_syn.runs import metrics
from fedjax_syn.runs.clock import Clock

STRETCH_SECONDS = 2.0  # bounds how long a request to stop has to wait
CHUNK_SECONDS = 2.0  # the same, for work between rounds


class Plan(NamedTuple):
  """How far to train, and what to measure in which rounds."""

  rounds: int
  eval_every: int = 1
  pause_every: int = 0  # rounds at which to stop for a checkpoint besides; 0: none
  measures: tuple[Measure, ...] = ()  # in the order of a line's keys


class Step(NamedTuple):
  """Where training stands after a stretch of rounds or a chunk of the work between them."""

  kind: str  # 'evaluated', 'rounds', 'server_work' or 'diverged'
  state: State
  report: dict[str, Any]
  phase_end: bool = False  # the program changes here, or the work between rounds is done
  seed: int = 0
  last: bool = True  # no other seed has yet to come as far: a moment to save all of them
  measured: Mapping[str, Values] = types.MappingProxyType({})  # by measure, in an evaluated round

  @property
  def round(self) -> int:
    """Rounds done."""
    return int(self.state.round)


def next_evaluation(round: int, plan: Plan) -> int:
  """Returns the next round to evaluate: a multiple of `eval_every`, or one of the last five."""
  return min((round // plan.eval_every + 1) * plan.eval_every, max(round + 1, plan.rounds - 4))


def lines_of(
  plan: Plan, lines: Sequence[metrics.Line], next_stop: Callable[[int], int | None]
) -> list[metrics.Line]:
  """Returns the lines that a run of this plan logs: those of a shorter one have its last rounds too.

  Args:
    lines: metrics lines of a run of the same settings, of any number of rounds.
    plan: of the run that goes on.
    next_stop: the engine's; the end of a phase is evaluated.
  """
  stops, stop = set(), 0
  while stop := next_stop(stop):
    stops.add(stop)
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
  for i, line in enumerate(out):  # what is said of several evaluations in a row
    line.pop('collapsed_since', None)
    if (since := metrics.collapsed_since(out[: i + 1], line['seed'])) is not None:
      line['collapsed_since'] = since
  return out


def train(
  engine: Any,
  plan: Plan,
  states: Mapping[int, State],
  clock: Clock,
  *,
  resumed: bool = False,
) -> Iterator[Step]:
  """Trains seeds side by side to the end of the plan; one that diverges leaves, and the others go on.

  How rounds are cut into stretches (by the plan, and by the clock so that none lasts much longer than
  `STRETCH_SECONDS`) changes no result: the engine derives every random number from seed and round.

  Args:
    engine: a `fedjax_syn.engine.Engine`.
    plan: how far to train, and what to measure in which rounds.
    states: by seed, where to begin, all at one round; they are consumed.
    clock: counts seconds as 'rounds', 'synthesis' and 'evaluation'.
    resumed: the states come from checkpoints of this run, so that they have been evaluated already.

  Yields:
    A step of each seed after every stretch, evaluation and chunk; after one of kind 'diverged' none of
    this seed follows. Its report holds 'diverged_round' and, where they are known, 'diverged_client' and
    'reason'.
  """
  live = dict(states)

  def evaluated(step, seed):
    """Measures; a number that is not finite is a divergence."""
    with clock.part('evaluation'):
      measured = take(plan.measures, step.round, seed, step.state)
    numbers = ((k, v) for one in measured.values() for k, v in one.items() if np.ndim(v) == 0)
    report = {**dict(numbers), **step.report}
    if all(math.isfinite(value) for value in report.values()):
      return step._replace(kind='evaluated', report=report, measured=measured)
    return step._replace(kind='diverged', report={'diverged_round': step.round})

  def settled(step, seed, last):
    """A seed that diverged leaves."""
    if step.kind == 'diverged':
      del live[seed]
    return step._replace(seed=seed, last=last)

  def trained(seed, report, ends_phase, look):
    if report.get('diverged_round'):
      return Step('diverged', live[seed], report)
    report = {k: v for k, v in report.items() if not k.startswith('diverged')}
    step = Step('rounds', live[seed], report, ends_phase)
    return evaluated(step, seed) if look else step

  if not resumed:
    for seed in (seeds := list(live)):
      step = evaluated(Step('rounds', live[seed], {}), seed)
      yield settled(step, seed, seed == seeds[-1])
  per_round = math.nan  # seconds; unknown until the program of this phase has run once
  while live:
    while waiting := [seed for seed in live if engine.pending(live[seed])]:
      seed = waiting[0]
      with clock.part('synthesis'):
        live[seed], done, report = engine.server_work(seed, live[seed], CHUNK_SECONDS)
      failed = bool(report.get('diverged_round'))
      all_done = done and not failed and len(waiting) == 1
      step = Step('diverged' if failed else 'server_work', live[seed], report, all_done)
      yield settled(step, seed, True)
    if not live:
      return
    round = int(next(iter(live.values())).round)
    if round >= plan.rounds:
      return
    phase_end = engine.next_stop(round) or math.inf
    evaluation = min(next_evaluation(round, plan), phase_end)
    pause = (round // plan.pause_every + 1) * plan.pause_every if plan.pause_every else math.inf
    affordable = 1 if math.isnan(per_round) else max(1, int(STRETCH_SECONDS / max(per_round, 1e-6)))
    affordable = processes.broadcast_from_process_0(affordable)
    rounds = int(min(evaluation - round, pause - round, plan.rounds - round, affordable))

    before = clock.parts['rounds']
    with clock.part('rounds'):
      new, reports = engine.run_side_by_side(tuple(live), tuple(live.values()), rounds)
    per_round = (clock.parts['rounds'] - before) / rounds
    live.update(zip(live, new, strict=True))
    here, seeds = round + rounds, list(live)
    for seed, report in zip(seeds, reports, strict=True):
      step = trained(seed, report, here == phase_end, here == evaluation)
      yield settled(step, seed, seed == seeds[-1])
    if here == phase_end:
      per_round = math.nan
