"""Hunts for tracebacks, hangs and silent changes, in this process.

  python -m tools.hunt fields [--minutes=25] [--share=1] [--seed=0]
  python -m tools.hunt inputs [--count=200] [--seed=0]
  python -m tools.hunt folders [--count=200] [--share=1] [--seed=0]

`fields` gives each field of each method texts and objects that it should refuse, builds what is
accepted, and trains a sample of it. `inputs` damages images, arrays, archives and config files and
reads them. `folders` damages copies of run folders; the report, `fs.load`, the export, the
inspection and the command that continues the run must refuse each copy in one line, or see what
they see without the damage. `--share` is the share of values that are given, or of copies that are
continued. Exit status: 0 without any finding, else 1.
"""

import argparse
import importlib
import os
import pathlib
import resource
import sys
import tempfile

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
LARGEST = 6 << 30  # bytes of this process
# The results of programs count here, not their speed.
os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')


def main(argv: list[str] | None = None) -> int:
  """Hunts; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('what', choices=('fields', 'inputs', 'folders'))
  parser.add_argument('--minutes', type=float, default=25.0, help='of fields, in all')
  parser.add_argument('--count', type=int, default=200, help='of inputs, or of folders')
  parser.add_argument('--share', type=float, default=1.0, help='of values, or of continued runs')
  parser.add_argument('--seed', type=int, default=0)
  options = parser.parse_args(argv)
  module = importlib.import_module(f'tools._{options.what}')
  findings = 0
  with tempfile.TemporaryDirectory() as scratch:
    for tally in module.hunt(options, pathlib.Path(scratch)):
      print(tally.report(), flush=True)
      findings += tally.findings()
  return 1 if findings else 0


if __name__ == '__main__':
  # A bomb ends in MemoryError here and ends no other process of the machine.
  resource.setrlimit(resource.RLIMIT_DATA, (LARGEST, resource.getrlimit(resource.RLIMIT_DATA)[1]))
  status = main()
  sys.stdout.flush()
  os._exit(status)  # the interpreter would wait for a thread that reads from a pipe
