"""Trains federated models as a config file says: `python launch/main.py --help`; the code is fedjax_syn/cli/train.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('train')
