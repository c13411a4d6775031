"""Four virtual CPU devices, so that sharded layouts are tested everywhere; set before JAX starts."""

import gc
import importlib.metadata
import os
import pathlib
import time

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Most of a test's time is compilation, and tiny nets gain nothing from LLVM's optimisations; the older way to
# lower loops compiles in two thirds of the time, and one LLVM module in less than 32. A flag that a jaxlib does not know
# ends the process, so these are left out beyond the versions that were tried. Programs that must agree to the last bit are compiled as users
# compile them: EXACT=1 python -m pytest -n 2 -m exact
flags = '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true'
if tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2])) <= (0, 10):
  flags += ' --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
if os.environ.get('EXACT'):
  flags = ''
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {flags}'.strip()

import jax  # noqa: E402 (after the flags)
import pytest  # noqa: E402

jax.config.update('jax_num_cpu_devices', 4)
# Many tests compile the same programs (FedAvg's round beside every method's), and so does the next run of the tests.
# Runs of the launcher in a test find this set and leave it.
COMPILED = pathlib.Path(__file__).resolve().parent.parent / '.pytest_cache' / 'compiled'
jax.config.update('jax_compilation_cache_dir', str(COMPILED))
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
# Every collection of garbage walks through all traces and programs that JAX keeps: after some hundred tests that was most
# of the time. So they are dropped after modules that compile much, and collections are rarer.
gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope='module')
def small_heap():
  began = time.monotonic()
  yield
  if time.monotonic() - began > 5:  # what leaves little is not worth the second that this takes
    jax.clear_caches()
    gc.collect()
