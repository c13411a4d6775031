"""Replaces the experiment by runs that cost nothing."""

import sys
import types

import pytest

import fedjax_syn.runs
from fedjax_syn.cli import jax_setup
from tests.tables.table_runs import Runs


@pytest.fixture
def runs(monkeypatch, tmp_path):
  """No training; the current folder is empty."""
  runs = Runs()
  fake = types.SimpleNamespace(run_experiment=runs.run_experiment)
  monkeypatch.setitem(sys.modules, 'fedjax_syn.runs.experiment', fake)
  monkeypatch.setattr(fedjax_syn.runs, 'experiment', fake, raising=False)
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda devices: None)
  monkeypatch.chdir(tmp_path)
  return runs
