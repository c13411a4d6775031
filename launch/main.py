"""Trains federated models; see `python launch/main.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('train')
