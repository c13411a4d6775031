"""Files of a run: written in one step; read with checks, one line names a damaged file.

A JSON file has `sha256`, a digest of its other content, so that a changed digit is noticed. Files
of older versions have none and are accepted if their shape is right.
"""

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core import paths, texts

DIGEST = 'sha256'
DEEPEST = 200  # levels of nesting; what the library writes has a few dozen at most
LARGEST = 2**30  # bytes of a JSON file


class StoredError(ValueError):
  """A file of a run that cannot be used."""


class DamagedError(StoredError):
  """A file that is not what was written, or holds something else."""


def read_bytes(path: Path, size: int | None = None, largest: int | None = None) -> bytes | None:
  """Reads a regular file, or its first `size` bytes.

  Args:
    path: the file; a folder, a pipe or a device of this name is never opened.
    size: how many bytes; None is all.
    largest: refuse a file of more bytes.

  Returns:
    The bytes, None if nothing has this name.

  Raises:
    DamagedError: if it is no file, or cannot be read.
  """
  if not os.path.lexists(path):
    return None
  try:
    mode = path.stat()
    if not stat.S_ISREG(mode.st_mode):
      raise DamagedError(f'{path} is damaged: it is {_kind(mode.st_mode)} and not a file')
    if largest is not None and mode.st_size > largest:
      raise DamagedError(f'{path} is damaged: {mode.st_size} bytes are more than such a file has')
    with path.open('rb') as file:
      return file.read(-1 if size is None else size)
  except OSError as error:
    raise DamagedError(f'{path} cannot be read ({error.strerror})') from error


def _kind(mode: int) -> str:
  known = {stat.S_IFDIR: 'a folder', stat.S_IFIFO: 'a pipe', stat.S_IFSOCK: 'a socket'}
  return known.get(stat.S_IFMT(mode), 'a device')


def read_json(path: Path, shape: Any = Any) -> Any:
  """Reads a JSON file.

  Args:
    path: the file.
    shape: what it has to hold; see `fault`.

  Returns:
    Its content without its digest; None if nothing has this name.

  Raises:
    DamagedError: if it cannot be read, is not JSON, not what its digest says, or of another shape.
  """
  content = read_bytes(path, largest=LARGEST)
  if content is None:
    return None
  value = parse(content, str(path))
  if isinstance(value, dict) and DIGEST in value and value.pop(DIGEST) != digest_of(value):
    raise DamagedError(
      f'{path} is damaged: it is not what was written (if you changed it yourself, take {DIGEST!r}'
      ' out of it)'
    )
  if wrong := fault(value, shape):
    raise DamagedError(f'{path} is damaged: {wrong}')
  return value


def parse(content: bytes, name: str) -> Any:
  """Parses JSON of finite numbers, without repeated keys and of moderate depth.

  Args:
    content: UTF-8.
    name: of the file, for the message.

  Raises:
    DamagedError: if it is anything else.
  """
  try:
    value = json.loads(
      content.decode('utf-8'), parse_constant=_refuse, object_pairs_hook=_without_repeats
    )
  except RecursionError:
    raise DamagedError(f'{name} is damaged: it is nested too deep') from None
  except ValueError as error:
    raise DamagedError(f'{name} is damaged ({error})') from error
  if _deeper(value, DEEPEST):
    raise DamagedError(f'{name} is damaged: it is nested more than {DEEPEST} deep')
  return value


def _refuse(constant: str) -> None:
  raise ValueError(f'{constant} is no number')


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  out = dict(pairs)
  if len(out) < len(pairs):
    raise ValueError('a key is given twice')
  return out


def _deeper(value: Any, most: int) -> bool:
  level = [value]
  for _ in range(most):
    inner = [v for v in level if isinstance(v, dict | list)]
    level = [x for v in inner for x in (v.values() if isinstance(v, dict) else v)]
    if not level:
      return False
  return True


def with_digest(value: Mapping[str, Any]) -> dict[str, Any]:
  """Returns JSON values with their digest, `sha256`, last."""
  content = {k: v for k, v in value.items() if k != DIGEST}
  return {**content, DIGEST: digest_of(json.loads(json.dumps(content)))}


