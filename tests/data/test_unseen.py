"""Clients that never train, and label noise: which rows go where, by counts and by hand."""

import dataclasses
import types

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.cli import report
from fedjax_syn.config import check
from fedjax_syn.core.fields import ConfigError
from fedjax_syn.data import datasets, label_noise, unseen
from fedjax_syn.data.dataset import make
from fedjax_syn.data.settings import Data
from fedjax_syn.data.split import Split
from fedjax_syn.runs import assemble, experiment, metrics, stored_files
from fedjax_syn.runs import unseen as of_runs
from tests.run_fixtures import put_stubs

CLIENTS = 10


def dataset(with_test=True):
  """Ten clients; the first pixel of a row is its client."""
  rng = np.random.default_rng(0)

  def rows(count):
    owners = np.arange(count, dtype=np.int32) % CLIENTS
    x = rng.integers(0, 256, (count, 4, 4, 1), np.uint8)
    x[:, 0, 0, 0] = owners
    return Split(x, (np.arange(count) // CLIENTS % 3).astype(np.int32)), owners

  (train, clients), (test, test_clients) = rows(60), rows(30)
  names = tuple('abcdefghij')
  given = {'clients': clients, 'client_names': names}
  given |= {'test_clients': test_clients} if with_test else {}
  return make('mine', 'mine', train, test, 3, 'unit', **given)


def owners(split):
  return split.x[:, 0, 0, 0]


@pytest.mark.parametrize('with_test', [True, False])
def test_unseen_clients(with_test):
  before = dataset(with_test)
  data = unseen.hold_out(before, 0.3, seed=1)
  out = np.unique(owners(data.unseen))
  assert len(out) == 3 and data.num_clients() == 7
  kept = np.setdiff1d(np.arange(CLIENTS), out)
  # Nobody who trains or is tested is one of them, and no other row is lost.
  assert np.array_equal(np.unique(owners(data.train)), kept) and len(data.train.y) == 42
  assert np.array_equal(kept[data.clients], owners(data.train))
  assert np.array_equal(out[data.unseen_owners], owners(data.unseen))
  assert data.client_names == tuple('abcdefghij'[k] for k in kept)
  if with_test:
    assert len(data.unseen.y) == 9 and len(data.test.y) == 21
    assert np.array_equal(kept[data.test_clients], owners(data.test))
  else:  # their training rows measure them
    assert len(data.unseen.y) == 18 and data.test is before.test
  assert '3 of 10 clients never train' in data.notes[-1] and data.checksum == before.checksum
  same, other = unseen.hold_out(before, 0.3, seed=1), unseen.hold_out(before, 0.3, seed=2)
  assert np.array_equal(same.unseen.x, data.unseen.x)
  assert not np.array_equal(np.unique(owners(other.unseen)), out)


def test_an_unseen_domain(tmp_path):
  styles = datasets.load('digits_styles')
  data = datasets.load('digits_styles', unseen_clients=0.3)
  (held,) = set(styles.domains) - set(data.client_names)
  whole = {name.partition('/')[2]: split for name, split in styles.test_by_domain().items()}
  assert np.array_equal(data.unseen.x, whole[held].x)
  assert set(data.test_by_domain()) == {f'domain/{n}' for n in whole if n != held}
  assert len(data.train.y) + int((styles.clients == styles.domains.index(held)).sum()) == len(
    styles.train.y
  )


def test_clients_with_test_rows_alone_are_unseen():
  data = dataset()
  none = np.where(data.test_clients < 2, -1, data.test_clients).astype(np.int32)
  data = dataclasses.replace(data, test_clients=none)
  found = unseen.with_unseen_clients(data, np.array(list('abcdefghij'))[owners(data.test)])
  assert np.array_equal(found.unseen_owners, owners(found.unseen)) and len(found.unseen.y) == 6
  assert found.test is data.test
  more = unseen.hold_out(found, 0.1, seed=0)
  assert np.bincount(more.unseen_owners).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
  'change, share, line',
  [
    ({'clients': None}, 0.3, 'data.unseen_clients=0.3: mine does not say whose its rows are'),
    ({}, 0.96, 'is all of the 10 clients of mine'),
    ({'test_clients': np.full(30, -1, np.int32)}, 0.3, 'all test rows are those of clients that'),
  ],
)
def test_unseen_clients_are_refused_in_one_line(change, share, line):
  with pytest.raises(ValueError) as error:
    unseen.hold_out(dataclasses.replace(dataset(), **change), share, 0)
  assert line in str(error.value) and '\n' not in str(error.value)


def test_settings_of_unseen_clients_are_refused():
  with pytest.raises(ConfigError, match='data.unseen_clients=0.1: the rows of data.partition='):
    check({'data.unseen_clients': 0.1, 'data.partition': 'file:mine.npz'})
  check({'data.unseen_clients': 0.1, 'data.partition': 'iid'})  # of the clients that train
  held, data = unseen.hold_out(dataset(), 0.2, 0), Data(partition='natural', unseen_clients=0.2)
  with pytest.raises(ValueError, match='data.clients=10: .* 8 clients of mine train: use 8'):
    assemble.problem_of(held, dataclasses.replace(data, clients=10), lambda: None)


def test_unseen_clients_are_measured_by_the_global_model():
  """Labels say which client it is: the model knows those that train, and no other."""
  x = np.zeros((40, 4, 4, 1), np.uint8)
  clients = np.arange(40, dtype=np.int32) % 4
  for k in range(4):
    x[clients == k, k] = 255
  y = clients // 2
  data = make(
    'mine', '', Split(x, y), Split(x, y), 2, 'unit', clients=clients, test_clients=clients
  )
  result = fs.run(
    fs.FedAvg(lr=0.5, optimizer='sgd'),
    data,
    'mlp',
    rounds=20,
    clients=3,
    partition='natural',
    unseen_clients=0.25,
    progress=False,
  )
  last = result.history[-1]
  assert last['test/accuracy'] == 1  # of the three that train
  model = result.engine
  held = unseen.hold_out(data, 0.25, 0).unseen
  right = model.evaluator(*held)(*result.variables[0])['accuracy']
  assert last['unseen/test/accuracy'] == last['unseen/test/accuracy_worst_decile'] == right
  assert last['unseen/test/accuracy_std'] == 0


def test_methods_that_keep_a_part_at_each_client_have_no_accuracy_on_unseen_ones():
  """A head of its own is what an unseen client does not have."""
  data, chain = unseen.hold_out(dataset(), 0.3, 0), fs.chain(fs.FedRep())
  assert of_runs.measures(types.SimpleNamespace(chain=chain), data) == ()
  methods = {'fedavg': fs.chain(fs.FedAvg()), 'fedrep': chain, 'ditto': fs.chain(fs.Ditto())}
  said = 'unseen/test/accuracy is not measured for fedrep: '
  assert of_runs.line(data, methods).startswith(said)
  assert of_runs.line(dataset(), methods) == ''


def test_label_noise_by_counts():
  data = dataset()
  noisy = label_noise.add(data, 0.4, seed=0)
  changed = noisy.train.y != data.train.y
  assert changed.sum() == 24 and noisy.test is data.test  # 0.4 of 60, each by another class
  assert noisy.train.y.min() >= 0 and noisy.train.y.max() <= 2
  assert np.array_equal(label_noise.add(data, 0.4, seed=0).train.y, noisy.train.y)
  assert (label_noise.add(data, 0.4, seed=1).train.y != data.train.y).sum() == 24
  # Symmetric: of many rows of one class, each of the others gets a third or so.
  many = make(
    'm',
    '',
    Split(np.zeros((9000, 1, 1, 1), np.uint8), np.zeros(9000, np.int32)),
    data.test._replace(x=data.test.x[:, :1, :1]),
    4,
    'unit',
  )
  counts = np.bincount(label_noise.add(many, 1.0, 0).train.y, minlength=4)
  assert counts[0] == 0 and np.abs(counts[1:] - 3000).max() < 6 * np.sqrt(9000 * 2 / 9)
  several = dataclasses.replace(
    data, train=data.train._replace(y=np.eye(3, dtype=np.int32)[data.train.y])
  )
  with pytest.raises(ValueError, match='data.label_noise=0.1: mine has several labels per row'):
    label_noise.add(several, 0.1, 0)


def test_noise_does_not_move_rows_between_clients():
  clean = Data(partition='dirichlet', alpha=0.1, clients=3)
  model = lambda: None
  of = lambda data: assemble.problem_of(dataset(), data, model)
  a, b = of(clean), of(dataclasses.replace(clean, label_noise=0.5))
  assert np.array_equal(a.data.order, b.data.order) and np.array_equal(a.data.size, b.data.size)
  assert (np.asarray(a.data.y) != np.asarray(b.data.y)).sum() == 30
  counts = [
    np.bincount(np.asarray(b.data.y)[b.data.order[s : s + n]], minlength=3)
    for s, n in zip(b.data.start, b.data.size, strict=True)
  ]
  assert np.array_equal(b.counts, counts) and b.dataset.train.y is not None


def test_a_run_says_logs_sums_up_and_reports_unseen_clients(tmp_path, monkeypatch, capsys):
  folder, page = tmp_path / 'w', tmp_path / 'page.html'
  config = config_lib.get_default()
  config.data.name, config.data.partition, config.data.clients = 'digits_styles', 'natural', 2
  config.data.unseen_clients, config.data.label_noise = 0.3, 0.2
  config.client.participation, config.rounds, config.compare = 1.0, 2, ''
  config.algorithm, config.layout.devices = 'fedavg', 1
  config.model.name, config.model.width, config.model.depth = 'mlp', 8, 1
  put_stubs(monkeypatch)
  assert experiment.run_experiment(config, folder) == 0
  said = capsys.readouterr().out
  assert '1 of 3 clients never train (' in said and 'rows have the label of another class' in said
  last = metrics.read(folder / 'metrics.jsonl')[-1]
  summary = stored_files.read_json(folder / 'summary.json')
  found = summary['unseen']['test/accuracy']['mean']
  assert found == last['unseen/test/accuracy'] == last['unseen/test/accuracy_worst_decile']
  assert f'fedavg: accuracy on unseen clients {found:.4f}, worst tenth {found:.4f}' in said
  pytest.importorskip('jinja2')  # in the extras report and test
  assert report.main(['report.py', str(folder), f'--output={page}']) == 0
  assert 'unseen/test/accuracy' in page.read_text()
