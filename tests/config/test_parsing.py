"""The Python entrance refuses what the command line refuses, in one line and before any work."""

import dataclasses

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.config.parsing import from_arguments
from fedjax_syn.data import checks, datasets
from fedjax_syn.engine import Layout
from fedjax_syn.runs import api
from tests import tiny

NAN = float('nan')


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
  """Whatever is not refused ends where an engine would be built."""

  def build(method, model, data, **_):
    raise AssertionError('was not refused')

  monkeypatch.setattr(api.engine_lib, 'Engine', build)


def run(method=None, dataset='digits', model='mlp', **more):
  return api.run(method or fs.FedAvg(), dataset, model, **{'rounds': 2, 'clients': 4, **more})


@pytest.mark.parametrize(
  ('given', 'line'),
  [
    ({'participation': 2.0}, 'participation=2.0: must be at most 1'),
    ({'participation': 0}, 'participation=0.0: must be greater than 0'),
    ({'participation': NAN}, 'participation=nan: must be a finite number'),
    ({'participation': True}, 'participation=True: must be a number'),
    ({'participation': '0.5'}, "participation='0.5': must be a number"),
    ({'participation': 0.1}, 'participation=0.1: is less than one of clients=4; at least 0.25'),
    ({'seeds': 3}, 'seeds=3: must be a tuple'),
    ({'seeds': '01'}, "seeds='01': must be a tuple"),
    ({'seeds': ()}, 'seeds=(): must be one or more distinct integers'),
    ({'seeds': (1, 0, 1)}, 'seeds=(1, 0, 1): must be one or more distinct integers'),
    ({'seeds': (2**40,)}, f'seeds={2**40}: must be at most {2**31 - 1}'),
    ({'seeds': (-1,)}, 'seeds=-1: must be at least 0'),
    ({'seeds': (0.5,)}, 'seeds=0.5: must be an integer'),
    ({'rounds': 2.5}, 'rounds=2.5: must be an integer'),
    ({'rounds': NAN}, 'rounds=nan: must be an integer'),
    ({'rounds': '2'}, "rounds='2': must be an integer"),
    ({'rounds': True}, 'rounds=True: must be an integer'),
    ({'rounds': 0}, 'rounds=0: must be at least 1'),
    ({'clients': 2.0}, 'clients=2.0: must be an integer'),
    ({'clients': 10**9}, 'clients=1000000000: must be at most 10000000'),
    ({'alpha': 0}, 'alpha=0.0: must be greater than 0'),
    ({'alpha': NAN}, 'alpha=nan: must be a finite number'),
    ({'eval_every': 0}, 'eval_every=0: must be at least 1'),
    ({'eval_every': 1.5}, 'eval_every=1.5: must be an integer'),
    ({'personal_every': -1}, 'personal_every=-1: must be at least 0'),
    (
      {'personal_every': 3, 'eval_every': 2},
      'personal_every=3: must be a multiple of eval_every=2',
    ),
    ({'partition_seed': 2**40}, f'partition_seed={2**40}: must be at most'),
    ({'partition': None}, 'partition=None: must be a string'),
    ({'partition': 'x'}, "data.partition = 'x' is none of"),
    ({'layout': {'lanes': 1}}, 'must be a Layout, not dict'),
    ({'layout': Layout(lanes=-1)}, 'layout.lanes=-1: must be at least 0'),
    ({'layout': Layout(seeds=0)}, 'layout.seeds=0: must be at least 1'),
    (
      {'layout': Layout(client_state_bytes=2.5)},
      'layout.client_state_bytes=2.5: must be an integer',
    ),
    ({'layout': Layout(form='x')}, "layout.form='x': unknown"),
    ({'method': 'fedavg'}, "method='fedavg': must be a chain of layers, as in fs.chain(fs."),
    ({'method': fs.FedProx}, 'must be a chain of layers, as in fs.chain(FedProx())'),
    ({'model': None}, 'model=None: must be a Model or the name of one'),
    ({'dataset': (0, 1)}, 'dataset: got tuple instead of a fedjax_syn.data.datasets.Dataset'),
    ({'data_dir': 3}, 'data_dir=3: must be a string'),
  ],
)
def test_what_the_command_line_refuses_is_refused_from_python(given, line):
  with pytest.raises(ValueError) as refused:
    run(**given)
  message = str(refused.value)
  assert line in message and '\n' not in message


