"""The benchmark: operations counted by hand, pairs with the peer, records and refusals."""

import json
import sys
import types

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from benchmarks import __main__, operations, programs, records, timing, workloads
from benchmarks.suite import Suite

FAKE_PEER = """
import json, sys
kind = json.loads(sys.stdin.readline())['kind']
print(json.dumps({'kind': kind, 'version': 'Fake 1'}), flush=True)
for line in sys.stdin:
  print(json.dumps({'seconds': len(json.loads(line)['clients']), 'peak_bytes': 7}), flush=True)
"""


def jobs(suite='cpu'):
  return {job.name: job for job in workloads.SUITES[suite]()}


def test_operations_of_the_mlp():
  """784-128-128-10: 2 x (784 x 128, 128 x 128, 128 x 10); training 3 x 236,032 - 200,704."""
  work = jobs()['w1'].work
  assert operations.forward_operations(work) == [200_704, 32_768, 2_560]
  assert operations.training_operations(work) == 507_392


def test_operations_of_the_convnet_and_its_matching():
  """The counts for width 128 at 32 x 32 x 3 are the ones worked out by hand.

  First layer: 2 x 27 x 128 x 32^2. Second layer: 2 x 1,152 x 128 x 16^2. The third layer is a
  quarter of the second. The head is 2 x 2,048 x 10. Matching: 150 images x 20 steps x
  (9 x 101,490,688 - 3 x 7,077,888).
  """
  work = jobs()['w4c'].work
  layers = [7_077_888, 75_497_472, 18_874_368, 40_960]
  assert operations.forward_operations(work) == layers
  assert operations.matching_operations(work) == 2_676_547_584_000


def test_images_of_28_pixels_are_convolved_as_32():
  assert operations.forward_operations(jobs()['w2'].work)[0] == 2 * 9 * 1 * 32 * 32 * 32


def test_the_cnn_has_34_million_operations():
  """2 x 27 x 32 x 30^2 + 2 x 288 x 64 x 28^2 + 2 x (14 x 14 x 64) x 128 + 2 x 128 x 10."""
  work = jobs('gpu')['g2'].work
  assert sum(operations.forward_operations(work)) == 33_670_400
  # 27 x 32 + 32, 288 x 64 + 64, 12,544 x 128 + 128, 128 x 10 + 10
  assert operations.parameter_count(programs.make_model(work, 'xla')) == 1_626_442


def test_cohorts_are_those_of_the_engine_and_cost_counts_their_images(monkeypatch):
  """Clients whose kept optimizer state moves in a round are those that took part in it."""
  work = workloads.smoke(jobs()['w3']).work
  kept = fs.chain(fs.FedAvg(persistent=True, batch_size=work.batch))
  monkeypatch.setattr(programs, 'make_method', lambda work: kept)
  program = programs.prepare_rounds(work, workloads.Variant())
  data, _ = programs.make_data(work)
  moved = np.zeros(work.clients, bool)
  for leaf in jax.tree.leaves(program.state[0].clients):
    moved |= np.asarray(leaf).reshape(work.clients, -1).any(axis=1)
  size = np.asarray(data.size)
  (cohort,) = program.cohorts(1, 1)
  assert set(np.flatnonzero(moved)) == {c for c in cohort if size[c]}
  needed, moved_bytes = program.cost(1, 1)
  images = size[cohort].sum()
  assert needed == images * operations.training_operations(work)
  # MLP 144-4-4-10: 580 + 20 + 50 parameters, down and up, 4 bytes, for each of 4 clients.
  assert moved_bytes == images * 144 + 4 * 2 * 4 * 650


def test_floor_is_the_longer_of_the_two():
  rates = timing.Rates(operations=100.0, bytes=10.0)
  assert timing.floor_seconds(500, 20, rates) == 5
  assert timing.floor_seconds(500, 80, rates) == 8


