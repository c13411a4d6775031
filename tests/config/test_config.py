"""Configs: refusals and their lines, overrides, hashes, differences, the files in configs/."""

import dataclasses
import hashlib
import importlib
import json
import pathlib

import ml_collections
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.old_fields import CONSTANTS
from fedjax_syn.config import (
  ConfigError,
  check,
  get_default,
  identity,
  override,
  parsing,
  schema,
  to_dict,
)
from fedjax_syn.config.identity import diff, hash8
from tests.bad_input import BAD, BAD_OVERRIDES

FILES = sorted(f.stem for f in (pathlib.Path(__file__).parents[2] / 'configs').glob('[a-z]*.py'))


def changed(values):
  """The default config as a nested dict with some dotted keys changed; types unchecked."""
  tree = to_dict(get_default())
  for key, value in values.items():
    section, _, name = key.rpartition('.')
    (tree.setdefault(section, {}) if section else tree)[name] = value
  return tree


@pytest.mark.parametrize(('settings', 'line'), BAD, ids=[line[:40] for _, line in BAD])
def test_a_bad_config_is_refused_with_one_line(settings, line):
  with pytest.raises(ConfigError) as refused:
    check(changed(settings))
  assert str(refused.value).startswith(line)
  assert '\n' not in str(refused.value)


def test_the_default_passes_and_becomes_frozen_dataclasses():
  resolved = check(get_default())
  assert resolved.algorithm == 'dynafed'
  assert resolved.dynafed is resolved.blocks['dynafed']
  assert (resolved.dynafed.length, resolved.dynafed.segment, resolved.dynafed.iterations) == (
    20,
    5,
    1000,
  )
  with pytest.raises(dataclasses.FrozenInstanceError):
    resolved.rounds = 3
  with pytest.raises(AttributeError, match='no_such_block'):
    _ = resolved.no_such_block


def test_only_an_int_for_a_float_and_a_list_for_a_tuple_are_converted():
  resolved = check(changed({'client.lr': 1, 'seeds': [3, 4], 'targets': [1]}))
  assert isinstance(resolved.client.lr, float) and resolved.client.lr == 1.0
  assert resolved.seeds == (3, 4)
  assert resolved.targets == (1.0,) and isinstance(resolved.targets[0], float)


def test_participation_counts_clients_in_decimal():
  """0.29 * 100 is 28.999999999999996 in binary, 0.05 * 20 is one client: both must pass."""
  check(changed({'client.participation': 0.05, 'data.clients': 20}))
  check(changed({'client.participation': 0.01, 'data.clients': 100}))


def test_a_poisson_round_may_be_empty():
  check(changed({'client.sampler': 'poisson', 'client.participation': 0.01, 'data.clients': 20}))


def test_combinations_are_joined_inside_out():
  resolved = check(
    changed({'algorithm': 'scaffold+dynafed', 'compare': 'scaffold', 'client.optimizer': 'sgd'})
  )
  assert resolved.parts == ('scaffold', 'dynafed')
  check(changed({'algorithm': 'fedavg+scaffold', 'compare': 'fedavg', 'client.optimizer': 'sgd'}))


def test_every_field_has_help_and_the_config_is_locked():
  assert all(
    leaf.rules['help'] and '\n' not in leaf.rules['help'] for leaf in config_lib.leaves().values()
  )
  config = get_default()
  with pytest.raises(AttributeError):
    config.dynafed.lenght = 3
  assert config.seeds == (0,)


OVERRIDES = [
  ('rounds', '7', 7),
  ('client.lr', '1e-2', 0.01),
  ('client.lr', '2', 2.0),
  ('client.persistent', 'False', False),
  ('client.persistent', 'true', True),
  ('seeds', '(0,1,2)', (0, 1, 2)),
  ('seeds', '0,1,2', (0, 1, 2)),
  ('seeds', '1,', (1,)),
  ('seeds', '[4, 5]', (4, 5)),
  ('targets', '()', ()),
  ('data.name', 'digits', 'digits'),
  ('data.dir', '', ''),
  ('data.dir', '12', '12'),
  ('scaffold.option', '1', 1),
]


@pytest.mark.parametrize(('key', 'text', 'value'), OVERRIDES)
def test_override_reads_text_by_the_field_s_type(key, text, value):
  config = get_default()
  override(config, key, text)
  found = schema.flatten(config.to_dict())[key]
  assert found == value and type(found) is type(value)
  assert config.is_locked


@pytest.mark.parametrize(('key', 'text', 'line'), BAD_OVERRIDES)
def test_override_refuses_with_one_line(key, text, line):
  with pytest.raises(ConfigError) as refused:
    override(get_default(), key, text)
  assert str(refused.value).startswith(line)
  assert str(refused.value).isprintable() and len(str(refused.value)) < 5000


