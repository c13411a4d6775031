"""What a round keeps from others where a method adds noise for privacy: the rest of the engine knows nothing of it."""

from collections.abc import Callable

import jax.numpy as jnp

from fedjax_syn import privacy
from fedjax_syn.keys import fold, stream
from fedjax_syn.method import Messages, Method, Task
from fedjax_syn.typing import Array


class Hidden(dict):
  """The sums of the clients' messages, without noise: behind a layer that adds it no server may see them."""

  def __init__(self, layer: str):
    super().__init__()
    self.layer = layer

  def __missing__(self, name: str):
    raise ValueError(
      f"{self.layer!r} protects the aggregated model, and a server layer after it reads the clients' {name!r}, which have"
      f' no noise; put {self.layer!r} last'
    )


def check(method: Method, task: Task) -> None:
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


def keys(method: Method, noise_number: int) -> Callable:
  """Returns (seed, purpose, round) -> the key of draws that epsilon rests on: noise, and who is sampled.

  Args:
    method: whose draws they are.
    noise_number: of the method among those that see the same clients with the same seeds; 0 has the engine's own keys.
  """
  if noise_number == 0 or method.mechanism is None:
    return stream
  return lambda seed, purpose, number: fold(stream(seed, purpose, number), noise_number)


def visible(method: Method, messages: Messages) -> Messages:
  """Returns what servers see behind the aggregation: no message, nor a sum of them, where a layer adds noise to it."""
  if not (privacy.promises(method.mechanism) and method.mechanism.layer):
    return messages
  hidden = Hidden(method.mechanism.layer)
  return messages._replace(weighted=hidden, present=hidden, body=None)


def told(method: Method, metrics: dict[str, Array], size: Array) -> tuple[dict[str, Array], Array]:
  """Takes clients that diverged out of a round's report: the noised model alone decides whether the run goes on.

  Args:
    method: what is done.
    metrics: by name, [slots].
    size: samples of each sampled client, [slots].

  Returns:
    The same where there is no noise; else all clients are finite, and those that are not have no sample.
  """
  if not privacy.promises(method.mechanism):
    return metrics, size
  finite = metrics['finite']
  return metrics | {'finite': jnp.ones_like(finite)}, jnp.where(finite, size, 0)
