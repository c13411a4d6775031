"""Makes the papers' tables and figures; see `python launch/tables.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('tables')
