"""Measures the library's speed; see `python launch/benchmark.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('benchmark')
