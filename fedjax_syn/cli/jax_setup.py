"""JAX before its first array: processes, CPU devices, the cache of compiled programs."""

import os
import sys
from typing import Any

import jax

from fedjax_syn.core import texts


def prepare_jax(
  devices: int = 0, coordinator: str = '', processes: int = 0, process: int = -1
) -> None:
  """Sets up JAX before its first array: processes, CPU devices, the cache of compiled programs.

  Args:
    devices: CPU devices of all processes; 0 is $JAX_NUM_CPU_DEVICES in each, else one per usable
      core. Accelerators are as many as there are.
    coordinator: host:port of process 0; see `fedjax_syn.core.processes.join`.
    processes: how many train as one.
    process: this one's number.

  Raises:
    ValueError: if the devices asked for by $JAX_PLATFORMS do not exist, or the other processes.
  """
  from fedjax_syn.core import processes as hosts

  config: Any = jax.config  # whose fields have no types

  if devices or config.jax_num_cpu_devices < 0:
    affinity = getattr(os, 'sched_getaffinity', lambda _: range(os.cpu_count() or 1))
    own = devices // max(processes, 1)
    config.update('jax_num_cpu_devices', own or len(affinity(0)))
  cache = config.jax_compilation_cache_dir or '~/.cache/fedjax_syn/jax'
  config.update('jax_compilation_cache_dir', _usable(cache))
  hosts.join(coordinator, processes, process)
  try:
    jax.devices()
  except (RuntimeError, AssertionError) as error:
    platforms = config.jax_platforms
    raise ValueError(
      f'JAX_PLATFORMS={platforms}: no such device can be used ({error or "no plug-in"});'
      ' install the extra (cuda, tpu) or unset it'
    ) from error


def _usable(cache: str) -> str | None:
  """Returns the folder of compiled programs, or None after a line that says why there is none."""
  if '://' in cache:  # storage elsewhere, which JAX knows and this does not
    return cache
  cache = os.path.expanduser(cache)
  try:
    if cache.startswith('~'):  # a user of a container may have none
      raise OSError(0, 'there is no such home folder')
    os.makedirs(cache, exist_ok=True)
    if os.access(cache, os.W_OK | os.X_OK):
      return cache
    reason = 'it cannot be written to'
  except OSError as error:
    reason = str(error.strerror)
  print(
    texts.one_line(f'WARNING: compiled programs are not kept: {cache}: {reason}'), file=sys.stderr
  )
  return None
