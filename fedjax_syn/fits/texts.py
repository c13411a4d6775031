"""What `fits` prints: a table for each target, and what would help where something does not fit."""

from collections.abc import Sequence

from fedjax_syn.config import Resolved
from fedjax_syn.engine import Engine
from fedjax_syn.fits import measure
from fedjax_syn.fits.measure import Need
from fedjax_syn.fits.targets import Target

HEADER = (
  *('program', 'arguments', 'temporary', 'outputs', 'code', 'beside', 'in all'),
  *('GFLOP', 'GB moved', 'least time', 'bound by'),
)


def size(bytes: float) -> str:
  """Writes bytes with three digits: '1.18 GiB'."""
  for unit, factor in (('GiB', 2**30), ('MiB', 2**20), ('KiB', 2**10)):
    if (value := bytes / factor) >= 1:
      return f'{value:.{max(3 - len(str(int(value))), 0)}f} {unit}'
  return f'{bytes:.0f} B'


def duration(seconds: float) -> str:
  """Writes seconds with three digits: '12.3 ms'."""
  for unit, factor in (('s', 1.0), ('ms', 1e-3), ('µs', 1e-6)):
    if seconds >= factor:
      return f'{seconds / factor:.3g} {unit}'
  return f'{seconds * 1e9:.3g} ns'


def row(need: Need, target: Target, devices: int, resolved: Resolved) -> list[str]:
  """Returns a program's cells, in the order of `HEADER`."""
  if not need.compiles:
    return [need.program, f'does not compile: {need.reason}']
  parts = need.arguments, need.temporaries, need.outputs, need.code, need.beside, need.total
  of_run = resolved.precision, devices, resolved.model.activations
  seconds = measure.roofline(need, target.chip, *of_run)
  least = max(seconds, key=seconds.__getitem__) if seconds else ''
  times = [f'{duration(seconds[least])} {need.unit}', least] if least else ['', '']
  work = f'{need.operations / 1e9:.3g}', f'{need.bytes / 1e9:.3g}'
  return [need.program, *map(size, parts), *work, *times]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns rows as lines of aligned columns; a short row's last cell may be longer."""
  widths = [
    max((len(row[k]) for row in rows if k < len(row) - 1 or len(row) == len(HEADER)), default=0)
    for k in range(len(HEADER))
  ]
  return [
    '  '.join(f'{cell:{w}}' for cell, w in zip(row, widths, strict=False)).rstrip() for row in rows
  ]


def report(target: Target, engine: Engine, resolved: Resolved, needs: Sequence[Need]) -> list[str]:
  """Returns the lines about one target.

  Args:
    target: the devices.
    engine: the run's, for them.
    resolved: its config.
    needs: of each program.
  """
  layout, chip = engine.layout, target.chip
  has = f'{size(chip.usable)} usable of {size(chip.memory)}' if chip.bandwidth else 'host memory'
  lines = [
    f'{target.text}: {layout.devices} devices take clients, each {layout.lanes} at a time;'
    f' precision {resolved.precision}; a device has {has}'
  ]
  cells = [row(need, target, layout.devices, resolved) for need in needs]
  lines += [f'  {line}' for line in table([HEADER, *cells])]
  for need in needs:
    lines += [f'  {need.program}: {text}' for text in remarks(need)]
  for need in needs:
    if not measure.fits(need, chip):
      wants = need.reason or f'needs {size(need.total)}'
      helps = '; '.join(measure.help_for(need, engine, resolved, chip))
      lines.append(f'  DOES NOT FIT: {need.program}: {wants}. What would help: {helps}')
  if all(measure.fits(need, chip) for need in needs):
    lines.append('  fits')
  return lines


def remarks(need: Need) -> list[str]:
  """Returns what else is to be said of a program: collectives, host transfers, loops."""
  out = []
  if need.collectives:
    kinds = ', '.join(f'{kind} {size(bytes)}' for kind, bytes in sorted(need.collectives.items()))
    out.append(f'collectives {need.unit}: {kinds}')
  if need.host_transfers:
    out.append(f'TRANSFERS TO OR FROM THE HOST: {", ".join(sorted(set(need.host_transfers)))}')
  if need.unknown_loops:
    names = ', '.join(sorted(set(need.unknown_loops)))
    out.append(f'loops of unknown length, counted once: {names}')
  return out
