"""How every figure begins, is styled and is written: without a display, without pyplot's state."""

import io
import math
import textwrap
import warnings
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedjax_syn.core import paths
from fedjax_syn.core.texts import caption
from fedjax_syn.plotting.numbers import Curve
from fedjax_syn.plotting.style import COLOURS, plain_title

DPI = 150
VECTOR: dict[Any, Any] = {'svg.hashsalt': 'fedjax_syn', 'pdf.fonttype': 42}
"""An SVG is the same every time; a PDF has TrueType fonts, as conferences ask for."""
METADATA: dict[str, dict[str, str | None]] = {
  'png': {'Software': f'matplotlib {matplotlib.__version__}'},
  'svg': {'Date': None},
  'pdf': {'CreationDate': None},
}
"""What the files of a figure say of themselves, by their ending."""
REFERENCE: dict[str, Any] = {'color': '0.4', 'linestyle': '--', 'linewidth': 1}
"""The style of lines that mark a round or a value."""


def begin(
  width: float = 6, height: float = 4, panels: int = 1, across: int = 1
) -> tuple[Figure, list[Axes]]:
  """Returns a figure of some inches and its panels, `across` in a row."""
  figure = Figure(figsize=(width, height), layout='constrained')
  axes = list(figure.subplots(math.ceil(panels / across), across, squeeze=False).flat)
  for unused in axes[panels:]:
    unused.remove()
  for each in axes[:panels]:
    each.set_prop_cycle(color=COLOURS)
  return figure, axes[:panels]


def whole_numbers(axes: Axes) -> None:
  """Marks only whole numbers on the x axis."""
  axes.xaxis.set_major_locator(MaxNLocator('auto', steps=[1, 2, 2.5, 5, 10], integer=True))


def band(axes: Axes, curve: Curve, scale: float = 1, **line: Any) -> Line2D:
  """Draws a curve times `scale`, with a band of one standard deviation if seeds are several."""
  mean, std = scale * curve.mean, scale * curve.std
  (drawn,) = axes.plot(curve.rounds, mean, **line)
  if std.any():
    low, high = mean - std, mean + std
    axes.fill_between(curve.rounds, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
  return drawn


def finish(
  figure: Figure, path: Path | None, title: str = '', grid: Literal['both', 'y', ''] = 'both'
) -> Figure:
  """Adds what all figures have and saves the figure, see `save`.

  Args:
    figure: the figure, whose panels get a legend of what has a label.
    path: of the picture; None writes nothing.
    title: above all panels.
    grid: along which axes, 'both' or 'y'; '' for none.
  """
  for axes in figure.axes:
    if grid:
      axes.grid(alpha=0.3, axis=grid)
    if axes.get_legend_handles_labels()[0]:
      axes.legend(frameon=False, fontsize='small')
  if title:
    lines = textwrap.wrap(caption(plain_title(title), 160), int(12 * figure.get_figwidth()))
    figure.suptitle('\n'.join(lines), fontsize=10)
  return save(figure, path)


def save(figure: Figure, path: Path | None) -> Figure:
  """Writes a figure and returns it.

  Args:
    figure: the figure.
    path: of the file, a PNG, PDF or SVG by its ending, whose folder is created; a PNG without
      images has an SVG beside it, for papers. None writes nothing.
  """
  if path is None:
    return figure
  path.parent.mkdir(parents=True, exist_ok=True)
  FigureCanvasAgg(figure)
  layout = figure.get_layout_engine()
  drawn = path.suffix == '.png' and not any(axes.images for axes in figure.axes)
  with warnings.catch_warnings(), matplotlib.rc_context(VECTOR):
    warnings.simplefilter('ignore')  # about a character that no font has
    for file in (path, path.with_suffix('.svg'))[: 1 + drawn]:
      content, kind = io.BytesIO(), file.suffix.removeprefix('.')
      figure.savefig(content, format=kind, dpi=DPI, metadata=METADATA[kind])
      paths.write_whole(file, content.getvalue())
      figure.set_layout_engine('none')  # the second is laid out like the first
  figure.set_layout_engine(layout)
  return figure


def label_of(text: str) -> str:
  """Returns a label for a legend; matplotlib would leave out one that is empty or begins with _."""
  return caption(text if text[:1].strip('_') else f' {text}', 40)
