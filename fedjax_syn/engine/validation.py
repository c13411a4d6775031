"""Checks of what an engine is made of; errors are one line."""

import numpy as np

from fedjax_syn.chains import TRAITS, Chain
from fedjax_syn.core.layer_classes import traced_fields
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.data.features import IMAGES, TOKENS, called, kind_of
from fedjax_syn.data.federated import FederatedData


def check(chain: Chain, data: FederatedData, sampler: str) -> None:
  """Raises for an unknown sampler, and for a method that cannot work on these data.

  Args:
    chain: the method.
    data: the partitioned training set.
    sampler: the name of one.

  Raises:
    ValueError: naming what does not fit and what would.
  """
  if chain.layers[0].stragglers and not chain.trains_locally:  # type: ignore[attr-defined]
    raise ValueError(
      f'client.stragglers: the clients of {chain.name!r} take no local steps; 0 would work'
    )
  if ':' not in sampler and sampler not in SAMPLERS:
    raise ValueError(f'client.sampler={sampler!r} is unknown; known: {", ".join(SAMPLERS)}')
  for layer in chain:
    for name in traced_fields(type(layer)):  # type: ignore[arg-type]
      if np.ndim(value := getattr(layer, name)):
        shape = np.shape(value)
        raise ValueError(
          f'{layer._key(name)}: an array of shape {shape}; one number would work, or fs.sweep'
        )
  needed = chain.server_data
  if needed and (data.proxy is None or (needed == 'labels' and data.proxy.y.min() < 0)):
    raise ValueError(
      f'{chain.name} needs server data with {needed}, and data.proxy has none: load the data with '
      "proxy='held_out'"
    )
  kind = kind_of(data.x)
  missing = {'one class': data.y.ndim > 1, 'pixels': kind != IMAGES, 'real values': kind == TOKENS}
  for trait in sorted(chain.requires & missing.keys()):
    if missing[trait]:
      given = '' if trait == 'one class' else f', and these data are {called(kind)}'
      raise ValueError(f'algorithm={chain.name!r}: needs {TRAITS[trait]}{given}')
  if missing['pixels'] and chain.trains_locally and chain.local._augmentation() is not None:
    raise ValueError(
      f"client.augment: needs {TRAITS['pixels']}, and these data are {called(kind)}; 'none' would"
      ' work'
    )


def next_stop(chain: Chain, done: int) -> int | None:
  """Returns the next round after which the program changes or the server works, or None."""
  return min((stop for stop in chain.stops if stop > done), default=None)


def phase_of(chain: Chain, done: int, count: int) -> int:
  """Returns the first round of the phase of some rounds.

  Args:
    chain: the method.
    done: rounds before them.
    count: how many.

  Raises:
    ValueError: if they cross into another phase.
  """
  stop = next_stop(chain, done)
  if stop is not None and done + count > stop:
    crossed = f'cross round {stop}, where the program changes or the server works'
    raise ValueError(f'{count} rounds from round {done} {crossed}')
  return chain.first_round(done)
