"""Fields of earlier versions that are constants now: a config that still holds them is read."""

from collections.abc import Mapping
from typing import Any

from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown

# The value that every run has now, by key.
CONSTANTS = {
  'abavg.rows': 0,
  'dynafed.distance': 'squared',
  'dynafed.finetune_optimizer': 'adam',
  'dynafed.pieces': 0,
  'dynafed.segments': 1,
  'fedbe.average_every': 5,
  'fedbe.average_from': 0.5,
  'fedbe.sharpen': 2.0,
  'fedcog.batch': 0,
  'fedcog.shared': False,
  'fedcog.statistics': 0.0,
  'fedcog.total_variation': 0.0,
  'feddm.server_weight_decay': 5e-4,
  'fedgen.diversity': 1.0,
  'fedreg.perturbed_labels': 'hard',
  'fedreg.projection': True,
  'vhl.noise_contrast': 0.1,
  'vhl.seed': 0,
  'vhl.source': 'gaussian',
  'vhl.spread': 0.5,
}


def without_constants(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Leaves out the fields of `CONSTANTS`.

  Args:
    fields: by dotted key.

  Raises:
    ConfigError: if one of them has another value than every run has now.
  """
  for key, value in CONSTANTS.items():
    if fields.get(key, value) != value:
      raise ConfigError(f'{key}={shown(fields[key])}: is {value!r} in this version (CHANGELOG.md)')
  return {key: value for key, value in fields.items() if key not in CONSTANTS}
