"""A run goes on bit for bit wherever it was interrupted, and tells what became of it.

Most tests put `tests.fake_engine` in the engine's place, so that every moment of a run can be hit.
"""

import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap

import chex
import numpy as np
import pytest

from fedjax_syn import (
  algorithms,
  api,
  assemble,
  checkpoint,
  experiment,
  figures,
  metrics,
  models,
  recorder,
  results,
  structure,
)
from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import datasets
from tests.fake_engine import PHASE, Fake


class Killed(BaseException):
  """Stands for SIGKILL: nothing catches it, nothing is saved after it."""


def config_of(**changes):
  config = config_lib.get_default()
  base = {
    'algorithm': 'dynafed',
    'rounds': 7,
    'seeds': (0, 1),
    'checkpoint_every': 2,
    'data.name': 'digits',
    'data.partition': 'iid',
    'data.clients': 4,
    'model.name': 'mlp',
    'model.width': 8,
    'model.depth': 1,
    'dynafed.length': PHASE,
    'dynafed.segment': 2,
    'dynafed.iterations': 6,
  }
  for key, value in {**base, **changes}.items():
    section, _, name = key.rpartition('.')
    (config[section] if section else config)[name] = value
  return config


def put_fake(patch, **behaviour):
  patch.setattr(assemble, 'build', Fake(**behaviour).build)


def put_stubs(patch):
  """No figures, and checkpoints whenever they are due, however long they take."""
  patch.setattr(results, 'draw_partition', lambda *_: None)
  patch.setattr(results, 'draw_curves', lambda *_: None)
  patch.setattr(figures, 'synthetic_sets', lambda *args: args[4].write_bytes(b'picture'))
  patch.setattr(recorder, 'SHARE', math.inf)


@pytest.fixture
def fake(monkeypatch):
  """Puts a fake engine in place; returns a function that changes it.

  Arrays go to disk without Orbax and without waiting for the disk: most of the time of a run that
  computes nothing.
  """
  put_stubs(monkeypatch)
  put_fake(monkeypatch)

  def write(folder, arrays):
    folder.mkdir()
    np.savez(folder / 'arrays.npz', **{str(i): a for i, a in enumerate(arrays.values())})
    (folder / 'names.json').write_text(json.dumps(list(arrays)))

  def read(folder, names):
    with np.load(folder / 'arrays.npz') as file:
      stored = json.loads((folder / 'names.json').read_text())
      assert sorted(stored) == sorted(names)
      return {name: file[str(i)] for i, name in enumerate(stored)}

  monkeypatch.setattr(checkpoint, 'write_arrays', write)
  monkeypatch.setattr(checkpoint, 'read_arrays', read)
  monkeypatch.setattr(checkpoint, 'fsync', lambda path: None)
  return functools.partial(put_fake, monkeypatch)


def lines_of(folder) -> list[dict]:
  """The metrics lines without what a clock says."""
  return [
    {k: v for k, v in line.items() if k != 'seconds'}
    for line in metrics.read(folder / 'metrics.jsonl')
  ]


def outcome(folder) -> dict:
  """All of a finished folder that must not depend on interruptions."""
  summary = json.loads((folder / 'summary.json').read_text())
  states = {}
  for seed in summary['seeds']:
    mine = [p for p in checkpoint.found(folder / 'checkpoints') if checkpoint.seed_of(p) == seed]
    tree = checkpoint.read(mine[-1]).tree
    states[seed] = {k: v.tobytes() for k, v in structure.encode(tree)[0].items()}
  with np.load(folder / 'synthetic' / 'synthetic.npz') as file:
    learned = {k: v.tobytes() for k, v in file.items()}
  timeless = {k: v for k, v in summary.items() if k not in ('seconds', 'peak_memory_bytes')}
  return {'summary': timeless, 'lines': lines_of(folder), 'states': states, 'learned': learned}