@given(st.one_of(st.text(max_size=12), st.integers().map(str), st.floats().map(repr)))
def test_whatever_the_text_an_int_field_holds_an_int_or_refuses(text):
  config = get_default()
  try:
    override(config, 'data.clients', text)
  except ConfigError as error:
    assert '\n' not in str(error) and str(error).startswith('data.clients=')
  assert type(config.data.clients) is int


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_the_command_line(value):
  config = get_default()
  override(config, 'client.lr', repr(value))
  assert config.client.lr == value


JUNK = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(),
  st.floats(),
  st.text(max_size=8),
  st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), max_size=3),
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(config_lib.leaves())), JUNK)
def test_whatever_a_field_holds_it_passes_or_is_refused_in_one_line_that_names_it(key, value):
  try:
    check(changed({key: value}))
  except ConfigError as error:
    assert '\n' not in str(error) and key.rpartition('.')[2] in str(error)


def test_json_comes_back_as_the_same_config():
  config = get_default()
  config.seeds, config.client.lr, config.targets = (3, 1), 0.25, (0.5, 0.75)
  assert check(json.loads(json.dumps(to_dict(config)))) == check(config)
  assert to_dict(check(config)) == to_dict(config)


def test_the_hash_knows_values_not_their_containers():
  a, b = changed({'seeds': (0, 1), 'client.lr': 1}), changed({'seeds': [0, 1], 'client.lr': 1.0})
  assert hash8(a) == hash8(b) == hash8(check(a))
  assert len(hash8(a)) == 8 and int(hash8(a), 16) >= 0
  assert hash8(changed({'seeds': (1, 0), 'client.lr': 1})) != hash8(a)


def test_the_hash_and_the_difference_ignore_the_blocks_of_unused_methods():
  used = {'algorithm': 'scaffold', 'client.optimizer': 'sgd'}
  a = changed(used)
  assert hash8(changed({**used, 'dynafed.iterations': 7})) == hash8(a)
  assert diff(a, changed({**used, 'dynafed.iterations': 7})) == []
  assert hash8(changed({**used, 'scaffold.option': 1})) != hash8(a)
  # A method used only in the comparison counts.
  both = {**used, 'compare': 'dynafed'}
  assert hash8(changed({**both, 'dynafed.iterations': 7})) != hash8(changed(both))


# Fields that change no result: where data and client state are kept, when to save, whom to tell.
NOT_OF_A_RUN = {
  'metrics',
  'keep_best',
  'data.dir',
  'data.trusted',
  'data.placement',
  'checkpoint_every',
  'keep_checkpoints',
  'layout.client_state_bytes',
  'trackers',
  'outside',
}


def test_a_field_of_a_later_version_leaves_hashes_as_they_were():
  added = [key for key, leaf in parsing.leaves().items() if leaf.rules.get('added')]
  assert 'client.clip_norm' in added
  before = {k: v for k, v in identity.identity(changed({})).items() if k not in added}
  text = json.dumps(before, sort_keys=True).encode()
  assert hash8(changed({})) == hashlib.sha256(text).hexdigest()[:8]
  assert hash8(changed({'client.clip_norm': 0.5})) != hash8(changed({}))


def test_every_field_in_use_that_changes_a_result_changes_the_hash():
  """Each number plus one (or halved where a share), each word another word: no two hashes agree."""
  base = check(get_default())
  flat, leaves = identity.settings_in_use(base), config_lib.leaves()
  other = {
    bool: lambda v: not v,
    int: lambda v: v + 1,
    float: lambda v: v / 2 + 1e-9,
    str: lambda v: v + '?',
  }
  other[list] = lambda v: [*v, 0.25]
  hashes = {hash8(base)}
  for key, value in flat.items():
    section, _, name = key.rpartition('.')
    choices = leaves[key].rules['choices']
    new = {name: next((c for c in choices or () if c != value), None)}
    if not choices or not isinstance(value, str):
      new = {name: other[type(value)](value)}
    if section in base.blocks:
      blocks = {**base.blocks, section: dataclasses.replace(base.blocks[section], **new)}
      changed_one = dataclasses.replace(base, blocks=blocks)
    elif section:
      inner = dataclasses.replace(getattr(base, section), **new)
      changed_one = dataclasses.replace(base, **{section: inner})
    else:
      # The hash of another algorithm also covers another block.
      changed_one = dataclasses.replace(base, **new)
    if key in NOT_OF_A_RUN:
      assert hash8(changed_one) == hash8(base), key
      assert diff(base, changed_one) == diff(to_dict(changed_one), base) == [], key
    hashes.add(hash8(changed_one))
  assert len(hashes) == len({*flat} - NOT_OF_A_RUN) + 1
  of_run = {*identity.identity(base)} - {*CONSTANTS}
  assert {*flat} | NOT_OF_A_RUN == of_run | NOT_OF_A_RUN


