"""Summaries against numbers worked by hand."""

import math
import types

import pytest

from fedjax_syn.runs import metrics


def lines_of(seed: int, accuracies: dict[int, float], key: str = 'test/accuracy') -> list[dict]:
  return [{'round': r, 'seed': seed, key: a} for r, a in accuracies.items()]


# Seed 0 rises to 0.9 and falls, seed 1 rises steadily; the last five of seven rounds are 3..7.
SEED0 = {0: 0.1, 1: 0.2, 2: 0.9, 3: 0.5, 4: 0.5, 5: 0.6, 6: 0.7, 7: 0.7}
SEED1 = {0: 0.1, 1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6, 7: 0.9}


def test_last_mean_of_last_five_and_best_by_hand():
  """Means of the last five: (.5+.5+.6+.7+.7)/5 = .6 and (.3+.4+.5+.6+.9)/5 = .54.

  The standard deviation (ddof 1) of two numbers is |a - b| / sqrt(2).
  """
  lines = lines_of(0, SEED0) + lines_of(1, SEED1)
  summary = metrics.accuracy_summary(lines, (0, 1), 7, [], 'test/accuracy')
  expected = {'last': (0.7, 0.9), 'mean_last_5': (0.6, 0.54), 'best': (0.9, 0.9)}
  for name, (a, b) in expected.items():
    assert summary[name]['per_seed'] == pytest.approx([a, b])
    assert summary[name]['mean'] == pytest.approx((a + b) / 2)
    assert summary[name]['std'] == pytest.approx(abs(a - b) / math.sqrt(2))


def test_comparison_is_a_table_with_a_row_for_each_run():
  """Seeds with 0.25 and 0.75 in the last round give 0.5 ± 0.5 / sqrt(2).

  A run with a seed that stops before the run's end gives '-'.
  """
  line = lambda seed, round, value: {'seed': seed, 'round': round, 'test/accuracy': value}
  two = [line(0, 1, 0.25), line(1, 1, 0.75)]
  table = metrics.comparison({'a': two, 'b': two[:1], 'c': [*two, line(0, 2, 0.5)]}).splitlines()
  assert table[0] == '| | last | mean of last 2 | best |'
  assert table[2:] == [
    '| a | 0.500 ± 0.354 | 0.500 ± 0.354 | 0.500 ± 0.354 |',
    '| b | 0.250 | 0.250 | 0.250 |',
    '| c | - | - | - |',
  ]


def settings(seeds, rounds=7):
  return types.SimpleNamespace(seeds=seeds, rounds=rounds, targets=(), eval_every=1)


def test_a_summary_tells_precision_recall_and_f1_where_they_are_measured():
  status = {'0': {'status': 'finished', 'round': 7}}
  config = settings(seeds=(0,))
  lines = [{**line, 'test/o_f1': line['test/accuracy'] / 2} for line in lines_of(0, SEED0)]
  summary = metrics.summarise(lines, config, status)
  assert summary['test_o_f1']['mean_last_5']['mean'] == pytest.approx(0.3)
  assert 'test_o_f1' not in metrics.summarise(lines_of(0, SEED0), config, status)


def test_one_seed_has_no_std():
  summary = metrics.accuracy_summary(lines_of(3, SEED0), (3,), 7, [], 'test/accuracy')
  assert summary['last'] == {'mean': pytest.approx(0.7), 'std': None, 'per_seed': [0.7]}


def test_mean_with_a_diverged_seed_is_null_but_the_other_seed_is_told():
  lines = lines_of(0, SEED0) + lines_of(1, {0: 0.1, 1: 0.95})
  summary = metrics.accuracy_summary(lines, (0, 1), 7, [1], 'test/accuracy')
  for value in summary.values():
    assert value['mean'] is None and value['std'] is None and value['per_seed'][1] is None
  assert summary['best']['per_seed'][0] == 0.9


