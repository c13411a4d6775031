"""Hides a round's exact numbers where a method adds noise for privacy."""

import jax.numpy as jnp

from fedjax_syn.chains import Chain
from fedjax_syn.core.contexts import Messages
from fedjax_syn.core.privacy import Mechanism
from fedjax_syn.core.types import Array
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.layer import overrides


class Hidden(dict):
  """Sums of the clients' messages without noise: server layers must not read them."""

  def __init__(self, layer: str):
    """Takes the name of the layer that adds the noise."""
    super().__init__()
    self.layer = layer

  def __missing__(self, name: str):
    raise ValueError(
      f'{self.layer!r} protects the aggregated model, and a server layer after it reads the'
      f" clients' {name!r}, which have no noise; put {self.layer!r} last"
    )


def check(chain: Chain, mechanism: Mechanism) -> None:
  """Refuses noise on the updates of clients that send something else before the first round.

  Args:
    chain: the method.
    mechanism: its noise.

  Raises:
    ValueError: naming the layer whose message would go without noise.
  """
  for layer in chain:
    if overrides(layer, 'setup'):
      raise ValueError(
        f"algorithm={chain.name!r}: 'dp' protects updates only, and {layer.name!r} sends something"
        ' of every client before round 1'
      )
  last = [layer.name for layer in chain if overrides(layer, 'postprocess_update')]
  if mechanism.layer and last[-1] != mechanism.layer:
    raise ValueError(
      f'algorithm={chain.name!r}: {last[-1]!r} changes what clients send after'
      f' {mechanism.layer!r} has bounded it; put {mechanism.layer!r} last'
    )


def visible(setting: Setting, messages: Messages) -> Messages:
  """Returns what server layers see of messages: nothing where a layer adds noise to the sum."""
  if not (setting.promises and setting.noisy_layer):
    return messages
  hidden = Hidden(setting.noisy_layer)
  return messages._replace(weighted_sum=hidden, unweighted_sum=hidden, payload=None)


def reported(
  setting: Setting, metrics: dict[str, Array], size: Array
) -> tuple[dict[str, Array], Array]:
  """Removes diverged clients from a report: the noised model alone decides on divergence.

  Args:
    setting: says whether an epsilon is stated.
    metrics: by name, [cohort].
    size: samples of each sampled client, [cohort].

  Returns:
    The same where there is no noise; else all clients are finite, and those that are not have no
    sample.
  """
  if not setting.promises:
    return metrics, size
  finite = metrics['finite']
  return metrics | {'finite': jnp.ones_like(finite)}, jnp.where(finite, size, 0)