def write_json(path: Path, value: Any) -> None:
  """Replaces a JSON file in one step; a dict is written with its digest."""
  value = with_digest(value) if isinstance(value, dict) else value
  paths.write_whole(path, f'{json.dumps(value, indent=1, allow_nan=False)}\n'.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
  """Replaces an npz file in one step; its folder is created."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with paths.replacing(path) as file:
    np.savez(file, **arrays)


def digest_of(value: Any) -> str:
  """Returns the SHA-256 of JSON values, whatever their layout in a file."""
  text = json.dumps(value, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()


def fault(value: Any, shape: Any, where: str = '') -> str:
  """States in what JSON values differ from a shape; '' if in nothing.

  Args:
    value: as parsed.
    shape: `Any`; a text, the only value; a type (`float` is any number, only `bool` takes a bool)
      or None; a tuple of shapes, of which one has to fit; [shape], a list of such; a dict of shapes
      by key, where 'key?' may be absent and a type as a key (`str`, or `int` and `float` if the
      text is such a number) matches all other keys.
    where: the path so far.
  """
  if isinstance(shape, list) and isinstance(value, list):
    faults = (fault(item, shape[0], f'{where}[{i}]') for i, item in enumerate(value))
    return next(filter(None, faults), '')
  if isinstance(shape, dict) and isinstance(value, dict):
    return next(filter(None, _faults_of_dict(value, shape, where)), '')
  if isinstance(shape, tuple):
    fits = any(not fault(value, one) for one in shape)
  elif isinstance(shape, type) and shape is not Any:
    fits = isinstance(value, (int, float) if shape is float else shape)
    fits = fits and (shape is bool or not isinstance(value, bool))
  else:
    fits = shape is Any or value == shape
  return '' if fits else f'{where or "it"} cannot be {texts.shown(value, 40)}'


def _faults_of_dict(value: dict, shape: dict, where: str) -> Iterator[str]:
  inside = lambda key: f'{where}.{key}' if where else key
  named = {key.removesuffix('?'): s for key, s in shape.items() if isinstance(key, str)}
  others = [(kind, s) for kind, s in shape.items() if not isinstance(kind, str)]
  for key in named:
    if key in shape and key not in value:
      yield f'it has no {inside(key)}'
  for key, item in value.items():
    if key in named:
      yield fault(item, named[key], inside(key))
    for kind, s in others if key not in named else ():
      try:
        kind(key)
      except ValueError:
        yield f'it has a {inside(key)[:80]!r}'
      yield fault(item, s, inside(key))


def read_arrays(path: Path, shapes: Mapping[str, str] | None = None) -> dict[str, np.ndarray]:
  """Reads an npz file without compression and without pickles, as the library writes them.

  Args:
    path: the file.
    shapes: by name, an array's kinds of dtype and numbers of axes, 'iu2' or 'f345'; 'name?' may be
      absent. Other arrays may exist too.

  Returns:
    The arrays by name; {} if nothing has this name.

  Raises:
    DamagedError: if it cannot be read, or holds something else.
  """
  if not os.path.lexists(path):
    return {}
  read_bytes(path, 0)  # a regular file
  try:
    with path.open('rb') as stream:
      with zipfile.ZipFile(stream) as archive:
        if any(i.compress_type != zipfile.ZIP_STORED for i in archive.infolist()):
          raise DamagedError(f'{path} is damaged: it is compressed')
      stream.seek(0)
      with np.load(stream, allow_pickle=False) as file:
        arrays = dict(file)
  except DamagedError:
    raise
  # A flipped byte can make every part of these readers fail.
  except Exception as error:
    line = ' '.join(f'{type(error).__name__}: {error}'.split())[:200]
    raise DamagedError(f'{path} is damaged ({line})') from error
  for name, what in (shapes or {}).items():
    key, optional = name.removesuffix('?'), name.endswith('?')
    array = arrays.get(key)
    fits = array is not None and array.dtype.kind in what and str(array.ndim) in what
    if not fits and not (optional and array is None):
      raise DamagedError(f'{path} is damaged: it holds no array {key!r} as it should')
  return arrays


def digest_of_arrays(arrays: Mapping[str, Any]) -> str:
  """Returns the SHA-256 of named arrays: of names, types, shapes and values."""
  digest = hashlib.sha256()
  for name, value in sorted(arrays.items()):
    array = np.ascontiguousarray(value)
    digest.update(f'{name} {array.dtype.str} {np.shape(value)}\n'.encode())
    digest.update(array.tobytes())
  return digest.hexdigest()
