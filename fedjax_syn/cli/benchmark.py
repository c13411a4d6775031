"""Measures the library's speed with `benchmarks/` of the checkout that contains the package."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import fedjax_syn

ROOT = pathlib.Path(fedjax_syn.__file__).resolve().parents[1]


def main(argv: Sequence[str]) -> int:
  """Runs the benchmark; returns the exit status."""
  if not (ROOT / 'benchmarks' / '__main__.py').is_file():
    print(
      'benchmark: the workloads are not installed with the package; run it in a checkout that was'
      ' installed by pip install -e .',
      file=sys.stderr,
    )
    return 2
  path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
  command = [sys.executable, '-m', 'benchmarks', *argv[1:]]
  return subprocess.call(command, env={**os.environ, 'PYTHONPATH': path})
