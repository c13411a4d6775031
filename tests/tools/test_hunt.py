"""The hunt in `tools/hunt.py` knows what it hunts; a small share of it, by hand with -m slow."""

import random
import time

import numpy as np
import pytest

from tools import _damages, _fields, _inputs, _outcomes, hunt


@pytest.mark.parametrize(
  ('call', 'kind'),
  [
    (lambda: 3, 'accepted'),
    (lambda: _raise(ValueError('x=3: must be less')), 'refused'),
    (lambda: _raise(ValueError('a\nb')), 'several lines'),
    (lambda: _raise(ValueError('a' * 10_000)), 'several lines'),
    (lambda: _raise(KeyError('x')), 'traceback'),
    (lambda: _raise(RecursionError()), 'traceback'),
    (lambda: _raise(SystemExit(0)), 'traceback'),
    (lambda: time.sleep(5), 'hang'),
  ],
)
def test_outcomes_are_told_apart(call, kind):
  assert _outcomes.outcome(call, hang=0.1).kind == kind


def _raise(error):
  raise error


def test_a_refusal_names_the_key_or_the_value():
  refusal = _outcomes.Outcome('refused', 'client.lr=-1.0: must be greater than 0', 0.0)
  assert _fields._checked(refusal, 'client.lr', '-1').kind == 'refused'
  assert _fields._checked(refusal, 'data.alpha', '-1.0').kind == 'refused'
  assert _fields._checked(refusal, 'data.alpha', 'seven').kind == 'unnamed'


def test_a_changed_reading_without_a_note_is_silent():
  whole = {'x': np.arange(3), 'notes': ('read 3 rows',)}
  judged = lambda value, unseen=False: _inputs.judged(
    _outcomes.Outcome('accepted', '', 0.0, value), _inputs.plain(whole), unseen
  )
  assert judged(whole).kind == 'accepted'
  assert judged({**whole, 'x': np.arange(2)}).kind == 'silent'
  assert judged({**whole, 'x': np.arange(2)}, True).kind == 'accepted'
  assert judged({'x': np.arange(2), 'notes': ('read 2 rows',)}).kind == 'accepted'


def test_every_field_is_given_every_value():
  pairs = _fields.cases(random.Random(0))
  assert (
    len(pairs) > 20_000 and ('client.lr', '9' * 400) in pairs and ('rounds', '{[]: 1}') in pairs
  )
  assert len(_damages.BYTES) + len(_damages.OTHER) + len(_damages.SPECIAL) >= 20


@pytest.mark.slow
def test_a_share_of_the_fields(capsys):
  assert hunt.main(['fields', '--minutes=3', '--share=0.02', '--seed=1']) == 0
  assert '0 traceback, 0 hang' in capsys.readouterr().out


@pytest.mark.slow
def test_a_share_of_the_inputs(capsys):
  assert hunt.main(['inputs', '--count=60', '--seed=2']) == 0
  assert '0 traceback, 0 hang' in capsys.readouterr().out
