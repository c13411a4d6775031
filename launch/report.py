"""Compares runs on one HTML page: `python launch/report.py --help`, or `fedjax-syn report --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('report')
