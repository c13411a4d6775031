"""What a finished run says of classes and of clients, from `clients/seed_<seed>.npz`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.runs import metrics, work_folder


def of_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
  """Sums up one seed's numbers by class and by client.

  Args:
    arrays: of `clients/seed_<seed>.npz`.

  Returns:
    'balanced_accuracy' (the mean recall of the classes that test rows have), 'macro_precision',
    'macro_recall' and 'macro_f1' (means over the classes that are there or predicted, as in
    scikit-learn), 'client_accuracy' of the global model on the clients' own test rows, or label
    distributions, with its standard deviation over clients (ddof 0) and the mean of the worst tenth
    (rounded up) as '..._std' and '..._worst_tenth'. What was not measured is left out.
  """
  out = {}
  by_class = arrays.get('class_accuracy')
  if by_class is not None and not np.isnan(by_class).all():
    out['balanced_accuracy'] = float(np.nanmean(by_class))
  if 'class_precision' in arrays:
    ratios = [arrays[f'class_{name}'] for name in ('precision', 'recall', 'f1')]
    confusion = arrays.get('confusion')
    there = np.ones(len(ratios[0]), bool)
    if confusion is not None:
      there = confusion.sum(axis=0) + confusion.sum(axis=1) > 0
    for name, ratio in zip(('precision', 'recall', 'f1'), ratios, strict=True):
      out[f'macro_{name}'] = float(ratio[there].mean())
  clients = arrays.get('global_accuracy', np.zeros(0))
  own = np.sort(clients[np.isfinite(clients)])
  if own.size:
    out['client_accuracy'] = float(own.mean())
    out['client_accuracy_std'] = float(own.std())
    out['client_accuracy_worst_tenth'] = float(own[: -(-own.size // 10)].mean())
  return out


def of_run(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
  """Returns `metrics.statistics` over seeds of what `of_arrays` returns, by name.

  Args:
    folder: the run's.
    seeds: its own; one that diverged has no file.
  """
  each = [of_arrays(work_folder.arrays(folder, work_folder.clients_file(s), None)) for s in seeds]
  names = dict.fromkeys(name for one in each for name in one)
  return {name: metrics.statistics([one.get(name) for one in each]) for name in names}
