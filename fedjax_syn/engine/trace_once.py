"""Traces a function once, for the shapes of its results and for its calls."""

from collections.abc import Callable

import jax
from jax.extend.core import jaxpr_as_fun

from fedjax_syn.core.types import PyTree


def traced(f: Callable[..., PyTree], *args: PyTree) -> tuple[Callable[..., PyTree], PyTree]:
  """Traces a function once, for good.

  `jax.eval_shape` and a call would trace it twice, and one such function inside another four times.

  Args:
    f: of arrays; it may close over tracers.
    args: arrays, or tracers, of the shapes and types that it will be called with.

  Returns:
    f as a function of equal arguments, and the shapes and types of its result.
  """
  closed, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
  run, structure = jaxpr_as_fun(closed), jax.tree.structure(shapes)
  return lambda *args: jax.tree.unflatten(structure, run(*jax.tree.leaves(args))), shapes