@pytest.fixture(scope='module')
def whole_folder(tmp_path_factory):
  """A run that nobody disturbs, with Orbax."""
  folder = tmp_path_factory.mktemp('whole')
  with pytest.MonkeyPatch.context() as patch:
    put_stubs(patch)
    put_fake(patch)
    assert experiment.run_experiment(config_of(), folder) == 0
  return folder


@pytest.fixture(scope='module')
def whole(whole_folder):
  """What it comes to."""
  return outcome(whole_folder)


def test_undisturbed_run(whole):
  lines = whole['lines']
  assert [(line['seed'], line['round']) for line in lines] == [
    (s, r) for s in (0, 1) for r in range(8)
  ]
  assert (
    'train/loss' not in lines[0] and 'train/loss' in lines[1]
  )  # nothing was trained before round 1
  summary = whole['summary']
  assert summary['algorithm'] == 'dynafed' and summary['seeds'] == [0, 1] and summary['rounds'] == 7
  assert summary['test_accuracy']['last']['per_seed'] == [
    lines[7]['test/accuracy'],
    lines[15]['test/accuracy'],
  ]
  finished = {'status': 'finished', 'round': 7, 'synthesis_round': PHASE}
  assert summary['status'] == {'0': finished, '1': finished}
  assert (summary['bytes_up'], summary['bytes_down']) == (70, 140)  # 10 and 20 a round
  assert summary['parameters'] == 64 * 8 + 8 + 8 * 10 + 10
  assert summary['epsilon'] is None and summary['padding_efficiency'] == 0.5


def killer(count: int):
  """Kills at the count-th piece of work, whatever it is."""
  left = [count]

  def on(what, seed, round):
    left[0] -= 1
    if left[0] == 0:
      raise Killed

  return on


def kill_and_resume(fake, whole, folder, count):
  fake(on=killer(count))
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(), folder)
  with (folder / 'metrics.jsonl').open('a') as file:
    file.write('{"round": 6, "see')  # and in the middle of a line
  fake()
  assert experiment.run_experiment(config_of(), folder) == 0
  assert outcome(folder) == whole, f'killed at piece {count}'


PIECES = 42  # a run has 16 evaluations, 14 rounds and 12 iterations


@pytest.mark.parametrize('count', [1, 2, 4, 9, 11, 14, 21, 22, 31, 42])
def test_killed_at_a_piece_of_work_and_resumed(fake, whole, tmp_path, count):
  """At the first evaluation, the first round, around the end of the phase, in the work after it, ..."""
  kill_and_resume(fake, whole, tmp_path, count)


@pytest.mark.slow
@pytest.mark.parametrize('count', range(1, PIECES + 1))
def test_killed_at_any_piece_of_work_and_resumed(fake, whole, tmp_path, count):
  kill_and_resume(fake, whole, tmp_path, count)


def test_killed_again_and_again(fake, whole, tmp_path, monkeypatch):
  """Every session gets some pieces of work further: the run still ends, with the same result."""
  monkeypatch.setattr(recorder, 'CHUNK_SECONDS', -1.0)
  for _ in range(20):
    fake(on=killer(8))
    try:
      assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
      break
    except Killed:
      continue
  assert outcome(tmp_path / 'w') == whole


@pytest.mark.parametrize('count', [1, 9, 30, 63, 64, 65, 90])
def test_killed_while_saving(fake, whole, tmp_path, monkeypatch, count):
  """Killed at the count-th file that a checkpoint brings to disk."""
  left, real = [count], checkpoint.fsync

  def fsync(path):
    left[0] -= 1
    if left[0] == 0:
      raise Killed
    real(path)

  monkeypatch.setattr(checkpoint, 'fsync', fsync)
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(), tmp_path / 'w')
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
  assert outcome(tmp_path / 'w') == whole


