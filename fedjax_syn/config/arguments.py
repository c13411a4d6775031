"""Arguments of Python functions, held to the rules of the config's fields: one check for both entrances."""

from collections.abc import Callable, Mapping
from typing import Any

from fedjax_syn.config.schema import SECTIONS, Resolved
from fedjax_syn.core.fields import ConfigError, as_field
from fedjax_syn.core.texts import shown


def check(fields: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
  """Checks arguments that are fields of a config under another name.

  Args:
    fields: the dotted key by argument, as 'client.participation' by 'participation'.
    given: values by argument; numpy numbers, arrays, ranges and paths are taken for what they hold.

  Returns:
    Values of the fields' types, by argument.

  Raises:
    ConfigError: a ValueError in one line, naming the argument, its value and what would work.
  """
  out = {}
  for name, value in given.items():
    section, _, field = fields[name].rpartition('.')
    out[name] = as_field(SECTIONS[section] if section else Resolved, field, value, name)
  return out


def check_together(values: Mapping[str, Any], name: Callable[[str], str] = str) -> None:
  """Refuses seeds, shares and intervals that do not go together.

  Args:
    values: by dotted key; only those that are there are looked at.
    name: what the messages call a key.

  Raises:
    ConfigError: naming what would work.
  """
  seeds = values['seeds']
  if len(set(seeds)) != len(seeds) or not seeds:
    raise ConfigError(f'{name("seeds")}={shown(seeds)}: must be one or more distinct integers')
  share, clients = values['client.participation'], values['data.clients']
  if values.get('client.sampler', 'fixed') == 'fixed' and round(share * clients, 9) < 1:
    raise ConfigError(
      f'{name("client.participation")}={share}: is less than one of {name("data.clients")}={clients};'
      f' at least {1 / clients:g}'
    )
  every, personal = values['eval_every'], values['personal_every']
  if personal % every:
    raise ConfigError(
      f'{name("personal_every")}={personal}: must be a multiple of {name("eval_every")}={every}'
    )
