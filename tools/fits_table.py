"""Makes the tables of docs/clusters.md: what methods and shipped configs need on accelerators.

  python -m tools.fits_table [--only=WORD] [--write]

It compiles, by `fedjax-syn fits`, the rounds and the synthesis of every algorithm on digits (a
small network shows that a method compiles), every shipped config for v5e:2x2, and the main ones for
v5e:4x8 and an H200. Each cell is a process; its file results/fits/CELL.json is written after every
program, and what is in it is not compiled again, so an interrupted series continues where it was. A
cell whose compiler is not installed is left for an environment that has it. In the end the tables
of the complete cells are written into the page, between two comments; --write does only that.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_syn import algorithms
from fedjax_syn.core import paths

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, FOLDER = ROOT / 'docs' / 'clusters.md', ROOT / 'results' / 'fits'
BEGIN, END = '<!-- results/fits -->\n', '<!-- end of results/fits -->\n'
METHOD = 'method-'
SMALL = ('--config.data.name=digits', '--config.rounds=60', '--config.compare=')
MAIN = ('dynafed_cifar10', 'fedcog_cifar10', 'feddualmatch_mnist')


class Cell(NamedTuple):
  """One method or config on one target."""

  name: str
  target: str
  config: str
  settings: tuple[str, ...] = ()
  without: tuple[str, ...] = ('initial state',)
  """Programs that are left out."""
  stated: tuple[str, str, int] = ('', '', 0)
  """Rows, shape and classes of data that are not known without their files."""

  def __str__(self) -> str:
    return f'{self.name} {self.target}'

  @property
  def path(self) -> pathlib.Path:
    """Returns its file."""
    return FOLDER / f'{self.name}-{self.target.replace(":", "_")}.json'


def cells() -> list[Cell]:
  """Returns all cells, cheap ones first."""
  of_algorithms = [
    Cell(
      f'{METHOD}{name}',
      'v5e:2x2',
      'dynafed_digits',
      (*SMALL, f'--config.algorithm={name}', *_needs(name)),
      ('initial state', 'evaluation'),
    )
    for name in algorithms.names()
  ]
  names = list(paths.shipped_configs())
  own: dict[str, dict[str, Any]] = {
    'own_images': {'stated': ('1000,250', '32,32,3', 10)},
    # The clients' models would take more than half of a device.
    'fedcog_flair': {'settings': ('--config.layout.client_state_bytes=4000000000',)},
  }
  configs = [
    Cell(name, 'v5e:2x2', name, **own.get(name, {})) for name in sorted(names, key=_weight)
  ]
  main = [Cell(name, target, name) for name in MAIN for target in ('h200', 'v5e:4x8')]
  return [*of_algorithms, *configs, *main]


def _needs(name: str) -> tuple[str, ...]:
  """Returns the settings without which a method is refused."""
  layer = algorithms.LAYERS[name]
  proxy = ('--config.data.proxy=held_out',) if layer().server_data() else ()
  sgd = ('--config.client.optimizer=sgd',) if 'sgd' in layer().requires() else ()
  return *proxy, *sgd


def _weight(name: str) -> int:
  heavy = ('cifar', 'cinic', 'flair', 'office', 'own_images')
  return sum(word in name for word in heavy)


def compile_cell(cell: Cell) -> int:
  """Compiles a cell in this process; returns 0, 1 or 2 as `fedjax-syn fits`."""
  from fedjax_syn import config as config_lib
  from fedjax_syn.cli import flags as cli
  from fedjax_syn.config import files
  from fedjax_syn.fits import data_shapes, measure, targets

  with cli.refusals():
    (target,) = targets.parse(cell.target)
    targets.check_installed([target])
    targets.prepare_environment()
    resolved = config_lib.check(files.load_config(cell.config, cell.settings))
    stored = json.loads(cell.path.read_text()) if cell.path.exists() else {}
    done = {p['program']: p for p in stored.get('programs', [])}
    fields = {field.name for field in dataclasses.fields(measure.Need)}

    def cached(name, work):
      if any(word in name for word in cell.without):
        return None
      if name not in done:
        done[name] = dataclasses.asdict(work())
        _write(cell, {'programs': list(done.values())})
      return measure.Need(**{k: v for k, v in done[name].items() if k in fields})

    tell = lambda line: print(line, flush=True)
    engine, needs = measure.needs(
      resolved, target, data_shapes.of_flags(*cell.stated), tell, cached
    )
    record = measure.record(target, engine, resolved, needs)
    head = {'config': cell.config, 'settings': cell.settings, 'commit': commit()}
    _write(cell, {**head, 'complete': True, **record})
    return 0 if record['fits'] else 1


def commit() -> str:
  """Returns the commit of the checkout, with '+' if something is changed in it."""
  said = subprocess.run(
    ['git', 'describe', '--always', '--dirty=+', '--exclude=*'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  return said.stdout.strip()


def _write(cell: Cell, record: Mapping[str, Any]) -> None:
  FOLDER.mkdir(parents=True, exist_ok=True)
  partial = cell.path.with_suffix('.part')
  partial.write_text(json.dumps(record, indent=1) + '\n')
  partial.replace(cell.path)


def main(argv: Sequence[str] | None = None) -> int:
  """Compiles what is missing, and writes the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--only', default='', help='cells whose name and target contain it')
  parser.add_argument('--write', action='store_true', help='compile nothing')
  parser.add_argument('--cell', default='', help='of one process')
  flags = parser.parse_args(argv)
  if flags.cell:
    (cell,) = (cell for cell in cells() if str(cell) == flags.cell)
    return compile_cell(cell)
  chosen = [cell for cell in cells() if flags.only in str(cell)]
  for cell in chosen if not flags.write else ():
    if not complete(cell):
      print(cell, flush=True)
      subprocess.run([sys.executable, '-m', 'tools.fits_table', '--cell', str(cell)], check=False)
  page = PAGE.read_text()
  before, rest = page.split(BEGIN)
  PAGE.write_text(before + BEGIN + tables() + END + rest.split(END)[1])
  return 0


