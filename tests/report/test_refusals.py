"""A report refuses in one line: folders that are no runs, damaged files, no place to write."""

import re

import pytest

from fedjax_syn import report
from fedjax_syn.cli import report as command_line

pytest_plugins = ['tests.run_fixtures', 'tests.report.report_runs']


@pytest.mark.parametrize('content', [None, '{"config"', '{}', '[]', '{"config": {"algorithm": 3}}'])
def test_a_folder_that_is_no_run_is_one_line(tmp_path, capsys, content):
  if content is not None:
    (tmp_path / 'config.json').write_text(content)
  with pytest.raises(SystemExit) as stopped:
    command_line.main(['report.py', str(tmp_path), f'--output={tmp_path / "page.html"}'])
  assert stopped.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert str(tmp_path) in line
  assert not (tmp_path / 'page.html').exists()


def test_damaged_arrays_are_one_line(run_folders, tmp_path):
  (tmp_path / 'config.json').write_text((run_folders[1] / 'config.json').read_text())
  (tmp_path / 'partition.npz').write_bytes(b'PK\x03\x04 cut off')
  with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
    report.open_runs([tmp_path])


def test_a_page_that_cannot_be_written_is_one_line(run_folders, tmp_path, capsys):
  with pytest.raises(SystemExit) as stopped:
    command_line.main(['report.py', str(run_folders[1]), f'--output={tmp_path}'])
  assert stopped.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert f'--output={tmp_path}' in line
