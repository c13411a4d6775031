"""Replaces the experiment by runs that cost nothing."""

import pytest

from tests.run_helpers import replace_experiment
from tests.tables.table_runs import Runs


@pytest.fixture
def runs(monkeypatch, tmp_path):
  """No training; the current folder is empty."""
  runs = Runs()
  replace_experiment(monkeypatch, tmp_path, runs.run_experiment)
  return runs