def test_peers_work_on_the_same_clients(monkeypatch):
  monkeypatch.setattr(timing, 'QUIET', 0.0)
  advanced, asked = [], []
  program = timing.Program(
    state=3,
    advance=lambda state, units: advanced.append(state + units) or state + units,
    compile_seconds=0.0,
    peak_bytes=None,
    cohorts=lambda first, last: [[10 * number] for number in range(first, last + 1)],
    cost=None,
    done=3,
  )

  def ask(clients):
    asked.append(clients)
    return {'seconds': float(clients[0]), 'cpu_seconds': 1.0, 'peak_bytes': len(asked)}

  after, ours, sides = timing.measure_beside(program, 1, {'torch': ask})
  assert advanced == [4, 5, 6, 7, 8] and after.state == after.done == 8
  assert len(ours.seconds) == len(ours.cpu_seconds) == 5
  assert asked == [[30], [40], [50], [60], [70], [80]]  # the first is its warm-up
  assert sides == {'torch': timing.Side([40, 50, 60, 70, 80], [1.0] * 5, 6)}

  # Two units in one of a pair: the peer's mean of clients 40 and 50, 60 and 70, ... A second peer
  # gets the same clients; it does not know its processor seconds.
  advanced.clear()
  other = lambda clients: {'seconds': -float(clients[0])}
  _, _, sides = timing.measure_beside(program, 2, {'torch': ask, 'flower': other})
  assert advanced == [5, 7, 9, 11, 13] and sides['torch'].seconds == [45, 65, 85, 105, 125]
  assert sides['flower'] == timing.Side([-45, -65, -85, -105, -125], [], None)


