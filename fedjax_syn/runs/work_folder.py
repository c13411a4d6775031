"""What a work folder holds: its files by name, their shapes, and readers that notice damage.

summary.json has digests of metrics.jsonl and of the content of the files beside it. Folders of
older versions have none and are accepted.
"""

import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.runs import stored_files
from fedjax_syn.runs.stored_files import DamagedError, digest_of_arrays, read_arrays, read_bytes

PARTITION = 'partition.npz'
COMPARE = 'compare'  # of what a run is compared with: of one method, or folders of several
RUN, BEST = 'run', 'best'  # in FILES: those that belong to no seed, and the best models
OF_RUN = (PARTITION, 'figures/partition.png', 'figures/accuracy.png')
ALONE = ('summary.json', 'metrics.jsonl', 'trackers.json', *OF_RUN, 'figures/dynamics.png')

STATISTICS = {'mean': (float, None), 'std': (float, None), 'per_seed': [(float, None)]}
ACCURACY = {'last': STATISTICS, 'mean_last_5': STATISTICS, 'best': STATISTICS}
FILES = {str: {str: str}}  # by seed, RUN or BEST, by path in the folder: a digest, '' of a picture
STATUS = (
  {'status': 'finished', 'synthesis_round?': int, 'collapsed_round?': int},
  {'status': 'stopped', 'round': int, 'best_round': int, 'synthesis_round?': int},
  {'status': 'diverged', 'round': int, 'client?': (int, None), 'synthesis_round?': int},
)
SUMMARY = {
  'test_accuracy': ACCURACY,
  'validation_accuracy?': ACCURACY,
  'selected?': {str: STATISTICS},
  'scores?': {str: STATISTICS},
  'test_domain_accuracy?': {str: ACCURACY},
  'personal?': {str: STATISTICS},
  'unseen?': {str: STATISTICS},
  'rounds_to_accuracy': {float: STATISTICS},
  'status': {int: STATUS},
  'seconds': {'total': float, str: float},
  'seeds?': [int],
  'rounds?': int,
  'algorithm?': str,
  'dataset?': str,
  'eval_every?': int,
  'bytes_up?': (float, None),
  'bytes_before?': float,
  'bytes_down?': (float, None),
  'epsilon?': (float, None),
  'privacy?': ({'delta': float, 'unit': str}, None),
  'metrics_sha256?': str,
  'files?': FILES,
}
SHOWN = {'algorithm': str, 'dataset': str, 'rounds': int, 'seeds': [int], 'eval_every': int}
VALUE = (str, float, bool, None, [(str, float, bool)])  # of a setting
SETTING = (VALUE, {str: VALUE})
CONFIG = {
  'config': {
    'algorithm': str,
    'compare?': str,
    'rounds': int,
    'seeds': [int],
    'eval_every': int,
    'data': {str: VALUE},
    str: SETTING,
  },
  'dataset': {
    'title': str,
    'name?': str,
    'checksum?': (str, None),
    'num_classes?': int,
    'shape?': [int],
    'kind?': str,
    'feature_names?': [str],
    'class_names?': [str],
    'client_names?': [str],
    'rows?': {'train': int, 'test': int},
    'normalisation?': {'name?': str, 'mean': [float], 'std': [float]},
  },
  'config_name?': str,
  'own_code?': {str: str},
  'layout?': {
    'lanes?': int,
    'form?': str,
    'devices?': int,
    'seeds?': int,
    'client_state_bytes?': int,
  },
  'versions?': {str: (str, None)},
  'devices?': [str],
  'host?': {str: (str, float, None)},
  'commit?': (str, None),
}
LINE = {'round': int, 'seed': int, str: float}  # of metrics.jsonl


def config(folder: Path) -> dict[str, Any] | None:
  """Reads a run's config.json; None without one, DamagedError if it is that of no run."""
  path = folder / 'config.json'
  described = stored_files.read_json(path, CONFIG)
  if described is not None:
    c = described['config']
    if not c['seeds'] or min(c['rounds'], c['eval_every'], *c['seeds']) < 0 or c['rounds'] < 1:
      raise DamagedError(f'{path} is damaged: config.rounds and config.seeds are those of no run')
  return described


