"""Four virtual CPU devices, which test sharded layouts everywhere; set before JAX starts."""

import gc
import importlib.metadata
import os
import pathlib
import time

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Compilation takes most of a test's time, and tiny networks gain nothing from LLVM's optimisations.
# The older lowering of loops compiles in two thirds of the time, and one LLVM module in less time
# than 32. An unknown flag ends the process, so newer versions of jaxlib do not get these. EXACT=1
# compiles as users do, for programs that must agree to the last bit:
# EXACT=1 python -m pytest -n 2 -m exact
flags = '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true'
if tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2])) <= (0, 10):
  flags += ' --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
if os.environ.get('EXACT'):
  flags = ''
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {flags}'.strip()
# Many tests compile the same programs (FedAvg's round in every method's test), and so does the next
# run of the tests. Processes that a test starts use them too, and leave nothing in the home folder.
COMPILED = pathlib.Path(__file__).resolve().parent.parent / '.pytest_cache' / 'compiled'
os.environ['JAX_COMPILATION_CACHE_DIR'] = str(COMPILED)
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'

import jax  # noqa: E402 (after the settings)
import pytest  # noqa: E402

from fedjax_syn.core import programs  # noqa: E402

jax.config.update('jax_num_cpu_devices', 4)
# Each garbage collection visits all traces and programs that JAX keeps. After some hundred tests
# that took most of the time. So collections are rarer, what a module leaves is not visited again,
# and all traces and programs are dropped once a minute.
programs.KEPT = 10_000
if not os.environ.get('EXACT'):
  programs.OF_BLOCKS |= {'xla_backend_optimization_level': 0}  # as the flags say
gc.set_threshold(50_000, 20, 20)
dropped = [time.monotonic()]


@pytest.fixture(autouse=True, scope='module')
def small_heap():
  yield
  if time.monotonic() - dropped[0] > 60:  # it takes a second, and then all is traced again
    gc.unfreeze()
    jax.clear_caches()
    gc.collect()
    dropped[0] = time.monotonic()
  gc.freeze()