def test_initial_model_is_not_among_the_last_five_rounds():
  """Three rounds: the mean is over rounds 1..3, (.2 + .4 + .6) / 3 = .4, without w^0."""
  lines = lines_of(0, {0: 0.9, 1: 0.2, 2: 0.4, 3: 0.6})
  summary = metrics.accuracy_summary(lines, (0,), 3, [], 'test/accuracy')
  assert summary['mean_last_5']['mean'] == pytest.approx(0.4)


def test_rounds_to_accuracy_is_the_first_round_that_reaches_it():
  lines = lines_of(0, SEED0) + lines_of(1, SEED1)
  reached = metrics.rounds_to_accuracy(lines, (0, 1), (0.5, 0.9, 0.95))
  assert list(reached) == ['0.5', '0.9', '0.95']
  assert reached['0.5']['per_seed'] == [2, 5] and reached['0.5']['mean'] == 3.5
  assert reached['0.9']['per_seed'] == [2, 7]
  assert reached['0.95'] == {'mean': None, 'std': None, 'per_seed': [None, None]}


def test_running_means_by_hand():
  """Rounds 1..7 of seed 0 have five windows of three rounds.

  The windows are .2 .9 .5 | .9 .5 .5 | .5 .5 .6 | .5 .6 .7 | .6 .7 .7. Their means are 1.6/3,
  1.9/3, 1.6/3, 1.8/3 and 2/3, in rounds 3..7. No window has w^0.
  """
  lines = lines_of(0, SEED0)
  means = metrics.running_means(lines, window=3)[0]
  assert means == pytest.approx({3: 1.6 / 3, 4: 1.9 / 3, 5: 1.6 / 3, 6: 0.6, 7: 2 / 3})
  assert metrics.best_running_mean(lines, window=3) == {0: pytest.approx(2 / 3)}
  assert metrics.rounds_to_running_mean(lines, 0.6, window=3) == {0: 4}
  assert metrics.rounds_to_running_mean(lines, 0.65, window=3) == {0: 7}
  assert metrics.rounds_to_running_mean(lines, 0.67, window=3) == {0: None}


def test_a_single_good_round_does_not_reach_the_target_of_table_4():
  """Round 2 alone has 0.9.

  The means of five in rounds 5, 6, 7 are .54, .64, .6 (seed 0) and .3, .4, .54 (seed 1).
  """
  lines = lines_of(0, SEED0) + lines_of(1, SEED1)
  assert metrics.best_running_mean(lines) == pytest.approx({0: 0.64, 1: 0.54})
  assert metrics.rounds_to_running_mean(lines, 0.59) == {0: 6, 1: None}


def test_each_seed_may_have_its_own_target():
  """The means of five are those of the test above."""
  lines = lines_of(0, SEED0) + lines_of(1, SEED1) + lines_of(2, SEED1)
  targets = {0: 0.6, 1: 0.4, 2: None}
  assert metrics.rounds_to_running_mean(lines, targets) == {0: 6, 1: 6, 2: None}


def test_a_target_that_a_run_sets_is_reached_by_itself():
  lines = lines_of(0, SEED0) + lines_of(1, SEED1)
  assert metrics.rounds_to_running_mean(lines, metrics.best_running_mean(lines)) == {0: 6, 1: 7}


def test_evaluations_that_are_not_in_every_round():
  """Rounds 2, 4, 6 and 7 are evaluated and listed backwards.

  Pairs end in rounds 4, 6 and 7. The widest gap is two rounds.
  """
  lines = lines_of(0, {7: 0.8, 6: 0.6, 4: 0.4, 2: 0.2, 0: 0.1})
  assert metrics.running_means(lines, 2) == {0: pytest.approx({4: 0.3, 6: 0.5, 7: 0.7})}
  assert metrics.rounds_to_running_mean(lines, 0.45, 2) == {0: 6}
  assert metrics.widest_gap(lines) == 2
  assert metrics.widest_gap(lines_of(0, SEED0)) == 1 and metrics.widest_gap([]) == 0


def test_too_few_evaluations_have_no_running_mean():
  lines = lines_of(0, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4, 4: 0.5})
  assert metrics.best_running_mean(lines) == {0: None}
  assert metrics.rounds_to_running_mean(lines, 0.0) == {0: None}


