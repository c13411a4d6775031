"""Measures the library's speed: `python launch/benchmark.py --help`, or `fedjax-syn benchmark --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('benchmark')
