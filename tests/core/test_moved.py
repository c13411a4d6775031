"""What older versions called a module: every name leads to a module that there is."""

import importlib

import pytest

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core import moved, trees


@pytest.mark.parametrize('old', moved.MOVED)
def test_every_new_name_is_a_module(old):
  assert importlib.import_module(moved.new_name(f'fedjax_syn.{old}'))
  assert moved.new_name(f'fedjax_syn.{moved.MOVED[old]}') == f'fedjax_syn.{moved.MOVED[old]}'


def test_a_tree_of_an_older_version_is_read():
  """Its description names the class by the module that it lay in."""
  named = 'fedjax_syn.synthesis.synthetic:SyntheticSet'
  fields = {name: {'value': 1.5} for name in SyntheticSet._fields}
  assert trees.decode({}, {'named': named, 'fields': fields}) == SyntheticSet(*[1.5] * len(fields))
