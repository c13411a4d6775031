"""Krum: the update nearest to the others, or the mean of several (Blanchard et al., 2017)."""

import math

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.core.sampling import fixed
from fedjax_syn.layer import Layer
from fedjax_syn.server import robust

ROUNDING = 1e-4  # 0.2 * 5 is one client in spite of binary fractions


class Krum(Layer):
  """Moves by the update with the lowest score, the sum of its n - f - 2 smallest squared distances.

  n are the clients of a round with samples, f = ceil(share n) of them may be malicious. keep=m
  averages the m updates with the lowest scores (Multi-Krum). Running statistics are averaged over
  all clients.
  """

  share: float = field(
    0.2, 'share of the clients of a round that may be malicious', low=0.0, high=0.499
  )
  keep: int = field(1, 'm, updates that are averaged; 1: Krum', low=1, high=10**6)

  def requires(self):
    return frozenset({'individual updates'})

  def resolve(self, run):
    s = run.sampling
    n = fixed(s.clients, s.participation)[0]  # with 'poisson' about so many
    f = math.ceil(self.share * n - ROUNDING)
    if 2 * f + 2 >= n:
      raise ValueError(
        f'krum.share={self.share}: f={f} of n={n} clients of a round, and Krum needs 2 f + 2 < n;'
        f' at most {max((n - 3) // 2, 0)} of {n} would work, or more clients (client.participation)'
      )
    return self

  def aggregate(self, round):
    updates, present = round.messages.payload['params'], round.messages.weight > 0
    n = present.sum()
    f = jnp.ceil(self.share * n - ROUNDING).astype(n.dtype)
    others = ~jnp.eye(present.shape[0], dtype=bool) & present[None]
    distances = jnp.where(others, robust.squared_distances(updates), jnp.inf)
    nearest = jnp.arange(present.shape[0]) < jnp.maximum(n - f - 2, 1)
    scores = jnp.where(nearest[None], jnp.sort(distances, axis=1), 0).sum(axis=1)
    scores = jnp.minimum(scores, jnp.finfo(scores.dtype).max)  # finite for a client that is alone
    rank = jnp.argsort(jnp.argsort(jnp.where(present, scores, jnp.inf), stable=True))
    chosen = present & (rank < self.keep)
    weights = chosen / jnp.maximum(chosen.sum(), 1)
    move = lambda w, d: w + jnp.tensordot(weights.astype(d.dtype), d, 1)
    return jax.tree.map(move, round.params, updates), {'kept': chosen.sum()}
