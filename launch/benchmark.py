"""Measures the library on fixed work: `python launch/benchmark.py --help`; the code is fedjax_syn/cli/benchmark.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('benchmark')
