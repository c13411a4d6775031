"""Processes on several hosts that train as one: how they join, and how they share a value.

Every process runs the same program. A value that depends on a clock, a file or a signal must be
equal in all processes; otherwise one process waits forever in a collective that the others never
enter. Such values come from process 0. With a single process the functions return at once.
"""

import ctypes
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedjax_syn.core import exit_status, tree_encoding
from fedjax_syn.core.types import PyTree

PEER_GONE = (
  b'another process of this run has ended; start all of them again: they continue from what was'
  b' saved\n'
)
_handlers: list[Any] = []  # C holds no reference to them


def join(coordinator: str = '', processes: int = 0, process: int = -1) -> None:
  """Joins the other processes of a run; before JAX's first array.

  Without arguments it joins by itself under SLURM (more than one task) and on the hosts of a TPU
  pod slice, and does nothing elsewhere.

  Args:
    coordinator: host:port of process 0.
    processes: how many there are.
    process: this one's number, from 0.

  Raises:
    ValueError: if the arguments are incomplete or the others cannot be reached.
  """
  given = bool(coordinator), processes > 0, process >= 0
  if any(given) and not (all(given) and process < processes):
    raise ValueError(
      f'--coordinator={coordinator} --processes={processes} --process={process}: several processes'
      ' need all three, as in --coordinator=host0:1234 --processes=2 --process=0 (and 1 in the'
      ' other)'
    )
  if not any(given) and not environment_is_distributed():
    return
  try:
    if any(given):
      jax.distributed.initialize(coordinator, processes, process)
    else:
      jax.distributed.initialize()
    _exit_if_peer_is_gone()
  except RuntimeError as error:
    raise ValueError(
      f'the processes did not find each other ({error}); --coordinator is host:port of process 0'
    ) from error


def _exit_if_peer_is_gone() -> None:
  """Ends the process with a line and a status where JAX's service would abort it.

  JAX aborts a process that has lost another one.
  It comes from a thread of the service, and Python's own handlers would not be called before the
  end.
  """

  def aborted(number):
    os.write(2, PEER_GONE)
    os._exit(exit_status.PEER_LOST)

  handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(aborted)
  _handlers.append(handler)
  ctypes.CDLL(None).signal(int(signal.SIGABRT), handler)


def environment_is_distributed() -> bool:
  """Returns whether the environment makes this process one of several: SLURM or a TPU pod slice."""
  # Of the step that srun began: a batch script by itself is one task, however many the job has.
  tasks = int(os.environ.get('SLURM_STEP_NUM_TASKS', '1'))
  return tasks > 1 or ',' in os.environ.get('TPU_WORKER_HOSTNAMES', '')


def is_distributed() -> bool:
  """Returns whether other processes take part."""
  return jax.process_count() > 1


def broadcast_from_process_0(value: Any) -> Any:
  """Returns process 0's value, a JSON value, in every process."""
  return json.loads(_broadcast_bytes(json.dumps(value).encode())) if is_distributed() else value


def any_process(flag: bool) -> bool:
  """Returns whether the flag is set in any process."""
  return bool(multihost_utils.process_allgather(np.array(flag)).any()) if is_distributed() else flag


def on_process_0(function: Callable[[], Any]) -> Any:
  """Calls a function in process 0 alone, for files that only it may see.

  Args:
    function: returns a JSON value.

  Returns:
    What it returned, in every process.

  Raises:
    ValueError: what it raised (or OSError), in every process.
  """
  if not is_distributed():
    return function()
  value, error = None, None
  if jax.process_index() == 0:
    try:
      value = function()
    except (ValueError, OSError) as caught:
      error = caught
  value, message = broadcast_from_process_0([value, error and str(error)])
  if message is not None:
    raise error or ValueError(message)
  return value


def tree_from_process_0(function: Callable[[], PyTree]) -> PyTree:
  """Like `on_process_0`, of a function that returns a tree of arrays and JSON values."""
  if not is_distributed():
    return function()
  arrays, described = {}, None

  def read():
    nonlocal arrays, described
    arrays, described = tree_encoding.encode(function())
    layout = {name: [a.dtype.name, list(a.shape)] for name, a in arrays.items()}
    return [layout, described]

  layout, described = on_process_0(read)
  received = {}
  for name, (dtype, shape) in layout.items():
    content = _broadcast_bytes(np.ascontiguousarray(arrays[name]).tobytes() if arrays else b'')
    received[name] = np.frombuffer(content, dtype).reshape(shape)
  return tree_encoding.decode(received, described)


def on_all_processes(function: Callable[[], Any]) -> Any:
  """Calls a function in every process; if it fails in one, all of them raise.

  Args:
    function: may fail in some processes only, where a file is missing, say.

  Returns:
    Its value, which stays in its process.

  Raises:
    ValueError: the first failure, by the number of the process.
  """
  if not is_distributed():
    return function()
  value, message = None, ''
  try:
    value = function()
  except (ValueError, OSError) as error:
    message = f'process {jax.process_index()}: {error}'
  if any_process(bool(message)):
    rows = multihost_utils.process_allgather(_padded(message.encode()[:1000], 1024))
    first = next(text for row in rows if (text := bytes(row).rstrip(b'\0')))
    raise ValueError(first.decode(errors='replace'))
  return value


def _broadcast_bytes(content: bytes) -> bytes:
  """Process 0's bytes; two collectives, the length and the content."""
  length = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
  # Powers of two: as few programs as lengths differ by factors of two.
  capacity = 1 << max(length - 1, 255).bit_length()
  rows = content if jax.process_index() == 0 else b''
  return bytes(np.asarray(multihost_utils.broadcast_one_to_all(_padded(rows, capacity))))[:length]


def _padded(content: bytes, capacity: int) -> np.ndarray:
  out = np.zeros(capacity, np.uint8)
  out[: len(content)] = np.frombuffer(content, np.uint8)
  return out
