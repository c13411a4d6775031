"""What is shown while a run continues, and at its end."""

import io
import re
import threading
import types

import pytest
from rich.console import Console

from fedjax_syn.runs import display, metrics, pace, progress, result_texts


def summary_of(accuracies: dict[int, float], **status) -> dict:
  lines = [{'round': 1, 'seed': s, 'test/accuracy': a} for s, a in accuracies.items()]
  status = {str(s): status.get(f'seed{s}', {'status': 'finished', 'round': 1}) for s in accuracies}
  config = types.SimpleNamespace(seeds=tuple(accuracies), rounds=1, targets=(), eval_every=5)
  return {
    'algorithm': 'dynafed',
    'dataset': 'digits',
    'rounds': 1,
    'seeds': list(accuracies),
    **metrics.summarise(lines, config, status),
    'seconds': {'total': 12.34, 'compile': 3.0, 'synthesis': 0.0},
  }


def console_of(terminal: bool) -> tuple[Console, io.StringIO]:
  file = io.StringIO()
  return Console(file=file, force_terminal=terminal, width=110), file


def test_summary_names_everything(tmp_path):
  diverged = {'status': 'diverged', 'round': 3, 'client': 7, 'last_good_checkpoint': None}
  named = result_texts.diverged_text(1, {**diverged, 'client_name': 'ann'})
  assert 'diverged in round 3, client ann; last' in named
  console, file = console_of(False)
  rows = [
    ('dynafed', summary_of({0: 0.5, 1: 0.7})),
    ('fedavg', summary_of({0: 0.25, 1: 0.5}, seed1=diverged)),
  ]
  rows[1][1].update(epsilon=7.9449, privacy={'delta': 1e-5, 'unit': 'client'})
  rows[1][1].update(empty_rounds=[0, 3])
  progress.Plain(console).summary(rows, tmp_path, dataset='photos')
  shown = file.getvalue()
  assert ' photos, 1 round, seeds 0, 1 ' in shown and 'digits' not in shown
  assert 'fedavg: rounds without a sample, by seed: 0, 3' in shown
  older = 'fedavg: epsilon 7.945 of one of 2 seeds, which together reveal more at delta 1e-05'
  assert older in shown
  rows[1][1].update(epsilon_per_seed=4.5)
  total = 'epsilon 7.945 over 2 seeds (4.500 each) at delta 1e-05, for one client'
  assert result_texts.epsilon_text(rows[1][1]) == total
  assert 'dynafed: epsilon' not in shown
  assert '0.6000 ± 0.1414' in shown  # |0.5 - 0.7| / sqrt(2)
  assert '0.2500, -' in shown  # no mean where a seed diverged
  assert (
    'fedavg: seed 1 diverged in round 3, client 7; last good checkpoint: none was saved yet'
    in shown
  )
  assert 'best of every 5 rounds' in shown and 'mean of last 1 ' in shown
  assert '12.3' in shown and 'compile 3.0' in shown and 'synthesis' not in shown
  assert str(tmp_path)[:40] in shown.replace('\n', '')


