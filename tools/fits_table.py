"""Makes the tables of docs/clusters.md: what methods and shipped configs need on accelerators.

  python -m tools.fits_table [--only=WORD] [--print]

It compiles, by `fedjax-syn fits`, the rounds and the synthesis of every algorithm on digits (a
small network shows that a method compiles), every shipped config for v5e:2x2, and the main ones for
v5e:4x8 and an H200. Each cell is a process; its file results/fits/CELL.json is written after every
program, and what is in it is not compiled again, so an interrupted series goes on where it was. A
cell whose compiler is not installed is left for an environment that has it. --print only prints the
tables of what is there.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_syn import algorithms
from fedjax_syn.core import paths

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'results' / 'fits'
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

  @property
  def path(self) -> pathlib.Path:
    """Returns its file."""
    return FOLDER / f'{self.name}-{self.target.replace(":", "_")}.json'


def cells() -> list[Cell]:
  """Returns all cells, cheap ones first."""
  of_algorithms = [
    Cell(
      f'algorithm-{name}',
      'v5e:2x2',
      'dynafed_digits',
      (*SMALL, f'--config.algorithm={name}', *_needs(name)),
      ('initial state', 'evaluation'),
    )
    for name in algorithms.names()
  ]
  names = list(paths.shipped_configs())
  configs = [Cell(name, 'v5e:2x2', name) for name in sorted(names, key=_weight)]
  main = [Cell(name, target, name) for name in MAIN for target in ('h200', 'v5e:4x8')]
  return [*of_algorithms, *configs, *main]


def _needs(name: str) -> tuple[str, ...]:
  """Returns the settings without which a method is refused."""
  layer = algorithms.LAYERS[name]
  proxy = ('--config.data.proxy=held_out',) if layer().server_data() else ()
  return (*proxy, *OTHERS.get(name, ()))


OTHERS: dict[str, tuple[str, ...]] = {}


def _weight(name: str) -> int:
  heavy = ('cifar', 'cinic', 'flair', 'office', 'own_images')
  return sum(word in name for word in heavy)


def compile_cell(cell: Cell) -> int:
  """Compiles a cell in this process; returns 0, 1 or 2 as `fedjax-syn fits`."""
  from fedjax_syn import config as config_lib
  from fedjax_syn.cli import flags as cli
  from fedjax_syn.config import files
  from fedjax_syn.fits import measure, targets

  with cli.refusals():
    (target,) = targets.parse(cell.target)
    targets.check_installed([target])
    targets.prepare_environment()
    resolved = config_lib.check(files.load_config(cell.config, cell.settings))
    stored = json.loads(cell.path.read_text()) if cell.path.exists() else {}
    done = {p['program']: p for p in stored.get('programs', [])}
    fields = {field.name for field in measure.dataclasses.fields(measure.Need)}

    def cached(name, work):
      if any(word in name for word in cell.without):
        return None
      if name not in done:
        done[name] = measure.dataclasses.asdict(work())
        _write(cell, {'programs': list(done.values())})
      return measure.Need(**{k: v for k, v in done[name].items() if k in fields})

    tell = lambda line: print(line, flush=True)
    engine, needs = measure.needs(resolved, target, None, tell, cached)
    record = measure.record(target, engine, resolved, needs)
    _write(cell, {'config': cell.config, 'settings': cell.settings, 'complete': True, **record})
    return 0 if record['fits'] else 1


def _write(cell: Cell, record: Mapping[str, Any]) -> None:
  FOLDER.mkdir(parents=True, exist_ok=True)
  partial = cell.path.with_suffix('.part')
  partial.write_text(json.dumps(record, indent=1) + '\n')
  partial.replace(cell.path)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs what is missing, and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--only', default='', help='cells whose name and target contain it')
  parser.add_argument('--print', action='store_true', help='compile nothing')
  parser.add_argument('--cell', default='', help='of one process')
  flags = parser.parse_args(argv)
  chosen = [cell for cell in cells() if flags.only in f'{cell.name} {cell.target}']
  if flags.cell:
    (cell,) = (cell for cell in chosen if f'{cell.name} {cell.target}' == flags.cell)
    return compile_cell(cell)
  for cell in chosen if not flags.print else ():
    if not _complete(cell):
      print(f'{cell.name} on {cell.target}', flush=True)
      words = '--cell', f'{cell.name} {cell.target}'
      subprocess.run([sys.executable, '-m', 'tools.fits_table', *words], check=False)
  print('\n'.join(tables(chosen)))
  return 0


def _complete(cell: Cell) -> bool:
  return cell.path.exists() and json.loads(cell.path.read_text()).get('complete', False)


def tables(chosen: Sequence[Cell]) -> list[str]:
  """Returns a row for each program of the cells that are complete, as Markdown."""
  from fedjax_syn.fits import texts

  lines = [
    '| | devices | program | arguments and what is beside | temporary | in all of usable '
    '| GFLOP | GB moved | collectives | least time |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for cell in filter(_complete, chosen):
    record = json.loads(cell.path.read_text())
    for p in record['programs']:
      if not p['compiles']:
        lines.append(f'| {cell.name} | {cell.target} | {p["program"]} | {p["reason"]} |')
        continue
      least = p['least_seconds']
      bound = max(least, key=least.__getitem__) if least else ''
      moved = ', '.join(f'{k} {texts.size(v)}' for k, v in sorted(p['collectives'].items()))
      cellular = (
        cell.name.removeprefix('algorithm-'),
        cell.target,
        p['program'],
        texts.size(p['arguments'] + p['beside']),
        texts.size(p['temporaries']),
        f'{texts.size(p["total"])} ({p["total"] / record["usable"]:.0%})',
        f'{p["operations"] / 1e9:.3g}',
        f'{p["bytes"] / 1e9:.3g}',
        moved,
        f'{texts.duration(least[bound])} ({bound})' if bound else '',
      )
      lines.append('| ' + ' | '.join(cellular) + ' |')
  return lines


if __name__ == '__main__':
  sys.exit(main())
