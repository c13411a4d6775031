"""Trains federated models: `python launch/main.py --help`, or `fedjax-syn train --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('train')
