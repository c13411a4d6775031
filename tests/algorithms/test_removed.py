"""Fields of earlier versions are constants now; old configs and chains with them still load."""

import pytest

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.old_fields import CONSTANTS
from fedjax_syn.config import identity


@pytest.mark.parametrize('key', CONSTANTS)
def test_an_old_config_is_the_same_run(key):
  name, _, field = key.partition('.')
  changes = {'algorithm': name, 'compare': '', 'data.proxy': 'held_out'}
  new = config_lib.check(changes)
  old = config_lib.check({**changes, key: CONSTANTS[key]})
  assert old == new and not hasattr(old.blocks[name], field)
  stored = config_lib.to_dict(new)
  stored[name] = {**stored.get(name, {}), field: CONSTANTS[key]}  # as in its config.json
  assert identity.diff(stored, new) == []
  stored[name][field] = 7
  assert identity.diff(stored, new) == [f'{key}: 7 -> {CONSTANTS[key]!r}']
  with pytest.raises(config_lib.ConfigError, match=f'{key}=7: is .* in this version'):
    config_lib.check({**changes, key: 7})


def test_an_old_chain_is_read():
  rows = [{'layer': 'dynafed', 'fields': {'length': 3, 'segments': 1, 'segment': 2}}]
  assert algorithms.from_json(rows).layers[1].length == 3
  rows[0]['fields']['segments'] = 2
  with pytest.raises(ValueError, match='dynafed.segments=2: is 1 in this version'):
    algorithms.from_json(rows)
