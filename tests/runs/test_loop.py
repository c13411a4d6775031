"""The stream of steps: which rounds are evaluated; how rounds are cut changes nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedjax_syn as fs
from fedjax_syn.engine.measures import END, Measure, of_rounds, take
from fedjax_syn.engine.personal import Personal
from fedjax_syn.runs import loop
from fedjax_syn.runs.clock import Clock, Spans
from tests.fake_engine import ITERATIONS, PHASE, Fake

LEARNING = fs.chain(fs.DynaFed(length=PHASE, segment=1))


def measured(plan, engine, every=0):
  """The plan with the split 'test' and, every so many rounds, personal models."""
  evaluators, personal = {'test': engine.evaluator(None, None)}, engine.personal(None, None)
  measures = of_rounds(evaluators, personal if every else None, every, plan.rounds)
  return plan._replace(measures=measures + plan.measures)


def steps_of(plan, *, method=LEARNING, fake=None, seed=0, state=None, resumed=False, every=0):
  engine = (fake or Fake()).build(method, None, None)
  states = {seed: engine.init(seed) if state is None else state}
  return list(loop.train(engine, measured(plan, engine, every), states, Clock(), resumed=resumed))


def test_held_out_rows_of_clients_are_measured_by_their_own_models():
  """Two of three clients have held-out rows, with accuracies 0 and 0.5; on test rows 1 each."""

  def personal(accuracy):
    accuracy, there = np.array(accuracy), np.isfinite(accuracy)
    return lambda seed, state: Personal(accuracy, np.ones(3), np.ones(3), there)

  (measure,) = of_rounds({}, personal([1, 1, 1]), 1, 1, personal([0, np.nan, 0.5]))
  values = measure.of(0, None)
  assert values['personal/validation/accuracy'] == 0.25
  assert values['personal/test/accuracy'] == 1 and values['personal_accuracy'].tolist() == [1, 1, 1]
  (measure,) = of_rounds({}, personal([1, 1, 1]), 1, 1, personal([0, 0, 0]))
  assert measure.of(0, None)['personal/validation/accuracy'] == 0


@given(rounds=st.integers(1, 40), every=st.integers(1, 50), pause=st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_evaluated_rounds(rounds, every, pause):
  """w^0, multiples, the last five and ends of phases, each once and in order; pauses add none."""
  steps = steps_of(loop.Plan(rounds, every, pause))
  evaluated = [s.round for s in steps if s.kind == 'evaluated']
  wanted = {0, *range(every, rounds + 1, every), *range(max(1, rounds - 4), rounds + 1)}
  assert evaluated == sorted(wanted | ({PHASE} if rounds >= PHASE else set()))
  paused = {s.round for s in steps if s.kind == 'rounds'}
  assert {r for r in range(1, rounds) if pause and r % pause == 0} <= paused | set(evaluated)


@given(rounds=st.integers(1, 20), every=st.integers(1, 5), times=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_personal_models_are_measured_in_multiples_and_in_the_last_round(rounds, every, times):
  """And the other numbers are what they are without."""
  plan = loop.Plan(rounds, every)
  plain = {s.round: s.report for s in steps_of(plan) if s.kind == 'evaluated'}
  steps = {s.round: s.report for s in steps_of(plan, every=every * times) if s.kind == 'evaluated'}
  wanted = {*range(every * times, rounds + 1, every * times), rounds} if times else set()
  assert {r for r, report in steps.items() if 'personal/test/accuracy' in report} == wanted
  rest = lambda report: {k: v for k, v in report.items() if not k.startswith('personal/')}
  assert {r: rest(report) for r, report in steps.items()} == plain


def test_a_measure_is_called_in_its_rounds_and_its_numbers_reach_the_line():
  """Rounds 0, 2, 4 and 6 to 10 are evaluated.

  The measure is due in rounds 4 and 8, which are evaluated, in round 5, and at the end.
  """
  calls = []

  def of(seed, state):
    calls.append((seed, int(state.round)))
    return {'mine/double': 2.0 * int(state.round), 'rows': np.arange(3)}

  mine = Measure('mine', lambda moment: moment in (4, 5, 8, END), of)
  end = Measure('end', lambda moment: moment == END, of)
  steps = steps_of(loop.Plan(10, 2, measures=(mine, end)), method=fs.FedAvg(), seed=3)
  assert calls == [(3, 4), (3, 8)]
  lines = {s.round: s.report for s in steps if s.kind == 'evaluated'}
  doubles = {r: line['mine/double'] for r, line in lines.items() if 'mine/double' in line}
  assert doubles == {4: 8.0, 8: 16.0} and not any('rows' in line for line in lines.values())
  assert list(lines[4])[:3] == ['test/accuracy', 'test/loss', 'mine/double']
  arrays = {s.round: s.measured['mine']['rows'] for s in steps if 'mine' in s.measured}
  assert set(arrays) == {4, 8} and arrays[4].tolist() == [0, 1, 2]
  taken = take((mine, end), END, 3, steps[-1].state)
  assert list(taken) == ['mine', 'end'] and taken['end']['mine/double'] == 20.0


def test_work_between_rounds_comes_after_the_evaluation_of_its_round():
  steps = steps_of(loop.Plan(5))
  kinds = [(s.kind, s.round) for s in steps]
  at = kinds.index(('evaluated', PHASE))
  assert kinds[at + 1 : at + 4] == [('server_work', PHASE)] * (ITERATIONS // 2)
  assert kinds[at + 4 :] == [('evaluated', 4), ('evaluated', 5)]
  assert [s.phase_end for s in steps[at : at + 5]] == [True, False, False, True, False]


def test_work_between_rounds_after_the_last_round_is_done_too():
  assert [s.kind for s in steps_of(loop.Plan(PHASE))][-3:] == ['server_work'] * 3


@given(every=st.integers(1, 9), pause=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_cutting_changes_no_number(every, pause):
  reference = {s.round: s.report for s in steps_of(loop.Plan(12)) if s.kind == 'evaluated'}
  for step in steps_of(loop.Plan(12, every, pause)):
    if step.kind == 'evaluated':
      assert step.report == reference[step.round]


def test_slow_rounds_are_cut_by_time(monkeypatch):
  """With a limit of no seconds every round is its own stretch, and the report is the same."""
  monkeypatch.setattr(loop, 'STRETCH_SECONDS', 0.0)
  steps = steps_of(loop.Plan(12, 100))
  assert [s.round for s in steps if s.kind != 'server_work'] == list(range(13))
  assert steps[-1].report == steps_of(loop.Plan(12))[-1].report


def test_resuming_at_any_step_gives_the_rest_of_the_steps():
  plan = loop.Plan(8, 2, 3)
  whole = steps_of(plan)
  show = lambda steps: [
    (s.kind, s.round, s.report, np.asarray(s.state.params['w']).tobytes()) for s in steps
  ]
  evaluated_or_work = [i for i, s in enumerate(whole) if s.kind in ('evaluated', 'server_work')]
  for i in evaluated_or_work:
    rest = steps_of(plan, state=whole[i].state, resumed=True)
    pick = lambda steps: [s for s in steps if s.kind in ('evaluated', 'server_work')]
    assert show(pick(rest)) == show(pick(whole[i + 1 :]))


def test_seeds_side_by_side_are_seeds_alone():
  """Each seed's steps are those that it has alone, even if the seed beside it diverges.

  Steps of kind 'last' come when all seeds have come as far.
  """
  fake = Fake(diverge={1: 5})
  engine = fake.build(LEARNING, None, None)
  states = {seed: engine.init(seed) for seed in (0, 1, 2)}
  steps = list(loop.train(engine, measured(loop.Plan(8), engine), states, Clock()))
  show = lambda steps: [
    (s.kind, s.round, str(s.report), np.asarray(s.state.params['w']).tobytes()) for s in steps
  ]
  for seed in states:
    alone = show(steps_of(loop.Plan(8), fake=fake, seed=seed))
    assert show(s for s in steps if s.seed == seed) == alone
  assert [(s.seed, s.last) for s in steps[:3]] == [(0, False), (1, False), (2, True)]
  assert [(s.seed, s.last) for s in steps[-2:]] == [(0, False), (2, True)]
  ends = [s for s in steps if s.phase_end and s.kind == 'server_work']
  assert [s.seed for s in ends] == [2]  # the last set learned


def test_divergence_ends_the_stream():
  steps = steps_of(loop.Plan(8), fake=Fake(diverge={0: 5}))
  assert steps[-1].kind == 'diverged' and steps[-1].report['diverged_round'] == 5
  assert steps[-1].report['diverged_client'] == 2
  steps = steps_of(loop.Plan(8), fake=Fake(synthesis_diverges=(0,)))
  assert steps[-1].kind == 'diverged' and 'iteration 2' in steps[-1].report['reason']


def test_evaluation_that_is_not_finite_is_a_divergence():
  engine = Fake().build(fs.FedAvg(), None, None)
  measures = of_rounds({'test': lambda *_: {'accuracy': 0.1, 'loss': float('nan')}}, None, 0, 3)
  plan = loop.Plan(3, measures=measures)
  steps = list(loop.train(engine, plan, {0: engine.init(0)}, Clock()))
  assert [(s.kind, s.report) for s in steps] == [('diverged', {'diverged_round': 0})]


def test_spans_count_nested_time_once():
  """[2,3] inside [1,5], then [6,7]: 4 + 1 seconds; a span equal to the last adds nothing."""
  spans = Spans()
  for span in ((2.0, 3.0), (1.0, 5.0), (6.0, 7.0), (6.0, 7.0)):
    spans.add(*span)
  assert spans.total() == pytest.approx(5.0)


def test_compilation_is_counted_apart_and_only_once():
  import jax
  import jax.numpy as jnp

  with Clock({'total': 100.0, 'rounds': 7.0, 'compile': 1.0}) as clock:
    with clock.part('evaluation'):
      jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).block_until_ready()
    seconds = clock.seconds()
  assert seconds['compile'] > 1.0 and seconds['rounds'] == 7.0 and seconds['total'] > 100.0
  parts = sum(seconds[k] for k in ('compile', 'evaluation')) - 1.0
  assert 0 < parts <= seconds['total'] - 100.0 + 2e-3
  compiled = clock.compiling.total()
  jax.jit(lambda x: x * 3)(jnp.ones(2))  # after the clock was closed
  assert clock.compiling.total() == compiled


def test_what_begins_is_told_with_its_program():
  """Rounds 2 and 3 are one call here, since only ends of phases and the last rounds are evaluated.

  The first call of a phase runs one round, because nothing says how long one takes.
  """
  engine, told = Fake().build(LEARNING, None, None), []
  plan = loop.Plan(10, eval_every=10)
  states, tell = {0: engine.init(0)}, lambda *what: told.append(what)
  for _ in loop.train(engine, measured(plan, engine), states, Clock(), tell=tell):
    pass
  before, after = 'the rounds up to 3', 'the rounds up to 10'
  evaluating, last = ('evaluating', ''), range(7, 11)
  assert told == [
    evaluating,
    ('round 1', before),
    ('rounds 2 to 3', before),
    evaluating,
    *[('synthesis', 'the synthesis')] * (ITERATIONS // 2),
    ('round 4', after),
    ('rounds 5 to 6', after),
    evaluating,
    *[what for round in last for what in ((f'round {round}', after), evaluating)],
  ]
