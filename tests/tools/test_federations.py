"""The command of the natural federations: command lines, figures of a run by hand, the page."""

import json

import numpy as np
import pytest

from fedjax_syn.core import exit_status
from tools import federations


def test_commands_of_a_cell():
  tune, test = (federations.commands('watch', 'local', rate) for rate in ('', '0.3'))
  local = {'--config.algorithm=ditto', '--config.ditto.lambda_personal=0'}
  assert tune[1] == 'launch/sweep.py' and test[1] == 'launch/main.py'
  assert local < set(tune) and local < set(test) and '--select=clients' in tune
  assert '--config.data.validation=0.2' in tune and '--config.seeds=3,' in tune
  assert '--config.client.lr=0.3' in test and not any('validation' in word for word in test)
  every = federations.commands('watch', 'centralised')
  assert {'--config.data.clients=1', '--config.personal_every=0'} < set(every)
  assert '--select=clients' not in every


def write_run(folder, key: str, accuracies) -> None:
  """A run of three seeds with the accuracies [seeds, clients]."""
  (folder / 'clients').mkdir(parents=True)
  for seed, own in enumerate(accuracies):
    np.savez(folder / f'clients/seed_{seed}.npz', **{key: np.array(own)})
  summary = {'test_accuracy': {'last': {'per_seed': [0.1, 0.2, 0.3]}}}
  summary['unseen'] = {'test/accuracy': {'per_seed': [0.4, 0.5, 0.6]}}
  (folder / 'summary.json').write_text(json.dumps(summary))


@pytest.fixture
def three_clients(monkeypatch):
  """Clients with 3, 1 and no test rows."""
  monkeypatch.setattr(federations, '_test_rows', lambda name: np.array([3, 1, 0]))


def test_figures_by_hand(tmp_path, three_clients):
  """(3 * 0.8 + 1 * 0.4) / 4 = 0.7; the third client has no test row."""
  own = [[0.8, 0.4, np.nan]] * 2 + [[0.6, 0.4, np.nan]]
  write_run(tmp_path, 'personal_accuracy', own)
  figures = federations.figures('watch', 'local', tmp_path)
  assert figures['test'] == pytest.approx([0.7, 0.7, 0.55])
  assert figures['worst_tenth'] == pytest.approx([0.4] * 3) and 'unseen' not in figures
  assert figures['clients'] == pytest.approx([0.7333, 0.4])
  assert federations.figures('watch', 'ditto', tmp_path)['unseen'] == [0.4, 0.5, 0.6]


def test_figures_of_centralised_training(tmp_path, three_clients):
  write_run(tmp_path, 'global_accuracy', [[0.5]] * 3)
  assert federations.figures('watch', 'centralised', tmp_path) == {
    'test': [0.1, 0.2, 0.3],
    'unseen': [0.4, 0.5, 0.6],
  }


def test_an_interrupted_sweep_ends_the_cell(tmp_path, monkeypatch):
  """Nothing is trained after it, and no file is written."""
  monkeypatch.setattr(federations, 'ROOT', tmp_path)
  monkeypatch.setattr(federations, 'config_of', lambda command: None)
  monkeypatch.setattr(federations.sweep, 'make_cell', lambda *of: None)
  record = {'values': {'client.lr': '0.1'}, 'mean': None, 'status': exit_status.INTERRUPTED}
  for records in ([record], [{**record, 'status': 0}] * 3):  # of four
    monkeypatch.setattr(federations.sweep, 'sweep', lambda *of, records=records: records)
    assert federations.run('watch', 'fedavg', tmp_path) == exit_status.INTERRUPTED
  assert not list(tmp_path.rglob('*.json'))


def test_a_page_gets_its_tables_again_and_again():
  page = 'a\n<!-- federations: x -->\n\nold\n\n<!-- end -->\nb\n'
  once = federations.place(page, 'x', 'new')
  assert once == 'a\n<!-- federations: x -->\n\nnew\n\n<!-- end -->\nb\n'
  assert federations.place(once, 'x', 'new') == once
  with pytest.raises(ValueError, match="has no place for 'y'"):
    federations.place(page, 'y', 'new')


def test_the_page_shows_what_the_files_say():
  """The tables and the time in docs/federations.md are those of results/federations."""
  page = (federations.ROOT / federations.PAGE).read_text()
  for name in federations.SETS:
    assert federations.table(name) in page
  spent = federations.seconds()
  assert not spent or f'took {spent / 60:.0f} minutes' in page
