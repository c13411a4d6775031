"""What older versions called a module: every name leads to a module that there is."""

import importlib

import pytest

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core import old_modules, tree_encoding


@pytest.mark.parametrize('old', old_modules.MOVED)
def test_every_new_name_is_a_module(old):
  assert importlib.import_module(old_modules.new_name(f'fedjax_syn.{old}'))
  assert (
    old_modules.new_name(f'fedjax_syn.{old_modules.MOVED[old]}')
    == f'fedjax_syn.{old_modules.MOVED[old]}'
  )


def test_a_tree_of_an_older_version_is_read():
  """Its description names the class by the module that it lay in."""
  named = 'fedjax_syn.synthesis.synthetic:SyntheticSet'
  fields = {name: {'value': 1.5} for name in SyntheticSet._fields}
  assert tree_encoding.decode({}, {'named': named, 'fields': fields}) == SyntheticSet(
    *[1.5] * len(fields)
  )
