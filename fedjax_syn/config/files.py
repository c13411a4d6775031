"""Config files: executed, by path or by name, and changed by settings of the command line.

`config_flags` of ml_collections is not used: its errors are neither one line nor status 2, a
`float | None` field would need a placeholder, and fields of a user's own layer exist only after
`--config.algorithm` is read.
"""

import importlib.util
import json
import re
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedjax_syn.core import paths, texts
from fedjax_syn.core.fields import coerce


def load_config(path: str, settings: Iterable[str] = ()):
  """Loads a config file and applies settings.

  Args:
    path: a Python file with `get_config()`, the name of a shipped config, or the config.json of a
      run, whose settings are taken.
    settings: '--config.key=value', as on the command line.

  Returns:
    A locked ConfigDict, not checked yet.

  Raises:
    ValueError: if there is no such file, it fails, or a setting is unknown or of a wrong type.
  """
  file = paths.shipped_configs().get(str(path)) or paths.given(path, '--config')
  if not file.is_file():
    if file.exists():  # a folder, a pipe that nobody writes to, a device without an end
      raise ValueError(f'--config={path}: is not a file; name a Python file with get_config()')
    raise ValueError(
      f'--config={path}: no such file; shipped are {", ".join(paths.shipped_configs())}'
    )
  if file.suffix == '.json':
    return _of_run(file, list(settings))
  spec = importlib.util.spec_from_file_location('config_file', file.resolve())
  if spec is None or spec.loader is None:
    raise ValueError(f'--config={path}: must be a Python file (.py) with get_config()')
  module = importlib.util.module_from_spec(spec)
  try:
    spec.loader.exec_module(module)
    config = module.get_config()
  except (Exception, SystemExit) as error:  # a user's file may fail in any way: its line is named
    frames = traceback.extract_tb(error.__traceback__)
    lines = [str(frame.lineno) for frame in frames if frame.filename == spec.origin]
    # ml_collections repeats all that it holds, as a quoted string, when one field is unknown.
    message = re.sub(r' Other fields present: ".*}"', '', texts.one_line(error), flags=re.S)
    message = re.sub(r"^'(.*)'$", r'\1', message).replace('\\n', ' ')
    message = textwrap.shorten(f'{type(error).__name__}: {message}', 240)
    raise ValueError(f'--config={":".join([path, *lines[-1:]])}: {message}') from error
  import ml_collections

  if not isinstance(config, ml_collections.ConfigDict):
    raise ValueError(
      f'--config={path}: get_config() returns a {type(config).__name__}, not a ConfigDict'
    )
  apply(config, settings)
  return config


def name_of(path: str) -> str:
  """Returns the name of a config file; of a run's config.json that of the config that it had."""
  file = Path(path)
  if file.suffix != '.json':
    return file.stem
  try:
    name = json.loads(paths.given(path).read_bytes()).get('config_name') or 'rerun'
  except (ValueError, AttributeError, OSError):
    return 'rerun'
  return re.sub(r'[^\w.-]', '.', str(name))


def _of_run(file: Path, settings: Sequence[str]):
  """Returns the settings that a run's config.json holds, changed by others.

  Raises:
    ValueError: if it is no run's, or it names code that the command line does not name as well.
  """
  from fedjax_syn import config as config_lib
  from fedjax_syn.config import schema, trusted

  try:
    content = json.loads(file.read_bytes())['config']
    flat = schema.flatten(content)
  except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
    raise ValueError(f'--config={file}: is no config.json of a run') from error
  typed = ' '.join(settings)
  for key, word in trusted.code_of(content).items():
    if word not in typed:
      shown = 'algorithm' if key == 'outside' else key
      raise ValueError(
        f'--config={file}: {key}={word!r} names code, which is not imported because a file says so;'
        f' if you trust it, name it yourself: --config.{shown}={word}'
      )
  resolved = config_lib.check({k: v for k, v in flat.items() if k != trusted.TRUST})
  config = config_lib.get_default(*resolved.outside)
  with config.unlocked(), config.ignore_type():
    config.update(config_lib.to_dict(resolved) | {'outside': resolved.outside})
    for key, leaf in config_lib.leaves(*resolved.outside).items():  # JSON has no tuples
      section, _, name = key.rpartition('.')
      block = config[section] if section else config
      with block.unlocked(), block.ignore_type():
        block[name] = coerce(key, block[name], leaf.kind)
  apply(config, settings)
  return config


def apply(config, settings: Iterable[str]) -> None:
  """Applies settings to a config, in place.

  Args:
    config: a ConfigDict.
    settings: '--config.key=value', as on the command line.

  Raises:
    ValueError: if a setting is unknown, of a wrong type or has no value.
  """
  from fedjax_syn import config as config_lib
  from fedjax_syn.config import method_list

  pairs = []
  for setting in settings:
    key, equals, text = setting.lstrip('-').removeprefix('config.').partition('=')
    if not equals:
      raise ValueError(f'{setting}: has no value; write {setting}=...')
    pairs.append((key, text))
  # Algorithms first: one from outside the package brings the fields that other settings may name.
  for key, text in sorted(pairs, key=lambda pair: pair[0] not in ('algorithm', 'compare')):
    config_lib.override(config, key, text)
  keys = {key for key, _ in pairs}
  if 'algorithm' in keys and 'compare' not in keys:
    for method in method_list.read(config.compare):
      if method.word == config.algorithm:  # what the file compares with, asked for by name
        config.compare = ''  # it alone, with the settings that it has there
        for key, text in method.settings:
          if key not in keys:
            config_lib.override(config, key, text)
        break
