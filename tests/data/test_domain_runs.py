"""Runs on data of several domains: made-up ones, metrics of each, and their summary."""

import dataclasses

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.data import datasets
from fedjax_syn.data.builders import digits
from fedjax_syn.data.partition import partition
from fedjax_syn.engine import Layout
from tests.run_fixtures import put_stubs


def test_made_up_styles_are_the_digits_in_three_looks():
  (x, y), (test_x, _) = digits.read()
  data = datasets.load('digits_styles')
  np.testing.assert_array_equal(np.bincount(data.clients), [400, 399, 399])
  np.testing.assert_array_equal(data.train.x[:400], x[::3])
  np.testing.assert_array_equal(data.train.x[400:799], 255 - x[1::3])
  assert data.train.x[799:].min() == 96 and data.train.x[799:].max() <= 160
  np.testing.assert_array_equal(data.train.y, np.concatenate([y[i::3] for i in range(3)]))
  np.testing.assert_array_equal(data.test_by_domain()['domain/inverted'].x, 255 - test_x[1::3])


def test_a_domain_without_test_rows_has_no_split():
  """Accuracy on no row is neither 0 nor an error."""
  data = datasets.load('digits_styles')
  moved = np.where(data.test_domains == 1, 0, data.test_domains)
  assert list(dataclasses.replace(data, test_domains=moved).test_by_domain()) == [
    f'domain/{data.domains[i]}' for i in (0, 2)
  ]


def test_metrics_of_each_domain_weigh_to_the_whole():
  """Accuracy and loss over all test rows are weighted means of the domains'.

  The weights are their 200, 200 and 199 rows.
  """
  result = fs.run(
    fs.FedAvg(lr=3e-3, batch_size=32),
    'digits_styles',
    'mlp',
    rounds=3,
    clients=3,
    partition='natural',
    participation=1.0,
    layout=Layout(devices=1),
  )
  line = result.history[-1]
  for name in ('accuracy', 'loss'):
    parts = [line[f'test/domain/{d}/{name}'] for d in ('plain', 'inverted', 'faint')]
    np.testing.assert_allclose(
      np.average(parts, weights=[200, 200, 199]), line[f'test/{name}'], rtol=1e-5
    )
  assert len({line[f'test/domain/{d}/accuracy'] for d in ('plain', 'inverted', 'faint')}) > 1


def test_a_run_of_a_config_logs_them_and_sums_them_up(tmp_path, monkeypatch):
  from fedjax_syn.runs import experiment, metrics, stored_files

  config = config_lib.get_default()
  config.data.name, config.data.partition, config.data.clients = 'digits_styles', 'natural', 3
  config.client.participation, config.rounds, config.compare = 1.0, 2, ''
  config.algorithm, config.layout.devices = 'fedavg', 1
  config.model.name, config.model.width, config.model.depth = 'mlp', 8, 1
  put_stubs(monkeypatch)
  assert experiment.run_experiment(config, tmp_path) == 0
  last = metrics.read(tmp_path / 'metrics.jsonl')[-1]
  summary = stored_files.read_json(tmp_path / 'summary.json')['test_domain_accuracy']
  assert list(summary) == ['plain', 'inverted', 'faint']
  for name, found in summary.items():
    assert found['last']['mean'] == last[f'test/domain/{name}/accuracy']


def test_more_clients_than_domains_are_refused():
  data = datasets.load('digits_styles')
  with pytest.raises(ValueError, match='data.clients = 4, but the data set has 3 clients: use 3'):
    partition('natural', data.train.y, 4, client_ids=data.clients)