def test_a_result_is_the_median_of_pairs_and_json_is_a_list_of_objects(capsys, tmp_path):
  """Ours 1, 2, 4 s, the peer's 16, 4, 6 s: ratios 16, 2, 1.5, median 2; that of the medians is 3.

  The lower quartile lies half-way between 1.5 and 2. Processor seconds: ratios 3, 4, 5. 30
  operations in 3 units at 10 a second: a floor of 1 s for each.
  """
  suite = Suite({}, tmp_path / 'out.json', smoke=True)
  suite.known['float32'] = timing.Rates(10.0, 1e9)
  program = types.SimpleNamespace(
    cost=lambda a, b: (10.0 * (b - a + 1), 0.0), peak_bytes=None, done=4, compile_seconds=9.0
  )
  ours = timing.Side([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
  theirs = timing.Side([16.0, 4.0, 6.0], [3.0, 4.0, 5.0], 70)
  result = suite.add('w', 'float32', program, ours, 3, 'torch', theirs)
  assert suite.results == [result]
  assert result == (
    *('w', 2.0, (1.0, 4.0), 6.0, 2.0, 1.0, None),
    *('torch', 1.75, 4.0, 70, (4.0, 16.0), 9.0),
  )
  out = capsys.readouterr().out
  assert '50.0%' in out and '2.00 times as fast as torch' in out
  (read,) = json.loads((tmp_path / 'out.json').read_text())
  assert read == result._asdict() | {'spread': [1.0, 4.0], 'peer_spread': [4.0, 16.0]}
  # One value is for all units: 30 operations, 3 s at least.
  whole = suite.add('w/all', 'float32', program, timing.Side([6.0], [6.0]), 3)
  assert whole.floor_seconds == 3.0 and whole.ratio is None
  assert len(json.loads((tmp_path / 'out.json').read_text())) == 2


def test_a_lower_quartile_of_five_is_the_second_smallest():
  assert records.lower_quartile([5.0, 1.0, 9.0, 3.0, 7.0]) == 3.0
  assert records.lower_quartile([2.0]) == 2.0


def test_a_finished_workload_is_not_run_again(tmp_path, capsys, monkeypatch):
  """Its file is for one commit and the same peers; a second run reads it."""
  ran = []
  monkeypatch.setattr(Suite, '_run_programs', lambda self, job, peers: ran.append(job.name) or True)
  job = jobs()['w1']

  def run(commit, peers=()):
    suite = Suite({p: [] for p in peers}, None, True, tmp_path, {'commit': commit, 'command': 'c'})
    assert suite.run(job, 'w1.json')

  for again in range(2):
    run('a')
    assert ran == ['w1'], again
  content = json.loads((tmp_path / 'w1.json').read_text())
  assert content['commit'] == 'a' and content['machine']['cores'] and content['results'] == []
  run('b')
  run('b', ['torch'])
  run('b', ['torch', 'unknown'])  # a peer that does not know the work is not asked
  assert ran == ['w1'] * 3
  (tmp_path / 'w1.json').write_text('{')
  run('b', ['torch'])
  assert ran == ['w1'] * 4


def test_files_have_the_names_of_workloads():
  assert __main__.file_names(workloads.SUITES['cpu']())[:2] == ['w1.json', 'w2.json']
  gpu = __main__.file_names(workloads.SUITES['gpu']())
  assert len(set(gpu)) == len(gpu) and 'g2-patches.json' not in gpu and 'seeds.json' in gpu


def test_a_peer_gets_the_clients_data(capsys):
  """numpy reads the arrays without unpickling. There are no server data, so they are left out."""
  reader = """
import json, sys, numpy
data = dict(numpy.load(json.loads(sys.stdin.readline())['data']))
print(json.dumps({name: list(value.shape) for name, value in data.items()}), flush=True)
"""
  job = workloads.smoke(jobs()['w3'])
  with timing.peer_process([sys.executable, '-c', reader], job) as (_, version):
    assert version == ''
  out = capsys.readouterr().out
  assert "'x': [160, 12, 12, 1]" in out and "'start': [8]" in out and 'proxy' not in out


@pytest.mark.slow
def test_seeds_side_by_side_are_the_work_of_seeds_one_after_the_other():
  """A unit has three cohorts, and their images and messages count.

  All three seeds change the model, side by side and one after the other.
  """
  job = workloads.smoke(jobs()['seeds'])
  ends = []
  for variant in workloads.SIDE_BY_SIDE:
    program = programs.prepare_rounds(job.work, variant)
    ends.append(program.state)
    cohorts = program.cohorts(1, 2)
    assert [len(cohort) for cohort in cohorts] == [3 * job.work.sampled] * 2
    data = programs.make_data(job.work)[0]
    images = np.asarray(data.size)[cohorts[0]].sum()
    assert program.cost(1, 1)[0] == images * operations.training_operations(job.work)
  alone, together = ends
  assert len(alone) == 3
  for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(tuple(together)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_a_peer_answers_lines_and_its_end_is_explained(capsys):
  job = jobs()['w4']
  with timing.peer_process([sys.executable, '-c', FAKE_PEER], job) as (ask, version):
    assert version == 'Fake 1'
    assert ask([1, 2, 3]) == {'seconds': 3, 'peak_bytes': 7}
    assert ask([]) == {'seconds': 0, 'peak_bytes': 7}
  assert 'Unroll' in capsys.readouterr().out
  broken = [sys.executable, '-c', 'import a_module_that_is_not_there']
  with (
    pytest.raises(ValueError, match="No module named 'a_module_that_is_not_there'"),
    timing.peer_process(broken, job),
  ):
    pass


@pytest.mark.parametrize(
  ('argument', 'said'),
  [
    (
      '--only=w9',
      '--only=w9: not in --suite=cpu, which has w1, w2, w3, w3x, w4, w4conv, w5, w6, w6dm, w7, w8,'
      ' tutorial, w4c, seeds',
    ),
    ('--suite=tpu', 'suite'),
    ('w1', "'w1': unexpected"),
    ('--json=/no/such/folder/x.json', 'there is no such folder'),
    ('--results=/no/such/folder', 'there is no folder for it'),
    ('--peer=torch,tensorflow', '--peer=tensorflow: only torch, flower'),
  ],
)
def test_refusals_are_one_line(argument, said, capsys):
  with pytest.raises(SystemExit) as exit:
    __main__.main(['benchmark.py', argument])
  err = capsys.readouterr().err
  assert exit.value.code == 2 and said in err and err.count('\n') == 1


def test_the_most_important_comes_first_and_smoke_keeps_every_job():
  gpu = workloads.SUITES['gpu']()
  order = [(job.name, job.variants[0].precision) for job in gpu[:5]]
  tf32, full = 'tensorfloat32', 'float32'
  assert order == [('g1', tf32), ('g1', full), ('g3', tf32), ('g3', full), ('g2', full)]
  assert [workloads.smoke(job).name for job in gpu] == [job.name for job in gpu]
  labels = [f'{job.name}/{v.label()}' for job in gpu for v in job.variants]
  assert len(set(labels)) == len(labels)


def test_an_outer_iteration_costs_its_products_and_moves_the_set():
  """10 images, 2 steps; MLP 144-4-4-10: layers 1,152, 32 and 80 operations, 650 parameters."""
  program = programs.prepare_unroll(workloads.smoke(jobs()['w4']).work, workloads.Variant())
  operations_needed, moved_bytes = program.cost(1, 3)
  assert operations_needed == 3 * 10 * 2 * (9 * 1_264 - 3 * 1_152)
  assert moved_bytes == 3 * 4 * (6 * 10 * (144 + 10) + 2 * 2 * 650)
  before = np.asarray(program.state[0].x)
  after = program.advance(program.state, 1)[0].x
  assert np.isfinite(after).all() and not np.array_equal(before, after)


def counts(*rows):
  return np.array(rows)


def test_operations_of_fedcog():
  """LeNet on 28x28: 2 x 25 x 6 x 24^2, 2 x 150 x 16 x 8^2, dense layers of 256, 120, 84 and 10.

  A client: 256 images, 100 steps of two products in two networks and one of the predictions; 100
  local steps of 128 images with three products, less one in the first layer.
  """
  work = jobs()['w5'].work
  layers = [172_800, 307_200, 61_440, 20_160, 1_680]
  assert operations.forward_operations(work) == layers
  all_ = sum(layers)
  client = 256 * 401 * all_ + 100 * 128 * (3 * all_ - layers[0])
  assert operations.round_operations(work, counts([9, 0], [1, 1])) == 2 * client


def test_operations_of_distribution_and_gradient_matching():
  """Two clients with 3 and 0, and with 2 and 4 samples of two classes; 10 images a class."""
  owned = counts([3, 0], [2, 4])
  work = jobs()['w6'].work
  layers = operations.forward_operations(work)
  pooled = sum(layers[:3])
  # 9 real images once; 30 images in 60 iterations, there and back. The head is not used.
  assert operations.round_operations(work, owned) == (9 + 2 * 30 * 60) * pooled
  # FedDM: 3 classes, 6 iterations of 256 real images and of 10 images there and back.
  feddm = jobs()['w6dm'].work
  assert operations.round_operations(feddm, owned) == 6 * 3 * (256 + 20) * sum(layers)
  # 30 images, 10 steps of 9 products, two gradients before.
  step, gradient = 9 * sum(layers) - 3 * layers[0], 3 * sum(layers) - layers[0]
  assert operations.round_operations(jobs()['w7'].work, owned) == 30 * (10 * step + 2 * gradient)


def test_whole_runs_alternate_and_start_with_nothing_compiled(tmp_path, monkeypatch):
  """Each side gets an empty folder of its own; a failure is said by its last line."""
  monkeypatch.setenv('LOG', str(tmp_path / 'log'))
  write = """
import os, sys
assert not os.listdir(sys.argv[2]) and sys.argv[2] in os.environ['JAX_COMPILATION_CACHE_DIR']
open(os.environ['LOG'], 'a').write(sys.argv[1])
print('Fake 1')
"""
  command = lambda name: lambda folder: [sys.executable, '-c', write, name, folder]
  sides, printed = timing.measure_whole({'a': command('a'), 'b': command('b')}, 2)
  assert (tmp_path / 'log').read_text() == 'abab' and printed == {'a': 'Fake 1', 'b': 'Fake 1'}
  assert all(len(side.seconds) == len(side.cpu_seconds) == 2 for side in sides.values())
  with pytest.raises(ValueError, match='ended with 1: KeyError: 3'):
    timing.measure_whole({'a': lambda folder: [sys.executable, '-c', 'raise KeyError(3)']}, 1)
