"""A method bound to a model, data and a layout: the interface of everything outside the engine."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms import chain
from fedjax_syn.chains import Chain
from fedjax_syn.client.local import seen_by
from fedjax_syn.core import programs
from fedjax_syn.core.contexts import ClientContext, Message, State, Task
from fedjax_syn.core.mesh import place, replicated, shapes_on
from fedjax_syn.core.privacy import Mechanism, promises
from fedjax_syn.core.types import Array, Model, Variables
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine import communication, inspection, noise, rounds, server_work, validation
from fedjax_syn.engine.ahead_of_time import Program, programs_of
from fedjax_syn.engine.cohorts import make_rows
from fedjax_syn.engine.evaluate import Evaluator, make_evaluator
from fedjax_syn.engine.layout import Layout
from fedjax_syn.engine.personal import Personal, make_split, measure_all
from fedjax_syn.engine.round_metrics import each_numbers, numbers
from fedjax_syn.engine.round_programs import RoundPrograms, shared
from fedjax_syn.engine.static_setting import make_setting
from fedjax_syn.layer import Layer, overrides


class Engine:
  """A method bound to a model, data and a layout.

  Attributes:
    chain: the method.
    model: the network, as the method adapted it.
    layout: how clients lie on devices, resolved.
    mechanism: the noise that epsilon accounts for, or None.
    client_state_bytes: of all clients' state together.
    data: the training set, on the devices or (`federated.placement_of`) in host memory.
    client_state_place: 'device', or 'host': `State.clients` are numpy arrays, changed in place.
      Where training rows are in host memory, it is there too.
  """

  def __init__(
    self,
    method: Chain | Layer,
    model: Model,
    data: FederatedData,
    *,
    participation: float = 1.0,
    sampler: str = 'fixed',
    layout: Layout = Layout(),  # noqa: B008 (an immutable NamedTuple)
    loss: Callable[[Array, Array, Array], Array] | None = None,
    rounds: int = 0,
    noise_number: int = 0,
    devices: Sequence[jax.Device] = (),
  ):
    """Binds a method.

    Args:
      method: a chain, or one layer.
      model: the network; the method's `model` hooks are applied to it.
      data: the partitioned training set.
      participation: share of the clients in a round, 0 < p <= 1.
      sampler: 'fixed' or 'poisson'.
      layout: how clients lie on devices; zeros are filled in from the table.
      loss: (logits, y, mask) -> mean loss; default: that of the labels' kind,
        `losses.objective_of`.
      rounds: of the run, for a schedule that ends with it; 0: not known.
      noise_number: of the method among those that see the same clients with the same seeds: where
        they add noise for privacy, each has its own, since equal noise could be subtracted, and
        draws its own clients, since epsilon composes so.
      devices: those that there are; () is JAX's. For devices that are not there
        (`jax.experimental.topologies`) an engine only lowers `programs`, and arrays can be shapes.

    Raises:
      ValueError: if the sampler or the layout cannot be had, or the method cannot work on these
        data.
    """
    self.chain = chain(method)
    validation.check(self.chain, data, sampler)
    setting, self.mechanism, self.client_state_bytes = make_setting(
      self.chain, model, data, participation, sampler, layout, loss, rounds, noise_number, devices
    )
    self.setting, self.model, self.client_state_place = setting, setting.model, setting.store
    self.layout = setting.layout._replace(client_state_bytes=layout.client_state_bytes)
    self._everywhere, self._rounds = replicated(setting.mesh), rounds
    self._bytes: tuple[int, int] | None = None  # of a round
    self._rows = make_rows(setting, self.chain, data)
    self.data, self._data = self._rows.whole, self._rows.data  # the latter: shapes of rows on hosts
    self._chain = place(self.chain.traced(), self._everywhere)
    programs.keep(setting, (self._chain, self._data))
    self.round_programs = RoundPrograms(setting, self._chain, self._data, self._shapes)
    if self.mechanism is not None:  # now and not in round 1: this traces what clients send
      self._check_noise(self.mechanism)
    elif any(overrides(layer, 'server_init') for layer in self.chain):
      self._shapes()  # errors of `server_init` come before a run begins

  # -- Training.

  def init(self, seed: int, begin: Variables | None = None) -> State:
    """Returns the state at round 0.

    Args:
      seed: the run's.
      begin: the model to begin with; None draws one.
    """
    of = self._chain, self._number(seed)
    begin = begin or rounds.first_model(self.model, self.setting.mesh, of[1])
    state = rounds.init(self.setting, *of, self._data, begin, self._rows.set_up(*of))
    return self.setting.clients.begin(state, self._rows.initial_rows(self._chain))

  def run(self, seed: int, state: State, count: int) -> tuple[State, dict[str, float]]:
    """Runs rounds until they are done or one diverges.

    Args:
      seed: the run's.
      state: consumed.
      count: rounds, up to the next stop at most (`next_stop`).

    Returns:
      The state, and what the last round reports.

    Raises:
      ValueError: if the rounds cross a stop.
    """
    first_round = validation.phase_of(self.chain, int(jax.device_get(state.round)), count)

    def advance(state: State, count: int) -> tuple[State, Any]:
      number = int(jax.device_get(state.round)) + 1
      given = self._rows.of_round(seed, number), self._number(count)
      arguments = self._chain, self._number(seed), place(state, self._everywhere), *given
      return self.round_programs.run(first_round, *arguments)

    sample = functools.partial(self._rows.sampled, seed)
    state, report = self.setting.clients.run(advance, sample, self._rows.sizes, state, count)
    return state, numbers(jax.device_get(report))

  def run_side_by_side(
    self, seeds: Sequence[int], states: Sequence[State], count: int, chains: Chain | None = None
  ) -> tuple[tuple[State, ...], list[dict[str, float]]]:
    """Runs rounds of several runs in one program; a run that diverges stops alone.

    Args:
      seeds: of each run.
      states: of each run, at the same round; consumed.
      count: rounds, as in `run`.
      chains: the methods as one chain with leaves [runs] where they differ; None: all are
        `self.chain`.

    Returns:
      A state and a report for each.

    Raises:
      ValueError: if the states stand at different rounds, or per-client state is in host memory.
    """
    if len(seeds) == 1 and chains is None:
      state, report = self.run(seeds[0], states[0], count)
      return (state,), [report]
    if self.client_state_place == 'host':
      raise ValueError(
        f'{len(seeds)} seeds side by side: layout.seeds must say so when the engine is built'
      )
    done = {int(number) for number in jax.device_get([state.round for state in states])}
    if len(done) > 1:
      raise ValueError(f'rounds {sorted(done)}: runs side by side must stand at the same round')
    first_round = validation.phase_of(self.chain, done.pop(), count)
    method = self._chain if chains is None else place(chains.traced(), self._everywhere)
    given = place(tuple(states), self._everywhere), self._data, self._number(count)
    new, report = self.round_programs.run(first_round, method, self._number(seeds), *given)
    return new, each_numbers(jax.device_get(report), len(seeds))

  def with_values(self, method: Chain | Layer) -> 'Engine':
    """Returns an engine with the same programs and data, and other values of traced fields.

    Raises:
      ValueError: if a static field differs, or only one adds noise for privacy, which is another
        program.
    """
    method = chain(method)
    same, mechanism = jax.tree.structure(self.chain), method.mechanism(self.task())
    differs = jax.tree.structure(method) != same  # type: ignore[operator]
    if differs or promises(mechanism) != self.setting.promises:
      reason = 'a static field differs, or only one of the two adds noise'
      raise ValueError(f'{method.name}: {reason}; make another Engine')
    other = copy.copy(self)
    other.chain, other.mechanism = method, mechanism
    other._chain = place(method.traced(), self._everywhere)
    other.round_programs = RoundPrograms(self.setting, other._chain, self._data, other._shapes)
    return other

  def next_stop(self, done: int) -> int | None:
    """Returns the next round after which the program changes or the server works, or None."""
    return validation.next_stop(self.chain, done)

  def pending(self, state: State) -> bool:
    """Returns whether work between rounds is unfinished."""
    return server_work.unfinished(self.chain, state) is not None

  def server_work(
    self, seed: int, state: State, seconds: float
  ) -> tuple[State, bool, dict[str, Any]]:
    """Works for about so many seconds on what is pending; the state given is consumed.

    Returns:
      The state, whether all is done, and numbers for the log.
    """
    state, report = server_work.work(self.setting, self.chain, self._data, seed, state, seconds)
    return state, not self.pending(state), report

  def warm_up(self, runs: int = 1) -> None:
    """Compiles the rounds of every phase in the background, for so many runs side by side."""
    self.round_programs.warm_up(runs)

  def share_programs(self, engines: Sequence['Engine']) -> None:
    """Runs rounds by the program of another method of the run, if its layers include all of these.

    Args:
      engines: of all methods of the run, on the same data; see `round_programs.shared`.
    """
    self.round_programs = shared(self.round_programs, [one.round_programs for one in engines])

  def programs(self, splits: Mapping[str, int], size: np.ndarray) -> list[Program]:
    """Returns the programs of a run, lowered from shapes: the devices need not be there.

    Args:
      splits: the rows of each split that is evaluated, by name.
      size: samples of each client, [clients].
    """
    of = self.setting, self._chain, self.chain, self._data, self._shapes()
    return programs_of(*of, splits, size, self._rounds)

  # -- Looking at a run.

  def evaluator(self, x: np.ndarray, y: np.ndarray) -> Evaluator:
    """Places a split on the devices; returns what evaluates models on it.

    Args:
      x: uint8 [rows, height, width, channels].
      y: [rows], or multi-hot [rows, labels].
    """
    rows, mesh = (np.asarray(x), np.asarray(y)), self.setting.mesh
    return make_evaluator(self.model, self._data, self.setting.objective, *rows, mesh)

  def personal(
    self, x: np.ndarray, y: np.ndarray, owners: np.ndarray | None = None
  ) -> Callable[[int, State], Personal]:
    """Places a test split; returns what measures every client's personal model on it.

    Args:
      x: uint8 [rows, height, width, channels].
      y: [rows].
      owners: int32 [rows], the client whose row it is, -1 for nobody's; None if nobody says.

    Returns:
      (seed, state) -> Personal, arrays [clients]; the state is only read. See
      `engine.personal.measure_clients`.

    Raises:
      ValueError: if samples have several labels, so that no class weighs them.
    """
    of = self.setting, self._chain, self._rows.of_clients, self._everywhere
    return functools.partial(measure_all, *of, make_split(x, y, owners, self.setting))

  def artifacts(self, state: State) -> dict[str, Any] | None:
    """Returns the learned set of the outermost layer with one, as numpy arrays, or None."""
    return inspection.artifacts(self.task(), self.setting.mesh, state)

  def diagnose(self, seed: int, state: State) -> dict[str, Any]:
    """Returns what the layers' `evaluate` hooks measure: cosine distances by label, or nothing."""
    return inspection.diagnose(self.task(), self.setting.mesh, seed, state)

  def task(self, round: int = 1) -> Task:
    """Returns the experiment as layers see it in a round."""
    return self.setting.task(self.chain, self._rows.whole, self.chain.first_round(round - 1))

  def client_context(
    self, seed: int, state: State, client: int, layer: type[Layer] | None = None
  ) -> ClientContext:
    """Returns what one client would see in the next round.

    Args:
      seed: the run's.
      state: only read.
      client: its number.
      layer: whose own broadcast and state the context has; None: all of them, by layer.
    """
    *_, number, own, one, data = self._of_client(seed, state, client)
    task = self.task(int(state.round) + 1)._replace(data=data)
    context = inspection.context_of(self.setting, task, number, own, one)
    return context if layer is None else seen_by(self.chain[layer], context, task)

  def message(self, seed: int, state: State, client: int) -> Message:
    """Returns the message that one client would send in the next round; the state is only read."""
    return inspection.one_message(*self._of_client(seed, state, client))

  def client_model(self, seed: int, state: State, client: int) -> Variables:
    """Returns one client's own model, as `personal` measures it; the state is only read."""
    return inspection.one_model(*self._of_client(seed, state, client))

  def bytes_per_round(self) -> tuple[int, int]:
    """Returns the bytes up and down of a round of the last phase, all sampled clients together."""
    if self._bytes is None:  # a round is traced for it
      last = self.chain.first_round(max(self.chain.phases, default=0))
      task, counts = self.setting.task(self._chain, self._data, last), self._rows.whole.class_counts
      self._bytes = communication.bytes_per_round(task, self._shapes(), counts)
    return self._bytes

  @property
  def bytes_before(self) -> int:
    """The bytes that all clients together send before round 1."""
    of = lambda chain, data: rounds.set_up(self.setting, chain, np.int32(0), data)
    sent = jax.eval_shape(of, self._chain, self._data)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(sent))

  def bytes_up(self, seed: int, rounds: int) -> int:
    """Returns the bytes that clients send in rounds 1 .. rounds; who drops out sends nothing."""
    given = self.bytes_per_round()[0], self.task().expected_cohort
    return inspection.bytes_up(self.setting, *given, seed, rounds)

  def empty_rounds(self, seed: int, first: int, last: int) -> int:
    """Counts the rounds first + 1 .. last in which nobody with a sample is drawn."""
    return inspection.empty_rounds(self.setting, self._rows.sizes(), seed, first, last)

  # -- Its own.

  def _number(self, value: int | Sequence[int]) -> Array:
    """Puts numbers on the devices explicitly: implicit transfers may be forbidden."""
    return place(np.asarray(value, np.int32), self._everywhere)

  def _shapes(self) -> State:
    state = rounds.init.eval_shape(self.setting, self._chain, np.int32(0), self._data)
    return shapes_on(self._everywhere, state)

  def _of_client(self, seed: int, state: State, client: int) -> tuple[Any, ...]:
    """Returns the arguments of programs that look at one client in the next round."""
    own = state._replace(clients=jax.tree.map(lambda leaf: leaf[client], state.clients))
    data = self._rows.everywhere(np.array([client]))
    given = np.int32(seed), own, jnp.int32(client), data
    return self.setting, self.chain.first_round(int(state.round)), self._chain, *given

  def _check_noise(self, mechanism: Mechanism) -> None:
    noise.check(self.chain, mechanism)
    self.bytes_per_round()
    if any(overrides(layer, 'server_update') for layer in self.chain):
      one = functools.partial(rounds.one_round, self.setting, 1)
      jax.eval_shape(one, self._chain, np.int32(0), self._shapes(), self._data)
