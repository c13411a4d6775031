"""What a run is measured by: in evaluated rounds, and at the end of a finished seed."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core.contexts import State
from fedjax_syn.engine.evaluate import Evaluator
from fedjax_syn.engine.personal import Personal, report

END = math.inf  # the moment after the last round of a seed and the work that follows it

Values = Mapping[str, Any]  # numbers of a line of metrics.jsonl, and arrays for files, by key


class Measure(NamedTuple):
  """One thing that a run is measured by; it changes nothing."""

  name: str  # the keys of its numbers begin with it
  due: Callable[[float], bool]  # says of an evaluated round, or of END, whether it measures then
  of: Callable[[int, State], Values]  # (seed, state)


def take(measures: Iterable[Measure], moment: float, seed: int, state: State) -> dict[str, Values]:
  """Returns the values of a state by measure, of what is due in an evaluated round or at END."""
  return {m.name: m.of(seed, state) for m in measures if m.due(moment)}


def of_rounds(
  evaluators: Mapping[str, Evaluator],
  personal: Callable[[int, State], Personal] | None,
  every: int,
  rounds: int,
  held_out: Callable[[int, State], Personal] | None = None,
) -> tuple[Measure, ...]:
  """Returns the measures of evaluated rounds, in the order of a line's keys.

  Args:
    evaluators: by split; see `Engine.evaluator`.
    personal: see `Engine.personal`; None: not measured.
    every: rounds that are multiples, the last and the end measure personal models.
    rounds: of the run.
    held_out: as `personal`, on validation rows: 'personal/validation/accuracy', the mean over
      clients.
  """

  def of_split(name, evaluate):
    scores = lambda state: evaluate(state.params, state.stats).items()
    of = lambda seed, state: {f'{name}/{key}': value for key, value in scores(state)}
    return Measure(name, lambda moment: moment < END, of)

  def of_personal(seed, state):
    own = personal(seed, state)
    values = report(own)
    tuned = report(held_out(seed, state)) if held_out else {}
    if 'personal/test/accuracy' in tuned:
      values['personal/validation/accuracy'] = tuned['personal/test/accuracy']
    return {**values, 'personal_accuracy': np.asarray(own.accuracy, float)}

  due = lambda moment: moment > 0 and (moment >= rounds or moment % every == 0)
  personal_models = (Measure('personal', due, of_personal),) if personal else ()
  return (*(of_split(*item) for item in evaluators.items()), *personal_models)
