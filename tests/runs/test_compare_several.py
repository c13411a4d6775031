"""A run that is compared with several methods: folders, figure and table, interruptions."""

import os
import re
import shutil
import signal

import jax
import numpy as np
import pytest

from fedjax_syn.papers.dynafed import inspections
from fedjax_syn.report import runs as report_runs
from fedjax_syn.runs import checkpoint, final_files, metrics, work_folder
from tests.fake_engine import PHASE
from tests.run_helpers import lines_of, outcome, refusal, run

pytest_plugins = ['tests.run_fixtures']

THREE = 'fedavg,scaffold(client.lr=0.5),fedavgm'
NAMES = ('fedavg', 'fedavgm', 'scaffold')


def test_each_method_has_a_folder_and_all_are_in_one_figure_and_table(
  fake, tmp_path, capsys, monkeypatch
):
  order, drawn = [], []
  monkeypatch.setattr(final_files, 'draw_curves', lambda *args: drawn.append(args))
  assert run(tmp_path, compare=THREE) == 0
  folders = {name: tmp_path / 'compare' / name for name in ('fedavg', 'scaffold', 'fedavgm')}
  assert work_folder.compared(tmp_path) == [folders[name] for name in NAMES]
  for name, folder in folders.items():
    stored = work_folder.config(folder)['config']
    assert (stored['algorithm'], stored['compare']) == (name, '')
    assert stored['client']['lr'] == (0.5 if name == 'scaffold' else 0.001)
    assert work_folder.summary(folder)['seeds'] == [0, 1]
    assert checkpoint.list_sorted(folder / 'checkpoints')
    assert lines_of(folder)[0] == lines_of(tmp_path)[0]  # the same initial model
  for (_, runs, _, _), name in zip(drawn, folders, strict=False):
    assert runs == {name: folders[name]}
    order.append(name)
  assert order == [*folders]  # trained as they are named
  (_, runs, mark, _) = drawn[-1]
  assert [*runs.items()] == [('dynafed', tmp_path), *folders.items()] and mark == PHASE
  shown = capsys.readouterr().out
  rows = re.findall(r'│ (\w+) +0\.\d{4} ± ', shown)
  assert rows == ['dynafed', *folders]
  assert 'compared with fedavg,scaffold(client.lr=0.5),fedavgm' in shown
  assert [r.folder for r in report_runs.open_runs([tmp_path])] == [
    tmp_path,
    *work_folder.compared(tmp_path),
  ]
  # A finished run shows the same table again.
  assert run(tmp_path, compare=THREE) == 0
  shown = capsys.readouterr().out
  assert 'nothing was trained' in shown and re.findall(r'│ (\w+) +0\.\d{4} ± ', shown) == rows


def test_a_comparison_is_interrupted_in_each_of_its_methods_and_goes_on(fake, tmp_path, capsys):
  assert run(tmp_path / 'whole', compare=THREE) == 0
  folder, calls = tmp_path / 'w', []

  def on(what, seed, round):
    if what == 'round' and (seed, round) == (1, 5):
      calls.append(round)
      if len(calls) in (1, 2, 4, 5):  # once in each method; then it continues from there
        os.kill(os.getpid(), signal.SIGTERM)

  fake(on=on)
  statuses = []
  while not statuses or statuses[-1] == 75:
    statuses.append(run(folder, compare=THREE))
    assert len(statuses) < 9
  assert statuses[-1] == 0 and statuses.count(75) >= 3
  assert outcome(folder) == outcome(tmp_path / 'whole')
  for name in NAMES:
    part, whole = (f / 'compare' / name for f in (folder, tmp_path / 'whole'))
    assert lines_of(part) == lines_of(whole)
  last = capsys.readouterr().out.rpartition('continues from there')[2]  # of the last call
  finished = [line for line in last.splitlines() if 'finished before' in line]
  assert finished == [
    f'{name}: finished before, 7 rounds' for name in ('fedavg', 'scaffold', NAMES[1])
  ]
  assert run(folder, compare='fedavg,fedavgm') == 2
  assert f"compare: '{THREE}' -> 'fedavg,fedavgm'" in refusal(capsys)


def test_more_rounds_go_on_in_every_folder(fake, tmp_path, capsys):
  changes = {'algorithm': 'fedavgm', 'compare': 'fedavg,fedprox(client.lr=0.5)', 'seeds': (0,)}
  for folder, rounds in (('w', 5), ('w', 8), ('whole', 8)):
    assert run(tmp_path / folder, **changes, rounds=rounds) == 0
  whole = [tmp_path / 'whole', *work_folder.compared(tmp_path / 'whole')]
  for part in whole:
    assert lines_of(tmp_path / 'w' / part.relative_to(whole[0])) == lines_of(part)
  cosine = {**changes, 'compare': 'fedavg,fedprox(client.schedule=cosine)'}
  assert run(tmp_path / 'cosine', **cosine, rounds=5) == 0
  capsys.readouterr()
  assert run(tmp_path / 'cosine', **cosine, rounds=8) == 2
  assert "client.schedule='cosine' depends on it" in refusal(capsys)