def summary(folder: Path, seeds: Sequence[int] | None = None) -> dict[str, Any] | None:
  """Reads a run's summary.json, and sees whether metrics.jsonl is still the one that it sums up.

  Args:
    folder: the run's.
    seeds: of its config; None asks for none.

  Returns:
    The summary; None if the run is not finished.

  Raises:
    DamagedError: if one of the two is damaged.
  """
  value = stored_files.read_json(folder / 'summary.json', SUMMARY)
  if value is None:
    return None
  known = [*value['status']] if seeds is None else [*map(str, seeds)]
  counts = {len(v['per_seed']) for v in value['test_accuracy'].values()}
  if {*value['status']} != {*known} or counts != {len(known)}:
    raise DamagedError(f'{folder / "summary.json"} is damaged: it is of other seeds')
  if 'metrics_sha256' in value:
    path = folder / 'metrics.jsonl'
    content = read_bytes(path)
    if content is None:
      raise DamagedError(f'{path} is missing')
    if hashlib.sha256(content).hexdigest() != value['metrics_sha256']:
      raise DamagedError(f'{path} is damaged: it is not what summary.json sums up')
  return value


def lines(path: Path, size: int | None = None) -> list[dict[str, Any]]:
  """Reads a metrics.jsonl, or its first `size` bytes, without an incomplete last line.

  Raises:
    DamagedError: if a line has no numbers with 'round' and 'seed', or a seed's round comes twice.
  """
  complete, _, _ = (read_bytes(path, size) or b'').rpartition(b'\n')
  out, seen = [], set()
  for number, text in enumerate(complete.splitlines(), 1):
    name = f'{path}, line {number},'
    line = stored_files.parse(text, name)
    if wrong := stored_files.fault(line, LINE):
      raise DamagedError(f'{name} is damaged: {wrong}')
    key = line['seed'], line['round']
    if key in seen:
      raise DamagedError(f'{name} is damaged: round {key[1]} of seed {key[0]} is given twice')
    seen.add(key)
    out.append(line)
  return out


def compared(folder: Path) -> list[Path]:
  """Returns the folders of the methods that a run is compared with, in the order of their names."""
  several = sorted(path.parent for path in (folder / COMPARE).glob('*/config.json'))
  return [path for path in (folder / COMPARE, *several) if os.path.lexists(path / 'config.json')]


def left_by_runs(folder: Path) -> list[str]:
  """Returns the names in a folder that some run may have left, sorted; a new run needs none."""
  first = {name.partition('/')[0] for name in names((0,))}
  patterns = *(first - {'trackers.json'}), 'checkpoints', 'hparams', 'events.out.*'
  return sorted(path.name for pattern in patterns for path in folder.glob(pattern))


def misplaced(folder: Path, seeds: Sequence[int]) -> str:
  """Names a folder where a run writes a file, or a file where it needs a folder; '' without one."""
  files = [folder / name for name in names(seeds)]
  for path in files:
    if path.is_dir():
      return f'{path} is a folder and not a file'
  numbered = [p for p in (folder / 'checkpoints').glob('*') if p.name.isdecimal()]
  above = {path.parent for path in files} | {folder / 'checkpoints', *numbered}
  for path in sorted(above - {folder}):
    if os.path.lexists(path) and not path.is_dir():
      return f'{path} is no folder'
  return ''


def clients_file(seed: int) -> str:
  """Returns where a seed's numbers by client are."""
  return f'clients/seed_{seed}.npz'


def set_file(seed: int, seeds: Iterable[int]) -> str:
  """Returns where a seed's learned set is; that of the first seed has no number."""
  return f'synthetic/synthetic{"" if seed == next(iter(seeds)) else f"_seed{seed}"}.npz'


def names(seeds: Sequence[int]) -> list[str]:
  """Returns the names of all files of a run of these seeds, without those in checkpoints/."""
  sets = [set_file(seed, seeds).removesuffix('.npz') for seed in seeds]
  pictures = [f'figures/{Path(name).name}.png' for name in sets]
  of_sets = [f'{name}{ending}' for name in sets for ending in ('.npz', '.png')]
  return [*ALONE, *pictures, *of_sets, *map(clients_file, seeds)]


