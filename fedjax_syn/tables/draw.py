"""Figures of tables, each a function of a `Drawing`."""

import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedjax_syn.core import paths
from fedjax_syn.tables.spec import Column, Entry, Key, Result, Row, measure_of

if TYPE_CHECKING:  # matplotlib is slow to import
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure


class Drawing(NamedTuple):
  """What a figure shows."""

  entry: Entry
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]
  results: Mapping[Key, Result]
  """Of finished runs."""
  cells: Mapping[tuple[str, str], tuple[float, float]]
  """The table's numbers by row and column, each with its ± or 0."""
  heading: str


def write(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Draws an entry's figure, or copies the pictures of its runs; returns the files' names."""
  draw = drawing.entry.draw
  if draw is None:
    return _copy(drawing, folder)
  from fedjax_syn.plotting import canvas

  canvas.finish(draw(drawing), folder / 'figure.png', drawing.heading)
  return ['figure.png', 'figure.svg']


def _copy(drawing: Drawing, folder: pathlib.Path) -> list[str]:
  """Copies the picture of each cell's first seed."""
  sources = {}
  for (row, column, _), result in sorted(drawing.results.items(), reverse=True):
    source = result.folder / drawing.entry.pictures
    if source.exists():
      sources[f'{row}-{column}.png'] = source
  for name, source in sources.items():
    paths.write_whole(folder / name, source.read_bytes())
  return sorted(sources)


def curves(drawing: Drawing) -> 'Figure':
  """Draws accuracy against rounds, a line per row and a panel per column."""
  from fedjax_syn.plotting import canvas, numbers, style

  figure, panels = _panels(len(drawing.columns))
  labels: dict[str, Any] = {}
  for axes, column in zip(panels, drawing.columns, strict=True):
    looks = style.styles([row.settings.get('algorithm', row.name) for row in drawing.rows])
    for row, look in zip(drawing.rows, looks, strict=True):
      runs = [r for key, r in sorted(drawing.results.items()) if key[:2] == (row.name, column.name)]
      if lines := [line for result in runs for line in result.lines]:
        labels[row.title] = canvas.band(axes, numbers.curve(lines), 100, linewidth=1.2, **look.line)
    axes.set(title=column.title, xlabel='round', ylabel='test accuracy (%)')
  if labels:
    figure.legend(labels.values(), labels.keys(), loc='outside lower center', ncols=5)
  return figure


def against(key: str, label: str, log: bool = False) -> Callable[[Drawing], 'Figure']:
  """Returns the function that draws the numbers against a setting.

  Args:
    key: of the setting. If rows have it, there is a line per column, else a line per row.
    label: of the setting.
    log: whether its axis is logarithmic.
  """
  return functools.partial(_against, key, label, log)


def _against(key: str, label: str, log: bool, drawing: Drawing) -> 'Figure':
  of_rows = any(key in row.settings for row in drawing.rows)
  points: Sequence[Row | Column] = drawing.rows if of_rows else drawing.columns
  lines: Sequence[Row | Column] = drawing.columns if of_rows else drawing.rows
  figure, (axes,) = _panels(1)
  for line in lines:
    names = [(p.name, line.name) if of_rows else (line.name, p.name) for p in points]
    pairs = [
      (p, drawing.cells[n]) for p, n in zip(points, names, strict=True) if n in drawing.cells
    ]
    if pairs:
      x, mean, std = np.array(sorted((p.settings[key], *cell) for p, cell in pairs)).T
      axes.errorbar(x, mean, yerr=std, marker='o', capsize=3, label=line.title)
  axes.set(xlabel=label, ylabel=drawing.entry.measure.axis)
  if log:
    axes.set_xscale('log')
  return figure


def bars(drawing: Drawing) -> 'Figure':
  """Draws the table's numbers as bars, a group per column and a bar per row."""
  figure, (axes,) = _panels(1)
  width = 0.8 / len(drawing.rows)
  for number, row in enumerate(drawing.rows):
    cells = [drawing.cells.get((row.name, c.name), (0.0, 0.0)) for c in drawing.columns]
    mean, std = np.array(cells).T
    at = np.arange(len(drawing.columns)) + (number - (len(drawing.rows) - 1) / 2) * width
    label = row.title if len(drawing.rows) > 1 else None
    axes.bar(at, mean, width, yerr=np.where(std > 0, std, np.nan), capsize=3, label=label)
  axes.set_xticks(range(len(drawing.columns)), [c.title for c in drawing.columns], rotation=20)
  axes.set(ylabel=drawing.entry.measure.axis)
  return figure


def panels(drawing: Drawing) -> 'Figure':
  """Draws the numbers as bars, a panel per column: each may have a measure of its own."""
  figure, all_axes = _panels(len(drawing.columns))
  for axes, column in zip(all_axes, drawing.columns, strict=True):
    rows = [row for row in drawing.rows if (row.name, column.name) in drawing.cells]
    for number, row in enumerate(rows):
      mean, std = drawing.cells[row.name, column.name]
      axes.bar(number, mean, yerr=std or np.nan, capsize=3)
    axes.set_xticks(range(len(rows)), [row.title for row in rows], rotation=20)
    axes.set(title=column.title, ylabel=measure_of(drawing.entry, column).axis)
  return figure


def dots(drawing: Drawing) -> 'Figure':
  """Draws the numbers of many rows as dots on a logarithmic axis, a panel per column."""
  figure, all_axes = _panels(len(drawing.columns), len(drawing.columns))
  figure.set_figheight(1.2 + 0.22 * len(drawing.rows))
  for axes, column in zip(all_axes, drawing.columns, strict=True):
    rows = [row for row in drawing.rows[::-1] if (row.name, column.name) in drawing.cells]
    mean = [drawing.cells[row.name, column.name][0] for row in rows]
    axes.plot(mean, range(len(rows)), 'o')
    axes.set_yticks(range(len(rows)), [row.title for row in rows])
    axes.set(title=column.title, xlabel=measure_of(drawing.entry, column).axis, xscale='log')
  return figure


def _panels(count: int, across: int = 3) -> 'tuple[Figure, list[Axes]]':
  from fedjax_syn.plotting import canvas

  across = min(across, count)
  return canvas.begin(4.2 * across + 0.6, 3 * math.ceil(count / across) + 0.9, count, across)
