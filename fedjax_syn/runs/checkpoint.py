"""Checkpoints: arrays by Orbax, the tree's structure as JSON, and a checksum over every file.

A checkpoint holds a seed's `fedjax_syn.core.contexts.State` and a note with the seconds and what
the next line of metrics needs. It is `checkpoints/<round>/seed_<seed>`; a second one of the same
round and seed, saved during work of the server between rounds, has a number: `seed_0+1`. It gets
its name only when it is complete and on disk, and is used only if every byte is the one that was
written: Orbax restores a checkpoint with a flipped byte without complaint. Orbax's policies assume
one checkpoint per step. Here several seeds and chunks share a round, so `prune` decides which are
kept.
"""

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core import tree_encoding
from fedjax_syn.core.contexts import State
from fedjax_syn.core.paths import digest, fsync
from fedjax_syn.core.types import PyTree
from fedjax_syn.runs import stored_files, work_folder
from fedjax_syn.runs.stored_files import DamagedError

CHECKSUMS = 'checksums.json'
SLACK = 1 << 16  # bytes of a checkpoint besides its arrays
NAME = re.compile(r'seed_(-?\d+)(?:\+(\d+))?$')

NOTE = {  # what `Recorder.save` keeps beside a tree
  'serial?': int,
  'seed?': int,
  'round?': int,
  'keep?': bool,
  'group?': [int],
  'status?': {int: work_folder.STATUS},
  'marks?': {int: int},
  'metrics_bytes?': int,
  'metrics_sha256?': str,
  'files?': work_folder.FILES,
  'seconds?': {str: float},
  'peak_memory_bytes?': int,
}


class Checkpoint(NamedTuple):
  """A checkpoint as read: `tree` has numpy leaves, `note` is what `save` was given."""

  path: Path
  tree: PyTree
  note: dict[str, Any]


def save(root: Path, round: int, seed: int, tree: PyTree, note: dict[str, Any]) -> Path:
  """Writes a checkpoint; a kill at any moment leaves either all of it or nothing under its name.

  Args:
    root: the folder of all checkpoints of a run.
    round: rounds done.
    seed: the seed that the tree belongs to.
    tree: see `fedjax_syn.core.tree_encoding.encode`.
    note: JSON values to keep beside the tree.

  Returns:
    The checkpoint's folder.

  Raises:
    OSError: if it cannot be written, on a full disk say; nothing of it stays.
  """
  arrays, structure = tree_encoding.encode(tree)
  temporary = root / f'.tmp-{os.getpid()}'
  shutil.rmtree(temporary, ignore_errors=True)
  temporary.mkdir(parents=True)
  try:
    if arrays:
      write_arrays(temporary / 'arrays', arrays)
    (temporary / 'structure.json').write_text(json.dumps(structure))
    (temporary / 'note.json').write_text(json.dumps(note, indent=1))
    (temporary / CHECKSUMS).write_text(json.dumps(_checksums(temporary), indent=1))
    for path in [*temporary.rglob('*'), temporary]:
      fsync(path)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)  # on a full disk its space is wanted
    raise

  folder = root / str(round)
  folder.mkdir(exist_ok=True)
  names = map(NAME.fullmatch, os.listdir(folder))
  numbers = [int(name[2] or 0) for name in names if name and int(name[1]) == seed]
  final = folder / (f'seed_{seed}+{max(numbers) + 1}' if numbers else f'seed_{seed}')
  os.rename(temporary, final)
  fsync(folder)
  fsync(root)
  return final


def read(path: Path) -> Checkpoint:
  """Reads a checkpoint and checks every byte of it.

  Args:
    path: the checkpoint's folder.

  Returns:
    The checkpoint.

  Raises:
    DamagedError: if a file is missing, added or changed.
    StoredError: if it is whole, and of a version that this one cannot read.
  """
  written = stored_files.read_json(path / CHECKSUMS, {str: str})
  if written is None:
    raise DamagedError(f'{path} is damaged: it has no {CHECKSUMS}')
  now = _checksums(path)
  if now != written:
    names = sorted(n for n in {*now, *written} if now.get(n) != written.get(n))
    raise DamagedError(f'{path} is damaged: {names[0]} is not what was written')
  note = stored_files.read_json(path / 'note.json', NOTE)
  seed, round = note.get('seed', seed_of(path)), note.get('round', path.parent.name)
  if (seed, str(round)) != (seed_of(path), path.parent.name):
    raise DamagedError(f'{path} is damaged: it is the one of round {round} and seed {seed}')
  try:
    structure = json.loads(stored_files.read_bytes(path / 'structure.json') or b'')
    names = tree_encoding.leaves(structure)
    arrays = read_arrays(path / 'arrays', names) if names else {}
    tree = tree_encoding.decode(arrays, structure)
  except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
    raise stored_files.StoredError(f'{path} cannot be read ({error})') from error
  return Checkpoint(path, tree, note)


def write_arrays(folder: Path, arrays: dict[str, np.ndarray]) -> None:
  """Writes named arrays as an Orbax checkpoint of a flat dict.

  Raises:
    OSError: if there is no space for them.
  """
  import orbax.checkpoint as ocp  # slow to import, and not needed to train

  # Orbax would print a traceback in each of its threads.
  if shutil.disk_usage(folder.parent).free < sum(a.nbytes for a in arrays.values()) + SLACK:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
  with _unlogged(), _checkpointer(ocp) as checkpointer, _address(folder) as path:
    checkpointer.save(path, args=ocp.args.PyTreeSave(arrays))


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
  """Keeps libraries from logging an error that is raised all the same."""
  before = logging.root.manager.disable
  logging.disable(logging.CRITICAL)
  try:
    yield
  finally:
    logging.disable(before)


