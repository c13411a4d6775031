"""All checks of JAX that can be on at once, and a record of the keys of all draws."""

import collections
import contextlib
import gc
import warnings
from collections.abc import Iterator

import jax
import numpy as np

DRAWS = (
  *('bernoulli', 'beta', 'bits', 'categorical', 'choice', 'dirichlet', 'exponential', 'gamma'),
  *('gumbel', 'laplace', 'loggamma', 'normal', 'permutation', 'randint', 'split'),
  *('truncated_normal', 'uniform'),
)


@contextlib.contextmanager
def debug_checks(transfers: str = 'disallow') -> Iterator[None]:
  """Makes NaNs, rank promotion, key reuse, leaked tracers, implicit transfers and warnings errors.

  While JAX checks for leaks it caches no trace, so each call of a program compiles. It also
  collects garbage after each traced function. Older objects are frozen, which saves most of that
  time.

  Args:
    transfers: 'allow' for work between rounds, which uses numbers of the host.
  """
  with contextlib.ExitStack() as on:
    on.enter_context(jax.debug_nans(True))
    on.enter_context(jax.numpy_rank_promotion('raise'))
    on.enter_context(jax.debug_key_reuse(True))
    on.enter_context(jax.transfer_guard(transfers))
    on.enter_context(jax.checking_leaks())
    on.enter_context(warnings.catch_warnings())
    warnings.simplefilter('error')
    gc.collect()
    gc.freeze()
    on.callback(gc.unfreeze)
    yield


@contextlib.contextmanager
def recorded_keys() -> Iterator[dict[bytes, collections.Counter]]:
  """Counts the draws of `jax.random` at run time, by key data and by function and shape.

  JAX's own checker misses equal keys that are computed twice, by `fold_in` or by a split and a
  fold. Use one device: each device draws the values that several devices hold.
  """
  drawn = collections.defaultdict(collections.Counter)
  real = {name: getattr(jax.random, name) for name in DRAWS}

  def watched(name, draw):
    def watch(key, *args, **kwargs):
      value = draw(key, *args, **kwargs)
      what = f'{name} {jax.tree.map(jax.numpy.shape, value)}'
      record = lambda words: drawn[np.asarray(words).tobytes()].update([what])
      jax.debug.callback(record, jax.random.key_data(key))
      return value

    return watch

  try:
    for name, draw in real.items():
      setattr(jax.random, name, watched(name, draw))
    yield drawn
    jax.effects_barrier()
  finally:
    for name, draw in real.items():
      setattr(jax.random, name, draw)