def test_numbers_of_numpy_ranges_and_paths_are_taken(tmp_path):
  fields = api.FIELDS
  given = {'rounds': np.int64(3), 'seeds': np.arange(2), 'participation': np.float32(0.5)}
  assert from_arguments(fields, given) == {'rounds': 3, 'seeds': (0, 1), 'participation': 0.5}
  assert from_arguments(fields, {'seeds': range(3)}) == {'seeds': (0, 1, 2)}
  assert from_arguments(fields, {'data_dir': tmp_path}) == {'data_dir': str(tmp_path)}
  assert type(from_arguments(fields, {'seeds': [np.int32(1)]})['seeds'][0]) is int


DATA = datasets.load('digits')
MORE = 5 + DATA.train.y


@pytest.mark.parametrize(
  ('changes', 'line'),
  [
    ({'train': DATA.train._replace(y=MORE)}, 'dataset, train: labels must lie in 0..9, got 5..14'),
    ({'test': DATA.test._replace(y=5 + DATA.test.y)}, 'dataset, test: labels must lie in 0..9'),
    ({'train': DATA.train._replace(y=DATA.train.y - 1)}, 'labels must lie in 0..9, got -1..8'),
    ({'num_classes': 5}, 'dataset, train: labels must lie in 0..4'),
    ({'num_classes': 10.0}, 'num_classes=10.0: must be an integer'),
    ({'num_classes': 0}, 'num_classes=0: must be an integer, at least 1'),
    ({'test': datasets.Split(*(a[:0] for a in DATA.test))}, 'dataset, test: x is empty'),
    ({'train': datasets.Split(*(a[:0] for a in DATA.train))}, 'dataset, train: x is empty'),
    ({'train': DATA.train._replace(y=DATA.train.y[:-3])}, '1198 rows in x, but 1195 labels'),
    (
      {'test': DATA.test._replace(x=np.zeros((599, 4, 4, 1), np.uint8))},
      'test: x is [599, 4, 4, 1], but that of train [1198, 8, 8, 1]',
    ),
    (
      {'train': DATA.train._replace(x=DATA.train.x[..., 0])},
      'x must be images (uint8 [n, height, width',
    ),
    ({'train': DATA.train._replace(y=np.eye(10, dtype=int)[DATA.train.y])}, 'labels are 1-d'),
    ({'validation': DATA.test._replace(y=MORE[:599])}, 'dataset, validation: labels must lie'),
    (
      {'proxy': DATA.test._replace(x=DATA.test.x[:, :4])},
      'proxy: x is [599, 4, 8, 1], but that of train',
    ),
    ({'clients': np.zeros(3, np.int32)}, 'clients must be one number for each of the 1198 rows'),
    (
      {'test_domains': np.zeros(3, np.int32)},
      'test_domains must be one number for each of the 599',
    ),
    ({'class_names': ('a', 'b')}, '2 class_names for 10 classes'),
    ({'clients': np.array(list('ab') * 599)}, 'clients must be integers from 0 on, got <U1'),
    ({'clients': np.arange(1198) / 2}, 'clients must be integers from 0 on, got float64'),
    ({'clients': np.arange(1198) - 1}, 'clients must be 0 or more, and one is -1'),
    ({'test_clients': np.arange(599) - 2}, 'test_clients must be -1 or more, and one is -2'),
    (
      {'clients': np.arange(1198) % 4, 'client_names': ('a', 'b')},
      '2 client_names, and one of clients is 3',
    ),
  ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(changes, line):
  with pytest.raises(ValueError) as refused:
    run(dataset=dataclasses.replace(DATA, **changes))
  assert line in str(refused.value) and '\n' not in str(refused.value)


def test_what_is_probably_meant_otherwise_is_said():
  x = np.arange(8 * 3, dtype=np.uint8).reshape(3, 1, 1, 8).repeat(8, 2)  # [3, 1, 8, 8]
  one_hot = datasets.Split(x, np.eye(3, dtype=int))
  given = dataclasses.replace(
    DATA, train=one_hot, test=one_hot, num_classes=3, normalisation='unit'
  )
  order, labels = checks.check(given, 'dataset').notes[-2:]
  assert order == (
    'x is [3, 1, 8, 8], which looks like channels first; wanted is [n, height, width, channels]:'
    ' np.transpose(x, (0, 2, 3, 1)); it is read as it is'
  )
  assert labels.endswith('of which each has one; y.argmax(axis=1) if they are classes')
  assert checks.doubts(DATA) == ()
  known = DATA.train.y < 8
  without = dataclasses.replace(
    DATA, train=datasets.Split(DATA.train.x[known], DATA.train.y[known])
  )
  assert checks.doubts(without) == ('classes 8, 9 have test rows and no training rows',)
  with pytest.warns(UserWarning, match='channels first'), pytest.raises(ValueError):
    run(dataset=given, model='no such model')


def test_no_row_is_no_division_by_zero():
  empty = datasets.Split(DATA.train.x[:0], DATA.train.y[:0])
  with pytest.raises(ValueError, match='train: x is empty'):
    dataclasses.replace(DATA, train=empty, normalisation='auto')


def test_labels_of_a_proxy_may_mean_nothing():
  unlabelled = DATA.test._replace(y=np.full(599, -1, np.int32))
  checked = checks.check(dataclasses.replace(DATA, proxy=unlabelled), 'dataset')
  assert (checked.proxy.y == -1).all()


@pytest.mark.parametrize(
  ('changes', 'line'),
  [
    ({'normalisation': 0.5}, 'normalisation=0.5 must be Normalisation(name, mean, std), or one of'),
    ({'train': None}, 'train must be a Split(x, y), got NoneType'),
    ({'test': (DATA.test.x, DATA.test.y)}, 'test must be a Split(x, y), got tuple'),
  ],
)
def test_a_data_set_of_other_parts_cannot_be_made(changes, line):
  with pytest.raises(ValueError) as refused:
    dataclasses.replace(DATA, **changes)
  assert line in str(refused.value)


@pytest.mark.parametrize(
  ('given', 'line'),
  [
    ({'seed': 2**40}, 'data.seed=1099511627776: must be at most'),
    ({'seed': 0.5}, 'data.seed=0.5: must be an integer'),
    ({'proxy_share': 0.0, 'proxy': 'held_out'}, 'data.proxy_share=0.0: must be greater than 0'),
    ({'validation': '0.1'}, 'data.validation=0.1 must lie in'),
    ({'size': -1}, 'data.size=-1: must be at least 0'),
    ({'data_dir': 3}, 'data.dir=3: must be a string'),
  ],
)
def test_loading_checks_its_arguments(given, line):
  with pytest.raises(ValueError) as refused:
    datasets.load('digits', **given)
  assert line in str(refused.value)


def engine_of(*layers, rounds=0, **fields):
  method = fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', **fields), *layers)
  return tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), rounds=rounds)


