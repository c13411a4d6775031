"""DP-FedAvg: clipped updates, and Gaussian noise on their sum (McMahan et al., 2018)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core import privacy
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.layer import Layer


class DP(Layer):
  """Clips every client's update to norm C and adds N(0, (z C)^2) to the sum.

  The sum is divided by the expected number of clients. Every client with a sample weighs 1,
  whatever server.weighting says. With a target epsilon, the noise is chosen for all seeds and
  rounds of the run.

  The unit of privacy is a client with all its samples. It is protected against everyone who sees
  the models of all rounds, or what is computed from them, as DynaFed's synthetic set. Not
  protected: that a client takes part, and numbers that are logged for the experimenter
  ('train/loss'). Clients may send nothing but their update; this is checked when the round is
  traced.
  """

  clip: float = field(1.0, "C, bound on the norm of a client's update", above=0.0)
  noise_multiplier: float = field(1.0, 'z: the standard deviation of the noise is z C', low=0.0)
  target_epsilon: float = field(0.0, 'epsilon for which z is chosen; 0: z as given', low=0.0)
  delta: float = field(1e-5, 'delta, at which epsilon is stated', above=0.0, high=0.5)

  def check(self):
    privacy.check_deviation('dp.clip', self.noise_multiplier, self.clip)

  def provides(self):
    return frozenset({'aggregate only'})

  def resolve(self, run):
    if not self.target_epsilon:
      return self
    wanted, methods = (self.target_epsilon, self.delta, run.sampling), run.count('dp')
    noise = privacy.noise_multiplier(*wanted, methods=methods)
    resolved = dataclasses.replace(self, noise_multiplier=noise)
    resolved.check()
    return resolved

  def privacy(self, task):
    return privacy.Mechanism(
      self.noise_multiplier, self.delta, target_epsilon=self.target_epsilon, layer='dp'
    )

  def postprocess_update(self, client, payload):
    others = [k for k, part in payload.items() if k != 'params' and jax.tree.leaves(part)]
    if others:
      chain = client.task.chain
      sender = '+'.join(layer.name for layer in chain.layers[1:] if not isinstance(layer, DP))
      raise ValueError(
        f"algorithm={chain.name!r}: 'dp' protects updates only, and the clients of"
        f' {sender or "fedavg"!r} also send {", ".join(others)}'
      )
    update, norm = payload['params'], optax.tree.norm(payload['params'])
    # With noise, an update that is not finite has no bound and counts as zeros.
    counts = jnp.isfinite(norm) | (self.noise_multiplier == 0)
    update = jax.tree.map(lambda d: jnp.where(counts, d, 0), update)
    norm = jnp.where(counts, norm, 0)
    scale = jnp.minimum(1.0, self.clip / jnp.maximum(norm, 1e-12))
    return payload | {'params': jax.tree.map(lambda d: scale * d, update)}

  def client_metrics(self, client, trained):
    moved = optax.tree.sub(trained.params, client.params)
    stays = client.task.is_private
    sent = lambda path, d: jnp.zeros_like(d) if stays(path) else d
    norm = optax.tree.norm(jax.tree_util.tree_map_with_path(sent, moved))
    return {'clipped': (norm > self.clip).astype(norm.dtype), 'norm': norm}

  def aggregate(self, round):
    task = round.task
    # The expected number: the real one would tell who took part.
    expected = jnp.maximum(task.expected_cohort, 1)
    deviation = self.noise_multiplier * self.clip  # z C

    def noised(i, path, total):
      if task.is_private(path):  # it stays on the client
        return total
      return total + deviation * jax.random.normal(fold(round.key, i), total.shape, total.dtype)

    leaves, structure = jax.tree_util.tree_flatten_with_path(round.messages.sum('params'))
    sums = jax.tree.unflatten(structure, [noised(i, *leaf) for i, leaf in enumerate(leaves)])
    return jax.tree.map(lambda w, s: w + s / expected, round.params, sums), {}
