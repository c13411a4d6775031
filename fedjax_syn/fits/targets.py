"""Devices that need not be there: their names, what they have, and JAX's description of them."""

import contextlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from fedjax_syn.core import suggestions

# What libtpu needs in order to describe devices that are not there, beside other processes that do
# so, and to say nothing.
ENVIRONMENT = {
  'JAX_PLATFORMS': 'cpu',
  'TPU_SKIP_MDS_QUERY': '1',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_STDERR_LOG_LEVEL': '3',
  'TPU_MIN_LOG_LEVEL': '3',
  'TF_CPP_MIN_LOG_LEVEL': '3',
}
NO_AUTOTUNING = '--xla_gpu_autotune_level=0'  # which would run kernels


class Chip(NamedTuple):
  """What one device has, as its maker states it.

  Operations a second are those of dense matrix products.
  """

  name: str
  kind: str
  """'tpu', 'gpu' or 'cpu'."""
  memory: float
  """Bytes."""
  bandwidth: float
  """Bytes a second between memory and chip."""
  bfloat16: float
  float32: float
  """Of float32 inputs at full precision: on a TPU six passes in bfloat16."""
  tensorfloat32: float
  """Of float32 inputs that are rounded; on a TPU three passes in bfloat16."""
  link: float
  """Bytes a second that a device can send to the others of its slice or host."""
  description: str = ''
  """For XLA's GPU compiler: compute capability, cores, memory ..."""

  def peak(self, precision: str, activations: str = 'float32') -> float:
    """Returns the operations a second of products, by a run's `precision` and activations."""
    if (precision, activations, self.kind) == ('bfloat16', 'float32', 'gpu'):
      return self.tensorfloat32  # to which a GPU rounds float32 arrays
    return {
      'float32': self.float32,
      'tensorfloat32': self.tensorfloat32,
      'bfloat16': self.bfloat16,
    }[precision]

  @property
  def usable(self) -> float:
    """Returns the bytes that JAX takes: on a GPU three quarters, if nobody says otherwise."""
    return self.memory * {'gpu': 0.75, 'tpu': 63 / 64}.get(self.kind, 1.0)


def _tpu(name: str, memory: float, bandwidth: float, bfloat16: float, link: float) -> Chip:
  """Memory in GiB, bandwidth in GB/s, bfloat16 in TFLOP/s, link in Gbit/s of all links together."""
  tera = bfloat16 * 1e12
  return Chip(
    name, 'tpu', memory * 2**30, bandwidth * 1e9, tera, tera / 6, tera / 3, link * 1e9 / 8
  )


