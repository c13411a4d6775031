"""Tables whose cells are coloured: who holds what, accuracy by class, and confusions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.report.pictures import data_uri
from fedjax_syn.report.runs import Run, why_not
from fedjax_syn.report.tables import NONE

CLIENTS = 60
"""Rows of a partition, at most."""
CELLS = 4000
"""Of a partition, at most."""
DRAWN = 1000
"""Clients in the picture of a partition with more, at most."""
CLASSES = 40
"""Of confusions, at most."""
BLUE = (10, 94, 168)


class Heat(NamedTuple):
  """A table with a header row; a row is its name and its cells, each a text and a shade in 0..1."""

  head: list[str]
  rows: list[tuple[str, list[tuple[str, str]]]]


def _heat(head: Sequence[str], names: Sequence[str], texts: Any, shades: np.ndarray) -> Heat:
  """Returns a heat map of texts and shades, [rows, columns]."""
  shown = [[f'{shade:.2f}' if shade > 0 else '' for shade in row] for row in shades]
  cells = [list(zip(*row, strict=True)) for row in zip(texts, shown, strict=True)]
  return Heat(list(head), list(zip(names, cells, strict=True)))


def _counts(head: Sequence[str], names: Sequence[str], counts: np.ndarray, top: Any) -> Heat:
  """Returns a heat map of counts [rows, columns], those of `top` the darkest, and their sums."""
  texts = [[f'{n}' if n else '' for n in row] + [f'{row.sum()}'] for row in counts]
  shades = np.pad(counts / np.maximum(top, 1), ((0, 0), (0, 1)))
  return _heat([*head, 'all'], names, texts, shades)


def partitions(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """Returns the partitions, each once, with the runs that share it."""
  groups: dict[str, tuple[np.ndarray, list[Run]]] = {}
  for run in runs:
    if run.counts is not None:
      clients = [run.client_name(i) for i in range(len(run.counts))]
      key = f'{run.counts.tolist()} {clients} {run.class_names()}'
      groups.setdefault(key, (run.counts, []))[1].append(run)
  return [_partition(counts, group) for counts, group in groups.values()]


def _partition(counts: np.ndarray, group: Sequence[Run]) -> dict[str, Any]:
  clients, classes = counts.shape
  sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
  rows = min(clients, CLIENTS, max(1, CELLS // classes))
  names = [group[0].client_name(i) for i in range(rows)]
  head = [f'class {name}' if name.isdecimal() else name for name in group[0].class_names()]
  text = (
    f'{clients} clients, {sizes.min()} to {sizes.max()} samples each (median'
    f' {np.median(sizes):g}), of {held.min()} to {held.max()} of {classes} classes (median'
    f' {np.median(held):g})'
  )
  heat = _counts(['client', *head], names, counts[:rows], counts.max())
  picture = _picture(counts[:DRAWN]) if rows < clients else ''
  shown = {'heat': heat, 'picture': picture, 'drawn': min(clients, DRAWN), 'clients': clients}
  return {'names': '; '.join(run.label for run in group), 'text': text, **shown}


def _picture(counts: np.ndarray) -> str:
  """Returns counts as a picture: a column for each client, a row for each class."""
  opacity = np.rint(255 * counts.T / max(counts.max(), 1))[..., None]
  pixels = np.concatenate([np.broadcast_to(BLUE, (*opacity.shape[:2], 3)), opacity], axis=-1)
  return data_uri(pixels.astype(np.uint8))


def by_class(runs: Sequence[Run]) -> list[Heat]:
  """Returns test accuracies by class, means over seeds: a table for each list of classes."""
  groups: dict[tuple[str, ...], list[Run]] = {}
  for run in runs:
    if _measured(run, 'class_accuracy'):
      groups.setdefault(tuple(run.class_names()), []).append(run)
  return [_by_class(names, group) for names, group in groups.items()]


def _by_class(names: Sequence[str], group: Sequence[Run]) -> Heat:
  shares = np.stack([np.mean(_measured(run, 'class_accuracy'), axis=0) for run in group], axis=-1)
  texts = [[NONE if np.isnan(s) else f'{100 * s:.1f}' for s in row] for row in shares]
  return _heat(['class', *(run.label for run in group)], names, texts, np.nan_to_num(shares))


def confusions(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """Returns test rows by true and predicted class, sums over seeds, of each run that has them."""
  out = []
  for run in runs:
    names, measured = run.class_names(), _measured(run, 'confusion')
    if measured and len(names) <= CLASSES:
      counts = np.stack(measured).sum(axis=0, dtype=np.int64)
      heat = _counts(['true class', *names], names, counts, counts.sum(axis=1, keepdims=True))
      out.append({'label': run.label, 'seeds': len(measured), 'heat': heat})
  return out


def without_confusions(runs: Sequence[Run]) -> str:
  """States of which runs no confusions are shown, and why."""
  many = [run for run in runs if len(run.class_names()) > CLASSES]
  others = [run for run in runs if run not in many and not _measured(run, 'confusion')]
  texts = [f'{run.label} (more than {CLASSES} classes)' for run in many]
  return '; '.join(filter(None, [*texts, why_not(others)]))


def _measured(run: Run, key: str) -> list[np.ndarray]:
  return [arrays[key] for arrays in run.clients.values() if key in arrays]
