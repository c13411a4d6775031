"""Configs: `get_default()` and changes to it, and `check`, which refuses what cannot work.

A config is a locked ConfigDict of the fields of `schema` and one block per layer, so that
`--config.scaffold.option=2` works from any config file; `check` turns it into frozen dataclasses.
"""

from fedjax_syn.config.combinations import check as check
from fedjax_syn.config.parsing import check_algorithm as check_algorithm
from fedjax_syn.config.parsing import get_default as get_default
from fedjax_syn.config.parsing import leaves as leaves
from fedjax_syn.config.parsing import names as names
from fedjax_syn.config.parsing import override as override
from fedjax_syn.config.schema import Resolved as Resolved
from fedjax_syn.config.schema import to_dict as to_dict
from fedjax_syn.core.fields import ConfigError as ConfigError