def _gpu(
  name: str,
  memory: float,
  bandwidth: float,
  peaks: tuple[float, float, float],
  link: float,
  capability: tuple[int, int],
  cores: int,
  clock: float,
  shared: int,
  l2: int,
) -> Chip:
  """Memory in GB, bandwidth in GB/s, peaks (bfloat16, float32, tensorfloat32) in TFLOP/s."""
  description = f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {128 if capability[0] == 9 else 64}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {int(bandwidth * 1e9)}
  l2_cache_size: {l2}
  clock_rate_ghz: {clock}
  device_memory_size: {int(memory * 1e9)}
  shared_memory_per_block_optin: {shared - 1024}
  cuda_compute_capability {{ major: {capability[0]} minor: {capability[1]} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "NVIDIA {name.upper()}"
"""
  return Chip(
    name,
    'gpu',
    memory=memory * 1e9,
    bandwidth=bandwidth * 1e9,
    bfloat16=peaks[0] * 1e12,
    float32=peaks[1] * 1e12,
    tensorfloat32=peaks[2] * 1e12,
    link=link * 1e9,
    description=description,
  )


# TPUs: cloud.google.com/tpu/docs/v4, .../v5p, .../v5e and .../v6e, "System architecture": memory,
# bandwidth and peak of a chip, bandwidth of its links to other chips. A v4 chip is one device here
# (its two cores are a "megacore").
# GPUs: NVIDIA's data sheets of the A100 (SXM), H100 (SXM) and H200 (SXM); the figures without
# sparsity; NVLink in one direction.
CHIPS = {
  chip.name: chip
  for chip in (
    _tpu('v4', 32, 1228, 275, 2400),
    _tpu('v5e', 16, 819, 197, 1600),
    _tpu('v5p', 95, 2765, 459, 4800),
    _tpu('v6e', 32, 1640, 918, 3584),
    _gpu('a100', 40, 1555, (312, 19.5, 156), 300, (8, 0), 108, 1.41, 167936, 40 * 2**20),
    _gpu('a100-80', 80, 2039, (312, 19.5, 156), 300, (8, 0), 108, 1.41, 167936, 40 * 2**20),
    _gpu('h100', 80, 3350, (989, 67, 494), 450, (9, 0), 132, 1.98, 233472, 50 * 2**20),
    _gpu('h200', 141, 4800, (989, 67, 494), 450, (9, 0), 132, 1.98, 233472, 50 * 2**20),
    # For trying the command where no compiler of an accelerator is installed; no maker states its
    # peaks, so no time is computed.
    Chip('cpu', 'cpu', float('inf'), 0.0, 0.0, 0.0, 0.0, 0.0),
  )
}
EXTRAS = {'tpu': ('libtpu', 'fits-tpu'), 'gpu': ('jax_cuda13_plugin', 'fits-gpu')}


class Target(NamedTuple):
  """Devices to compile for."""

  text: str
  """As written: 'v5e:2x2', 'h200', 'h200:8', 'cpu:2'."""
  chip: Chip
  layout: str
  """Of the TPU's chips ('2x2'), or how many devices."""


def parse(text: str) -> list[Target]:
  """Reads targets separated by commas.

  Args:
    text: such as 'v5e:2x2,h200,cpu:2'.

  Raises:
    ValueError: naming the word and what would work.
  """
  out = []
  for word in filter(None, text.split(',')):
    name, _, layout = word.partition(':')
    if name not in CHIPS:
      near = suggestions.nearest(name, CHIPS, most=1)
      hint = f' (did you mean {near[0]!r}?)' if near else ''
      raise ValueError(
        f'--target={word}: no such device{hint}; known are {", ".join(CHIPS)}, as v5e:2x2 or h200:8'
      )
    chip = CHIPS[name]
    pattern, example = (r'\d+(x\d+){1,2}', '2x2') if chip.kind == 'tpu' else (r'\d*', '8')
    if not re.fullmatch(pattern, layout) or '0' in layout.split('x'):
      raise ValueError(f'--target={word}: write {name}:{example}')
    out.append(Target(word, chip, layout or '1'))
  if not out:
    raise ValueError(f'--target={text}: name devices, as v5e:2x2,h200')
  return out


def check_installed(targets: Sequence[Target]) -> None:
  """Refuses targets whose compiler is not installed.

  Raises:
    ValueError: in one line, with what to install.
  """
  for target in targets:
    module, extra = EXTRAS.get(target.chip.kind, ('jax', ''))
    if importlib.util.find_spec(module) is None:
      raise ValueError(
        f"--target={target.text}: its compiler is not installed; pip install 'fedjax-syn[{extra}]'"
      )


def prepare_environment() -> None:
  """Sets what compilers of devices that are not there need; before JAX's first device."""
  for name, value in ENVIRONMENT.items():
    os.environ[name] = value
  flags = os.environ.get('XLA_FLAGS', '')
  if 'autotune_level' not in flags and importlib.util.find_spec(EXTRAS['gpu'][0]):
    os.environ['XLA_FLAGS'] = f'{flags} {NO_AUTOTUNING}'.strip()
  jax.config.update('jax_platforms', 'cpu')
  # A program from the cache may have been compiled before loops had the names of today.
  jax.config.update('jax_compilation_cache_include_metadata_in_key', True)


def devices_of(target: Target) -> list[Any]:
  """Returns a target's devices, with which programs can be compiled and not run.

  Raises:
    ValueError: if there are no such devices.
  """
  from jax.experimental import topologies

  if target.chip.kind == 'cpu':
    there, wanted = jax.devices('cpu'), int(target.layout)
    if wanted > len(there):
      raise ValueError(f'--target={target.text}: there are {len(there)} CPU devices')
    return there[:wanted]
  if target.chip.kind == 'tpu':
    options: dict[str, Any] = {
      'platform': 'tpu',
      'topology_name': f'{target.chip.name}:{target.layout}',
    }
    sides = [int(side) for side in target.layout.split('x')]
    if max(sides) == 1:  # a host of one chip
      options['chips_per_host_bounds'] = (1,) * 3
  else:
    options = {
      'platform': 'cuda',
      'topology_name': '',
      'target_config': target.chip.description,
      'topology': f'1x1x{target.layout}',
    }
  try:
    with quiet():
      return list(topologies.get_topology_desc(**options).devices)
  except Exception as error:
    reason = str(error).splitlines()[0].removeprefix('INVALID_ARGUMENT: ')
    raise ValueError(f'--target={target.text}: {reason}') from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Keeps what libtpu writes to file descriptor 2 when it is loaded from the user.

  While it compiles, `ENVIRONMENT` keeps it silent, and a signal's line must be seen.
  """
  sys.stderr.flush()
  kept = os.dup(2)
  with tempfile.TemporaryFile() as sink:
    os.dup2(sink.fileno(), 2)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(kept, 2)
      os.close(kept)
