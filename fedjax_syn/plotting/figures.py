"""Figures of a run, each a pure function of numbers.

Each is returned, so that a notebook shows it, and written to a file where a path is given.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedjax_syn.core.texts import caption
from fedjax_syn.data.normalisation import Normalisation
from fedjax_syn.plotting import canvas
from fedjax_syn.plotting.canvas import label_of
from fedjax_syn.plotting.canvas import save as save
from fedjax_syn.plotting.numbers import as_images, curve, metric_title, mosaic, percent
from fedjax_syn.plotting.style import COLOURS, method_name, styles

BUBBLES = 4000  # more than that takes long and shows nothing


def accuracy_curve(
  histories: Mapping[str, Sequence[Mapping[str, Any]]],
  path: Path | None = None,
  mark_round: int | None = None,
  title: str = '',
  key: str = 'test/accuracy',
) -> Figure:
  """Draws a metric over rounds: a line for the mean over seeds, a band for one standard deviation.

  Args:
    histories: metrics lines by method, 'scaffold+dynafed', or another label; the first is drawn
      above the others.
    path: of the picture; None: it is only returned.
    mark_round: the round after which the data set was synthesised.
    title: above the axes.
    key: which metric.

  Returns:
    The figure.
  """
  figure, (axes,) = canvas.begin()
  looks = zip(histories.items(), styles([*histories]), strict=True)
  for i, ((name, lines), style) in enumerate(looks):
    c = curve(lines, key)
    line = {'marker': 'o' if len(c.rounds) < 2 else '', 'zorder': 3 - i / len(histories)}
    line |= {'linewidth': 1.6, 'label': label_of(method_name(name))}
    canvas.band(axes, c, percent(key), **style.line, **line)
  if mark_round is not None:
    axes.axvline(mark_round, label=f'synthesis after round {mark_round}', **canvas.REFERENCE)
  axes.set(xlabel='round', ylabel=caption(metric_title(key)))
  axes.set_xlim(left=0)
  canvas.whole_numbers(axes)
  return canvas.finish(figure, path, title)


def partition_bubbles(
  counts: np.ndarray,
  path: Path | None = None,
  title: str = '',
  class_names: Sequence[str] | None = None,
  client_names: Sequence[str] | None = None,
) -> Figure:
  """Draws a bubble for every client and class, its area proportional to the samples.

  Of very many clients only the first are drawn; the picture says so.

  Args:
    counts: samples, [clients, classes].
    path: of the picture; None: it is only returned.
    title: above the axes.
    class_names: labels of the classes; numbers by default.
    client_names: labels of the clients, shown if there are at most 40; numbers by default.

  Returns:
    The figure.
  """
  counts = np.asarray(counts)
  clients, classes = counts.shape
  notes = f'largest bubble: {counts.max()} samples'
  if empty := np.sum(counts.sum(axis=1) == 0):
    notes = f'{notes}; {empty} clients without any'
  shown = min(clients, max(20, BUBBLES // classes))
  if shown < clients:
    notes = f'first {shown} of {clients} clients; {notes}'
  counts = counts[:shown]
  named = client_names is not None and clients <= 40
  names = [caption(name, 24) for name in client_names or ()] if named else []
  width, height = np.clip(1 + 0.36 * shown, 5, 16), np.clip(1.2 + 0.36 * classes, 2.6, 12)
  cell = 72 * min((width - 1) / (shown + 0.5), (height - 1.2) / (classes + 0.5))  # points
  longest = max(map(len, names), default=0)
  upright = 7 * longest > 72 * (width - 1) / shown
  figure, (axes,) = canvas.begin(width, height + 0.09 * longest * upright)
  client, label = np.nonzero(counts)
  area = max(0.9 * cell, 3.0) ** 2 * counts[client, label] / max(counts.max(), 1)
  many = len(client) > 1000
  axes.scatter(client, label, s=area, color=COLOURS[5], alpha=0.75, linewidths=0, rasterized=many)
  if cell > 20:  # points: a number of four digits fits
    for i, c in np.argwhere(counts).tolist():
      axes.text(i, c, f'{counts[i, c]}', fontsize=7, ha='center', va='center')
  if class_names is not None and classes <= 40:
    axes.set_yticks(range(classes), [caption(name, 24) for name in class_names])
  elif classes <= 20:
    axes.set_yticks(range(classes))
  # The first class is on top, as in pictures of learned sets.
  axes.set(ylabel='class', xlim=(-0.75, shown - 0.25), ylim=(classes - 0.25, -0.75))
  axes.set_xlabel(f'client\n({notes})', fontsize='small')
  if named:
    axes.set_xticks(range(clients), names, rotation=90 if upright else 0)
  else:
    canvas.whole_numbers(axes)
  return canvas.finish(figure, path, title)


def synthetic_sets(
  x_snapshots: np.ndarray,
  y: np.ndarray,
  iterations: Sequence[int],
  normalisation: Normalisation,
  path: Path | None = None,
  title: str = '',
  columns: int = 10,
  class_names: Sequence[str] = (),
) -> Figure:
  """Draws a learned set before, during and after learning, one row of images per class.

  Args:
    x_snapshots: [snapshots, images, height, width, channels], normalised as the model sees them; or
      rows of a table [..., features] or sequences [..., time, channels], drawn as `as_images`.
    y: soft labels, [snapshots, images, classes]; a class's images are those with the most weight
      on it in the last snapshot, in all panels, so that an image keeps its position.
    iterations: of each snapshot.
    normalisation: undone before drawing.
    path: of the picture; None: it is only returned.
    title: above the panels.
    columns: at most this many images per class.
    class_names: labels of the rows; numbers by default.

  Returns:
    The figure.
  """
  shown = sorted({0, len(x_snapshots) // 2, len(x_snapshots) - 1})
  labels = np.asarray(y)[-1].argmax(axis=-1)
  rows = np.unique(labels)
  columns = min(columns, max(np.sum(labels == c) for c in rows))
  width, height = max(3, 0.3 + 0.38 * columns * len(shown)), 0.6 + 0.38 * len(rows)
  figure, panels = canvas.begin(width, height, len(shown), len(shown))
  x = np.asarray(x_snapshots)
  x = pixels(x, normalisation) if x.ndim == 5 else as_images(x)
  for axes, snapshot in zip(panels, shown, strict=True):
    _show(axes, mosaic(x[snapshot], labels, rows, columns, background=1))
    axes.set_title(f'iteration {int(iterations[snapshot])}', fontsize=8)
    if np.ndim(x_snapshots) < 5:
      axes.set_aspect('auto')
  height = x.shape[2] + 1
  names = [caption(class_names[c] if class_names else c, 24) for c in rows]
  panels[0].set_yticks([(i + 0.5) * height for i in range(len(rows))], names, fontsize=7)
  return canvas.finish(figure, path, title, grid='')


def image_rows(
  rows: Mapping[str, np.ndarray],
  columns: Sequence[str],
  normalisation: Normalisation | None,
  path: Path | None = None,
  title: str = '',
) -> Figure:
  """Draws rows of images.

  Args:
    rows: by label, [images, height, width, channels], normalised as the model sees them, or uint8.
    columns: a label for each image of a row.
    normalisation: undone before drawing; not used for uint8.
    path: of the picture; None: it is only returned.
    title: above the images.

  Returns:
    The figure.
  """
  across = len(columns)
  figure, panels = canvas.begin(1 + 0.6 * across, 0.6 + 0.6 * len(rows), across * len(rows), across)
  for i, (label, images) in enumerate(rows.items()):
    line = panels[i * across : (i + 1) * across]
    line[0].set_ylabel(caption(label, 24), fontsize=7, rotation=0, ha='right', va='center')
    for axes, image in zip(line, pixels(np.asarray(images), normalisation), strict=True):
      _show(axes, image)
  for axes, name in zip(panels, columns, strict=False):
    axes.set_title(caption(name, 24), fontsize=7)
  return canvas.finish(figure, path, title, grid='')


def _show(axes, image: np.ndarray) -> None:
  """Draws an image [height, width, channels] in 0..1, grey if it has one channel."""
  axes.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap='gray', vmin=0, vmax=1)
  axes.set(xticks=[], yticks=[])


def pixels(x: np.ndarray, normalisation: Normalisation | None) -> np.ndarray:
  """Returns images [..., channels] in 0..1 without their normalisation; uint8 has none."""
  if x.dtype == np.uint8:
    return x / 255
  if normalisation is not None:
    x = x * np.asarray(normalisation.std) + np.asarray(normalisation.mean)
  return np.clip(x, 0, 1)


def cosine_distances(
  values: Mapping[str, Sequence[float]], path: Path | None = None, title: str = ''
) -> Figure:
  """Draws distributions of cosine distances as violins, each with its median.

  Args:
    values: distances by label, any number of each.
    path: of the picture; None: it is only returned.
    title: above the axes.

  Returns:
    The figure.
  """
  figure, (axes,) = canvas.begin(max(4.5, 1.5 + 1.1 * len(values)))
  axes.violinplot([np.asarray(v, float) for v in values.values()], showmedians=True)
  axes.set_xticks(range(1, len(values) + 1), [caption(label, 24) for label in values])
  axes.set_ylabel('cosine distance (0: same direction)')
  axes.set_xlabel(
    'trained on\n(bars: smallest, median and largest distance;\nwidth: share of the distances)',
    fontsize='small',
  )
  return canvas.finish(figure, path, title, grid='y')
