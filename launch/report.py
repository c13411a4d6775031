"""Compares runs on one HTML page; see `python launch/report.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('report')
