"""The batch script, with fake srun and scontrol: it requeues an interrupted run and no other."""

import os
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / 'launch' / 'slurm.sbatch'


@pytest.mark.parametrize(('status', 'requeued'), [(75, 'requeue 42'), (0, ''), (2, ''), (3, '')])
def test_only_an_interrupted_run_is_requeued(tmp_path, status, requeued):
  said = {name: tmp_path / f'{name}.txt' for name in ('srun', 'scontrol')}
  for name, end in (('srun', status), ('scontrol', 0)):
    stand_in = tmp_path / name
    stand_in.write_text(f'#!/bin/bash\necho "$@" > {said[name]}\nexit {end}\n')
    stand_in.chmod(0o755)
  environment = os.environ | {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '42'}
  environment['SLURM_SUBMIT_DIR'] = str(tmp_path)
  done = subprocess.run(['bash', SCRIPT, '--config=a b.py', '--workdir=w'], env=environment)
  assert done.returncode == status
  assert said['srun'].read_text().endswith('python launch/main.py --config=a b.py --workdir=w\n')
  assert (said['scontrol'].read_text().strip() if said['scontrol'].exists() else '') == requeued
