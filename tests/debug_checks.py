"""All of JAX's checks that can be on together, and a record of every key that is drawn from."""

import collections
import contextlib
import gc
import warnings
from collections.abc import Iterator

import jax
import numpy as np

DRAWS = (
  *(
    'bernoulli',
    'beta',
    'bits',
    'categorical',
    'choice',
    'dirichlet',
    'exponential',
    'gamma',
    'gumbel',
  ),
  *(
    'laplace',
    'loggamma',
    'normal',
    'permutation',
    'randint',
    'split',
    'truncated_normal',
    'uniform',
  ),
)


@contextlib.contextmanager
def debug_checks(transfers: str = 'disallow') -> Iterator[None]:
  """Turns on: NaNs, rank promotion, key reuse, leaks of tracers, implicit transfers and warnings as errors.

  JAX caches no trace while it looks for leaks: every call of a program compiles anew. It also collects garbage after
  every function that it traces; what was there before is kept out of that, or a full process would spend its time on it.

  Args:
    transfers: 'allow' for work between rounds, which computes with numbers of the host.
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
  """Counts, by its words and by what is drawn, the draws of `jax.random` from every key, in each run of what is traced.

  JAX's own checker does not see the same `fold_in` twice, nor a split beside a fold: equal keys, made apart. On
  one device only: values that several devices hold alike are drawn on each of them.
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
