"""Four virtual CPU devices, so that sharded layouts are tested everywhere; set before JAX starts."""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Most of a test's time is compilation, and tiny nets gain nothing from LLVM's optimisations.
flags = '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true'
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {flags}'.strip()

import jax  # noqa: E402 (after the flags)

jax.config.update('jax_num_cpu_devices', 4)
