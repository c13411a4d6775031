"""The programs of an engine's rounds: its own, or those of a longer method.

A layer that `idles` changes no model while its server state began as zeros. So the program of
FedAvg and DynaFed, with zeros as DynaFed's state, runs FedAvg's rounds, and a run that compares the
two compiles one program.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from fedjax_syn.chains import Chain
from fedjax_syn.core.background import Background
from fedjax_syn.core.contexts import State
from fedjax_syn.core.mesh import backend_of, place, replicated
from fedjax_syn.core.types import Array, PyTree
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine import rounds
from fedjax_syn.engine.client_state import total_bytes
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.layer import LOCAL_HOOKS, overrides

LARGEST = 2**26  # bytes of zeros that may stand for a layer's state
# A layer with one of these may change what clients do, or what becomes of their messages.
OF_ROUNDS = ('model', 'local', 'private', 'privacy', 'phases', 'broadcast', 'common', 'aggregate')
States = State | tuple[State, ...]  # of one run, or of several side by side


class RoundPrograms:
  """The programs of one method's rounds, compiled in the background or at their first call."""

  def __init__(
    self, setting: Setting, chain: Chain, data: FederatedData, shapes: Callable[[], State]
  ):
    """Compiles nothing yet.

    Args:
      setting: of the engine.
      chain: the method, placed; calls may give other values.
      data: the partitioned training set, or shapes of a round's rows.
      shapes: returns the shapes of a run's state, with shardings.
    """
    self.setting, self.chain, self.data, self.shapes = setting, chain, data, shapes
    self._warm: dict[tuple[int, int], Background] = {}  # by runs side by side, first round

  def warm_up(self, runs: int) -> None:
    """Compiles the rounds of every phase in the background, for so many runs side by side."""
    for first_round in (1, *(phase + 1 for phase in self.chain.phases)):
      if (runs, first_round) not in self._warm:
        arguments = self.setting, first_round, self.chain, self.shapes(), self.data, runs
        compiled = Background(functools.partial(rounds.compiled, *arguments))
        self._warm[runs, first_round] = compiled

  def run(
    self,
    first_round: int,
    chain: Chain,
    seeds: Array,
    states: States,
    data: FederatedData,
    count: Array,
  ) -> tuple[Any, Any]:
    """Runs rounds of a phase: `rounds.many_rounds`, or for a tuple of states its other form."""
    alone = isinstance(states, State)
    runs, arguments = 1 if alone else len(states), (chain, seeds, states, data, count)
    swept = any(leaf.ndim for leaf in jax.tree.leaves(chain))
    same = not swept and data.x.shape == self.data.x.shape and alone == (runs == 1)
    if same and (runs, first_round) in self._warm:
      return self._warm[runs, first_round].result()(*arguments)
    program = rounds.many_rounds if alone else rounds.many_rounds_side_by_side
    return program(self.setting, first_round, *arguments)


class Borrowed(RoundPrograms):
  """The programs of a method with one more layer, for a method without it."""

  def __init__(self, own: RoundPrograms, longer: RoundPrograms):
    """Borrows the programs of `longer`."""
    super().__init__(own.setting, own.chain, own.data, own.shapes)
    self._longer, self._layer = longer, longer.chain.layers[-1]
    self._idle: tuple[PyTree, ...] = ()  # the layer's state in each run side by side

  def warm_up(self, runs: int) -> None:
    """Compiles the programs of the longer method in the background."""
    self._longer.warm_up(runs)

  def run(self, first_round, chain, seeds, states, data, count):
    """Runs rounds of a phase with the additional layer idle, and returns nothing of it."""
    name, alone = self._layer.name, isinstance(states, State)
    each = (states,) if alone else states
    if len(self._idle) != len(each):
      self._idle = tuple(self._zeros() for _ in each)
    idle, self._idle = self._idle, ()  # consumed
    with_it = lambda state, own: state._replace(server={**state.server, name: own})
    given = tuple(map(with_it, each, idle))
    longer, sent = Chain((*chain.layers, self._layer)), given[0] if alone else given
    new, report = self._longer.run(first_round, longer, seeds, sent, data, count)
    after = (new,) if alone else new
    self._idle = tuple(state.server[name] for state in after)
    without = lambda state: state._replace(
      server={key: own for key, own in state.server.items() if key != name}
    )
    after = tuple(map(without, after))
    own = {key: value for key, value in report.items() if not key.startswith(f'{name}/')}
    return after[0] if alone else after, own

  def _zeros(self) -> PyTree:
    shapes = self._longer.shapes().server[self._layer.name]
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return place(zeros, replicated(self._longer.setting.mesh))


def shared(own: RoundPrograms, others: Iterable[RoundPrograms]) -> RoundPrograms:
  """Returns one of the others for a method whose rounds they leave the same, or its own programs.

  On a CPU only, where compilation takes a large part of a small run.

  Args:
    own: of the method.
    others: of the other methods of its run, on the same data.
  """
  longer = next((other for other in others if _serves(other, own)), None)
  return own if longer is None else Borrowed(own, longer)


def _serves(longer: RoundPrograms, own: RoundPrograms) -> bool:
  *inner, last = longer.chain
  setting = dataclasses.replace(own.setting, noise_number=longer.setting.noise_number)
  if not last.idles or overrides(last, *LOCAL_HOOKS, *OF_ROUNDS) or setting.noised:
    return False
  if jax.tree.structure(Chain(tuple(inner))) != jax.tree.structure(own.chain):  # type: ignore[operator]
    return False
  on_cpu = backend_of(setting.mesh) == 'cpu' and setting.store == 'device'
  same = setting == longer.setting and on_cpu and 'individual updates' not in last.requires()
  return same and total_bytes(longer.shapes().server.get(last.name), 1) <= LARGEST
