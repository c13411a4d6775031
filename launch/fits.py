"""Says whether a run fits devices that are not there; see `python launch/fits.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('fits')