def test_summary_has_a_validation_part_only_with_a_validation_split():
  status = {'0': {'status': 'finished'}}
  config = settings(seeds=(0,))
  lines = lines_of(0, SEED0)
  assert 'validation_accuracy' not in metrics.summarise(lines, config, status)
  lines = [{**line, 'validation/accuracy': 0.25} for line in lines]
  summary = metrics.summarise(lines, config, status)
  assert summary['validation_accuracy']['best']['mean'] == 0.25
  assert summary['test_accuracy']['best']['mean'] == 0.9
  assert summary['padding_efficiency'] is None  # never measured: null, not 0


def test_summary_has_a_personal_part_only_where_it_was_measured():
  """Of the last round, by seed; a seed that diverged has none."""
  status = {'0': {'status': 'finished'}, '1': {'status': 'diverged'}}
  config = settings(seeds=(0, 1))
  lines = lines_of(0, SEED0)
  assert 'personal' not in metrics.summarise(lines, config, status)
  lines = [{**line, 'personal/test/accuracy': line['round'] / 8} for line in lines]
  personal = metrics.summarise(lines, config, status)['personal']
  assert personal == {'test/accuracy': {'mean': None, 'std': None, 'per_seed': [7 / 8, None]}}


def test_padding_efficiency_is_averaged_over_the_lines_that_have_it():
  status = {'0': {'status': 'finished'}}
  lines = lines_of(0, {0: 0.1}) + [
    {'round': r, 'seed': 0, 'padding_efficiency': p} for r, p in ((1, 0.5), (2, 1.0))
  ]
  summary = metrics.summarise(lines, settings(seeds=(0,), rounds=2), status)
  assert summary['padding_efficiency'] == 0.75


def test_file_keeps_whole_lines_and_forgets_what_came_after_a_checkpoint(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  metrics.append(path, {'round': 1, 'seed': 0, 'x': 0.1})
  size = metrics.length(path)
  metrics.append(path, {'round': 2, 'seed': 0, 'x': 0.2})
  with path.open('a') as file:
    file.write('{"round": 3, "se')  # killed in the middle of a line
  assert [line['round'] for line in metrics.read(path)] == [1, 2]
  assert [line['round'] for line in metrics.read(path, size)] == [1]
  metrics.truncate(path, size)
  metrics.append(path, {'round': 2, 'seed': 0, 'x': 0.2})
  assert [line['round'] for line in metrics.read(path)] == [1, 2]


def test_numbers_that_are_not_finite_are_not_written(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  with pytest.raises(ValueError):
    metrics.append(path, {'round': 1, 'x': math.nan})
  assert metrics.read(path) == []


def collapsing(tops: str, seed: int = 0, accuracy: float = 0.1) -> list[dict]:
  """Lines of rounds 0, 1, ...; '1': all test rows are given one class."""
  return [
    {'round': r, 'seed': seed, 'test/accuracy': accuracy, 'test/top_prediction': float(top) or 0.3}
    for r, top in enumerate(tops)
  ]


def test_a_collapse_lasts_five_evaluations_and_to_the_end():
  """w^0 gives everything one class, and so may a few rounds after it: neither is a collapse."""
  since = lambda tops, **kw: metrics.collapsed_since(collapsing(tops, **kw), 0)
  assert since('111110000') is None  # it recovered
  assert since('11111') is None  # four rounds, and w^0
  assert since('111111') == 1
  assert since('1001111') is None and since('10011111') == 3
  assert since('100111110') is None
  assert since('111111', accuracy=1.0) is None  # the test rows are of one class
  assert since('111111', seed=3) is None and metrics.collapsed_since([], 0) is None
  mixed = [
    l for pair in zip(collapsing('0' * 7, 1), collapsing('0111111'), strict=True) for l in pair
  ]
  assert metrics.collapsed_since(mixed, 0) == 1 and metrics.collapsed_since(mixed, 1) is None


def test_a_collapse_that_was_found_is_not_looked_for_again():
  lines = collapsing('0111111')[-1:]
  assert metrics.collapsed_since([lines[0] | {'collapsed_since': 1}], 0) == 1
