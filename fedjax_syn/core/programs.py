"""Compiled programs: how many a process keeps, since they outlive models and data; their loops."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from fedjax_syn.core.types import PyTree

KEPT = 16  # kinds of engines: model, layout, layers and shapes of the data
Program = TypeVar('Program', bound=Callable[..., Any])

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
