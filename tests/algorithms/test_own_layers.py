"""A user's own layers, from modules and files, alone and in configs.

Spellings of versions before 0.2 as well.
"""

import json
import pathlib
import pickle
import subprocess
import sys

import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.algorithms import own_layers
from fedjax_syn.config import ConfigError, check, get_default, override, to_dict
from fedjax_syn.config.identity import diff
from tests.config.test_config import changed

OWN = """
import fedjax_syn as fs

class {name}(fs.Layer):
  mu: float = fs.field({default}, 'a number')

class Outer:
  class Inner(fs.Layer):
    pass

def proximal(base, mu=0.1):
  return base

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
  """Two files of one name, and a module of that name."""
  for folder, default in (('a', 1.0), ('b', 2.0)):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'own_of_chains.py').write_text(OWN.format(name='FedProx', default=default))
  monkeypatch.syspath_prepend(tmp_path / 'a')
  monkeypatch.chdir(tmp_path / 'b')
  yield tmp_path
  sys.modules.pop('own_of_chains', None)


def test_own_layers_come_from_modules_and_files(own):
  by_module = algorithms.layer_class('own_of_chains:FedProx')
  here = algorithms.layer_class('own_of_chains.py:FedProx')
  there = algorithms.layer_class(f'{own}/a/own_of_chains.py:FedProx')
  assert [cls().mu for cls in (by_module, here, there)] == [1.0, 2.0, 1.0]
  assert algorithms.layer_class('../b/own_of_chains.py:FedProx') is here
  assert algorithms.layer_class('fedprox') is fs.FedProx
  for cls, word in (
    (by_module, 'own_of_chains:FedProx'),
    (here, f'{own}/b/own_of_chains.py:FedProx'),
  ):
    method = fs.chain(cls(mu=7.0))
    assert method.name == 'fedprox' and algorithms.word_of(cls) == word
    rows = json.loads(json.dumps(algorithms.to_json(method)))
    assert rows[-1] == {'layer': word, 'fields': {'mu': 7.0}}
    assert algorithms.from_json(rows, trusted=True) == method
    assert pickle.loads(pickle.dumps(method)) == method


def test_a_file_comes_back_from_json_in_another_process(own):
  method = fs.chain(algorithms.layer_class('own_of_chains.py:FedProx')(mu=7.0))
  (own / 'rows.json').write_text(json.dumps(algorithms.to_json(method)))
  code = (
    'import json, sys; from fedjax_syn import algorithms;'
    f'print(algorithms.from_json(json.load(open({str(own / "rows.json")!r})), trusted=True))'
  )
  root = str(pathlib.Path(__file__).parents[2])
  done = subprocess.run([sys.executable, '-c', code], cwd=root, capture_output=True, text=True)
  assert done.stdout == 'chain(FedAvg(), FedProx(mu=7.0))\n', done.stderr


@pytest.mark.parametrize(
  ('word', 'line'),
  [
    (
      'own_of_chains:proximal',
      'is a function, and a method is a class since version 0.2: write class Proximal',
    ),
    ('own_of_chains.py:proximal', 'is a function, and a method is a class since version 0.2'),
    ('own_of_chains:number', 'is no subclass of fedjax_syn.Layer'),
    ('own_of_chains:Outer', 'is no subclass of fedjax_syn.Layer'),
    ('own_of_chains:Missing', "own_of_chains has no class 'Missing'"),
    ('no_such_module_here:X', "cannot be imported (No module named 'no_such_module_here')"),
    ('no_such_file.py:X', '/b/no_such_file.py)'),
    ('~no_such_user/file.py:X', 'there is no file'),
    ('.py:X', 'cannot be imported'),
  ],
)
def test_what_is_no_layer_is_refused_in_one_line(own, word, line):
  with pytest.raises(ValueError) as refused:
    own_layers.load(word)
  assert line in str(refused.value) and str(refused.value).startswith(f"'{word}': ")
  assert '\n' not in str(refused.value)


def test_a_file_that_fails_says_so_and_can_be_mended(tmp_path):
  path = tmp_path / 'mended_of_chains.py'
  path.write_text('import no_such_module_here\n')
  with pytest.raises(ValueError, match="inside it: No module named 'no_such_module_here'"):
    own_layers.load(f'{path}:FedProx')
  path.write_text(OWN.format(name='FedProx', default=1.0))
  assert own_layers.load(f'{path}:FedProx')().mu == 1.0


OUTSIDE = '''
"""A method from outside."""
import fedjax_syn as fs

class Mine(fs.Layer):
  strength: float = fs.field(0.5, 'how much', low=0.0)
  wanted: int = fs.field(5, 'rounds wanted', low=1)

  def resolve(self, run):
    if self.wanted > run.rounds:
      raise ValueError(f'mine.wanted={self.wanted} must not exceed rounds={run.rounds}')
    return self

class FedProx(fs.Layer):
  pull: float = fs.field(0.5, 'how much', low=0.0)

class Data(fs.Layer):
  pass
'''


@pytest.fixture(
  params=[
    'outside_method',
    'outside_method.py',
    './outside_method.py',
    '~/outside_method.py',
    'path',
  ]
)
def outside(request, tmp_path, monkeypatch):
  path = tmp_path / 'outside_method.py'
  path.write_text(OUTSIDE)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.syspath_prepend(tmp_path)
  yield f'{path if request.param == "path" else request.param}:Mine'
  sys.modules.pop('outside_method', None)


def test_a_method_outside_the_package_brings_its_fields_along(outside):
  config = get_default()
  override(config, 'algorithm', f'{outside}+dynafed')
  override(config, 'mine.strength', '2')
  resolved = check(config)
  assert resolved.mine.strength == 2.0 and resolved.mine.wanted == 5
  assert check(json.loads(json.dumps(to_dict(config)))) == resolved
  assert get_default(outside).mine.wanted == 5
  # The block counts while it is used, and only then.
  weaker = json.loads(json.dumps(to_dict(config))) | {'mine': {'strength': 1.0}}
  assert diff(config, weaker) == ['mine.strength: 2.0 -> 1.0']
  assert diff(json.loads(json.dumps(to_dict(config))) | {'algorithm': 'dynafed'}, changed({})) == []
  with pytest.raises(ConfigError, match='mine.strength=-1.0: must be at least 0.0'):
    override(config, 'mine.strength', '-1')
    check(config)


def test_a_method_s_own_check_sees_the_rounds(outside):
  config = get_default(outside)
  config.algorithm, config.rounds = outside, 4
  with pytest.raises(ConfigError, match='mine.wanted=5 must not exceed rounds=4'):
    check(config)
  config.algorithm = 'fedavg'  # the check of an unused method is not asked, but its block may stay
  assert check(config).mine.wanted == 5


def test_a_class_may_have_the_name_of_a_method_and_its_block_then_is_its_own(outside):
  own = outside.replace(':Mine', ':FedProx')
  config = get_default()
  override(config, 'algorithm', own)
  override(config, 'fedprox.pull', '2')
  assert check(config).fedprox.pull == 2.0 and check(
    json.loads(json.dumps(to_dict(config)))
  ) == check(config)
  with pytest.raises(ConfigError, match=f'fedprox.mu.*{own} has no such field; it has pull'):
    override(config, 'fedprox.mu', '1')
  for key, word, other in (('algorithm', f'fedprox+{own}', ''), ('compare', own, 'fedprox')):
    both = changed({'algorithm': other or 'dynafed', key: word})
    with pytest.raises(ConfigError, match=f"^{key}=.*both have the block 'fedprox'; rename"):
      check(both)
  config = get_default()
  config.algorithm = own  # in a file: the block in it is the package's still
  assert check(config).fedprox.pull == 0.5
  override(config, 'algorithm', 'fedprox')  # the package's again, with its own fields
  assert check(config).fedprox.mu == 0.01 and check(config).outside == ()


def test_a_class_cannot_have_the_name_of_another_part_of_the_config(outside):
  with pytest.raises(ConfigError, match="^algorithm='.*:Data': 'data', the name of its block"):
    override(get_default(), 'algorithm', outside.replace(':Mine', ':Data'))


@pytest.mark.parametrize(
  ('code', 'says'),
  [
    ('fs.dynafed', r'the class fs.DynaFed now: fs.chain\(fs.DynaFed\(...\)\)'),
    ('fs.fedavg', 'the class fs.FedAvg now'),
    ('fs.build', 'the class fs.Engine now'),
    ('fs.Method', 'fs.Chain now'),
    ('from fedjax_syn import dynafed', 'the class fs.DynaFed now'),
    ('from fedjax_syn.algorithms.moon import moon', 'the class fedjax_syn.MOON now'),
    ('from fedjax_syn.algorithms.fedprox import Config', 'the class fedjax_syn.FedProx now'),
    ('from fedjax_syn.method import Method', 'fedjax_syn.core.contexts now'),
    ('import fedjax_syn.keys', 'fedjax_syn.core.keys now'),
    ('from fedjax_syn import hosts', 'fedjax_syn.core.processes now'),
    ('from fedjax_syn.synthesis import trajectory', 'fedjax_syn.algorithms now'),
  ],
)
def test_old_spellings_say_the_new_ones(code, says):
  with pytest.raises(ImportError, match=says) as refused:
    exec(code, {'fs': fs})
  assert '\n' not in str(refused.value)


def test_what_never_was_is_no_attribute():
  assert not hasattr(fs, 'nothing') and not hasattr(algorithms, 'nothing')
  assert not hasattr(sys.modules['fedjax_syn.algorithms.fedprox'], 'nothing')
  assert not hasattr(object.__new__(fs.Engine), 'nothing')
