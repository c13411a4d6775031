"""How launchers are stopped: statuses, what is said, and what is not waited for."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from fedjax_syn.core import stopping

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A launcher in little: work in C that Python's handlers cannot interrupt, as a compiler's.
BEGIN = """
  import os, sys, threading, time
  sys.path[:0] = [{root!r}]
  from fedjax_syn.core import stopping
  stopping.watch()
  from hashlib import pbkdf2_hmac
  work = lambda: pbkdf2_hmac('sha256', b'', b'', 10 ** 9)
"""


def launch(body: str, **more) -> subprocess.Popen:
  code = textwrap.dedent(BEGIN.format(root=str(ROOT))) + textwrap.dedent(body)
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True} | more
  return subprocess.Popen([sys.executable, '-c', code], **pipes)


def stopped(body: str, *signals: int) -> tuple[int, str]:
  """Sends signals one after the other, each when a line was said; returns status and stderr.

  The work would take longer than the end is waited for.
  """
  process = launch(body)
  try:
    for number in signals:
      assert process.stdout.readline() == 'now\n'
      time.sleep(0.05)  # into the work
      process.send_signal(number)
    err = process.communicate(timeout=30)[1]
    return process.returncode, err
  finally:
    process.kill()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
  ('before', 'status', 'line'),
  [
    ('', 130, 'interrupted ({})\n'),
    (
      'stopping.flags_read()',
      75,
      'interrupted ({}); the same command continues from what was saved\n',
    ),
  ],
)
def test_a_signal_while_a_compiler_is_at_work_is_one_line(number, before, status, line):
  body = f"""
    {before}
    def main():
      print('now', flush=True)
      work()
    stopping.run(main, goes_on=True)
  """
  assert stopped(body, number) == (status, line.format(signal.Signals(number).name))


def test_what_is_not_saved_is_waited_for_and_a_second_signal_ends_it():
  body = """
    stopping.flags_read()
    def main():
      with stopping.stoppable() as stop:
        stop.unsaved = True
        print('now', flush=True)
        while not stop:
          time.sleep(0.01)
        print('now', flush=True)
        work()
    stopping.run(main, goes_on=True)
  """
  status, err = stopped(body, signal.SIGINT, signal.SIGINT)
  first, second = err.splitlines()
  assert status == 75 and first == stopping.ASKED
  assert second == 'interrupted (SIGINT); the same command continues from what was saved'


def test_what_follows_a_save_is_left_out_after_a_signal():
  body = """
    stopping.flags_read()
    def main():
      with stopping.stoppable() as stop:
        stop.pause()  # nobody asked
        stop.unsaved = True
        print('now', flush=True)
        while not stop:
          time.sleep(0.01)
        stop.pause()
        os._exit(1)
    stopping.run(main, goes_on=True)
  """
  assert stopped(body, signal.SIGTERM) == (
    75,
    f'{stopping.ASKED}\n{stopping.GOES_ON.format("SIGTERM")}\n',
  )


def test_a_run_that_ends_after_it_was_asked_to_stop_is_75_all_the_same():
  body = """
    stopping.flags_read()
    def main():
      with stopping.stoppable() as stop:
        stop.unsaved = True
        print('now', flush=True)
        while not stop:
          time.sleep(0.01)
      return 0
    stopping.run(main, goes_on=True)
  """
  assert stopped(body, signal.SIGTERM) == (75, stopping.ASKED + '\n')


@pytest.mark.parametrize('end', ['return 3', 'sys.exit(3)'])
def test_a_compilation_in_the_background_is_not_waited_for(tmp_path, end):
  """Exit functions are called, and what was written is flushed."""
  mark = tmp_path / 'left'
  body = f"""
    import atexit, pathlib
    atexit.register(lambda: pathlib.Path({str(mark)!r}).touch())
    threading.Thread(target=work, daemon=True, name=stopping.BACKGROUND).start()
    def main():
      print('done')
      {end}
    stopping.run(main)
  """
  process = launch(body)
  out, err = process.communicate(timeout=30)
  assert (process.returncode, out, err) == (3, 'done\n', '') and mark.exists()


def test_a_signal_while_exit_functions_run_is_75():
  body = """
    import atexit
    stopping.flags_read()
    @atexit.register
    def last():
      print('now', flush=True)
      work()
    stopping.run(lambda: 0, goes_on=True)
  """
  assert stopped(body, signal.SIGTERM)[0] == 75


def test_a_full_disk_is_a_line_and_other_errors_keep_their_traceback():
  body = """
    import errno
    def main():
      raise {}
    stopping.run(main)
  """
  process = launch(body.format("OSError(errno.ENOSPC, 'No space left on device', 'W/x')"))
  assert process.communicate(timeout=30)[1] == 'W/x: No space left on device\n'
  assert process.returncode == 74
  process = launch(body.format("KeyError('x')"))
  assert 'Traceback' in process.communicate(timeout=30)[1] and process.returncode == 1


def test_a_launcher_whose_reader_is_gone_goes_on(tmp_path):
  mark = tmp_path / 'came'
  body = f"""
    def main():
      print('first', flush=True)
      time.sleep(0.2)
      for _ in range(20000):
        print('more')
      sys.stdout.flush()
      open({str(mark)!r}, 'w').close()
      return 0
    stopping.run(main)
  """
  process = launch(body)
  assert process.stdout.readline() == 'first\n'
  process.stdout.close()
  assert process.stderr.read() == '' and process.wait(30) == 0 and mark.exists()


def test_a_launcher_without_standard_output_runs():
  reading, writing = os.pipe()
  body = f"stopping.run(lambda: [print('lost'), os.write({writing}, b'came')][0])"
  code = textwrap.dedent(BEGIN.format(root=str(ROOT))) + body
  command = ['sh', '-c', 'exec "$0" -c "$1" >&-', sys.executable, code]
  done = subprocess.run(command, pass_fds=[writing], capture_output=True, timeout=30)
  assert done.returncode == 0 and os.read(reading, 9) == b'came'


@pytest.fixture
def python_s_handlers():
  """Of a process that a script began in the background SIGINT would be ignored."""
  before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.mark.parametrize('number', stopping.SIGNALS)
def test_nested_runs_share_a_request_and_a_second_signal_is_python_s(
  number, capfd, python_s_handlers
):
  handlers = [signal.getsignal(s) for s in stopping.SIGNALS]
  with stopping.stoppable() as outer, stopping.stoppable() as inner:
    assert inner is outer and not inner
    signal.raise_signal(number)
    assert outer.signal == signal.Signals(number).name
    assert capfd.readouterr().err == stopping.ASKED + '\n'
    assert handlers == [signal.getsignal(s) for s in stopping.SIGNALS]
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)
  assert handlers == [signal.getsignal(s) for s in stopping.SIGNALS]


@pytest.mark.parametrize(
  ('flags_read', 'alone', 'unsaved', 'heard', 'ends'),
  [
    (False, True, True, 1, 130),
    (True, True, False, 1, 75),
    (True, True, True, 1, 0),
    (True, True, True, 2, 75),
    (True, False, False, 1, 0),  # another process would wait for this one
    (True, False, False, 2, 75),
  ],
)
def test_what_a_signal_does(monkeypatch, flags_read, alone, unsaved, heard, ends):
  said = []
  monkeypatch.setattr(stopping, 'leave', lambda status, text: said.append(status))
  monkeypatch.setattr(stopping, 'say', said.append)
  watch = stopping.Watch()
  watch.flags_read, watch.alone, watch.request.unsaved = flags_read, alone, unsaved
  for _ in range(heard):
    said.clear()
    watch.take(signal.SIGTERM)
  assert said == [ends or stopping.ASKED]
  assert bool(watch.request) == (flags_read and (unsaved or not alone))


def test_a_run_is_asked_to_stop_after_the_line_was_said_and_answers_after_it(monkeypatch):
  """Between the two the run would end with its own line alone."""
  watch = stopping.Watch()
  watch.flags_read = watch.request.unsaved = True
  lines, ended = [], []

  def run():
    with pytest.raises(SystemExit):
      watch.request.pause()
    ended.append(True)

  def say(text):
    lines.append(text)
    if text == stopping.ASKED:
      answers.start()
      answers.join(0.2)  # longer than an answer that does not wait would take
      assert not ended and not watch.request

  answers = threading.Thread(target=run)
  monkeypatch.setattr(stopping, 'say', say)
  watch.take(signal.SIGTERM)
  answers.join()
  assert ended and lines == [stopping.ASKED, stopping.GOES_ON.format('SIGTERM')]
