"""The script for long runs: what counts as growth, by hand; and short versions of both modes."""

import json

import pytest

from fedjax_syn.cli import jax_setup
from tests.run_fixtures import put_stubs
from tools import long_run
from tools.long_run import Sample


def samples(rounds=100, resident=lambda r: 1000, live=500, compiled=lambda r: 7, per_round=0.1):
  """A sample every ten rounds."""
  out, seconds = [], 0.0
  for r in range(0, rounds + 1, 10):
    seconds += 10 * (per_round(r) if callable(per_round) else per_round)
    out.append(Sample(r, resident(r), live, compiled(r), seconds))
  return out


def test_growth_by_hand():
  """Of 100 rounds the first 20 are warm-up; a round takes what lies between two samples."""
  flat = long_run.summarise(samples(resident=lambda r: 500 if r < 20 else 1000))
  assert flat['grown'] == [] and flat['compiled'] == 0
  assert flat['first'] == {'resident_bytes': 1000, 'live_bytes': 500, 'seconds': pytest.approx(0.1)}
  grows = lambda **kwargs: long_run.summarise(samples(**kwargs))['grown']
  assert grows(resident=lambda r: 1000 + r) == ['resident_bytes']  # 1020 to 1100: 8 %
  assert grows(resident=lambda r: 1000 + r // 2) == []  # 1010 to 1050: 4 %
  assert grows(per_round=lambda r: 0.1 + r / 1000) == ['seconds']  # 0.1325 to 0.1925
  assert grows(compiled=lambda r: 7 + (r > 50)) == ['compiled']
  assert grows(compiled=lambda r: 7 + (r > 10)) == []


@pytest.mark.slow
def test_both_modes_in_short(tmp_path, monkeypatch):
  """Arrays and programs at the end are those after the warm-up.

  400 clients are larger than 80 by their index alone. The index has a start, a size and 10 class
  counts a client, of 4 bytes each. It lies on the default device, on the mesh and with the
  evaluator. Seconds and resident memory are those of a busy process, so the test ignores them.
  """
  put_stubs(monkeypatch)
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  monkeypatch.setattr(long_run, 'GROWTH', {'live_bytes': 1.0})
  plan = long_run.plan

  def on_one_device(*args):  # compiles in two thirds of the time
    found = plan(*args)
    for config in found.values():
      config.layout.devices = 1
    return found

  monkeypatch.setattr(long_run, 'plan', on_one_device)
  settings = ['--mode=clients', '--clients=400', '--data=digits', '--rounds=20']
  assert long_run.main(['long_run.py', f'--workdir={tmp_path / "w"}', *settings]) == 0
  report = json.loads((tmp_path / 'w' / 'long_run.json').read_text())
  few, many = (result['last']['live_bytes'] for result in report['results'].values())
  assert 320 * 48 <= many - few <= 5 * 320 * 48


def test_a_folder_that_is_there_is_refused(tmp_path, capsys):
  with pytest.raises(SystemExit) as end:
    long_run.main(['long_run.py', f'--workdir={tmp_path}'])
  assert end.value.code == 2 and 'exists; name a folder' in capsys.readouterr().err
