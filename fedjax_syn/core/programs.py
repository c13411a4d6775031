"""Compiled programs: how many a process keeps, their loops, and those that run once."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from fedjax_syn.core.mesh import backend_of
from fedjax_syn.core.types import Model, PyTree

KEPT = 16  # kinds of engines: model, layout, layers and shapes of the data
Program = TypeVar('Program', bound=Callable[..., Any])

# On a CPU, for programs that run once: they compile in less time and take longer to run, and the
# last digits may differ (docs/speed.md).
FAST = {'xla_cpu_use_fusion_emitters': False, 'xla_backend_optimization_level': 1}
# For a network's first parameters: a draw takes milliseconds, and its compilation a second.
OF_DRAWS = FAST | {'xla_backend_optimization_level': 0}
# On a CPU, for networks in blocks, whose time is that of convolutions: they compile in two thirds
# of the time and run as fast. Programs of other networks would run up to twice as long. Vectors of
# 512 bits, where the CPU has them, save 5 % of a step.
OF_BLOCKS = {
  'xla_cpu_use_fusion_emitters': False,
  'xla_backend_optimization_level': 2,
  'xla_cpu_prefer_vector_width': 512,
}


class Once:
  """A jitted function that runs once in a job; on a CPU it is compiled with fewer optimisations."""

  def __init__(self, function: Callable[..., Any], on_cpu: dict[str, Any] = FAST, **options: Any):
    """Takes a function, the options of the compiler on a CPU, and those of `jax.jit`."""
    self._function, self._on_cpu, self._options = function, on_cpu, options
    functools.update_wrapper(self, function)

  @functools.cached_property
  def jitted(self) -> Any:
    """The function as `jax.jit` returns it, made when the backend is known."""
    fast = self._on_cpu if jax.default_backend() == 'cpu' else None
    return jax.jit(self._function, compiler_options=fast, **self._options)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the compiled function."""
    return self.jitted(*args, **kwargs)

  def lower(self, *args: Any, **kwargs: Any) -> Any:
    """Lowers the function for any device, without the options of a CPU."""
    return jax.jit(self._function, **self._options).lower(*args, **kwargs)

  def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
    """Returns the shapes of the results."""
    return jax.jit(self._function, **self._options).eval_shape(*args, **kwargs)

  def clear_cache(self) -> None:
    """Forgets what was compiled."""
    self.jitted.clear_cache()


class ByModel:
  """A jitted function whose options of the compiler follow from its network and devices."""

  def __init__(
    self,
    function: Callable[..., Any],
    of: Callable[..., tuple[Model, jax.sharding.Mesh | None]],
    **options: Any,
  ):
    """Takes a function.

    Args:
      function: the function.
      of: returns the network and the devices of a call with its arguments; None: JAX's.
      **options: of `jax.jit`.
    """
    self._function, self._of, self._options = function, of, options
    self._usual: Any = jax.jit(function, **options)
    functools.update_wrapper(self, function)

  @functools.cached_property
  def _of_blocks(self) -> Any:
    return jax.jit(self._function, compiler_options=OF_BLOCKS, **self._options)

  def _chosen(self, arguments: tuple[Any, ...]) -> Any:
    model, mesh = self._of(*arguments)
    backend = backend_of(mesh) if mesh else jax.default_backend()
    return self._of_blocks if model.in_blocks and backend == 'cpu' else self._usual

  def __call__(self, *args: Any) -> Any:
    """Calls the compiled function."""
    return self._chosen(args)(*args)

  def lower(self, *args: Any) -> Any:
    """Lowers the function."""
    return self._chosen(args).lower(*args)

  def clear_cache(self) -> None:
    """Forgets what was compiled."""
    self._usual.clear_cache()
    self._of_blocks.clear_cache()

  def _cache_size(self) -> int:
    return self._usual._cache_size() + self._of_blocks._cache_size()


_programs: list[Any] = []
_kinds: set[Any] = set()


def bounded(program: Program) -> Program:
  """Marks a jitted function as one that `keep` forgets."""
  _programs.append(program)
  return program


def loop(name: str) -> contextlib.AbstractContextManager[None]:
  """Names a loop whose trip count a compiled program does not say, for `fedjax_syn.fits`."""
  return jax.named_scope(f'loop_{name}')


def keep(setting: Any, arguments: PyTree) -> None:
  """Counts an engine; forgets all programs where there would be more than `KEPT` kinds.

  An engine that is used again afterwards compiles again, with the same results.

  Args:
    setting: what its programs are compiled for.
    arguments: what they get: the method and the data.
  """
  leaves, structure = jax.tree.flatten(arguments)
  kind = setting, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
  if kind not in _kinds and len(_kinds) >= KEPT:
    for program in _programs:
      program.clear_cache()
    _kinds.clear()
  _kinds.add(kind)
