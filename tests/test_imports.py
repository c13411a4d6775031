"""Imports go one way, from `core` to `cli`, without a cycle; imports inside functions count too."""

import ast
import graphlib
import pathlib

import fedjax_syn

ROOT = pathlib.Path(__file__).parents[1]
FILES = [
  path
  for path in (ROOT / 'fedjax_syn').rglob('*.py')
  if 'configs' not in path.relative_to(ROOT).parts
]
# A package may import what stands before it, in its own row and in earlier ones.
ORDER = (
  'core',
  'layer',
  'data models',
  'chains',
  'client',
  'server',
  'algorithms',
  'engine',
  'config',
  'plotting',
  'runs',
  'fits',
  'report',
  'tables',
  'papers',
  'cli',
)
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row.split()}


def module_of(path):
  return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


MODULES = {module_of(path): path for path in FILES}


def for_types(node):
  return isinstance(node, ast.If) and ast.unparse(node.test) == 'TYPE_CHECKING'


def nodes(node):
  """A node and all below it, without what only a type checker sees."""
  yield node
  for child in ast.iter_child_nodes(node):
    if not for_types(child):
      yield from nodes(child)


def imports(path):
  """Modules of the package that a file imports, inside functions too."""
  for node in nodes(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names if alias.name in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
      names = (f'{node.module}.{alias.name}' for alias in node.names)
      yield from (name if name in MODULES else node.module for name in names)


def part_of(module):
  """'core' of 'fedjax_syn.core.fields'; '' of the package itself."""
  return module.removeprefix('fedjax_syn').removeprefix('.').partition('.')[0]


def test_packages_import_what_stands_before_them():
  lower = {(module, other) for module, path in MODULES.items() for other in imports(path)}
  upward = [
    f'{module} imports {other}'
    for module, other in sorted(lower)
    if part_of(module) and part_of(other) and RANK[part_of(module)] < RANK[part_of(other)]
  ]
  assert not upward


def test_no_two_modules_import_each_other():
  edges = {name: {*imports(path)} - {'fedjax_syn'} for name, path in MODULES.items()}
  assert list(graphlib.TopologicalSorter(edges).static_order())  # CycleError names a cycle


def test_every_public_name_is_known_to_type_checkers():
  tree = ast.parse((ROOT / 'fedjax_syn' / '__init__.py').read_text())
  (block,) = filter(for_types, tree.body)
  named = {alias.name for node in block.body for alias in node.names}
  assert named == {*fedjax_syn.__all__} - {'__version__'}


def test_the_package_edits_no_search_path():
  """But in one place: a command finds modules in the folder in which it is run."""
  edits = [module_of(path) for path in FILES if 'sys.path' in path.read_text()]
  assert edits == ['fedjax_syn.cli.command']
