"""What makes a run the run that it is: the fields that are in use, and the user's own code that they name.

A folder is gone on with, and a table's cell is taken as done, only if these are still what they were.
"""

import hashlib
import importlib.util
import json
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn.config import TFDS, check, to_dict
from fedjax_syn.schema import ConfigError, Resolved, flatten


def hash8(config: Any) -> str:
  """Returns 8 hex digits of the resolved config and of the code it names; blocks of unused algorithms do not count."""
  content = _used(config) | ({'own_code': code} if (code := own_code(config)) else {})
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def own_code(config: Any) -> dict[str, str]:
  """Returns, for each `module:function` that a config names, a hash of the file in which the module stands.

  A config says by it which method, network or data set is meant, and not what is written there: a run of another
  version is another run. What the module imports is not looked at.
  """
  resolved = config if isinstance(config, Resolved) else check(config)
  words = *resolved.parts, resolved.model.name, resolved.data.name
  hashes = {}
  for word in words:
    module, colon, _ = word.partition(':')
    if not colon or word.startswith(TFDS):
      continue
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.has_location:
      with open(spec.origin, 'rb') as file:
        hashes[word] = hashlib.sha256(file.read()).hexdigest()[:16]
  return hashes


def diff(old: Any, new: Any) -> list[str]:
  """Returns a line 'client.lr: 0.001 -> 0.01' for every field in use that differs; one line if one cannot be read."""
  try:
    a, b = flatten(_used(old)), flatten(_used(new))
    # What methods fill in from the rest of a config (noise for a target) is what the run began with.
    a |= {key: value for key, value in flatten(to_dict(old)).items() if key in a}
  except ConfigError as error:  # a folder that another version of the library wrote
    return [f'of another version: {error}']
  show = lambda flat, key: repr(flat[key]) if key in flat else '(absent)'
  keys = [*b, *(key for key in a if key not in b)]
  return [
    f'{key}: {show(a, key)} -> {show(b, key)}' for key in keys if show(a, key) != show(b, key)
  ]


def used(config: Any) -> dict[str, Any]:
  """Returns the fields that make a run what it is, by dotted key: without the blocks of methods that are not in use."""
  return flatten(_used(config))


def _used(config: Any) -> dict[str, Any]:
  resolved = config if isinstance(config, Resolved) else check(config)
  # Who is told of a run does not make it another one.
  unused = {'outside', 'trackers', *resolved.blocks} - {
    algorithms.block_name(part) for part in resolved.parts
  }
  return {key: value for key, value in to_dict(resolved).items() if key not in unused}