@pytest.mark.parametrize('layers', [(), (fs.FedProx(),), (fs.SCAFFOLD(),)])
def test_a_cosine_ends_with_the_run_that_it_is_used_in(layers):
  """(1 + cos(pi (r - 1) / R)) / 2 for rounds r = 1..R, and not 0 from round 2 on."""
  rounds = 6
  task = engine_of(*layers, schedule='cosine', rounds=rounds).task()
  rates = [float(task.learning_rate(np.float32(r))) for r in range(1, rounds + 1)]
  expected = [0.5 * (1 + np.cos(np.pi * r / rounds)) / 2 for r in range(rounds)]
  np.testing.assert_allclose(rates, expected, atol=1e-6)


def test_scaffold_corrects_by_the_rate_of_the_round_of_its_run():
  """SCAFFOLD's step moves by eta (c - c_i), where eta is the rate times the cosine's factor.

  Here c = 2 and c_i = 1, in round 3 of 4.
  """
  layer = fs.SCAFFOLD(correction='step')
  engine = engine_of(layer, schedule='cosine', rounds=4)
  client = tiny.client_of(engine, fs.SCAFFOLD, round=3, state=1.0, broadcast=2.0)
  moved = layer.step(client, None, 0.0, None, None)
  assert float(moved) == pytest.approx(-0.5 * (1 + np.cos(np.pi / 2)) / 2, abs=1e-6)


def test_a_cosine_of_unknown_length_cannot_be_used():
  with pytest.raises(ValueError, match='rounds is not known here'):
    engine_of(schedule='cosine').task().learning_rate(1)
  assert engine_of(rounds=3).setting.rounds == 0  # no program depends on it
  assert engine_of(schedule='cosine', rounds=3).setting.rounds == 3
