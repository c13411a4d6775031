"""Four virtual CPU devices, so that sharded layouts are tested everywhere; set before JAX starts."""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import jax

jax.config.update('jax_num_cpu_devices', 4)
