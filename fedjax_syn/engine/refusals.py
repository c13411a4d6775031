"""What an engine cannot be built of, in one line each."""

from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.method import NEEDS, LocalTraining, Method, Task


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


class Hidden(dict):
  """The sums of the clients' messages, without noise: behind a layer that adds it no server may see them."""

  def __init__(self, layer: str):
    super().__init__()
    self.layer = layer

  def __missing__(self, name: str):
    raise ValueError(
      f"{self.layer!r} protects the aggregated model, and a server put around it reads the clients' {name!r}, which have"
      f' no noise; put {self.layer!r} last'
    )


def check_privacy(method: Method, task: Task) -> None:
  """Refuses noise on the updates of clients that send something else before the first round.

  Args:
    method: what is to be done.
    task: the experiment.

  Raises:
    ValueError: naming the transform whose message would go without noise.
  """
  for transform in (build(task) for build in method.client_transforms):
    if transform.enrol is not None:
      raise ValueError(
        f"algorithm={method.name!r}: 'dp' protects updates only, and {transform.name!r} sends something of every"
        ' client before round 1'
      )
  layer = method.mechanism.layer
  sealing = [
    t.name for t in (build(task) for build in method.client_transforms) if t.seal is not None
  ]
  if layer and sealing[-1] != layer:
    raise ValueError(
      f'algorithm={method.name!r}: {sealing[-1]!r} changes what clients send after {layer!r} has bounded it; put'
      f' {layer!r} last'
    )
