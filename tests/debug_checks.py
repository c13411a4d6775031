"""All of JAX's checks that can be on together, and a record of every key that is drawn from."""

import collections
import contextlib
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
def debug_checks(leaks: bool = True) -> Iterator[None]:
  """Turns on: NaNs, rank promotion, key reuse, implicit transfers and warnings as errors, and leaks of tracers.

  Args:
    leaks: also look for leaked tracers; JAX then caches no trace, and every call compiles anew.
  """
  with contextlib.ExitStack() as on:
    on.enter_context(jax.debug_nans(True))
    on.enter_context(jax.numpy_rank_promotion('raise'))
    on.enter_context(jax.debug_key_reuse(True))
    on.enter_context(jax.transfer_guard('disallow'))
    if leaks:
      on.enter_context(jax.checking_leaks())
    on.enter_context(warnings.catch_warnings())
    warnings.simplefilter('error')
    yield


@contextlib.contextmanager
def recorded_keys() -> Iterator[collections.Counter]:
  """Counts, by its words, every key that a function of `jax.random` draws from, in each run of what is traced here.

  JAX's own checker does not see the same `fold_in` twice, nor a split beside a fold: equal keys, made apart. On
  one device only: values that several devices hold alike are drawn on each of them.
  """
  drawn = collections.Counter()
  real = {name: getattr(jax.random, name) for name in DRAWS}

  def watched(draw):
    def record(words):
      drawn[np.asarray(words).tobytes()] += 1

    def watch(key, *args, **kwargs):
      jax.debug.callback(record, jax.random.key_data(key))
      return draw(key, *args, **kwargs)

    return watch

  try:
    for name, draw in real.items():
      setattr(jax.random, name, watched(draw))
    yield drawn
    jax.effects_barrier()
  finally:
    for name, draw in real.items():
      setattr(jax.random, name, draw)
