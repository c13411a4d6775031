"""The methods of `compare`: how they are written, their settings, and what cannot work."""

import dataclasses

import pytest

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.config import compared, files, identity, method_list
from fedjax_syn.config.method_list import Method
from tests.run_helpers import config_of


def check(compare, **changes):
  return config_lib.check(config_of(compare=compare, **changes))


@pytest.mark.parametrize(
  ('text', 'methods'),
  [
    ('', ()),
    ('fedavg', (Method('fedavg'),)),
    ('fedavg,scaffold+dynafed', (Method('fedavg'), Method('scaffold+dynafed'))),
    ('fedavg(), fedprox', (Method('fedavg'), Method('fedprox'))),
    (
      ' m:A ( a.x = (1,2) , client.schedule=exponential(0.9) ),~/my (1).py:B',
      (Method('m:A', (('a.x', '(1,2)'), ('client.schedule', 'exponential(0.9)'))),)
      + (Method('~/my (1).py:B'),),
    ),
    ('~/my(1).py:B(b.x=1)', (Method('~/my(1).py:B', (('b.x', '1'),)),)),
  ],
)
def test_a_list_of_methods_is_read(text, methods):
  assert method_list.read(text) == methods
  assert method_list.read(method_list.write(methods)) == methods


def test_a_list_is_stored_in_one_way():
  """Another spelling is the same run; one method without settings is stored as it always was."""
  spelt = ' scaffold ( client.lr = 5e-2 , client.epochs=2 ) , fedavg'
  resolved = check(spelt)
  assert resolved.compare == 'scaffold(client.epochs=2,client.lr=0.05),fedavg'
  assert identity.hash8(resolved) == identity.hash8(check(resolved.compare))
  assert identity.hash8(resolved) != identity.hash8(check('scaffold,fedavg'))
  assert identity.identity(check('fedavg'))['compare'] == 'fedavg'


def test_the_config_of_a_compared_method_is_that_of_a_run_of_it_alone():
  settings = {'client.lr': 0.05, 'client.optimizer': 'sgd', 'server.weighting': 'size'}
  settings |= {'fedprox.mu': 0.5}
  own = ','.join(f'{key}={value}' for key, value in settings.items())
  resolved = check(f'fedavg,fedprox({own}),fedprox+dynafed')
  found = [c.config for c in compared.configs(resolved)]
  alone = [{'algorithm': 'fedavg'}, {'algorithm': 'fedprox', **settings}]
  alone += [{'algorithm': 'fedprox+dynafed'}]
  assert found == [config_lib.check(config_of(**changes)) for changes in alone]
  assert resolved.client.lr == 0.001 and resolved.fedprox.mu != 0.5  # the run keeps its own


def test_a_shared_setting_that_only_a_compared_method_replaces_does_not_refuse_the_run():
  changes = {'algorithm': 'fedavg', 'dynafed.length': 100}
  with pytest.raises(config_lib.ConfigError, match='dynafed.length=100 must be smaller'):
    check('dynafed', **changes)
  (dynafed,) = compared.configs(check('dynafed(dynafed.length=2)', **changes))
  assert dynafed.config.dynafed.length == 2


def test_labels_and_folders_tell_methods_apart():
  resolved = check(
    'fedavg(client.lr=0.1),fedavg(client.schedule=exponential(0.9)),scaffold,dynafed(client.lr=0.1)'
  )
  assert compared.labels_of(resolved) == [
    'dynafed',
    'fedavg(client.lr=0.1)',
    'fedavg(client.schedule=exponential(0.9))',
    'scaffold',
    'dynafed(client.lr=0.1)',
  ]
  others = compared.configs(resolved)
  assert [other.name for other in others] == [
    'fedavg,client.lr=0.1',
    'fedavg,client.schedule=exponential,0.9',
    'scaffold',
    'dynafed',
  ]
  keys = 'epochs=2,batch_size=16,weight_decay=0.5,persistent=True,optimizer=adam,augment=none,lr='
  long = f'fedavg({",".join(f"client.{key}" for key in keys.split(","))}'
  names = [c.name for c in compared.configs(check(f'{long}1),{long}2)'))]
  assert len({*names}) == 2 and all(len(name) <= 110 for name in names)


