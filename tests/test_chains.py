"""Chains: what is composed, what is refused and with which line, JSON and pickle."""

import json
import pickle

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.core import contexts
from fedjax_syn.core.privacy import Sampling


class Local(fs.Layer):
  strength: float = fs.field(default=0.5, help='a number')
  sizes: tuple[int, ...] = fs.field(default=(1, 2), help='a tuple')
  ceiling: float | None = fs.field(default=None, help='absent or a number')

  def loss(self, client, loss_fn, w, step):
    return loss_fn(w, step)


class Replaces(fs.Layer):
  def aggregate(self, round):
    return round.params, {}

  def provides(self):
    return frozenset({'aggregate only'})


class Sends(fs.Layer):
  def client_update(self, client):
    raise NotImplementedError


class Idle(Sends):
  def loss(self, client, loss_fn, w, step):
    return loss_fn(w, step)


class Looks(fs.Layer):
  def requires(self):
    return frozenset({'individual updates'})


class Hides(fs.Layer):
  def private(self, model, path):
    return True


class Sgd(fs.Layer):
  def requires(self):
    return frozenset({'sgd'})


class Momentum(fs.Layer):
  def requires(self):
    return frozenset({'momentum'})


class Unknown(fs.Layer):
  def requires(self):
    return frozenset({'wings'})


class Picky(fs.Layer):
  def conflicts(self):
    return {
      'replaces': 'picky and replaces: use local',
      'local inside': 'picky cannot come after local',
      'looks+hides': '',
    }


class Early(fs.Layer):
  def inside_of(self):
    return {'local': 'since it says so', 'private parameters': ''}


class Checks(fs.Layer):
  def check(self):
    raise ValueError('checks.x=1: must be 2')


class Phases(fs.Layer):
  def phases(self):
    return (3, 9)

  def pauses(self):
    return (5, 9)

  def resolve(self, run):
    if run.rounds < 9:
      raise ValueError(f'phases: rounds={run.rounds} must be at least 9')
    return self


def test_layers_are_composed_from_the_inside_out_and_fedavg_is_understood():
  method = fs.chain(Local(), fs.chain(fs.FedAvg(lr=0.5), Phases()).layers[1], Replaces())
  assert method.name == 'local+phases+replaces' and len(method) == 4
  assert [layer.name for layer in method] == ['fedavg', 'local', 'phases', 'replaces']
  assert method.layers[0] == fs.FedAvg() and fs.chain().name == 'fedavg'
  assert fs.chain(fs.chain(fs.FedAvg(lr=0.5), Local()), Phases()).local.lr == 0.5
  assert method[Local].strength == 0.5 and Local in method and Looks not in method
  with pytest.raises(KeyError, match='Looks'):
    _ = method[Looks]
  assert method.phases == (3, 9) and method.stops == (3, 5, 9)
  assert [method.first_round(done) for done in (0, 2, 3, 8, 9)] == [1, 1, 4, 4, 10]


REFUSED = [
  (
    (Local(), Local()),
    "algorithm='local+local': 'local' is given twice; each layer can be used once",
  ),
  (
    (Local(), Sends()),
    "'sends' cannot come after 'local': its clients send data and train no model",
  ),
  ((Sends(), Local()), "'local' changes local training, but 'sends' does not train locally"),
  ((Idle(),), "'idle' replaces local training by client_update, so that its loss is not called"),
  (
    (Replaces(), type('Other', (Replaces,), {})()),
    "'other' cannot come after 'replaces': both replace the aggregation",
  ),
  ((Sends(), Looks()), "'looks' looks at each client's model, but 'sends' sends none"),
  ((Looks(), Sends()), "'looks' looks at each client's model, but 'sends' sends none"),
  ((Replaces(), Looks()), "'looks' and 'replaces' do not go together: one looks at each client's"),
  ((Looks(), Hides()), "'looks' and 'hides' do not go together: one looks at each client's"),
  ((Sgd(),), "'sgd' needs SGD with momentum below 1 (client.optimizer=sgd)"),
  ((Momentum(),), "'momentum' needs SGD with momentum"),
  ((Unknown(),), "'unknown' requires 'wings', which is none of local training, sgd"),
  ((Picky(), Replaces()), 'picky and replaces: use local'),
  ((Replaces(), Picky()), 'picky and replaces: use local'),
  ((Local(), Picky()), 'picky cannot come after local'),
  ((Local(), Early()), "'early' cannot come after 'local', since it says so; use early+local"),
  ((Hides(), Early()), "'early' cannot come after 'hides'; use early+hides"),
  ((Checks(),), 'checks.x=1: must be 2'),
  ((Local(), fs.FedAvg()), 'chain: fs.FedAvg must come first'),
  ((Local,), "chain: <class 'tests.test_chains.Local'> is no layer: call it, as in"),
  ((None,), 'chain: None is no layer: it must be a layer, as in'),
]


@pytest.mark.parametrize(('layers', 'line'), REFUSED, ids=[line[:60] for _, line in REFUSED])
def test_what_cannot_be_combined_is_refused_in_one_line(layers, line):
  with pytest.raises(ValueError) as refused:
    fs.chain(*layers)
  assert line in str(refused.value) and '\n' not in str(refused.value)


@pytest.mark.parametrize(
  'layers',
  [
    (fs.FedAvg(optimizer='sgd'), Sgd()),
    (fs.FedAvg(optimizer='sgd', momentum=0.9), Momentum()),
    (Picky(), Local()),
    (Early(), Local(), Hides()),
    (Looks(), Local()),
    (Sends(), Replaces()),
  ],
  ids=lambda layers: '+'.join(layer.name for layer in layers),
)
def test_what_goes_together_is_not_refused(layers):
  assert fs.chain(*layers).layers[-len(layers) :] == layers


