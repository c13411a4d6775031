"""Processes that run a command, are interrupted at an event, and are compared by their results."""

import fcntl
import glob
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 900.0  # seconds of one session
POLL = 0.002  # seconds between two looks at a folder
EARLY, FLAGS_READ = 0.3, 3.0  # seconds after which Python has begun, and flags are read
INTERRUPTED, ABORTED = 75, 130
BAD = ('Traceback', 'terminate called', 'Fatal Python error', 'Aborted', 'Segmentation', 'Error:')
SIGNALS = {'SIGKILL': signal.SIGKILL, 'SIGTERM': signal.SIGTERM}
PHASE = 4  # DynaFed's L in small runs


class Command(NamedTuple):
  """A command to interrupt."""

  name: str
  words: tuple[str, ...]  # after the interpreter, without --workdir
  cached: bool = False  # shares the cache of compiled programs


class Interruption(NamedTuple):
  """How and when to interrupt a command."""

  kind: str  # 'SIGKILL', 'SIGTERM' or 'Ctrl-C'
  event: str  # a key of EVENTS, from which the time counts
  share: float  # of `span(event, ...)`


class Session(NamedTuple):
  """The end of one process."""

  status: int
  text: str
  seconds: dict[str, float]  # from the start to each event, the 'signal' and the 'end'


