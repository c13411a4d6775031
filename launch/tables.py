"""Makes the tables and figures of the papers: `python launch/tables.py --help`; the code is fedjax_syn/cli/tables.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('tables')
