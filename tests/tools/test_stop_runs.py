"""The tool that stops runs: a few stops of a small job."""

import json
import pathlib
import random
import subprocess
import sys

import pytest

from tools import stop_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]


def told(status, after=9.0, text=''):
  return stop_runs.Told(status, text, after, 0.1, 'first run')


@pytest.mark.parametrize(
  ('session', 'wrong'),
  [
    (told(75), False),
    (told(130, 1.0), False),
    (told(-15, 0.1), False),
    (told(130), True),
    (told(134), True),
    (told(0), True),
    (told(-15), True),
    (told(75, text='terminate called without an active exception'), True),
    (told(75, text='Traceback (most recent call last)'), True),
  ],
)
def test_what_counts_as_a_good_stop(session, wrong):
  assert bool(stop_runs.judge(session)) == wrong


def test_stops_are_of_both_kinds_and_so_many_while_compiling():
  planned = stop_runs.plan(30, 15, random.Random(0))
  assert sum(stop.compiling for stop in planned) == 15 and len(planned) == 30
  assert sum(stop.terminal for stop in planned) == 15
  assert planned == stop_runs.plan(30, 15, random.Random(0))


@pytest.mark.slow
def test_a_few_stops(tmp_path):
  folder = tmp_path / 'w'
  small = (
    '--settings=rounds=12,model.width=8,dynafed.length=4,dynafed.segment=2,dynafed.iterations=10'
  )
  command = [sys.executable, '-m', 'tools.stop_runs', f'--workdir={folder}', small]
  done = subprocess.run([*command, '--stops=4', '--compiling=2', '--others=2'], cwd=ROOT)
  assert done.returncode == 0 and len(json.loads((folder / 'stops.json').read_text())) == 6
