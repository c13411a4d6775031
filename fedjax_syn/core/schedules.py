"""Schedules over rounds by name: factors on a learning rate, from optax or from a user's module."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedjax_syn.core import own_code
from fedjax_syn.core.types import Array

KNOWN = (
  "'', 'constant', 'cosine', 'cosine(0.1)' (ends at a tenth), 'exponential(0.998)',"
  " 'step(30,0.1)' (a tenth after every 30 rounds), 'warmup(5)' (linear in 5 rounds),"
  " 'warmup(5)+cosine', module:function, FILE.py:function"
)
ARGUMENTS = {'constant': (0, 0), 'cosine': (0, 1), 'exponential': (1, 1), 'step': (2, 2)}
"""By name, the fewest and the most numbers in parentheses."""


class Part(NamedTuple):
  """What a name says."""

  kind: str
  """Of `ARGUMENTS`, or 'module:function'."""
  numbers: tuple[float, ...]
  warmup: int
  """Rounds of the linear rise before it."""


def schedule(
  name: str, rounds: int, key: str = 'client.schedule'
) -> Callable[[Array | int], Array]:
  """Returns a factor on the learning rate as a function of the round 1, 2, ...

  Args:
    name: one of `KNOWN`. After a warm-up the other schedule begins. A function of a user gets
      the round, which is traced, and the number of rounds, and returns the factor.
    rounds: rounds of the run; 0: not known yet, so that no schedule that `ends` can be called.
    key: of the setting, for errors.

  Raises:
    ValueError: if the name is unknown.
  """
  part = _read(name, key)
  own = own_code.load(part.kind, key) if ':' in part.kind else None
  if not rounds and ends(name):
    return lambda round: _needs_rounds(name, key)
  if own is not None:
    return lambda round: _checked(own(round, rounds), name, key)
  return lambda round: _factor(part, rounds)(round - 1)  # a check must not start JAX


def ends(name: str) -> bool:
  """Returns whether a schedule depends on the number of rounds; a user's own may."""
  last = name.rpartition('+')[2]
  return ':' in last or re.fullmatch(r'cosine(\(.*\))?', last) is not None


def _factor(part: Part, rounds: int) -> Callable[[Array | int], Array]:
  """Returns the factor as a function of the rounds before, 0, 1, ..."""
  if part.kind == 'cosine':
    after = optax.cosine_decay_schedule(1.0, max(rounds - part.warmup, 1), *part.numbers)
  elif part.kind == 'exponential':
    after = optax.exponential_decay(1.0, 1, *part.numbers)
  elif part.kind == 'step':
    every, rate = part.numbers
    after = optax.exponential_decay(1.0, int(every), rate, staircase=True)
  else:
    after = lambda _: jnp.ones(())
  if not part.warmup:
    return after
  rise = optax.linear_schedule(1 / part.warmup, 1.0, part.warmup - 1 or 1)
  return optax.join_schedules([rise, after], [part.warmup])


def _read(name: str, key: str) -> Part:
  first, plus, last = name.partition('+')
  warmup = re.fullmatch(r'warmup\((\d{1,9})\)', first)
  if plus and not warmup:
    raise _unknown(name, key)
  rest = last if plus else '' if warmup else first
  rounds = int(warmup[1]) if warmup else 0
  if warmup and not rounds:
    raise _unknown(name, key)
  if re.fullmatch(r'([A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*', rest):
    return Part(rest, (), rounds)
  match = re.fullmatch(r'([a-z]*)(?:\(([^()]*)\))?', rest)
  kind = match[1] or ('' if match[2] else 'constant') if match else ''
  try:
    numbers = tuple(float(word) for word in match[2].split(',')) if match and match[2] else ()
  except ValueError:
    raise _unknown(name, key) from None
  few, many = ARGUMENTS.get(kind, (1, 0))
  if not few <= len(numbers) <= many:
    raise _unknown(name, key)
  if kind == 'step' and not (numbers[0] >= 1 and numbers[0] == int(numbers[0])):
    raise _unknown(name, key)
  rate = numbers[-1] if numbers else 1.0
  if not 0 <= rate <= 1 or (rate == 0 and kind != 'cosine'):
    raise _unknown(name, key)
  return Part(kind, numbers, rounds)


def _unknown(name: str, key: str) -> ValueError:
  return ValueError(f'{key}={name!r} is unknown; known: {KNOWN}')


def _needs_rounds(name: str, key: str) -> Array:
  raise ValueError(
    f'{key}={name!r} ends with the run, and the number of rounds is not known here:'
    ' Engine(..., rounds=...)'
  )


def _checked(factor: Any, name: str, key: str) -> Array:
  try:
    value = jnp.asarray(factor, jnp.result_type(float))
  except (TypeError, ValueError):
    value = jnp.zeros(2)
  if value.ndim:
    raise ValueError(f'{key}={name!r}: must return one number, the factor on the rate')
  return value