# By the folder: what an npz file has to hold.
HOLD = {
  PARTITION: {'counts': 'iu2'},
  'clients': {
    'confusion?': 'iu2',
    'class_accuracy?': 'f1',
    'class_precision?': 'f1',
    'class_recall?': 'f1',
    'class_f1?': 'f1',
    'global_accuracy?': 'f1',
    'personal_accuracy?': 'f1',
  },
  'synthetic': {'x': 'f345', 'y': 'f3', 'iterations': 'iu1', 'mean': 'f1', 'std': 'f1'},
}


def arrays(folder: Path, name: str, summary: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
  """Reads an npz file of a run.

  Args:
    folder: the run's.
    name: of the file in it.
    summary: the run's, which may know the file's digest.

  Returns:
    The arrays by name; {} if the file does not exist and the summary has none.

  Raises:
    DamagedError: if it is damaged, or missing.
  """
  path = folder / name
  content = read_arrays(path, HOLD[name.partition('/')[0]])
  known = {k: v for group in (summary or {}).get('files', {}).values() for k, v in group.items()}
  if name in known and not content:
    raise DamagedError(f'{path} is missing; launch/main.py with the same settings makes it again')
  if known.get(name) and digest_of_arrays(content) != known[name]:
    raise DamagedError(f'{path} is damaged: it is not what was written')
  return content


def misfit(
  described: Mapping[str, Any],
  counts: np.ndarray | None,
  clients: Iterable[Mapping[str, np.ndarray]],
  sets: Iterable[Mapping[str, np.ndarray]],
) -> str:
  """States in what the arrays of a run do not fit together; '' if in nothing.

  Args:
    described: config.json.
    counts: samples, [clients, classes].
    clients: of each seed, arrays [clients].
    sets: of each seed, as in synthetic.npz.
  """
  d = described['dataset']
  names = len(d.get('class_names', ()))
  classes = names or d.get('num_classes')
  if counts is not None and (
    not counts.size or counts.min() < 0 or classes not in (None, counts.shape[1])
  ):
    return f'{PARTITION} is damaged: it is of other clients or classes'
  for arrays in clients:
    own = [a for name, a in arrays.items() if name in ('global_accuracy', 'personal_accuracy')]
    if counts is not None and any(len(a) != len(counts) for a in own):
      return 'clients/ is damaged: it is of other clients'
    confusion = arrays.get('confusion')
    if confusion is not None and (
      {*confusion.shape} != {classes or len(confusion)} or confusion.min() < 0
    ):
      return 'clients/ is damaged: its confusions are of other classes'
  for s in filter(None, sets):
    x, y = s['x'], s['y']
    fits = len(x) == len(y) == len(s['iterations']) and x.shape[1] == y.shape[1] and x.size
    fits = fits and {s['mean'].size, s['std'].size} <= {1, x.shape[-1]}
    if not fits or classes not in (None, y.shape[2]) or not np.isfinite(x).all():
      return 'synthetic/ is damaged: its arrays do not fit together'
  return ''


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
  """Returns digests of the existing files, as summary.json keeps them."""
  of = lambda name: digest_of_arrays(read_arrays(folder / name)) if name.endswith('.npz') else ''
  return {name: of(name) for name in names if (folder / name).is_file()}


def faults(folder: Path, files: Mapping[str, str]) -> list[str]:
  """States, one line each, which files are missing or damaged.

  Args:
    folder: the run's.
    files: digests by name.
  """

  def wrong(name, digest):
    path = folder / name
    try:
      if (content := read_bytes(path)) is None:
        return f'{path} is missing'
      if name.endswith('.png'):
        return '' if is_picture(content) else f'{path} is damaged: it is no PNG'
      same = digest_of_arrays(read_arrays(path)) == digest
    except DamagedError as error:
      return str(error)
    return '' if same else f'{path} is damaged: it is not what was written'

  return [line for name, digest in files.items() if (line := wrong(name, digest))]


def is_picture(content: bytes) -> bool:
  """Returns whether bytes are a whole PNG file: its parts carry checksums."""
  from PIL import Image

  try:
    with Image.open(io.BytesIO(content), formats=['png']) as image:
      image.verify()
  except Exception:  # whatever Pillow makes of a flipped byte
    return False
  return True
