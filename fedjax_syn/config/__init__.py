"""Configs: `get_default()` and changes to it, and `check`, which refuses what cannot work.

A config is a locked ConfigDict of the fields of `schema` and one block per layer, so that
`--config.scaffold.option=2` works from any config file; `check` turns it into frozen dataclasses.
"""

from fedjax_syn.config.combinations import check
from fedjax_syn.config.parsing import check_algorithm, get_default, leaves, names, override
from fedjax_syn.config.schema import Resolved, to_dict
from fedjax_syn.core.fields import ConfigError

__all__ = [
  'ConfigError',
  'Resolved',
  'check',
  'check_algorithm',
  'get_default',
  'leaves',
  'names',
  'override',
  'to_dict',
]