def test_replace_gives_another_chain_and_checks_it():
  method = fs.chain(Local(), fs.FedProx(mu=0.1))
  other = method.replace(fedavg={'lr': 0.5}, fedprox={'mu': 0.2})
  assert (other.local.lr, other[fs.FedProx].mu, method[fs.FedProx].mu) == (0.5, 0.2, 0.1)
  with pytest.raises(
    ValueError, match="'moon' is no layer of 'local\\+fedprox': fedavg, local, fedprox"
  ):
    method.replace(moon={'mu': 1.0})
  with pytest.raises(ValueError, match='fedprox.mu=-1.0: must be at least 0'):
    method.replace(fedprox={'mu': -1})


def test_resolve_asks_every_layer():
  run = lambda rounds: contexts.Run(rounds, Sampling('fixed', 4, 1.0, rounds), ('phases',))
  method = fs.chain(Local(), Phases())
  assert method.resolve(run(9)) == method
  with pytest.raises(ValueError, match='rounds=8 must be at least 9'):
    method.resolve(run(8))


def test_equal_numbers_of_any_type_are_one_program():
  structure = lambda method: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), method.traced())
  one, other = fs.chain(fs.FedProx(mu=0.1)), fs.chain(fs.FedProx(mu=np.float64(7)))
  assert structure(one) == structure(other)


def test_a_chain_is_written_as_it_is_made():
  method = fs.chain(fs.FedAvg(lr=0.5), Local(sizes=(3,)), fs.FedProx())
  assert repr(method) == 'chain(FedAvg(lr=0.5), Local(sizes=(3,)), FedProx())'


METHOD = fs.chain(
  fs.FedAvg(lr=0.5, optimizer='sgd'), Local(sizes=(3,), ceiling=2.0), fs.FedProx(mu=0.1)
)


def test_json_comes_back_as_the_same_chain():
  rows = json.loads(json.dumps(algorithms.to_json(METHOD)))
  assert [row['layer'] for row in rows] == ['fedavg', 'tests.test_chains:Local', 'fedprox']
  assert algorithms.from_json(rows, trusted=True) == METHOD
  on_devices = METHOD.traced()
  assert (
    algorithms.from_json(json.loads(json.dumps(algorithms.to_json(on_devices))), trusted=True)[
      Local
    ].ceiling
    == 2.0
  )


def test_pickle_comes_back_as_the_same_chain():
  assert pickle.loads(pickle.dumps(METHOD)) == METHOD
  assert hash(pickle.loads(pickle.dumps(METHOD))) == hash(METHOD)


@pytest.mark.parametrize('name', sorted(algorithms.LAYERS))
def test_every_method_comes_back_from_json_and_pickle(name):
  layer = algorithms.LAYERS[name]()
  method = with_sgd(layer)
  rows = json.loads(json.dumps(algorithms.to_json(method)))
  assert rows[-1]['layer'] == name and pickle.loads(pickle.dumps(method)) == method
  assert algorithms.from_json(rows) == method


def with_sgd(layer):
  """A method with the layer; SGD, which some need."""
  return fs.chain(
    layer if layer.name == 'fedavg' else fs.FedAvg(optimizer='sgd', lr=0.1),
    *([layer] * (layer.name != 'fedavg')),
  )


@pytest.mark.parametrize(
  ('rows', 'line'),
  [
    ({}, 'chain: {}: must be a list of'),
    ([3], r'chain: \[3\]: must be a list of'),
    ([{'layer': 'fedprox'}], 'must be a list of'),
    ([{'layer': 'no_such', 'fields': {}}], "'no_such' is unknown; known: abavg"),
    ([{'layer': 'fedprox', 'fields': {'my': 1}}], 'fedprox.my: no such field; known: mu'),
    ([{'layer': 'fedprox', 'fields': {'mu': 'x'}}], "fedprox.mu='x': must be a number"),
    ([{'layer': 'fedprox', 'fields': {}}] * 2, "'fedprox' is given twice"),
    ([{'layer': 'evil_of_a_chain:F', 'fields': {}}], 'names code.*trusted=True'),
    ([{'layer': 'evil_of_a_chain.py:F', 'fields': {}}], 'names code.*trusted=True'),
  ],
)
def test_rows_that_are_no_chain_are_one_line_and_import_nothing(rows, line, tmp_path, monkeypatch):
  trace = tmp_path / 'imported'
  (tmp_path / 'evil_of_a_chain.py').write_text(f'open({str(trace)!r}, "w")\n')
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match=line) as refused:
    algorithms.from_json(rows)
  assert '\n' not in str(refused.value) and not trace.exists()


def test_a_class_that_no_file_has_is_not_written():
  inner = type('Inner', (fs.Layer,), {'__qualname__': 'f.<locals>.Inner'})
  with pytest.raises(ValueError, match='written in no file'):
    algorithms.to_json(fs.chain(inner()))


def test_the_blocks_of_a_config_are_the_fields_of_layers():
  for name, layer in algorithms.LAYERS.items():
    keys = {key for key in config_lib.leaves() if key.startswith(f'{name}.')}
    if name != 'fedavg':
      assert keys == {f'{name}.{field}' for field in layer.__dataclass_fields__}
  own = {key.partition('.')[2] for key in config_lib.leaves() if key.startswith('client.')}
  assert {*fs.FedAvg.__dataclass_fields__} - {'weighting'} == own - {'participation', 'sampler'}
