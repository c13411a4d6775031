"""Tunes settings by accuracy on held-out training rows: `python launch/sweep.py --help`; the code is fedjax_syn/cli/sweep.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('sweep')