def read_arrays(folder: Path, names: list[str]) -> dict[str, np.ndarray]:
  """Reads what `write_arrays` wrote."""
  import orbax.checkpoint as ocp

  as_numpy = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
  with _checkpointer(ocp) as checkpointer, _address(folder) as path:
    args = ocp.args.PyTreeRestore(restore_args=as_numpy)
    return checkpointer.restore(path, args=args)


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[Path]:
  """The absolute path of a folder, existing or not, as Orbax can use it.

  Orbax reads brackets and backslashes as a pattern, and then leaves arrays out of a checkpoint
  silently; it refuses a colon and a path that is not UTF-8. Such a folder is reached by a link.
  """
  path = folder.absolute()
  if re.fullmatch(r'[^*?:\[\]\\\ud800-\udfff]*', str(path)):
    yield path
    return
  with tempfile.TemporaryDirectory() as scratch:
    link = Path(scratch) / 'parent'
    link.symlink_to(path.parent, target_is_directory=True)
    yield link / path.name


def _checkpointer(ocp: Any) -> Any:
  """An Orbax checkpointer that waits for no other process: the state is whole in each of them."""
  this = jax.process_index()
  alone = ocp.options.MultiprocessingOptions(primary_host=this, active_processes={this})
  handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
  return ocp.Checkpointer(handler, multiprocessing_options=alone)


def list_sorted(root: Path, seed: int | None = None) -> list[Path]:
  """Returns a run's checkpoints, of one seed or of all, oldest first (by `serial` in their notes).

  Unreadable ones come last.
  """
  paths = (p for p in list_unsorted(root) if seed in (None, seed_of(p)))
  return sorted(paths, key=lambda p: (note_of(p).get('serial', float('inf')), p.name))


def list_unsorted(root: Path) -> list[Path]:
  """Returns a run's checkpoints by their names alone, in no order."""
  return [p for p in root.glob('*/seed_*') if p.parent.name.isdecimal() and NAME.fullmatch(p.name)]


def seed_of(path: Path) -> int:
  """Returns the seed that a checkpoint belongs to, by its name."""
  return int(path.name.removeprefix('seed_').partition('+')[0])


def latest(root: Path, warn: Callable[[str], None]) -> Checkpoint | None:
  """Returns the newest whole checkpoint; removes half-written ones, and sets damaged ones aside.

  Args:
    root: the folder of all checkpoints of a run.
    warn: told about every damaged checkpoint.

  Returns:
    The checkpoint, or None if there is none.
  """
  for leftover in root.glob('.t*-*'):
    shutil.rmtree(leftover, ignore_errors=True)
  for path in reversed(list_sorted(root)):
    try:
      return read(path)
    except DamagedError as error:
      warn(f'WARNING: {error}; using the one before')
      set_aside(path)
  return None


def to_device(state: State) -> State:
  """Returns a checkpoint's state on the device; the engine places per-client state itself."""
  return jax.tree.map(jnp.asarray, state._replace(clients={}))._replace(clients=state.clients)


def set_aside(path: Path) -> None:
  """Renames a damaged checkpoint, so that it is not read again but stays for inspection."""
  number = sum(1 for _ in path.parent.glob('damaged*'))
  path.rename(path.with_name(f'damaged{number}_{path.name}'))


def prune(root: Path, last: Mapping[int, int] = MappingProxyType({}), phases: bool = True) -> None:
  """Removes checkpoints: of a seed the last ones stay, and those whose note says `keep`.

  Args:
    root: the folder of all checkpoints of a run.
    last: by seed that is over, how many stay: 1, or 2 if the last holds no model. Of the others 2
      stay.
    phases: whether those whose note says `keep` stay when their seed is over.
  """
  by_seed: dict[int, list[Path]] = {}
  for path in list_sorted(root):
    if 'serial' in note_of(path):  # of another nothing says whether it is the last
      by_seed.setdefault(seed_of(path), []).append(path)
  for seed, paths in by_seed.items():
    for path in paths[: -last.get(seed, 2)]:
      if not ((phases or seed not in last) and note_of(path).get('keep')):
        trash = root / f'.trash-{path.parent.name}-{path.name}'
        os.rename(path, trash)  # first: a kill must not leave half a checkpoint under its name
        shutil.rmtree(trash)
  for folder in root.glob('*'):
    if folder.name.isdecimal() and not any(folder.iterdir()):
      folder.rmdir()


def note_of(path: Path) -> dict[str, Any]:
  """Returns the note of a checkpoint, without its checksum; {} if it cannot be read."""
  try:
    return stored_files.read_json(path / 'note.json', NOTE) or {}
  except DamagedError:
    return {}


def _checksums(folder: Path) -> dict[str, str]:
  """SHA-256 of every file below a folder but the list itself."""
  files = sorted(p for p in folder.rglob('*') if p.is_file() and p != folder / CHECKSUMS)
  return {path.relative_to(folder).as_posix(): digest(path) for path in files}
