"""Compares runs on one HTML page: `python launch/report.py --help`; the code is fedjax_syn/cli/report.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('report')