def complete(cell: Cell) -> bool:
  """Returns whether nothing of a cell is missing."""
  return bool(cell.path.exists() and json.loads(cell.path.read_text()).get('complete'))


def tables() -> str:
  """Returns the tables of all cells that are complete, as they stand in the page."""
  found = [(cell, json.loads(cell.path.read_text())) for cell in cells() if complete(cell)]
  of_methods = [(c, r) for c, r in found if c.name.startswith(METHOD)]
  of_configs = [(c, r) for c, r in found if not c.name.startswith(METHOD)]
  head = '|---' * 7 + '|'
  lines = [
    '',
    '| config | devices | program | temporary | in all | GFLOP, GB moved | least time |',
    head,
    *(line for cell, record in of_configs for line in rows(cell, record)),
    '',
    'Methods on digits (20 clients, 8 in a round, an MLP of width 128):',
    '',
    '| method | devices | program | temporary | in all | GFLOP, GB moved | collectives |',
    head,
    *(line for cell, record in of_methods for line in rows(cell, record)),
    '',
  ]
  return '\n'.join(lines) + '\n'


def rows(cell: Cell, record: Mapping[str, Any]) -> list[str]:
  """Returns a line of a table for each program of a cell."""
  from fedjax_syn.fits import texts

  lines = []
  for p in record['programs']:
    name = cell.name.removeprefix(METHOD), cell.target, p['program']
    if not p['compiles']:
      cells = *name, f'does not compile: {p["reason"]}', '', '', ''
    else:
      least = p['least_seconds']
      bound = max(least, key=least.__getitem__)
      last = f'{texts.duration(least[bound])} {p["unit"]} ({bound})'
      if cell.name.startswith(METHOD):
        last = ', '.join(f'{k} {texts.size(v)}' for k, v in sorted(p['collectives'].items()))
      share = p['total'] / record['usable']
      whole = texts.size(p['total']) + (f', {share:.0%}' if share >= 0.005 else '')
      work = f'{p["operations"] / 1e9:.3g}, {p["bytes"] / 1e9:.3g}'
      cells = *name, texts.size(p['temporaries']), whole, work, last
    lines.append('| ' + ' | '.join(cells) + ' |')
  return lines


if __name__ == '__main__':
  sys.exit(main())
