"""Hunts for tracebacks, hangs and silence: hostile values of every field, and damaged inputs, in this process.

  python -m tools.hunt fields [--minutes=25] [--seed=0]
  python -m tools.hunt inputs [--count=200] [--seed=0]

`fields` gives every field of every method texts and objects that it should refuse, builds what is accepted, and trains a
sample of it. `inputs` damages images, arrays, archives and config files and reads them. Exit status: 0 if nothing was
found, 1 otherwise.
"""

import argparse
import os
import pathlib
import resource
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
MOST = 6 << 30  # bytes of this process
# Programs are compiled for their outcome, not for their speed.
os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')


def main(argv: list[str] | None = None) -> int:
  """Hunts; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('what', choices=('fields', 'inputs'))
  parser.add_argument('--minutes', type=float, default=25.0, help='of fields, in all')
  parser.add_argument('--count', type=int, default=200, help='of inputs')
  parser.add_argument('--share', type=float, default=1.0, help='of the values that are given')
  parser.add_argument('--seed', type=int, default=0)
  given = parser.parse_args(argv)
  with tempfile.TemporaryDirectory() as scratch:
    if given.what == 'fields':
      from tools import _fields

      parts = _fields.hunt(given.seed, 60 * given.minutes, given.share, pathlib.Path(scratch))
    else:
      from tools import _inputs

      parts = _inputs.hunt(given.seed, given.count, pathlib.Path(scratch))
    found = 0
    for lines in parts:
      print('\n'.join(lines), flush=True)
      found += len(lines) - 2
  return 1 if found else 0


if __name__ == '__main__':
  # A bomb ends in MemoryError here, and not in the end of whatever else runs on the machine.
  resource.setrlimit(resource.RLIMIT_DATA, (MOST, resource.getrlimit(resource.RLIMIT_DATA)[1]))
  status = main()
  sys.stdout.flush()
  os._exit(status)  # a thread that reads from a pipe would be waited for