@pytest.mark.parametrize(
  ('compare', 'line'),
  [
    ('fedavg,scafold', r"compare='scafold': unknown; nearest: scaffold"),
    ('fedavg,fedavg', r"compare='fedavg': is named twice; .* as in fedavg\(client.lr=0.1\)"),
    ('fedavg,fedavg(client.lr=0.001)', r"compare='fedavg\(client.lr=0.001\)': is named twice"),
    ('fedprox,fedavg+fedprox', r"compare='fedavg\+fedprox': is named twice"),
    ('fedavg,dynafed', r"compare='dynafed': is the algorithm itself; name another, or none"),
    ('dynafed(client.lr=1e-3)', r"'dynafed\(client.lr=0.001\)': is the algorithm itself"),
    ('fedavg,', r"compare='fedavg,': a method is missing"),
    ('(client.lr=1)', r"compare='\(client.lr=1\)': a method is missing"),
    ('fedavg(client.lr=1', r"compare='fedavg\(client.lr=1': its parentheses do not match"),
    ('fedavg)', r"compare='fedavg\)': its parentheses do not match"),
    ('fedavg(0.1)', r"compare='fedavg\(0.1\)': '0.1' is no setting; write fedavg\(client.lr=0.1\)"),
    ('dynafed(scaffold)', r"'scaffold' is no setting; write .*, or scaffold\+dynafed"),
    ('fedavg(lr=0.1)', r"compare='fedavg\(lr=0.1\)': lr='0.1': no such field; nearest: client.lr"),
    ('scaffold(lr=0.1)', "lr='0.1': no such field; nearest: client.lr$"),
    ('fedcog(lr=0.1)', "lr='0.1': no such field; nearest: client.lr$"),
    ('fedavg(client.lr=x)', r"compare='fedavg\(client.lr=x\)': client.lr='x': must be a number"),
    ('fedavg(client.lr=-1)', r'client.lr=-1.0: must be greater than 0'),
    ('fedavg(client.lr=1,client.lr=2)', r'client.lr is given twice'),
    ('fedavg(data.alpha=1)', r'data.alpha is no setting of one method; client.\*, server.\* are'),
    ('fedavg(client.participation=1)', r'client.participation is no setting of one method'),
    ('scaffold(fedprox.mu=1)', r'fedprox.mu is no .*; client.\*, server.\*, scaffold.\* are'),
    ('fednova(client.lr=1)', r"compare='fednova\(client.lr=1.0\)': .*'fednova' needs SGD"),
    ('abavg(client.lr=1)', r"compare='abavg\(client.lr=1.0\)': .*needs server data"),
  ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(compare, line):
  with pytest.raises(config_lib.ConfigError, match=line) as refused:
    check(compare)
  assert str(refused.value).isprintable()


def test_a_method_may_be_compared_with_itself_under_other_settings():
  resolved = check('fedavg(client.lr=0.1),fedavg(client.lr=0.2)', algorithm='fedavg')
  methods = [resolved, *(other.config for other in compared.configs(resolved))]
  rates = [algorithms.create(m.algorithm, m).local.lr for m in methods]
  assert rates == [0.001, 0.1, 0.2]


def test_what_depends_on_the_rounds_is_found_in_compared_methods_too():
  resolved = check('fedavg(client.schedule=cosine)')
  assert identity.depends_on_rounds(resolved) == ["client.schedule='cosine'"]
  assert identity.depends_on_rounds(dataclasses.replace(resolved, compare='fedavg')) == []


def test_a_compared_method_asked_for_by_name_is_trained_alone_with_its_settings(tmp_path):
  file = tmp_path / 'three.py'
  file.write_text(
    'from fedjax_syn.config import get_default\n'
    'def get_config():\n'
    '  config = get_default()\n'
    "  config.compare = 'fedavg,scaffold(client.lr=0.5,client.epochs=2)'\n"
    '  return config\n'
  )
  load = lambda *settings: config_lib.check(files.load_config(str(file), settings))
  scaffold = load('--config.client.lr=0.25', '--config.algorithm=scaffold')
  assert (scaffold.compare, scaffold.client.lr, scaffold.client.epochs) == ('', 0.25, 2)
  alone = load('--config.algorithm=scaffold')
  assert alone == compared.configs(load())[1].config
  assert load('--config.algorithm=fedprox').compare == load().compare


def test_methods_of_a_user_s_own_are_compared_with_their_settings(tmp_path):
  file = tmp_path / 'own_compared.py'
  file.write_text('import fedjax_syn as fs\nclass Mine(fs.Layer):\n  mu: float = fs.field(0.1)\n')
  config = config_lib.get_default()
  config_lib.override(config, 'compare', f'fedavg,{file}:Mine+scaffold(mine.mu=0.5)')
  config.algorithm = 'fedprox'
  resolved = config_lib.check(config)
  _, own = compared.configs(resolved)
  assert own.config.mine.mu == 0.5 and own.name == 'own_compared.py.Mine+scaffold'
  assert identity.identity(resolved)['compare'] == (
    'fedavg,own_compared.py:Mine+scaffold(mine.mu=0.5)'
  )
  assert 'own_compared.py:Mine' in identity.own_code(resolved)
