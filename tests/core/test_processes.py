"""Two real processes agree with one, and with each other on what only one of them knows."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from fedjax_syn.core import processes
from fedjax_syn.core.chunks import Chunks
from fedjax_syn.engine import Layout
from tests import tiny
from tests.engine.test_rounds import METHODS, SIZES, after
from tests.engine.test_shared_synthesis import projections, synthesised

PROGRAM = textwrap.dedent("""
  import json, sys
  import jax
  from fedjax_syn.core import processes
  processes.join(sys.argv[1], 2, int(sys.argv[2]))
  import jax.numpy as jnp
  import numpy as np
  from fedjax_syn.runs import config_json, experiment
  from fedjax_syn import config
  from fedjax_syn.data import host_rows
  from fedjax_syn.engine import Layout
  from tests import tiny
  from tests.engine.test_rounds import METHODS, SIZES, after
  from tests.engine.test_shared_synthesis import projections, synthesised

  own = jax.process_index()

  def fails_in(process):
    if own == process:
      raise ValueError(f'no data in {process}')
    return own

  def message(call, *args):
    try:
      return call(*args)
    except ValueError as error:
      return str(error)

  def tree():
    if own != 0:
      return 1 / 0
    return {'a': np.arange(3, dtype=np.int16), 'b': ('x', None, jnp.float32(0.5))}

  told = {
    'broadcast': processes.broadcast_from_process_0([own, 'ä' * 300]),
    'any': [processes.any_process(own == 1), processes.any_process(False)],
    'first': processes.on_process_0(lambda: own + 7),
    'first fails': message(processes.on_process_0, lambda: fails_in(0)),
    'together': processes.on_all_processes(lambda: own),
    'together fails': message(processes.on_all_processes, lambda: fails_in(1)),
    'tree': str(processes.tree_from_process_0(tree)),
    'loop': message(after, METHODS['adam'](), tiny.federated(SIZES), Layout(1, 'loop', 1)),
  }
  state, report = after(METHODS['scaffold'](), tiny.federated(SIZES), Layout(2, 'blocks', 0))
  told['scaffold'] = [np.asarray(w).tolist() for w in jax.tree.leaves(state.params)]
  told['scaffold loss'] = report['train/loss']
  told['synthesis'] = projections(synthesised(jax.device_count()))
  read, copy = [], host_rows.copy

  def watched(data, clients, size, rows):
    read.append(clients[size > 0].tolist())
    return copy(data, clients, size, rows)

  host_rows.copy = watched
  on_host = jax.tree.map(np.asarray, tiny.federated(SIZES))
  state, report = after(METHODS['scaffold'](), on_host, Layout(2, 'blocks', 0))
  told['rows on hosts'] = [np.asarray(w).tolist() for w in jax.tree.leaves(state.params)]
  told['read'] = read[2:4]  # of round 1, after two devices' of no round; those of round 2 follow
  small = config.get_default()
  small.algorithm, small.rounds = 'fedavg', 2
  small.data.clients, small.model.name, small.model.width = 4, 'mlp', 8
  told['status'] = experiment.run_experiment(small, f'{sys.argv[3]}/{own}')
  told['again'] = experiment.run_experiment(small, f'{sys.argv[3]}/{own}')
  config_json.write_config = lambda *_: fails_in(0)
  told['refused'] = experiment.run_experiment(small, f'{sys.argv[3]}/refused-{own}')
  print('TOLD', json.dumps(told))