@pytest.mark.parametrize(('first', 'then'), [('fedavg', 'fedavg,fedprox'), (THREE, 'fedavg')])
def test_a_comparison_that_only_began_is_not_mixed_with_another(
  fake, tmp_path, capsys, first, then
):
  """The run itself has no round yet, so its own config binds nothing."""
  fake(on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, 2) else None)
  while run(tmp_path, compare=first) == 75:
    last = work_folder.compared(tmp_path)[-1]
    if any(line['round'] > 1 for line in metrics.read(last / 'metrics.jsonl')):
      break
  fake()
  capsys.readouterr()
  assert run(tmp_path, compare=then) == 2
  assert 'another comparison began here (compare' in refusal(capsys)
  assert run(tmp_path, compare=first) == 0


def test_a_folder_with_one_compared_method_goes_on_as_it_began(fake, tmp_path, capsys):
  """`compare/` is that method's folder, as in all versions."""
  whole, folder = tmp_path / 'whole', tmp_path / 'w'
  assert run(whole, compare='fedavg') == 0
  assert '\ncompared with fedavg\n' in capsys.readouterr().out
  fake(on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, 5) else None)
  assert run(folder, compare='fedavg') == 75
  fake()
  assert run(folder, compare='fedavg') == 0
  assert outcome(folder) == outcome(whole)
  assert work_folder.compared(folder) == [folder / 'compare']
  assert lines_of(folder / 'compare') == lines_of(whole / 'compare')
  assert [r.folder for r in report_runs.open_runs([folder])] == [folder, folder / 'compare']


def test_each_compared_method_begins_at_its_own_model_of_the_source(fake, tmp_path, capsys):
  source = tmp_path / 'source'
  assert run(source, algorithm='fedprox', compare='fedavg,fedavgm', rounds=4, seeds=(0,)) == 0
  start = source / 'checkpoints' / '4'
  branch = {'rounds': 6, 'seeds': (0,), 'start_from': str(start)}
  capsys.readouterr()
  compare = 'fedavgm,fedavg,fedopt'
  assert run(tmp_path / 'w', algorithm='fedprox+dp', compare=compare, **branch) == 2  # noise
  assert run(tmp_path / 'w', algorithm='feddyn', compare=compare, **branch) == 0
  starts = {
    path.name: work_folder.config(path)['config']['start_from']
    for path in work_folder.compared(tmp_path / 'w')
  }
  own = {name: str(source / 'compare' / name / 'checkpoints' / '4') for name in NAMES[:2]}
  assert starts == {**own, 'fedopt': ''}
  said = capsys.readouterr().out.replace('\n', ' ')
  assert said.count('has no model of its own') == 1 and 'fedopt has no model of its own' in said


def test_the_target_of_table_4_is_that_of_fedavg(tmp_path):
  """Of several methods; FedAvg's best mean is 0.3, which the run reaches in round 6."""
  accuracies = {'': 0.05, 'compare/fedavgm': 0.09, 'compare/fedavg': 0.05}
  for name, step in accuracies.items():
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    rounds = 8 if name == '' else 6
    lines = ({'round': r, 'seed': 0, 'test/accuracy': step * r} for r in range(rounds + 1))
    text = ''.join(f'{line}\n'.replace("'", '"') for line in lines)
    (folder / 'metrics.jsonl').write_text(text)
    config = {
      'config': {
        'algorithm': folder.name if name else 'dynafed',
        'rounds': 8,
        'seeds': [0],
        'eval_every': 1,
        'data': {},
      },
      'dataset': {'title': 'x'},
    }
    (folder / 'config.json').write_text(f'{config}'.replace("'", '"'))
  found = inspections.rounds_to_compared(tmp_path)
  assert found['target'][0] == pytest.approx(0.05 * np.mean([2, 3, 4, 5, 6]))
  assert found['rounds'] == {0: 6} and found['compared'] == {0: 6}
  shutil.rmtree(tmp_path / 'compare')
  assert inspections.rounds_to_compared(tmp_path) is None


def test_a_compared_method_has_the_numbers_of_a_run_of_it_alone(tmp_path, monkeypatch):
  """Bit for bit. All have FedAvg's one program, so that little is compiled."""
  monkeypatch.setattr(final_files, 'draw', lambda *_: None)  # figures
  small = {'algorithm': 'fedavg', 'rounds': 2, 'seeds': (0,), 'client.participation': 0.5}
  compare = 'fedavg(client.lr=0.05),fedavg(client.lr=0.01,server.weighting=uniform)'
  assert run(tmp_path / 'w', **small, compare=compare) == 0
  parts = [*work_folder.compared(tmp_path / 'w'), tmp_path / 'w']
  accuracies = set()
  for rate, part in zip((0.01, 0.05, 0.001), parts, strict=True):
    alone = tmp_path / f'{rate}'
    assert run(alone, **small, **{'client.lr': rate}) == 0
    assert lines_of(part) == lines_of(alone) and len(lines_of(alone)) == 3
    accuracies.add(lines_of(part)[-1]['test/accuracy'])
    last = [checkpoint.list_sorted(f / 'checkpoints')[-1] for f in (part, alone)]
    first, second = (checkpoint.read(path).tree.params for path in last)
    jax.tree.map(np.testing.assert_array_equal, first, second)
  assert len(accuracies) == 3  # the settings were used
