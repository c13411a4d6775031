"""Every number of a config has bounds; one beyond them is refused in one line before any work."""

import dataclasses

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.core.fields import ConfigError, check_range, field
from fedjax_syn.core.texts import shown

LEAVES = config_lib.leaves()
NUMBERS = {
  kind: sorted(key for key, leaf in LEAVES.items() if leaf.kind in (kind, tuple[kind, ...]))
  for kind in (int, float)
}


def refused(key, value):
  """The line that refuses a value of one field."""
  whole = (value,) if LEAVES[key].kind not in (int, float) else value
  with pytest.raises(ConfigError) as caught:
    config_lib.check({key: whole})
  line = str(caught.value)
  assert '\n' not in line and line.startswith(f'{key}='), line
  return line


def test_every_integer_says_how_large_it_may_be():
  """Each bound is a number that the program can hold and that no user reaches.

  It is at least 100 times the default, and at most what int64 counts.
  """
  without = [
    key for key in NUMBERS[int] if not (LEAVES[key].rules['high'] or LEAVES[key].rules['choices'])
  ]
  assert not without
  for key in NUMBERS[int]:
    rules, default = LEAVES[key].rules, LEAVES[key].default
    if rules['high']:
      largest = max(default, default=0) if isinstance(default, tuple) else default
      assert 100 * largest <= rules['high'] < 2**63, key


@pytest.mark.parametrize('value', [10**30, 2**63, -(10**30)])
def test_integers_beyond_the_program_s(value):
  for key in NUMBERS[int]:
    line = refused(key, value)
    rules = LEAVES[key].rules
    if not rules['choices']:
      wanted = f'at most {rules["high"]}' if value > 0 else f'at least {rules["low"]}'
      assert f'={shown(value)}: must be {wanted}' in line


@pytest.mark.parametrize(
  'value', [1e308, -1e308, 1e-320, 1e-160, float('inf'), float('nan'), 10**400]
)
def test_numbers_that_float32_does_not_hold(value):
  for key in NUMBERS[float]:
    refused(key, value)


def test_what_float32_holds_is_accepted():
  for value in (1e-30, 1e30):
    check_range('x', value, {})
  check_range('x', 0.0, {'low': 0.0})


def test_a_field_of_one_s_own_has_bounds_too():
  """Methods outside the package may say nothing: int32 is what programs count in."""

  @dataclasses.dataclass(frozen=True)
  class Config:
    batch_size: int = field(32, 'a batch')

  rules = dataclasses.fields(Config)[0].metadata
  check_range('own.batch_size', 2**31 - 1, rules)
  with pytest.raises(ConfigError, match='own.batch_size=2147483648: must be at most 2147483647'):
    check_range('own.batch_size', 2**31, rules)
