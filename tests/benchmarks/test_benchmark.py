"""The benchmark: operations counted by hand, pairs with the peer, records and refusals."""

import functools
import json
import sys
import types

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from benchmarks import __main__, operations, programs, timing, workloads

FAKE_PEER = """
import json, sys
print(json.dumps({'kind': json.loads(sys.stdin.readline())['kind']}), flush=True)
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
  monkeypatch.setattr(programs, 'FedAvg', functools.partial(fs.FedAvg, persistent=True))
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


def test_a_peer_works_on_the_same_clients(monkeypatch):
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
    return {'seconds': float(clients[0]), 'peak_bytes': len(asked)}

  after, ours, theirs, peak = timing.measure_pairs(program, 1, ask)
  assert advanced == [4, 5, 6, 7, 8] and after.state == after.done == 8 and len(ours) == 5
  assert asked == [[30], [40], [50], [60], [70], [80]]  # the first is its warm-up
  assert theirs == [40, 50, 60, 70, 80] and peak == 6

  # Two units in one of a pair: the peer's mean of clients 40 and 50, 60 and 70, ...
  advanced.clear()
  _, _, theirs, _ = timing.measure_pairs(program, 2, ask)
  assert advanced == [5, 7, 9, 11, 13] and theirs == [45, 65, 85, 105, 125]


def test_a_result_is_the_median_of_pairs_and_json_is_a_list_of_objects(capsys, tmp_path):
  """Ours 1, 2, 4 s, the peer's 16, 4, 6 s: ratios 16, 2, 1.5, median 2; that of the medians is 3.

  30 operations in 3 units at 10 a second: a floor of 1 s for each.
  """
  suite = __main__.Suite([], tmp_path / 'out.json', smoke=True)
  suite.known['float32'] = timing.Rates(10.0, 1e9)
  program = types.SimpleNamespace(
    cost=lambda a, b: (10.0 * (b - a + 1), 0.0), peak_bytes=None, done=4
  )
  theirs = [16.0, 4.0, 6.0]
  result = suite.add('w', 'float32', program, [1.0, 2.0, 4.0], 3, theirs)
  assert suite.results == [result]
  assert result == ('w', 2.0, (1.0, 4.0), 6.0, 2.0, 1.0, None)
  assert '50.0%' in capsys.readouterr().out
  (read,) = json.loads((tmp_path / 'out.json').read_text())
  assert read == result._asdict() | {'spread': [1.0, 4.0]}
  # One value is for all units: 30 operations, 3 s at least.
  assert suite.add('w/all', 'float32', program, [6.0], 3).floor_seconds == 3.0
  assert len(json.loads((tmp_path / 'out.json').read_text())) == 2


def test_a_peer_gets_the_clients_data(capsys):
  """numpy reads the arrays without unpickling. There are no server data, so they are left out."""
  reader = """
import json, sys, numpy
data = dict(numpy.load(json.loads(sys.stdin.readline())['data']))
print(json.dumps({name: list(value.shape) for name, value in data.items()}), flush=True)
"""
  job = workloads.smoke(jobs()['w3'])
  with timing.peer_process([sys.executable, '-c', reader], job):
    pass
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
  with timing.peer_process([sys.executable, '-c', FAKE_PEER], job) as ask:
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
      '--only=w9: not in --suite=cpu, which has w1, w2, w3, w3x, w4, w4conv, w4c, seeds',
    ),
    ('--suite=tpu', 'suite'),
    ('w1', "'w1': unexpected"),
    ('--json=/no/such/folder/x.json', 'there is no such folder'),
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
