"""Figures of the diagnostics of a synthetic set, returned and written like those in `figures`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedjax_syn.algorithms.dynafed.client_losses import RoundLosses
from fedjax_syn.algorithms.dynafed.gradient_error import GradientErrors, Line
from fedjax_syn.algorithms.dynafed.scratch import Scratch
from fedjax_syn.core.texts import caption
from fedjax_syn.plotting import canvas
from fedjax_syn.plotting.canvas import label_of


def gradient_error(
  errors: Mapping[str, GradientErrors],
  lines: Mapping[str, Line],
  rounds: Sequence[int],
  path: Path | None = None,
  title: str = '',
) -> Figure:
  """Draws Assumption 3: gradient errors over norms with the fitted line, and cosines over rounds.

  Args:
    errors: by label, at the same points.
    lines: by label, the fitted lines.
    rounds: the round of each point.
    path: of the picture; None: it is only returned.
    title: above the panels.

  Returns:
    The figure.
  """
  figure, (left, right) = canvas.begin(9, 4, 2, 2)
  for label, e in errors.items():
    points = left.scatter(e.real_norm, e.error_norm, s=14, label=label_of(label))
    colour = points.get_facecolor()[0]
    r = np.array([0, e.real_norm.max()])
    delta, epsilon = lines[label].delta, lines[label].epsilon
    note = f'{label_of(label)}: {delta:.2f} r + {epsilon:.2g}'
    left.plot(r, delta * r + epsilon, color=colour, linewidth=1, label=note)
    right.plot(rounds, e.cosine, marker='.', color=colour, label=label_of(label))
  left.set(xlabel='r, norm of the gradient on all data', ylabel='norm of the difference')
  left.set_xlim(left=0)
  left.set_ylim(bottom=0)
  right.set(xlabel='round of the model', ylabel='cosine of the gradients')
  canvas.whole_numbers(right)
  return canvas.finish(figure, path, title)


def privacy(
  distances: Mapping[str, np.ndarray], threshold: float, path: Path | None = None, title: str = ''
) -> Figure:
  """Draws the distributions of distances to the nearest training image.

  Args:
    distances: by label, any number of each.
    threshold: the 5 % quantile of the held-out images' distances.
    path: of the picture; None: it is only returned.
    title: above the axes.

  Returns:
    The figure.
  """
  figure, (axes,) = canvas.begin()
  top = max(float(np.max(d)) for d in distances.values())
  for label, d in distances.items():
    weights = np.full(len(d), 100 / len(d))
    bins = np.linspace(0, top or 1.0, 50).tolist()
    axes.hist(d, bins, weights=weights, alpha=0.5, label=f'{label_of(label)} ({len(d)})')
  axes.axvline(threshold, label='5 % of the held-out', **canvas.REFERENCE)
  axes.set(xlabel='distance per pixel to the nearest training image', ylabel='share (%)')
  return canvas.finish(figure, path, title)


def client_losses(
  losses: RoundLosses,
  clients: Sequence[int] | np.ndarray,
  shown: Sequence[int] | np.ndarray,
  path: Path | None = None,
  title: str = '',
  names: Sequence[str] = (),
) -> Figure:
  """Draws Figure 3: losses of some clients on their own data in a round, and the mean of all.

  Args:
    losses: of the round.
    clients: who took part, in the order of `losses.local`.
    shown: out of these.
    path: of the picture; None: it is only returned.
    title: above the axes.
    names: what the data call the clients, by number; () if they do not.

  Returns:
    The figure.
  """
  figure, (axes,) = canvas.begin(7)
  # Clients end at different steps: time is counted in shares of the round's two halves.
  tuned = 1 + np.linspace(0, 1, len(losses.mean))
  for client in shown:
    row = list(clients).index(client)
    done = np.minimum(losses.at, losses.steps[row]) / losses.steps[row]
    label = caption(f'client {names[client] if names else client}', 24)
    (line,) = axes.plot(done, losses.local[row], linewidth=1.4, label=label)
    jump = [losses.local[row, -1], losses.tuned[0, client]]
    axes.plot([1, 1], jump, color=line.get_color(), linewidth=1, linestyle=':')
    axes.plot(tuned, losses.tuned[:, client], color=line.get_color(), linewidth=1.4)
  axes.plot(tuned, losses.mean, 'k*', markersize=5, label='mean over all data')
  axes.axvline(1, **canvas.REFERENCE)
  steps = len(losses.mean) - 1
  axes.set_xticks(
    [0, 1, 2], ['global model', f'after {losses.steps.max()} steps | mean', f'{steps} steps later']
  )
  axes.set(xlabel='local training, then fine-tuning', ylabel="loss over a client's own data")
  positive = np.concatenate([losses.local.ravel(), losses.tuned.ravel()])
  if np.nanmin(positive) > 0:
    axes.set_yscale('log')
  return canvas.finish(figure, path, title)


def from_scratch(
  runs: Mapping[str, Scratch],
  path: Path | None = None,
  title: str = '',
  reference: float | None = None,
) -> Figure:
  """Draws Figure 6, right: the test accuracy of new networks trained on small sets alone.

  Args:
    runs: by label of the set.
    path: of the picture; None: it is only returned.
    title: above the axes.
    reference: the federated run's own accuracy.

  Returns:
    The figure.
  """
  figure, (axes,) = canvas.begin()
  for label, run in runs.items():
    axes.plot(run.steps, 100 * run.accuracy, label=label_of(label), linewidth=1.6)
  if reference is not None:
    axes.axhline(100 * reference, label='the federated model', **canvas.REFERENCE)
  axes.set(xlabel='step', ylabel='test accuracy (%)')
  axes.set_xlim(left=0)
  return canvas.finish(figure, path, title)