@pytest.mark.parametrize('lost', ['newest', 'all', 'metrics'])
def test_damage_between_sessions_is_loud_and_costs_only_time(fake, whole, tmp_path, capsys, lost):
  folder = tmp_path / 'w'
  fake(on=killer(38))  # in the last rounds of the second seed
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(), folder)
  paths = checkpoint.found(folder / 'checkpoints')
  assert len(paths) > 3
  if lost == 'metrics':
    path = folder / 'metrics.jsonl'
    os.truncate(path, path.stat().st_size // 2)
  else:
    for path in paths if lost == 'all' else paths[-1:]:
      data = bytearray((path / 'structure.json').read_bytes())
      data[5] ^= 1
      (path / 'structure.json').write_bytes(bytes(data))
  fake()
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), folder) == 0
  assert 'WARNING' in capsys.readouterr().out
  assert outcome(folder) == whole


@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
  'moment', [('round', 0, 2), ('iteration', 0, 3), ('round', 0, 7), ('round', 1, 5)]
)
def test_a_signal_saves_and_the_same_command_goes_on(fake, whole, tmp_path, capsys, signum, moment):
  folder = tmp_path / 'w'
  handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
  fake(on=lambda *now: os.kill(os.getpid(), signum) if now == moment else None)
  assert experiment.run_experiment(config_of(), folder) == experiment.INTERRUPTED == 75
  assert f'interrupted ({signum.name}) and saved' in capsys.readouterr().out
  assert handlers == [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
  done = []
  fake(on=lambda what, seed, round: done.append((what, seed, round)))
  assert experiment.run_experiment(config_of(), folder) == 0
  assert moment not in done  # nothing that was done is done again
  assert outcome(folder) == whole


def test_a_signal_in_the_last_round_of_the_last_seed_changes_nothing(fake, whole, tmp_path):
  fake(on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, 7) else None)
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
  assert outcome(tmp_path / 'w') == whole


def test_finished_folder_prints_its_summary_again_and_computes_nothing(
  fake, whole, whole_folder, capsys
):
  before = (whole_folder / 'summary.json').read_bytes()
  fake(on=lambda *_: pytest.fail('worked'))
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), whole_folder) == 0
  shown = capsys.readouterr().out
  assert f'{whole["summary"]["test_accuracy"]["last"]["mean"]:.4f}' in shown
  assert (whole_folder / 'summary.json').read_bytes() == before


def test_changed_config_is_refused_with_the_difference(whole_folder, capsys):
  folder = whole_folder
  before = sorted(
    (p, p.stat().st_mtime_ns) for p in folder.rglob('*') if p.is_file() and p.name != '.lock'
  )
  assert experiment.run_experiment(config_of(**{'client.lr': 0.5}), folder) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert 'client.lr: 0.001 -> 0.5' in line and str(folder) in line
  assert before == sorted(
    (p, p.stat().st_mtime_ns) for p in folder.rglob('*') if p.is_file() and p.name != '.lock'
  )


def test_unused_block_may_change(fake, whole_folder):
  assert experiment.run_experiment(config_of(**{'scaffold.option': 1}), whole_folder) == 0


@pytest.mark.parametrize(
  'change', [{'rounds': 0}, {'data.partition': 'nosuch'}, {'layout.devices': 99}]
)
def test_refusals_are_one_line(tmp_path, capsys, change):
  assert experiment.run_experiment(config_of(**change), tmp_path / 'w') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert str(next(iter(change.values()))) in line
  assert not (tmp_path / 'w' / 'metrics.jsonl').exists()


def test_folder_of_something_else_is_refused(fake, tmp_path, capsys):
  (tmp_path / 'metrics.jsonl').write_text('precious')
  assert experiment.run_experiment(config_of(), tmp_path) == 2
  assert 'metrics.jsonl' in capsys.readouterr().err
  assert (tmp_path / 'metrics.jsonl').read_text() == 'precious'


