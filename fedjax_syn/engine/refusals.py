"""What an engine cannot be built of, in one line each."""

from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.method import NEEDS, LocalTraining, Method


def check(method: Method, data: FederatedData, sampler: str) -> None:
  """Refuses an unknown sampler, and a method that cannot work on these data.

  Args:
    method: what is to be done.
    data: the partitioned training set.
    sampler: the name of one.

  Raises:
    ValueError: naming what does not fit and what would.
  """
  if sampler not in SAMPLERS:
    raise ValueError(f'client.sampler={sampler!r} is unknown; known: {", ".join(SAMPLERS)}')
  if method.proxy and (data.proxy is None or (method.proxy == 'labels' and data.proxy.y.min() < 0)):
    raise ValueError(
      f'{method.name} needs server data with {method.proxy}, and data.proxy has none: load the data with '
      "proxy='held_out'"
    )
  missing = {'one_class': data.y.ndim > 1, 'pixels': data.x.ndim < 4}
  for need in method.needs:
    if missing[need]:
      raise ValueError(f'algorithm={method.name!r}: needs {NEEDS[need]}')
  local = method.client
  if missing['pixels'] and isinstance(local, LocalTraining) and local.augment is not None:
    raise ValueError(f"client.augment: needs {NEEDS['pixels']}; 'none' would work")
