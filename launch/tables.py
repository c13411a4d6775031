"""Makes the papers' tables and figures: `python launch/tables.py --help`, or `fedjax-syn tables --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('tables')
