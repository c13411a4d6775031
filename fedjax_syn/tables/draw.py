"""Figures of tables: each takes a `Drawing`, writes pictures into a folder and returns their names."""

import functools
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.tables.spec import Column, Entry, Result, Row, measure_of

Draw = Callable[['Drawing', pathlib.Path], list[str]]


class Drawing(NamedTuple):
  """What a figure is made of."""

  entry: Entry
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]
  results: Mapping[tuple[str, str, int], Result]  # finished runs
  folders: Mapping[tuple[str, str, int], pathlib.Path]
  cells: Mapping[tuple[str, str], tuple[float, float]]  # what the table shows, and its ± (or 0)
  heading: str

  def of(self, row: Row, column: Column) -> list[Result]:
    """Returns a cell's finished runs."""
    return [r for (a, b, _), r in sorted(self.results.items()) if (a, b) == (row.name, column.name)]


def curves(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Draws accuracy against rounds, a line per row and a panel per column."""
  from fedjax_syn.plotting import figures  # matplotlib is slow to import

  across = min(3, len(drawing.columns))
  figure, panels = _panels(len(drawing.columns), across, drawing.heading)
  labels = {}
  for axes, column in zip(panels, drawing.columns, strict=True):
    for number, row in enumerate(drawing.rows):
      lines = [line for result in drawing.of(row, column) for line in result.lines]
      if not lines:
        continue
      curve = figures.curve(lines)
      style = {'color': f'C{number}', 'linestyle': '-' if number < 10 else '--'}  # ten colours
      (labels[row.title],) = axes.plot(curve.rounds, curve.mean, linewidth=1.2, **style)
      if curve.std.any():
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.rounds, low, high, color=f'C{number}', alpha=0.2, linewidth=0)
    axes.set(title=column.title, xlabel='round', ylabel='test accuracy')
  if labels:
    figure.legend(labels.values(), labels.keys(), loc='outside lower center', ncols=5)
  return [_save(figure, folder / 'figure.png')]


def against(key: str, label: str, log: bool = False) -> Draw:
  """Returns what draws the table's numbers against a setting of the rows, a line per column."""
  return functools.partial(_against, key, label, log)


def along(key: str, label: str, log: bool = False) -> Draw:
  """Returns what draws the table's numbers against a setting of the columns, a line per row."""
  return functools.partial(_along, key, label, log)


def _against(key: str, label: str, log: bool, drawing: Drawing, folder: pathlib.Path) -> list[str]:
  cells = drawing.cells
  lines = {
    c.title: [
      (r.settings[key], *cells[r.name, c.name]) for r in drawing.rows if (r.name, c.name) in cells
    ]
    for c in drawing.columns
  }
  return _lines(lines, label, log, drawing, folder)


def _along(key: str, label: str, log: bool, drawing: Drawing, folder: pathlib.Path) -> list[str]:
  cells = drawing.cells
  lines = {
    r.title: [
      (c.settings[key], *cells[r.name, c.name])
      for c in drawing.columns
      if (r.name, c.name) in cells
    ]
    for r in drawing.rows
  }
  return _lines(lines, label, log, drawing, folder)


def _lines(
  lines: Mapping[str, list[tuple[float, float, float]]],
  label: str,
  log: bool,
  drawing: Drawing,
  folder: pathlib.Path,
) -> list[str]:
  figure, (axes,) = _panels(1, 1, drawing.heading)
  for title, points in lines.items():
    if points:
      x, mean, spread = np.array(sorted(points)).T
      axes.errorbar(x, mean, yerr=spread, marker='o', capsize=3, label=title)
  axes.set(xlabel=label, ylabel=drawing.entry.measure.axis)
  if log:
    axes.set_xscale('log')
  if axes.get_legend_handles_labels()[0]:
    axes.legend(frameon=False)
  return [_save(figure, folder / 'figure.png')]


def bars(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Draws the table's numbers as bars, a group per column and a bar per row."""
  figure, (axes,) = _panels(1, 1, drawing.heading)
  width = 0.8 / len(drawing.rows)
  for number, row in enumerate(drawing.rows):
    cells = [drawing.cells.get((row.name, c.name), (0.0, 0.0)) for c in drawing.columns]
    mean, spread = np.array(cells).T
    at = np.arange(len(drawing.columns)) + (number - (len(drawing.rows) - 1) / 2) * width
    axes.bar(at, mean, width, yerr=np.where(spread > 0, spread, np.nan), capsize=3, label=row.title)
  axes.set_xticks(range(len(drawing.columns)), [c.title for c in drawing.columns], rotation=20)
  axes.set(ylabel=drawing.entry.measure.axis)
  if len(drawing.rows) > 1:
    axes.legend(frameon=False)
  return [_save(figure, folder / 'figure.png')]


def panels(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Draws the table's numbers as bars, a panel per column: each may have a measure of its own."""
  figure, axes_of = _panels(len(drawing.columns), min(3, len(drawing.columns)), drawing.heading)
  for axes, column in zip(axes_of, drawing.columns, strict=True):
    rows = [row for row in drawing.rows if (row.name, column.name) in drawing.cells]
    for number, row in enumerate(rows):
      mean, spread = drawing.cells[row.name, column.name]
      axes.bar(number, mean, yerr=spread or np.nan, capsize=3)
    axes.set_xticks(range(len(rows)), [row.title for row in rows], rotation=20)
    axes.set(title=column.title, ylabel=measure_of(drawing.entry, column).axis)
  return [_save(figure, folder / 'figure.png')]


def dots(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Draws the table's numbers as dots on a logarithmic axis, a line per row and a panel per column: for many rows."""
  count = len(drawing.columns)
  figure, axes_of = _panels(count, count, drawing.heading)
  figure.set_figheight(1.2 + 0.22 * len(drawing.rows))
  for axes, column in zip(axes_of, drawing.columns, strict=True):
    rows = [row for row in drawing.rows[::-1] if (row.name, column.name) in drawing.cells]
    mean = [drawing.cells[row.name, column.name][0] for row in rows]
    axes.plot(mean, range(len(rows)), 'o')
    axes.set_yticks(range(len(rows)), [row.title for row in rows])
    axes.set(title=column.title, xlabel=measure_of(drawing.entry, column).axis, xscale='log')
  return [_save(figure, folder / 'figure.png')]


def pictures(path: str) -> Draw:
  """Returns what copies a picture that every run leaves in its folder, of each cell's first seed."""
  return functools.partial(_pictures, path)


def _pictures(path: str, drawing: Drawing, folder: pathlib.Path) -> list[str]:
  names = []
  for row, column, seed in sorted(drawing.results, reverse=True):  # the first seed is copied last
    source = drawing.folders[row, column, seed] / path
    if source.exists():
      target = folder / f'{row}-{column}.png'
      shutil.copyfile(source, _partial(target))
      _partial(target).replace(target)
      names.append(target.name)
  return sorted(set(names))


def _panels(count: int, across: int, heading: str) -> tuple[Any, list[Any]]:
  from matplotlib.figure import Figure

  down = math.ceil(count / across)
  figure = Figure(figsize=(4.2 * across + 0.6, 3 * down + 0.9), layout='constrained')
  panels = list(figure.subplots(down, across, squeeze=False).flat)
  for axes in panels[count:]:
    axes.remove()
  for axes in panels[:count]:
    axes.grid(alpha=0.3)
  figure.suptitle(heading)
  return figure, panels[:count]


def _partial(path: pathlib.Path) -> pathlib.Path:
  """Two calls may draw the same figure at the same time; a reader never sees half of one."""
  return path.with_name(f'.{os.getpid()}.{path.name}')


def _save(figure: Any, path: pathlib.Path) -> str:
  figure.savefig(_partial(path), dpi=150)
  _partial(path).replace(path)
  return path.name