def test_second_run_on_a_folder_is_refused(fake, tmp_path, capsys):
  holder = f'import sys\nfrom fedjax_syn import workdir\nfrom pathlib import Path\nwith workdir.lock(Path({str(tmp_path)!r})):\n  print("held", flush=True)\n  sys.stdin.read()\n'
  with subprocess.Popen(
    [sys.executable, '-c', holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as other:
    assert other.stdout.readline() == 'held\n'
    assert experiment.run_experiment(config_of(), tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f'process {other.pid}' in line
    other.send_signal(signal.SIGKILL)  # and the system releases the lock
    other.wait()
  assert experiment.run_experiment(config_of(), tmp_path) == 0


def test_diverged_seed_ends_and_the_others_go_on(fake, tmp_path, capsys):
  fake(diverge={0: 5})
  assert experiment.run_experiment(config_of(), tmp_path) == 0
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['status']['0'] == {
    'status': 'diverged',
    'round': 5,
    'client': 2,
    'last_good_checkpoint': 'checkpoints/4/seed_0',
    'synthesis_round': PHASE,
  }
  assert (tmp_path / 'checkpoints/4/seed_0').is_dir()  # it is there, and stays
  assert summary['status']['1']['status'] == 'finished'
  last = summary['test_accuracy']['last']
  assert last['mean'] is None and last['per_seed'][0] is None and last['per_seed'][1] > 0
  assert [line['round'] for line in lines_of(tmp_path) if line['seed'] == 0] == [0, 1, 2, 3, 4]
  assert 'seed 0 diverged in round 5, client 2' in capsys.readouterr().out


def test_all_seeds_diverged_is_status_3_also_when_asked_again(fake, tmp_path):
  fake(diverge={0: 1}, synthesis_diverges=(1,))
  assert experiment.run_experiment(config_of(), tmp_path) == experiment.DIVERGED == 3
  assert experiment.run_experiment(config_of(), tmp_path) == 3
  status = json.loads((tmp_path / 'summary.json').read_text())['status']
  assert status['0']['last_good_checkpoint'] is None  # nothing was saved before round 1
  assert status['1']['reason'] == 'synthesis diverged in iteration 2'
  assert status['1']['last_good_checkpoint'] == 'checkpoints/3/seed_1'


def test_divergence_is_remembered_by_a_resumed_run(fake, tmp_path):
  fake(
    diverge={0: 2},
    on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, 2) else None,
  )
  assert experiment.run_experiment(config_of(), tmp_path) == 75
  seen = set()
  fake(on=lambda what, seed, round: seen.add(seed))
  assert experiment.run_experiment(config_of(), tmp_path) == 0
  assert 0 not in seen
  assert json.loads((tmp_path / 'summary.json').read_text())['status']['0']['round'] == 2


def test_compare_is_trained_first_into_its_own_folder(fake, tmp_path, capsys, monkeypatch):
  order, drawn = [], []
  monkeypatch.setattr(results, 'draw_curves', lambda *args: drawn.append(args))
  fake(on=lambda what, seed, round: order.append(what))
  assert experiment.run_experiment(config_of(compare='fedavg'), tmp_path) == 0
  assert 'iteration' not in order[: len(order) // 3]
  other = tmp_path / 'compare'
  for name in ('config.json', 'metrics.jsonl', 'summary.json', 'checkpoints'):
    assert (other / name).exists()
  summary = json.loads((other / 'summary.json').read_text())
  assert summary['algorithm'] == 'fedavg' and summary['seeds'] == [0, 1]
  stored = json.loads((other / 'config.json').read_text())
  assert stored['config']['algorithm'] == 'fedavg' and stored['config']['compare'] == ''
  assert lines_of(other)[0] == lines_of(tmp_path)[0]  # the same initial model
  (_, _, runs, mark) = drawn[-1]
  assert runs == {'dynafed': tmp_path, 'fedavg': other} and mark == PHASE
  shown = capsys.readouterr().out
  assert re.search(r'dynafed +0\.\d{4} ± ', shown) and re.search(r'fedavg +0\.\d{4} ± ', shown)


def test_interrupted_while_training_compare(fake, tmp_path):
  config = config_of(compare='fedavg')
  assert experiment.run_experiment(config, tmp_path / 'whole') == 0
  for stop_at in (('round', 0, 5), ('round', 1, 7)):
    folder, first = tmp_path / str(stop_at), []

    def on(*now, stop_at=stop_at, first=first):
      if now == stop_at and not first:
        first.append(now)
        os.kill(os.getpid(), signal.SIGTERM)

    fake(on=on)
    assert experiment.run_experiment(config, folder) == 75
    assert experiment.run_experiment(config, folder) == 0
    assert outcome(folder) == outcome(tmp_path / 'whole')
    assert lines_of(folder / 'compare') == lines_of(tmp_path / 'whole' / 'compare')


def test_validation_split_is_reported(fake, tmp_path):
  assert (
    experiment.run_experiment(config_of(**{'data.validation': 0.1, 'seeds': (0,)}), tmp_path) == 0
  )
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert set(summary['validation_accuracy']) == {'last', 'mean_last_5', 'best'}
  assert {'validation/accuracy', 'validation/loss'} <= set(lines_of(tmp_path)[0])


def test_saving_takes_a_bounded_share_of_the_time(fake, tmp_path, monkeypatch):
  """With the real share: a run of no length saves ends of phases and of seeds, and little else."""
  monkeypatch.setattr(recorder, 'SHARE', 1e-6)
  saves, real = [], checkpoint.save
  monkeypatch.setattr(
    checkpoint, 'save', lambda root, round, *a: saves.append(round) or real(root, round, *a)
  )
  assert experiment.run_experiment(config_of(rounds=40, seeds=(0,)), tmp_path) == 0
  assert [r for r in saves if r > 2] == [PHASE, PHASE, 40]


def test_start_from_keeps_what_fits_and_lists_the_rest(fake, tmp_path, capsys):
  source = tmp_path / 'source'
  assert experiment.run_experiment(config_of(), source) == 0
  rounds = []
  fake(on=lambda what, seed, round: rounds.append((seed, round)) if what == 'round' else None)
  config = config_of(algorithm='fedavg', start_from=str(source / 'checkpoints' / str(PHASE)))
  assert experiment.run_experiment(config, tmp_path / 'branch') == 0
  assert rounds == [(s, r) for s in (0, 1) for r in range(PHASE + 1, 8)]
  shown = capsys.readouterr().out
  assert 'dropped: server.dynafed; initialised: nothing' in shown
  old, new = lines_of(source), lines_of(tmp_path / 'branch')
  assert new == [
    line if line['round'] > PHASE else new[i]
    for i, line in enumerate(l for l in old if l['round'] >= PHASE)
  ]
  assert new[0]['test/accuracy'] == next(l for l in old if l['round'] == PHASE)['test/accuracy']


def test_start_from_initialises_what_is_missing(fake, tmp_path, capsys):
  assert experiment.run_experiment(config_of(algorithm='fedavg'), tmp_path / 'source') == 0
  start = str(tmp_path / 'source' / 'checkpoints' / '6')
  assert experiment.run_experiment(config_of(start_from=start), tmp_path / 'branch') == 0
  assert 'dropped: nothing; initialised: server.dynafed' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ({'start_from': 'source/checkpoints/5'}, 'rounds there: 3'),
    ({'start_from': 'source/checkpoints'}, 'W/checkpoints/<round>'),
    (
      {'start_from': f'source/checkpoints/{PHASE}', 'seeds': (0, 9)},
      'no checkpoint of seed 9; seeds there: 0, 1',
    ),
    ({'start_from': 'source/checkpoints/7'}, 'rounds=7 must be greater than 7'),
  ],
)
def test_start_from_refusals(fake, tmp_path, capsys, monkeypatch, change, said):
  monkeypatch.chdir(tmp_path)
  assert experiment.run_experiment(config_of(), 'source') == 0
  assert experiment.run_experiment(config_of(**change), 'branch') == 2
  assert said in capsys.readouterr().err


def test_checkpoints_that_stay(whole_folder):
  names = {
    str(p.relative_to(whole_folder / 'checkpoints'))
    for p in checkpoint.found(whole_folder / 'checkpoints')
  }
  for seed in (0, 1):
    mine = {n for n in names if f'seed_{seed}' in n}
    assert {f'{PHASE}/seed_{seed}', f'7/seed_{seed}'} <= mine  # the end of the phase, and the end
    assert len(mine) <= 4


def test_other_processes_write_nothing(fake, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(experiment.jax, 'process_index', lambda: 1)
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
  assert not (tmp_path / 'w').exists()
  assert capsys.readouterr().out == ''


def test_load_opens_what_a_run_left(whole, whole_folder, tmp_path):
  loaded = api.load(whole_folder, seed=1)
  assert loaded.variables.params['w'].tobytes() == whole['states'][1]['params/w']
  assert api.load(whole_folder).variables.params['w'].tobytes() == whole['states'][0]['params/w']
  assert loaded.synthetic['x'].shape == (3, 10, 8, 8, 1)
  np.testing.assert_allclose(loaded.synthetic['std'], loaded.synthetic['std'])
  with pytest.raises(FileNotFoundError, match='seed 5.*0, 1'):
    api.load(whole_folder, seed=5)
  with pytest.raises(FileNotFoundError, match='config.json'):
    api.load(tmp_path)


def test_load_skips_a_seed_that_diverged_unless_asked(fake, tmp_path):
  fake(diverge={0: 6})
  assert experiment.run_experiment(config_of(algorithm='fedavg'), tmp_path) == 0
  last = checkpoint.read(tmp_path / 'checkpoints/7/seed_1').tree
  assert api.load(tmp_path).variables.params['w'].tobytes() == last.params['w'].tobytes()
  good = checkpoint.read(tmp_path / 'checkpoints/4/seed_0').tree
  assert api.load(tmp_path, seed=0).variables.params['w'].tobytes() == good.params['w'].tobytes()


# The real engine.

REAL = {
  'rounds': 6,
  'seeds': (0,),
  'dynafed.iterations': 4,
  'dynafed.images_per_class': 1,
  'dynafed.inner_steps': 2,
}


@pytest.fixture(scope='module')
def real(tmp_path_factory):
  """A real run, with figures."""
  folder = tmp_path_factory.mktemp('real')
  assert experiment.run_experiment(config_of(**REAL), folder, config_name='tiny') == 0
  return folder


def test_real_run_leaves_all_files(real):
  for name in (
    'config.json',
    'metrics.jsonl',
    'summary.json',
    'figures/accuracy.png',
    'figures/partition.png',
  ):
    assert (real / name).stat().st_size > 100
  for name in ('synthetic/synthetic.npz', 'synthetic/synthetic.png', 'figures/synthetic.png'):
    assert (real / name).stat().st_size > 100
  assert len(list(real.glob('events.out.*'))) == 1
  assert sorted(p.name for p in real.iterdir() if p.name.startswith('.')) == ['.lock']
  stored = json.loads((real / 'config.json').read_text())
  assert stored['config_name'] == 'tiny' and re.fullmatch('[0-9a-f]{8}', stored['hash'])
  assert stored['dataset']['title'] and stored['dataset']['checksum'] and stored['versions']['jax']
  assert stored['layout']['lanes'] > 0 and stored['layout']['devices'] > 0


def test_real_summary(real):
  summary = json.loads((real / 'summary.json').read_text())
  seconds = summary['seconds']
  assert set(seconds) == {'total', 'compile', 'rounds', 'synthesis', 'finetune', 'evaluation'}
  assert (
    seconds['compile'] > 0
    and sum(v for k, v in seconds.items() if k != 'total') <= seconds['total'] + 0.01
  )
  assert summary['peak_memory_bytes'] > 1e6 and summary['bytes_up'] > 0
  assert 0 < summary['test_accuracy']['last']['mean'] < 1


def test_real_load_gives_a_model_that_has_the_accuracy_of_the_summary(real):
  loaded = api.load(real)
  dataset = datasets.load('digits')
  x = (dataset.test.x / 255 - np.array(dataset.normalisation.mean)) / np.array(
    dataset.normalisation.std
  )
  logits = np.asarray(
    loaded.model.apply(loaded.variables, x.astype(np.float32), train=False).logits
  )
  summary = json.loads((real / 'summary.json').read_text())
  accuracy = np.mean(logits.argmax(axis=-1) == dataset.test.y)
  assert accuracy == pytest.approx(summary['test_accuracy']['last']['mean'], abs=2e-3)


def test_api_run_of_fedavg_is_dynafed_up_to_its_synthesis(real):
  """Without folder and config: rounds 1..L of DynaFed are FedAvg's, the same clients and batches."""
  config = config_lib.check(config_of(**REAL))
  dataset = datasets.load('digits')
  model = models.create('mlp', shape=dataset.train.x.shape[1:], num_classes=10, width=8, depth=1)
  method = algorithms.create('fedavg', config)
  history, variables = api.run(
    method, dataset, model, rounds=PHASE, clients=4, partition='iid', participation=0.4
  )
  drop = lambda line: {k: v for k, v in line.items() if k != 'seconds'}
  for mine, theirs in zip(map(drop, history), lines_of(real)[: PHASE + 1], strict=True):
    assert mine == pytest.approx(theirs, rel=1e-5)
  at_phase = checkpoint.read(real / f'checkpoints/{PHASE}/seed_0').tree
  chex.assert_trees_all_close(variables[0].params, at_phase.params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('wrong', [{'rounds': 0}, {'rounds': 1, 'clients': 0}])
def test_api_run_refuses_by_name(wrong):
  with pytest.raises(ValueError, match='=0'):
    api.run(fedavg(), 'digits', 'mlp', **wrong)


def test_api_run_warns_of_a_seed_that_diverged(monkeypatch):
  monkeypatch.setattr(api.engine_lib, 'build', Fake(diverge={1: 2}).build)
  with pytest.warns(UserWarning, match='seed 1 diverged in round 2'):
    history, variables = api.run(fedavg(), 'digits', 'mlp', rounds=3, seeds=(0, 1))
  assert [(line['seed'], line['round']) for line in history] == [(0, r) for r in range(4)] + [
    (1, 0),
    (1, 1),
  ]
  assert variables[1] is None and variables[0] is not None


SESSION = """
  import sys, jax
  jax.config.update('jax_compilation_cache_dir', sys.argv[2])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  from fedjax_syn import experiment, loop, recorder
  from tests.test_experiment import REAL, config_of
  loop.CHUNK_SECONDS = recorder.CHUNK_SECONDS = 0.01
  recorder.SHARE = float('inf')
  config = config_of(**{**REAL, 'rounds': 30, 'seeds': (0, 1), 'dynafed.iterations': 300})
  sys.exit(experiment.run_experiment(config, sys.argv[1]))
"""


@pytest.mark.slow
def test_real_process_killed_many_times(tmp_path):
  """SIGKILL after a random time, again and again; the result is that of an undisturbed run."""
  command = lambda name: [
    sys.executable,
    '-c',
    textwrap.dedent(SESSION),
    tmp_path / name,
    tmp_path / 'cache',
  ]
  assert subprocess.run(command('whole')).returncode == 0
  rng, kills, longest = np.random.default_rng(0), 0, 10.0
  while True:
    process = subprocess.Popen(command('w'))
    try:
      assert process.wait(timeout=rng.uniform(0.3, 1) * longest) == 0
      break
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
      kills, longest = kills + 1, longest * 1.1  # so that it ends on a machine of any speed
  assert kills > 2
  assert outcome(tmp_path / 'w') == outcome(tmp_path / 'whole')
