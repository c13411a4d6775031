"""Configs that files bring along: code that they name is imported only if the caller trusts the file.

A config names a user's own layers as `module:Class` or `FILE:Class`, and networks and data sets as `module:function`;
checking it imports and calls them.
A command line or a script may do that. A folder or a model that came from elsewhere may not.
"""

from collections.abc import Mapping
from typing import Any

from fedjax_syn import config as config_lib
from fedjax_syn.config.schema import Resolved, flatten

METHODS = ('algorithm', 'compare')  # joined by '+'
WORDS = ('model.name', 'data.name', 'data.proxy')
TRUST = 'data.trusted'  # what a file says of itself counts for nothing


def code_of(content: Mapping[str, Any]) -> dict[str, str]:
  """Returns what a config names of code outside of the package by key, `module:function` or `FILE:Class`.

  Args:
    content: nested dicts or dotted keys, of whatever version; nothing is imported.
  """
  flat = flatten(content)
  words = [(key, part) for key in METHODS for part in str(flat.get(key, '')).split('+')]
  words += [('outside', str(word)) for word in flat.get('outside') or ()]
  words += [(key, str(flat.get(key, ''))) for key in WORDS]
  data = lambda key, word: key.startswith('data.') and word.startswith(config_lib.TFDS)
  return {key: word for key, word in words if ':' in word and not data(key, word)}


def check(content: Mapping[str, Any], where: Any, trusted: bool) -> Resolved:
  """Checks a config that a file holds.

  Args:
    content: the config.
    where: the file or folder, for the message.
    trusted: whether code that it names may be imported and called.

  Returns:
    The checked config.

  Raises:
    ValueError: if it names code and is not trusted, or is refused.
  """
  if trusted:
    return config_lib.check(content)
  for key, word in code_of(content).items():
    module = word.rpartition(':')[0]
    kind = 'file' if module.endswith('.py') else 'module'
    raise ValueError(
      f'{where}: {key}={word!r} names code, and {kind} {module!r} is not imported because a file says so; if you'
      ' trust this file, say so: trusted=True, or --trusted on the command line'
    )
  flat = {key: value for key, value in flatten(content).items() if key != TRUST}
  return config_lib.check(flat)
