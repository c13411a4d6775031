"""What a method can do once it is closed over model, data and layout: all that the outer loop knows of it."""

from collections.abc import Callable
from typing import NamedTuple

from fedjax_syn.engine.layout import Layout
from fedjax_syn.method import Method
from fedjax_syn.typing import Model


class Engine(NamedTuple):
  """A method closed over model, data and layout; all functions are ready to call."""

  method: Method
  model: Model
  layout: Layout
  init: Callable  # (seed, Variables to begin with or None) -> State at round 0
  run: Callable  # (seed, state, rounds) -> (State, dict of floats); the state given is consumed
  # (seeds, a State for each at the same round, rounds) -> (States, list of dicts); the same, side by side
  run_together: Callable
  next_stop: Callable  # (round) -> the next round at which the program changes, or None
  pending: Callable  # (state) -> is work between rounds unfinished
  between: Callable  # (seed, state, seconds) -> (State, done, dict)
  evaluator: Callable  # (x, y) -> Evaluator: (params, stats) -> {'accuracy', 'loss'}
  warm_up: Callable  # (seeds side by side) -> None; compiles every phase's rounds in the background
  bytes_per_round: Callable  # () -> (up, down), all sampled clients
  synthetic: Callable  # (state) -> dict of numpy arrays, or None
  diagnose: Callable  # (seed, state) -> cosine distances by label, or {}
  # (x, y, the client of each row or None) -> ((seed, state) -> Personal, arrays [clients])
  personal: Callable
  message: Callable  # (seed, state, client) -> the Message that it would send in the next round
  empty_rounds: Callable  # (seed, first, last) -> rounds first + 1 .. last in which nobody with a sample was drawn
  client_state_bytes: int = 0  # of all clients together
  client_state_place: str = (
    'device'  # or 'host': `State.clients` are numpy arrays, changed in place
  )
  bytes_before: int = 0  # that all clients together send before round 1
