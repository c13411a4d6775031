"""Who builds what: contexts and restored states come from the engine."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = {'Task', 'ClientContext', 'Round', 'State'}
FILES = sorted(
  path
  for folder in ('fedjax_syn', 'launch', 'tools')
  for path in (ROOT / folder).rglob('*.py')
  if ROOT / 'fedjax_syn' / 'engine' not in path.parents
)


def built(path):
  """Names of `fedjax_syn.core.contexts` that a file calls."""
  calls = (
    node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
  )
  return {f.id if isinstance(f, ast.Name) else getattr(f, 'attr', '') for f in calls} & BUILT


@pytest.mark.parametrize('path', FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_outside_the_engine_nothing_builds_a_context_or_a_state(path):
  # A chain asks which layers act on the server in some phase before there is an experiment.
  allowed = {'Task'} if path.name == 'chains.py' else set()
  assert built(path) <= allowed


def test_the_engine_builds_them():
  files = (ROOT / 'fedjax_syn' / 'engine').glob('*.py')
  assert set().union(*(built(path) for path in files)) == BUILT


def nested(path):
  """The deepest nesting of functions in a file."""

  def depth(node, level=0):
    deeper = level + isinstance(node, ast.FunctionDef)
    return max([deeper, *(depth(child, deeper) for child in ast.iter_child_nodes(node))])

  return depth(ast.parse(path.read_text()))


METHODS = sorted((ROOT / 'fedjax_syn' / 'algorithms').glob('*.py'))


@pytest.mark.parametrize('path', METHODS, ids=lambda path: path.name)
def test_no_function_of_a_method_nests_deeper_than_two(path):
  assert nested(path) <= 2
