"""How the runs of a report are told apart."""

import pytest

from fedjax_syn import report
from fedjax_syn.report import runs, tables
from tests.report.stored import edit

pytest_plugins = ['tests.run_fixtures', 'tests.report.report_runs']


def test_runs_are_told_apart(opened):
  """Two runs are DynaFed's with equal settings, so only their folders differ.

  A table says which run is where.
  """
  assert [run.label for run in opened] == ['DynaFed (1)', 'FedAvg', 'DynaFed (2)']
  made = tables.made_on(opened)
  assert made.head[1:] == ['DynaFed (1)', 'FedAvg', 'DynaFed (2)']
  assert made.rows[0] == ['folder', *(str(run.folder) for run in opened)]


def test_equal_algorithms_are_named_by_the_setting_that_differs(run_folders, tmp_path):
  for name, rate in (('a', 0.1), ('b', 0.2)):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'config.json').write_text((run_folders[1] / 'config.json').read_text())
    edit(tmp_path / name, lambda stored, rate=rate: stored['config']['client'].update(lr=rate))
  found = report.open_runs([tmp_path / 'a', tmp_path / 'b'])
  assert [run.label for run in found] == ['FedAvg, client.lr=0.1', 'FedAvg, client.lr=0.2']
  assert runs.differences(found) == {'client.lr': [0.1, 0.2]}


def renamed(opened, algorithms):
  """Copies of one run under other algorithms."""
  return [
    opened[1]._replace(settings=opened[1].settings | {'algorithm': name}) for name in algorithms
  ]


@pytest.mark.parametrize(
  'algorithms, expected',
  [
    (['my.pull3:pull', 'fedavg'], ['pull', 'FedAvg']),
    (['scaffold+my.pull3:pull', 'fedavg'], ['SCAFFOLD + pull', 'FedAvg']),
    (['my.pull3:pull', 'my.pull4:pull'], ['my.pull3:pull', 'my.pull4:pull']),
    (['my.pull3:FedAvg', 'fedavg'], ['my.pull3:FedAvg', 'fedavg']),
    (['my.pull3:pull', 'my.pull3:pull', 'fedavg'], ['pull (1)', 'pull (2)', 'FedAvg']),
  ],
)
def test_own_methods_go_by_the_name_of_their_function(opened, algorithms, expected):
  assert runs.labels(renamed(opened, algorithms)) == expected


def test_two_alike_and_one_with_another_setting(opened):
  plain = opened[1]
  other = plain._replace(settings=plain.settings | {'client.lr': 9.0})
  found = runs.labels([plain, plain, other])
  assert found == [
    'FedAvg, client.lr=0.5 (1)',
    'FedAvg, client.lr=0.5 (2)',
    'FedAvg, client.lr=9.0',
  ]
