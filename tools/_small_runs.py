"""Settings with which a run of any algorithm takes seconds."""

from collections.abc import Mapping

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.core import paths

# What methods require of the other settings; the first entry with which a config is valid is used.
REQUIREMENTS: tuple[dict[str, str], ...] = (
  {},
  {'client.optimizer': 'sgd', 'client.lr': '0.1'},
  {'data.proxy': 'held_out'},
  {'data.proxy': 'held_out', 'client.optimizer': 'sgd'},
)


def settings_of(algorithm: str, small: Mapping[str, str]) -> list[str]:
  """Returns settings of the command line with which the config of an algorithm is valid.

  Args:
    algorithm: as in the config field of this name.
    small: settings by field; fields that the library does not have are left out.

  Raises:
    ValueError: no entry of REQUIREMENTS makes the config valid.
  """
  known = config_lib.leaves()
  for required in REQUIREMENTS:
    wanted = {**small, **required, 'algorithm': algorithm}
    settings = [f'--config.{key}={value}' for key, value in wanted.items() if key in known]
    try:
      config_lib.check(files.load_config(str(paths.DEFAULT_CONFIG), settings))
    except ValueError as error:
      refusal = error
    else:
      return settings
  raise ValueError(f'{algorithm}: no settings of REQUIREMENTS are accepted ({refusal})')
