"""Figures of a run, each a pure function of numbers; drawn without a display and without pyplot's hidden state.

Each is returned, so that a notebook shows it, and written to a file where a path is given.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedjax_syn.core.texts import caption

DPI = 150
ACROSS = 20  # images in a row
BUBBLES = 4000  # more than that takes long and shows nothing


class Curve(NamedTuple):
  """A metric over rounds: mean and standard deviation over seeds."""

  rounds: np.ndarray  # [points]
  mean: np.ndarray  # [points]
  std: np.ndarray  # [points], 0 for a single seed


def curve(lines: Sequence[Mapping[str, Any]], key: str = 'test/accuracy') -> Curve:
  """Averages a metric over seeds, at the rounds at which every seed that goes that far has it.

  Args:
    lines: metrics lines.
    key: the metric.

  Returns:
    The curve; a seed that diverged counts up to where it stopped.
  """
  by_round: dict[int, list[float]] = {}
  for line in lines:
    if key in line:
      by_round.setdefault(line['round'], []).append(line[key])
  rounds = sorted(by_round)
  spread = lambda values: np.std(values, ddof=1) if len(values) > 1 else 0.0
  return Curve(
    np.array(rounds),
    np.array([np.mean(by_round[r]) for r in rounds]),
    np.array([spread(by_round[r]) for r in rounds]),
  )


def accuracy_curve(
  histories: Mapping[str, Sequence[Mapping[str, Any]]],
  path: Path | None = None,
  mark_round: int | None = None,
  title: str = '',
  key: str = 'test/accuracy',
) -> Figure:
  """Draws a metric over rounds: a line for the mean over seeds, a band for one standard deviation.

  Args:
    histories: metrics lines by label.
    path: where the picture goes; None: it is only returned.
    mark_round: the round after which the data set was synthesised.
    title: above the axes.
    key: which metric.

  Returns:
    The figure.
  """
  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.add_subplot()
  for label, lines in histories.items():
    c = curve(lines, key)
    (line,) = axes.plot(
      c.rounds,
      c.mean,
      label=label_of(label),
      linewidth=1.6,
      marker='o' if len(c.rounds) < 2 else '',
    )
    if c.std.any():
      axes.fill_between(
        c.rounds, c.mean - c.std, c.mean + c.std, color=line.get_color(), alpha=0.2, linewidth=0
      )
  if mark_round is not None:
    axes.axvline(
      mark_round,
      color='0.4',
      linestyle='--',
      linewidth=1,
      label=f'synthesis after round {mark_round}',
    )
  axes.set(xlabel='round', ylabel=caption(key.replace('/', ' ')), title=caption(title))
  axes.grid(alpha=0.3)
  axes.set_xlim(left=0)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.legend(frameon=False)
  return save(figure, path)


def partition_bubbles(
  counts: np.ndarray,
  path: Path | None = None,
  title: str = '',
  class_names: Sequence[str] | None = None,
  client_names: Sequence[str] | None = None,
) -> Figure:
  """Draws who holds what: a bubble for every client and class, its area proportional to the samples.

  Of very many clients only the first are drawn; the picture says so.

  Args:
    counts: samples, [clients, classes].
    path: where the picture goes; None: it is only returned.
    title: above the axes.
    class_names: labels of the classes; numbers by default.
    client_names: labels of the clients, shown if there are at most 40; numbers by default.

  Returns:
    The figure.
  """
  counts = np.asarray(counts)
  clients, classes = counts.shape
  notes = f'largest bubble: {counts.max()} samples; {np.sum(counts.sum(axis=1) == 0)} without any'
  shown = min(clients, max(20, BUBBLES // classes))
  if shown < clients:
    notes = f'first {shown} of {clients} clients; {notes}'
  counts = counts[:shown]
  width, height = np.clip(0.3 * shown, 5, 16), np.clip(0.28 * classes, 2.5, 12)
  figure = Figure(figsize=(width, height), layout='constrained')
  axes = figure.add_subplot()
  client, label = np.nonzero(counts)
  cell = 72 * min(0.85 * width / shown, 0.75 * height / classes)  # points
  area = max(cell, 9.0) ** 2 * counts[client, label] / max(counts.max(), 1)
  colours = 'tab10' if classes <= 10 else 'viridis'
  axes.scatter(client, label, s=area, c=label, cmap=colours, alpha=0.75, linewidths=0)
  if class_names is not None and classes <= 40:
    axes.set_yticks(range(classes), [caption(name, 24) for name in class_names])
  elif classes <= 20:
    axes.set_yticks(range(classes))
  # The first class on top, as in pictures of learned sets.
  axes.set(ylabel='class', xlim=(-1, shown), ylim=(classes, -1), title=caption(title))
  axes.set_xlabel(f'client\n({notes})', fontsize='small')
  if client_names is not None and clients <= 40:
    names = [caption(name, 24) for name in client_names]
    axes.set_xticks(range(clients), names, rotation=90 if max(map(len, names)) > 2 else 0)
  else:
    axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.2)
  return save(figure, path)


def synthetic_sets(
  x_snapshots: np.ndarray,
  y: np.ndarray,
  iterations: Sequence[int],
  normalisation: Any,
  path: Path | None = None,
  title: str = '',
  columns: int = 10,
) -> Figure:
  """Draws a learned set before, during and after learning, one row of images per class.

  Args:
    x_snapshots: [snapshots, images, height, width, channels], normalised as the model sees them.
    y: soft labels, [snapshots, images, classes]; a class's images are those with the most weight on it
      in the last snapshot, in all panels, so that an image keeps its place.
    iterations: of each snapshot.
    normalisation: has `mean` and `std`, per channel; undone before drawing.
    path: where the picture goes; None: it is only returned.
    title: above the panels.
    columns: at most this many images per class.

  Returns:
    The figure.
  """
  shown = sorted({0, len(x_snapshots) // 2, len(x_snapshots) - 1})
  labels = np.asarray(y)[-1].argmax(axis=-1)
  rows = np.unique(labels)
  columns = min(columns, max(np.sum(labels == c) for c in rows))
  title = caption(title)
  width = max(0.3 + 0.38 * columns * len(shown), 0.075 * len(title))  # a title is not cut off
  figure = Figure(figsize=(width, 0.6 + 0.38 * len(rows)), layout='constrained')
  panels = figure.subplots(1, len(shown), squeeze=False)[0]
  for axes, snapshot in zip(panels, shown, strict=True):
    images = pixels(np.asarray(x_snapshots[snapshot]), normalisation)
    height, width = images.shape[1] + 1, images.shape[2] + 1
    canvas = np.ones((height * len(rows), width * columns, images.shape[3]))
    for i, c in enumerate(rows):
      for j, image in enumerate(images[labels == c][:columns]):
        canvas[i * height : (i + 1) * height - 1, j * width : (j + 1) * width - 1] = image
    axes.imshow(
      canvas.squeeze(-1) if canvas.shape[-1] == 1 else canvas, cmap='gray', vmin=0, vmax=1
    )
    axes.set_title(f'iteration {int(iterations[snapshot])}', fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
  panels[0].set_yticks([(i + 0.5) * height for i in range(len(rows))], rows, fontsize=7)
  if title:
    figure.suptitle(title, fontsize=9)
  return save(figure, path)


def image_rows(
  rows: Mapping[str, np.ndarray],
  columns: Sequence[str],
  normalisation: Any,
  path: Path | None = None,
  title: str = '',
) -> Figure:
  """Draws rows of images.

  Args:
    rows: by label, [images, height, width, channels], normalised as the model sees them, or uint8.
    columns: a label for each image of a row.
    normalisation: has `mean` and `std`, per channel; undone before drawing.
    path: where the picture goes; None: it is only returned.
    title: above the images.

  Returns:
    The figure.
  """
  across = len(columns)
  figure = Figure(figsize=(1 + 0.6 * across, 0.6 + 0.6 * len(rows)), layout='constrained')
  grid = figure.subplots(len(rows), across, squeeze=False)
  for line, (label, images) in zip(grid, rows.items(), strict=True):
    line[0].set_ylabel(caption(label, 24), fontsize=7, rotation=0, ha='right', va='center')
    for axes, image in zip(line, pixels(np.asarray(images), normalisation), strict=True):
      axes.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap='gray', vmin=0, vmax=1)
      axes.set(xticks=[], yticks=[])
  for axes, name in zip(grid[0], columns, strict=True):
    axes.set_title(caption(name, 24), fontsize=7)
  if title:
    figure.suptitle(caption(title), fontsize=9)
  return save(figure, path)


def pixels(x: np.ndarray, normalisation: Any) -> np.ndarray:
  """Undoes the normalisation: [..., channels] to 0..1, values outside cut off; uint8 has none to undo."""
  if x.dtype == np.uint8:
    return x / 255
  return np.clip(x * np.asarray(normalisation.std) + np.asarray(normalisation.mean), 0, 1)


def cosine_distances(
  values: Mapping[str, Sequence[float]], path: Path | None = None, title: str = ''
) -> Figure:
  """Draws distributions of cosine distances as violins, each with its median.

  Args:
    values: distances by label, any number of each.
    path: where the picture goes; None: it is only returned.
    title: above the axes.

  Returns:
    The figure.
  """
  figure = Figure(figsize=(1.5 + 1.1 * len(values), 4), layout='constrained')
  axes = figure.add_subplot()
  axes.violinplot([np.asarray(v, float) for v in values.values()], showmedians=True)
  axes.set_xticks(range(1, len(values) + 1), [caption(label, 24) for label in values])
  axes.set(ylabel='cosine distance', title=caption(title))
  axes.grid(axis='y', alpha=0.3)
  return save(figure, path)


def save(figure: Figure, path: Path | None) -> Figure:
  """Writes a figure, without pyplot, and returns it; the folder is made; None writes nothing."""
  if path is None:
    return figure
  path.parent.mkdir(parents=True, exist_ok=True)
  FigureCanvasAgg(figure)
  metadata = {'Software': f'matplotlib {matplotlib.__version__}'}
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # of a character that no font has
    figure.savefig(path, dpi=DPI, metadata=metadata if path.suffix == '.png' else None)
  return figure


def label_of(text: str) -> str:
  """Returns a label for a legend; matplotlib would leave out one that is empty or begins with _."""
  return caption(text if text[:1].strip('_') else f' {text}', 40)
