"""Ditto: beside the global model a personal one, kept near it (Li et al., 2021, Algorithm 1)."""

import dataclasses

import jax
import optax

from fedjax_syn.chains import Chain
from fedjax_syn.client.local import LocalClient
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import Variables
from fedjax_syn.layer import Layer

PERSONAL = 4  # use of a client's key in a round; local training has 0 to 3


class Ditto(Layer):
  """Every client keeps a personal model v, trained on F_k(v) + lambda/2 ||v - w||^2.

  w is the global model.
  Messages, and so the global model, are to the last bit what they are without Ditto. v is trained
  with the client's plain loss, batch size, augmentation, rate and optimizer (a fresh one in every
  round), but its own random draws. v is the client's state; at first it is the initial model.

  With lambda 0 v is trained alone; a large lambda keeps v at w. For SGD, the rate times lambda must
  be below 2.
  """

  lambda_personal: float = field(1.0, 'lambda (paper 1, or chosen from 0.1, 1, 2)', low=0.0)
  epochs: int = field(1, 'passes of v over the data in a round', low=1, high=10_000)
  steps: int = field(0, 'steps instead of passes (paper 2); 0: passes', low=0, high=10**9)

  def client_init(self, task, initial, shard):
    return initial

  def finish(self, client, trained, steps):
    """Trains v, which starts as the client's last round left it."""
    v, local = client.state, LocalClient(self._personal_task(client.task))
    key, broadcast = fold(client.key, 0, PERSONAL), {_NearGlobal.name: client.params}
    own = client._replace(key=key, params=v.params, stats=v.stats, broadcast=broadcast, state={})
    count = local.steps(client.shard.size)
    carry = local.begin(own)
    with loop('local_steps'):
      carry = jax.lax.fori_loop(0, count, lambda _, carry: local.step(carry), carry)
    return None, Variables(carry.params, carry.stats)

  def client_metrics(self, client, trained):  # of the personal model as the last round left it
    return {'distance': optax.tree.norm(optax.tree.sub(client.state.params, client.params))}

  def personal(self, client, trained):
    return client.state

  def _personal_task(self, task: Task) -> Task:
    """Returns the task of training v: local training with these passes and the term with w."""
    epochs = 0 if self.steps else self.epochs
    local = dataclasses.replace(task.local, persistent=False, epochs=epochs, steps=self.steps)
    return task._replace(chain=Chain((local, _NearGlobal(weight=self.lambda_personal))))


class _NearGlobal(Layer):
  """Adds lambda/2 ||v - w||^2 to the loss of v; w, the global model, is its broadcast."""

  weight: float = 1.0  # lambda

  def loss(self, client, loss_fn, v, step):
    value, out = loss_fn(v, step)
    difference = optax.tree.sub(v, client.broadcast)
    return value + self.weight / 2 * optax.tree.vdot(difference, difference), out