def test_plain_lines_are_few_and_end_with_the_result(monkeypatch):
  """A clock that moves one second a round: 100 rounds give one line in ten seconds."""
  now = [0.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  console, file = console_of(False)
  plain = progress.Plain(console)
  plain.begin('fedavg, seed 0', 200, 100)
  for done in range(101, 201):
    now[0] += 1
    plain.rounds(done, {'test/accuracy': done / 1000} if done % 2 == 0 else {})
  plain.end()
  first, *middle, last = file.getvalue().splitlines()
  assert first == 'fedavg, seed 0: going on from round 100 of 200'
  assert len(middle) == 10
  assert (
    middle[4] == 'fedavg, seed 0: round 150 of 200, test accuracy 0.1500, 1 rounds/s, 50.0 s left'
  )
  assert last == 'fedavg, seed 0: round 200 of 200, test accuracy 0.2000, after 0:01:40'


def test_plain_line_of_work_between_rounds(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  console, file = console_of(False)
  plain = progress.Plain(console)
  plain.begin('dynafed', 9, 0)
  plain.rounds(3, {})
  now[0] = 11
  report = {'synthesis/iteration': 250, 'synthesis/iterations': 1000, 'synthesis/loss': 0.93421}
  plain.server_work({**report, 'synthesis/step_size': 0.04})
  assert (
    file.getvalue().splitlines()[-1]
    == 'dynafed: synthesis after round 3: iteration 250 of 1000, loss 0.9342, step size 0.04'
  )


def seconds_left(show, now):
  """Trains 40 rounds up to the 20th: compilation takes 100 s twice and work 50 s, a round 2 s."""
  show.begin('dynafed, seed 0', 40, 0)
  show.rounds(0, {})  # the first model is evaluated
  for first, last in ((1, 10), (11, 20)):
    show.compiling(f'the rounds from {first}')
    now[0] += 100
    for done in range(first, last + 1):
      now[0] += 2
      show.rounds(done, {})
    if last == 10:
      show.server_work({'synthesis/iteration': 1})
      now[0] += 50
      show.server_work({'synthesis/iteration': 2})


def test_the_time_left_leaves_out_compilation_and_work_between_rounds(monkeypatch):
  """24, then 20 rounds of 2 s are left; all that passed counted, 20 would be 4.5 minutes."""
  now = [0.0]
  monkeypatch.setattr(pace.time, 'monotonic', lambda: now[0])
  console, file = console_of(False)
  plain = progress.Plain(console)
  seconds_left(plain, now)
  plain.close()
  lines = file.getvalue().splitlines()
  assert lines[-1] == 'dynafed, seed 0: round 16 of 40, 0.5 rounds/s, 48.0 s left'
  assert 'dynafed, seed 0: compiled and run for the first time in 0:01:42' in lines
  console, file = console_of(True)
  bar = progress.Bar(console)
  seconds_left(bar, now)
  bar.progress.refresh()
  shown = file.getvalue().rpartition('20/40')[2]
  assert '0.5/s' in shown and '40.0 s left' in shown
  bar.end()


def test_what_takes_long_is_said_again_in_a_pipe(monkeypatch):
  """Every 20 s for a minute, then at intervals that grow; not while other lines are shown."""
  now, said = [0.0], []
  monkeypatch.setattr(display.time, 'monotonic', lambda: now[0])
  monkeypatch.setattr(display.threading, 'Thread', lambda **_: types.SimpleNamespace(start=int))
  heartbeat = display.Heartbeat(said.append)
  heartbeat.tell('compiling the rounds')
  for second in range(1, 201):
    now[0] = float(second)
    heartbeat.beat()
  seconds = [20, 40, 60, 80, 107, 143, 191]  # 80 + 80 / 3 is 106.7, the next whole second is 107
  assert said == [f'compiling the rounds, {s} s so far' for s in seconds]
  heartbeat.tell('evaluating')
  now[0] += 15
  heartbeat.heard()
  now[0] += 15
  heartbeat.beat()
  assert len(said) == len(seconds)


def test_a_pipe_gets_lines_while_one_thing_goes_on():
  heard = threading.Event()
  heartbeat = display.Heartbeat(lambda text: heard.set(), every=0.0)
  heartbeat.tell('compiling')
  assert heard.wait(10)
  heartbeat.stop()


def test_bar_shows_rounds_accuracy_iterations_and_what_is_done(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(display.time, 'monotonic', lambda: now[0])
  console, file = console_of(True)
  bar = progress.Bar(console)
  bar.begin('dynafed, seed 0', 40, 10)
  bar.rounds(20, {'test/accuracy': 0.5})
  bar.compiling('the synthesis')
  now[0] = 12.3
  bar.progress.refresh()
  bar.server_work(
    {'synthesis/iteration': 250, 'synthesis/iterations': 1000, 'synthesis/loss': 0.93}
  )
  bar.doing('evaluating')  # for less than half a second
  bar.progress.refresh()
  bar.say('seed 0 starts [from] here')
  assert [task.description for task in bar.progress.tasks] == ['dynafed, seed 0', 'synthesis']
  assert [(task.completed, task.total) for task in bar.progress.tasks] == [(20, 40), (250, 1000)]
  bar.rounds(21, {})
  assert len(bar.progress.tasks) == 1
  bar.end()
  shown = file.getvalue()
  for text in (
    'dynafed, seed 0: going on from round 10 of 40',
    '20/40',
    'test accuracy 0.5000',
    'compiling the synthesis, 12 s',
    '250/1000',
    'loss 0.93',
    'seed 0 starts [from] here',
  ):
    assert text in shown
  assert 'evaluating' not in shown
  last = shown.rpartition('\x1b[2K')[2]  # after the last line was erased
  assert '21/40' in last and 'compiling' not in last  # the bar stays, the line does not


def test_what_is_done_without_a_bar_leaves_nothing(monkeypatch):
  """The line is erased: before imports, and before the results of a finished run."""
  now = [0.0]
  monkeypatch.setattr(display.time, 'monotonic', lambda: now[0])
  console, file = console_of(True)
  bar = progress.Bar(console)
  bar.doing('reading the data')
  now[0] = 3.0
  bar.progress.refresh()
  assert 'reading the data, 3 s' in file.getvalue()
  bar.close()
  erase = '\x1b[2K'
  after = file.getvalue().rpartition('reading the data, 3 s')[2]
  assert erase in after and '\n' not in after


def test_a_program_is_compiled_where_it_runs_first():
  console, file = console_of(False)
  plain = progress.Plain(console)
  plain.begin('dynafed, seed 0', 3, 0)
  tell = progress.Steps(plain)
  for text, program in (
    ('evaluating', ''),
    ('round 1', 'the rounds up to 2'),
    ('round 2', 'the rounds up to 2'),
    ('synthesis', 'the synthesis'),
    ('synthesis', 'the synthesis'),
  ):
    tell(text, program)
  plain.close()
  compiled = ['the rounds up to 2', 'the synthesis']
  begun = ['dynafed, seed 0: 3 rounds']
  assert file.getvalue().splitlines() == begun + [
    f'dynafed, seed 0: compiling {name}' for name in compiled
  ]


def test_calls_from_python_show_a_bar_and_never_lines(monkeypatch):
  monkeypatch.setattr(progress, 'Console', lambda **_: console_of(terminal)[0])
  terminal = True
  assert isinstance(progress.of_python(True), progress.Bar)
  assert type(progress.of_python(False)) is progress.Reporter
  terminal = False
  assert type(progress.of_python(True)) is progress.Reporter


def test_a_report_without_iterations_is_shown_too():
  console, _ = console_of(True)
  bar = progress.Bar(console)
  bar.begin('x', 2, 0)
  bar.server_work({})
  bar.end()


def test_only_the_first_process_speaks(capsys):
  silent = progress.make(write=False)
  silent.begin('x', 1, 0)
  silent.rounds(1, {'test/accuracy': 1.0})
  silent.say('x')
  silent.end()
  assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
  ('seconds', 'text'), [(0.26, '0.3 s'), (59.9, '59.9 s'), (61, '0:01:01'), (3723, '1:02:03')]
)
def test_durations(seconds, text):
  assert pace.duration(seconds) == text


@pytest.mark.parametrize('width', [1, 20, 80])
@pytest.mark.parametrize('terminal', [True, False])
def test_names_are_shown_as_they_are_on_any_terminal(width, terminal):
  """Brackets are no markup, :smile: is no picture, and control characters are written out."""
  file = io.StringIO()
  show = (progress.Bar if terminal else progress.Plain)(
    Console(file=file, force_terminal=terminal, width=width, legacy_windows=False)
  )
  name = 'my[red]:smile:[/]\x1b]0;x\x07'
  show.say(f'read {name}')
  assert r'read my[red]:smile:[/]\x1b]0;x\x07' in file.getvalue().replace('\n', '')
  show.begin(f'{name}, seed 0', 2, 0)
  show.rounds(2, {'test/accuracy': 0.5})
  show.end()
  show.summary([(name, summary_of({0: 0.5}))], f'runs/{name}\n')
  assert width == 1 or r'\x1b]0;x' in file.getvalue().replace('\n', '')
  assert not {'\x07', '\x1b]'} & {*file.getvalue(), *re.findall('\x1b.', file.getvalue())}


@pytest.mark.parametrize(('rounds', 'last'), [([3], 3), ([3, 8], 5), ([5], 5), ([0], 1), ([], 5)])
def test_a_mean_says_of_how_many_rounds_it_is(rounds, last):
  assert metrics.rounds_in_mean(rounds) == last


def test_a_table_of_results_keeps_its_columns():
  table = metrics.comparison({'a|b': [{'seed': 0, 'round': 1, 'test/accuracy': 0.5}]})
  assert table.splitlines()[-1] == r'| a\|b | 0.500 | 0.500 | 0.500 |'


def test_imports_are_no_line_of_a_pipe(capsys):
  with display.loading():
    pass
  assert capsys.readouterr() == ('', '')