""")


def run_two(program: str, folder: pathlib.Path, timeout: float = 480) -> list[str]:
  """Runs a program as processes 0 and 1, and returns what they print.

  Each process gets the coordinator, its number and a folder.
  """
  with socket.socket() as s:
    s.bind(('localhost', 0))
    address = f'localhost:{s.getsockname()[1]}'
  environment = os.environ | {'JAX_NUM_CPU_DEVICES': '2', 'JAX_PLATFORMS': 'cpu'}
  environment['JAX_ENABLE_COMPILATION_CACHE'] = 'false'  # each process compiles for itself
  both = [
    subprocess.Popen(
      [sys.executable, '-c', program, address, str(k), str(folder)],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for k in range(2)
  ]
  try:
    printed = [process.communicate(timeout=timeout) for process in both]
  finally:
    for process in both:
      process.kill()
  for process, (_, errors) in zip(both, printed, strict=True):
    assert process.returncode == 0, errors[-2000:]
  return [out for out, _ in printed]


def test_two_processes_agree_with_one(tmp_path):
  """Rounds on 2 x 2 devices are those of a plain loop in this process, to 1e-5 (DESIGN: layout).

  With rows in host memory they are the same to the last bit, and each client's rows are read once,
  by one of the processes.
  """
  mine, other = (json.loads(out.split('TOLD', 1)[1]) for out in run_two(PROGRAM, tmp_path))
  assert (mine.pop('together'), other.pop('together')) == (0, 1)
  read = [client for told in (mine, other) for device in told.pop('read') for client in device]
  assert mine == other
  assert mine['rows on hosts'] == mine['scaffold']
  drawn = tiny.build(
    METHODS['scaffold'](), tiny.net(4, 3), tiny.federated(SIZES), participation=0.75
  )
  sampled = np.asarray(drawn.setting.sample(np.int32(0), np.int32(1)))
  assert sorted(read) == sorted(client for client in sampled if SIZES[client] > 0)
  assert mine['broadcast'] == [0, 'ä' * 300]
  assert mine['any'] == [True, False]
  assert mine['first'] == 7
  assert mine['first fails'] == 'no data in 0'
  assert mine['together fails'] == 'process 1: no data in 1'
  assert (
    mine['tree']
    == "{'a': array([0, 1, 2], dtype=int16), 'b': ('x', None, array(0.5, dtype=float32))}"
  )
  assert 'layout.form' in mine['loop']
  assert (mine['status'], mine['again'], mine['refused']) == (0, 0, 2)
  assert (tmp_path / '0' / 'summary.json').exists()
  assert not (tmp_path / '1').exists(), (
    'process 0 alone writes; its folder need not exist elsewhere'
  )
  state, report = after(METHODS['scaffold'](), tiny.federated(SIZES), Layout(1, 'loop', 1))
  for leaf, told in zip(state.params.values(), mine['scaffold'], strict=True):
    np.testing.assert_allclose(told, leaf, atol=1e-5)
  assert mine['scaffold loss'] == pytest.approx(report['train/loss'], rel=1e-5)
  np.testing.assert_allclose(mine['synthesis'], projections(synthesised(1)), rtol=0, atol=1e-10)


def test_one_process_pays_nothing():
  value = object()
  assert processes.broadcast_from_process_0(value) is value
  assert (
    processes.tree_from_process_0(lambda: value) is processes.on_process_0(lambda: value) is value
  )
  assert processes.any_process(True) and not processes.any_process(False)
  processes.join()  # no other process is named anywhere: nothing happens


@pytest.mark.parametrize('given', [('a:1', 0, -1), ('a:1', 2, 2), ('', 2, 0)])
def test_incomplete_arguments_are_refused(given):
  with pytest.raises(ValueError, match='--processes=2 --process=0'):
    processes.join(*given)


@pytest.mark.parametrize(
  ('environment', 'joined'),
  [
    ({'SLURM_NTASKS': '2', 'SLURM_STEP_NUM_TASKS': '1', 'SLURM_PROCID': '0'}, False),
    ({'SLURM_NTASKS': '2', 'SLURM_STEP_NUM_TASKS': '2', 'SLURM_PROCID': '1'}, True),
    ({'TPU_WORKER_HOSTNAMES': 'localhost'}, False),
    ({'TPU_WORKER_HOSTNAMES': 't0,t1,t2,t3'}, True),
  ],
)
def test_slurm_steps_and_tpu_pods_join_by_themselves(monkeypatch, environment, joined):
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  calls = []
  monkeypatch.setattr(processes.jax.distributed, 'initialize', lambda *args: calls.append(args))
  processes.join()
  assert calls == ([()] if joined else [])


SETTINGS = [
  '--config.rounds=7',
  '--config.dynafed.length=3',
  '--config.dynafed.segment=2',
  '--config.dynafed.iterations=4',
  '--config.data.clients=4',
  '--config.eval_every=1',
  '--config.checkpoint_every=1',
  '--config.model.width=8',
]


def launch_two(workdir, stop_at=None):
  """Runs the launcher as two processes.

  Asks the second alone to stop once `stop_at` lines are logged.
  """
  with socket.socket() as s:
    s.bind(('localhost', 0))
    address = f'localhost:{s.getsockname()[1]}'
  environment = os.environ | {'JAX_NUM_CPU_DEVICES': '1', 'JAX_PLATFORMS': 'cpu'}
  command = [sys.executable, 'launch/main.py', *SETTINGS, f'--workdir={workdir}', '--processes=2']
  root = pathlib.Path(__file__).resolve().parents[2]
  both = [
    subprocess.Popen(
      [*command, f'--coordinator={address}', f'--process={k}'], env=environment, cwd=root
    )
    for k in range(2)
  ]
  try:
    path, deadline = workdir / 'metrics.jsonl', time.monotonic() + 300
    while stop_at and time.monotonic() < deadline:
      if path.exists() and path.read_text().count('\n') >= stop_at:
        both[1].send_signal(signal.SIGTERM)
        break
      time.sleep(0.01)
    return [process.wait(300) for process in both]
  finally:
    for process in both:
      process.kill()


@pytest.mark.slow
def test_two_processes_stop_together_and_go_on(tmp_path):
  """Only the second process gets SIGTERM, but both save and exit with 75.

  The same commands then end as if undisturbed.
  """
  assert launch_two(tmp_path / 'whole') == [0, 0]
  assert launch_two(tmp_path / 'cut', stop_at=5) == [75, 75]
  assert launch_two(tmp_path / 'cut') == [0, 0]
  accuracies = [
    [
      json.loads(line)['test/accuracy']
      for line in (tmp_path / w / 'metrics.jsonl').read_text().splitlines()
    ]
    for w in ('whole', 'cut')
  ]
  assert accuracies[0] == accuracies[1] and len(accuracies[0]) == 8


def test_chunks_double_and_end(monkeypatch):
  """There are 10 s. An iteration takes 1 s, the first one 3 s with its compilation.

  Pieces are 1, 2, 4, and then what fits. After 1 + 2 iterations 5 s are gone and 5 are left, so
  5 / 1 = 5 iterations fit, and the piece is 2 * 2 = 4. After them 1 s is left: 1. After that
  nothing is left.
  """
  now = [0.0]
  monkeypatch.setattr('fedjax_syn.core.chunks.time.monotonic', lambda: now[0])
  chunks, pieces = Chunks(10.0), []
  for took in (3.0, 2.0, 4.0, 1.0):
    pieces.append(chunks.next(100))
    now[0] += took
  assert pieces == [1, 2, 4, 1]
  assert chunks.next(100) == 0
  assert Chunks(10.0).next(0) == 0
