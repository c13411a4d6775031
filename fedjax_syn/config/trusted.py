"""Configs stored in files: code that they name is imported only if the caller trusts the file.

A config names a user's own layers as `module:Class` or `FILE:Class`, and networks and data sets as
`module:function`; checking it imports and calls them. A command line or a script may do that. A
folder or a model from elsewhere may not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedjax_syn.config import combinations, method_list
from fedjax_syn.config.parsing import TFDS
from fedjax_syn.config.schema import METHODS, Resolved, flatten

WORDS = (
  'model.name',
  'data.name',
  'data.proxy',
  'client.schedule',
  'client.sampler',
  'serverrate.schedule',
)
TRUST = 'data.trusted'  # a file cannot grant trust to itself


def code_of(content: Mapping[str, Any]) -> dict[str, str]:
  """Returns the code outside the package that a config names, by key.

  Args:
    content: nested dicts or dotted keys, of any version; nothing is imported.

  Returns:
    `module:function` or `FILE:Class` by key.
  """
  flat = flatten(content)
  words = [
    (key, part)
    for key in METHODS
    for word in method_list.words_of(key, str(flat.get(key, '')))
    for part in word.split('+')
  ]
  words += [('outside', str(word)) for word in flat.get('outside') or ()]
  words += [(key, str(flat.get(key, ''))) for key in WORDS]
  if named_metrics := flat.get('metrics'):
    words.append(('metrics', ','.join(map(str, named_metrics))))
  own = [
    pair for method in method_list.read(str(flat.get('compare', ''))) for pair in method.settings
  ]
  words += [(key, text) for key, text in own if key in WORDS]
  of_tfds = lambda key, word: key.startswith('data.') and word.startswith(TFDS)
  return {key: word for key, word in words if ':' in word and not of_tfds(key, word)}


def check(content: Mapping[str, Any], where: str | Path, trusted: bool) -> Resolved:
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
    return combinations.check(content)
  for key, word in code_of(content).items():
    module = word.rpartition(':')[0]
    kind = 'file' if module.endswith('.py') else 'module'
    raise ValueError(
      f'{where}: {key}={word!r} names code, and {kind} {module!r} is not imported because a file'
      ' says so; if you trust this file, say so: trusted=True, or --trusted on the command line'
    )
  return combinations.check({key: v for key, v in flatten(content).items() if key != TRUST})