def test_diff_with_a_config_of_another_version_is_one_line():
  """The other config has an unknown field, or a value that is refused now.

  Fields of a method that is not in use are not listed.
  """
  for key, value, line in (
    ('client.colour', 'red', "client.colour: 'red' -> (absent)"),
    ('rounds', -1, 'rounds: -1 -> 200'),
    ('client.lr', 'fast', "client.lr: 'fast' -> 0.001"),
  ):
    assert diff(changed({key: value}), get_default()) == [line]
  assert diff(changed({'moon.temper': 1.0}), get_default()) == []
  stored = to_dict(check(get_default()))
  del stored['client']['weight_decay']  # a version that had no such field
  assert diff(stored, get_default()) == []


def test_diff_names_each_field_with_both_values():
  new = changed({'client.lr': 0.5, 'rounds': 30, 'seeds': (0, 1)})
  assert diff(get_default(), new) == [
    'rounds: 200 -> 30',
    'seeds: [0] -> [0, 1]',
    'client.lr: 0.001 -> 0.5',
  ]
  assert diff(new, new) == []
  lines = diff(changed({'algorithm': 'fedavg'}), get_default())
  assert "algorithm: 'fedavg' -> 'dynafed'" in lines and 'dynafed.length: (absent) -> 20' in lines


@pytest.mark.parametrize('kind', parsing.REGISTRIES)
def test_names_have_one_line_each(kind):
  found = config_lib.names(kind)
  assert found and all(name and '\n' not in line for name, line in found.items())


@pytest.mark.parametrize('name', FILES)
def test_every_config_file_passes_and_states_its_command(name):
  module = importlib.import_module(f'configs.{name}')
  config = module.get_config()
  assert config.is_locked
  check(config)
  assert f'python launch/main.py --config=configs/{name}.py' in module.__doc__


@pytest.mark.parametrize(
  'name', [n for n in FILES if n.startswith('dynafed_') and n != 'dynafed_digits']
)
def test_the_paper_s_settings(name):
  """Section 6 and Appendix B of the paper; Figure 5 and Table 1 for the images."""
  r = check(importlib.import_module(f'configs.{name}').get_config())
  assert (r.algorithm, r.compare, r.rounds, r.data.clients, r.client.participation) == (
    'dynafed',
    'fedavg',
    200,
    80,
    0.4,
  )
  assert (r.client.epochs, r.client.optimizer, r.client.lr) == (1, 'adam', 1e-3)
  d = r.dynafed
  assert (d.length, d.segment, d.targets, d.iterations) == (20, 5, 2, 1000)
  assert (d.image_lr, d.label_lr, d.images_per_class) == (5e-2, 5e-2, 15)


def test_cinic10_is_fine_tuned_at_a_rate_of_its_own():
  """METHODS 1.2: 20 passes over the 150 images in one batch, 2.5e-4; else CIFAR-10's settings."""
  names = ('dynafed_cifar10', 'dynafed_cinic10')
  other, r = (check(importlib.import_module(f'configs.{n}').get_config()) for n in names)
  assert (r.data.name, r.data.normalisation) == ('cinic10', 'cinic10')
  assert (r.dynafed.finetune_steps, r.dynafed.finetune_lr) == (20, 2.5e-4)
  assert r.model == other.model and r.client == other.client


def test_a_config_of_one_s_own_may_leave_fields_out_and_is_overridden_all_the_same():
  config = ml_collections.ConfigDict({'client': {'lr': 1}})
  override(config, 'client.lr', '0.5')  # an int in the file
  override(config, 'server.weighting', 'size')  # no such block in the file
  resolved = check(config)
  assert (resolved.client.lr, resolved.server.weighting) == (0.5, 'size')
  with pytest.raises(ConfigError, match='^client=3: must be a block of fields'):
    override(ml_collections.ConfigDict({'client': 3}), 'client.lr', '0.5')


def test_configs_that_cannot_be_read_are_refused():
  config = ml_collections.ConfigDict({'client': {}})
  config.client.inner = config
  with pytest.raises(ConfigError, match='^config: holds itself'):
    check(config)
  missing = ml_collections.config_dict.required_placeholder(int)
  with pytest.raises(ConfigError, match='^config: a required value is missing'):
    check(ml_collections.ConfigDict({'rounds': missing}))