def _files(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
  """Returns the files of a name; folders that go away meanwhile are passed over."""
  paths = []
  for root, folders, names in os.walk(folder):
    folders[:] = [f for f in folders if f != 'checkpoints']
    paths += [pathlib.Path(root, name)] * (name in names)
  return paths


def _lines(folder: pathlib.Path) -> int:
  return sum(path.read_bytes().count(b'\n') for path in _files(folder, 'metrics.jsonl'))


def _checkpoints(folder: pathlib.Path) -> int:
  return len(glob.glob('checkpoints/*/seed_*', root_dir=folder))


# Has the event come? Arguments: the folder, and its number of checkpoints when the session began.
EVENTS: dict[str, Callable[[pathlib.Path, int], bool]] = {
  'start': lambda folder, before: True,
  'config': lambda folder, before: bool(_files(folder, 'config.json')),
  'metrics': lambda folder, before: bool(_files(folder, 'metrics.jsonl')),
  'compiled': lambda folder, before: _lines(folder) > 1,
  'synthesis': lambda folder, before: (folder / 'checkpoints' / str(PHASE)).is_dir(),
  'write': lambda folder, before: (
    bool(glob.glob('checkpoints/.tmp-*/*', root_dir=folder)) and _checkpoints(folder) > before
  ),
}


def span(event: str, seconds: Mapping[str, float]) -> float:
  """Returns the seconds after an event within which interruptions come.

  Args:
    event: a key of EVENTS.
    seconds: of the uninterrupted session.
  """
  return {
    'start': lambda: seconds['end'],
    'config': lambda: seconds['compiled'] - seconds['config'],
    'metrics': lambda: seconds['end'] - seconds['metrics'],
    'synthesis': lambda: 1.0,
    'write': lambda: 0.02,
  }[event]()


def run_session(
  command: Command,
  folder: pathlib.Path,
  interruption: Interruption | None = None,
  after: float = 0.0,
) -> Session:
  """Starts a command, interrupts it if it runs that long, and waits for its end.

  Args:
    command: which.
    folder: of its run.
    interruption: None for none.
    after: seconds from the interruption's event to the signal.
  """
  programs = folder.with_name(f'{folder.name}-programs')
  cache = {} if command.cached else {'JAX_COMPILATION_CACHE_DIR': str(programs)}
  terminal = interruption is not None and interruption.kind == 'Ctrl-C'
  reading, writing = pty.openpty() if terminal else os.pipe()
  before, began = _checkpoints(folder), time.monotonic()
  process = subprocess.Popen(
    [sys.executable, *command.words, f'--workdir={folder}'],
    cwd=ROOT,
    env=os.environ | cache | {'PYTHONUNBUFFERED': '1'},
    stdin=writing if terminal else subprocess.DEVNULL,
    stdout=writing,
    stderr=writing,
    start_new_session=True,
    preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if terminal else None,
  )
  os.close(writing)
  text = bytearray()

  def listen():
    try:
      while part := os.read(reading, 1 << 16):
        text.extend(part)
    except OSError:  # the end of a terminal
      pass

  listener = threading.Thread(target=listen, daemon=True)
  listener.start()
  seconds: dict[str, float] = {}
  try:
    _watch(process, folder, before, began, seconds, interruption, after)
    if 'signal' in seconds:
      if terminal:
        os.write(reading, b'\x03')
      else:
        process.send_signal(SIGNALS[interruption.kind])
    process.wait(LIMIT)
  finally:
    if process.poll() is None:
      process.kill()
      process.wait()
  seconds['end'] = time.monotonic() - began
  listener.join(5)
  os.close(reading)
  shutil.rmtree(programs, ignore_errors=True)
  return Session(process.returncode, text.decode(errors='replace'), seconds)


def _watch(
  process: subprocess.Popen,
  folder: pathlib.Path,
  before: int,
  began: float,
  seconds: dict[str, float],
  interruption: Interruption | None,
  after: float,
) -> None:
  """Writes the events' seconds until the moment of the signal, or the end."""
  events = [interruption.event] if interruption else ['config', 'metrics', 'compiled']
  while process.poll() is None and (now := time.monotonic() - began) < LIMIT:
    for event in events:
      if event not in seconds and EVENTS[event](folder, before):
        seconds[event] = now
    if interruption and now >= seconds.get(interruption.event, LIMIT) + after:
      seconds['signal'] = now
      break
    time.sleep(POLL)


def outcome(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns what must not depend on interruptions, of each run below a folder.

  That is: metrics without seconds, the state of the last checkpoint, and learned sets.
  """
  import numpy as np

  from fedjax_syn.core import tree_encoding
  from fedjax_syn.runs import checkpoint, metrics

  parts: dict[str, bytes] = {}
  for path in sorted(folder.rglob('metrics.jsonl')):
    run, name = path.parent, path.parent.relative_to(folder)
    lines = [{k: v for k, v in line.items() if k != 'seconds'} for line in metrics.read(path)]
    parts[f'{name}/metrics.jsonl'] = json.dumps(lines).encode()
    last = checkpoint.read(checkpoint.list_sorted(run / 'checkpoints')[-1])
    parts |= {f'{name}/{k}': v.tobytes() for k, v in tree_encoding.encode(last.tree)[0].items()}
    for learned in sorted((run / 'synthetic').glob('*.npz')):
      with np.load(learned, allow_pickle=False) as file:
        parts |= {f'{name}/{learned.name}/{k}': v.tobytes() for k, v in file.items()}
  return parts


def stop_fault(session: Session) -> str:
  """States what is wrong with a stopped session; '' if nothing is."""
  if bad := next((word for word in BAD if word in session.text), ''):
    return f'{bad!r} in its output: {session.text[-300:]}'
  status, after = session.status, session.seconds['signal']
  if status == INTERRUPTED or (status == ABORTED and after < FLAGS_READ):
    return ''
  if status in (-signal.SIGTERM, -signal.SIGINT) and after < EARLY and not session.text:
    return ''
  return f'exit status {status}: {session.text[-300:]}'


def end_fault(session: Session, folder: pathlib.Path, expected: Mapping[str, bytes]) -> str:
  """States what is wrong with the results of a command that ran to its end; '' if nothing is."""
  if session.status:
    return f'not continued, exit status {session.status}: {session.text[-300:]}'
  results = outcome(folder)
  keys = sorted({*expected, *results})
  different = [key for key in keys if expected.get(key) != results.get(key)]
  return f'different: {", ".join(different)}' if different else ''
