"""The clients' models of a round on the server's own samples."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.contexts import Messages, Task
from fedjax_syn.core.types import Array, Params, Variables
from fedjax_syn.data import federated

BATCH = 256  # samples at once through all clients' models


class ClientModels(NamedTuple):
  """What the clients of a round sent, as whole models; absent ones count for nothing."""

  variables: Variables  # leaves [cohort, ...]
  present: Array  # [cohort], 1 for a client with samples, else 0


def of_round(old: Params, messages: Messages) -> ClientModels:
  """Adds the clients' differences to the model that they began from.

  Args:
    old: w^{c-1}.
    messages: where a layer requires individual updates.

  Returns:
    The clients' models.
  """
  payload = messages.payload
  assert payload is not None, 'a layer must require individual updates'
  params = jax.tree.map(lambda w, delta: w[None] + delta, old, payload['params'])
  present = (messages.weight > 0).astype(messages.weight.dtype)
  return ClientModels(Variables(params, payload['stats']), present)


def logits(task: Task, variables: Variables, x: Array) -> Array:
  """Runs several models on the same samples.

  Args:
    task: gives the network and the normalisation.
    variables: leaves [models, ...].
    x: uint8 [rows, height, width, channels].

  Returns:
    [models, rows, classes].
  """
  images = federated.normalise(task.data, x)
  return jax.vmap(lambda v: task.model.apply(v, images, train=False).logits)(variables)


def accuracy(task: Task, variables: Variables, x: Array, y: Array) -> Array:
  """Measures several models on labelled samples.

  Args:
    task: gives the network and the normalisation.
    variables: leaves [models, ...].
    x: uint8 [rows, height, width, channels].
    y: [rows], or multi-hot [rows, labels].

  Returns:
    The share of the rows that each model has right (multi-label: in all labels), [models].
  """

  def score(x, y):  # [rows, models]
    right = task.objective.right(logits(task, variables, x), y[None])
    return right.T.astype(task.data.mean.dtype)

  return in_batches(score, x, y).mean(axis=0)


def in_batches(score: Callable[..., Array], *arrays: Array) -> Array:
  """Maps a function of at most `BATCH` rows over all rows; joins the results along axis 0."""
  rows = arrays[0].shape[0]
  size = min(BATCH, rows)
  fill = -rows % size
  cut = lambda a: jnp.concatenate([a, a[:fill]]).reshape(-1, size, *a.shape[1:])
  scores = jax.lax.map(lambda batch: score(*batch), tuple(map(cut, arrays)))
  return scores.reshape(-1, *scores.shape[2:])[:rows]
