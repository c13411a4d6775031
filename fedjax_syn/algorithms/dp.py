"""DP-FedAvg: clients' updates are clipped, the server adds Gaussian noise to their sum (McMahan et al., 2018)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn import privacy
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import ClientTransform, Method


@dataclasses.dataclass(frozen=True)
class Config:
  clip: float = field(1.0, "C, bound on the norm of a client's update", above=0.0)
  noise_multiplier: float = field(
    1.0, "noise's standard deviation on the sum, in units of C", low=0.0
  )
  target_epsilon: float = field(
    0.0, 'choose the noise for this epsilon, instead of noise_multiplier; 0: do not', low=0.0
  )
  delta: float = field(1e-5, 'delta, at which epsilon is stated', above=0.0, high=0.5)


def resolve(block: Config, config: Any) -> Config:
  """Returns the block with the noise that its target epsilon needs, if it has one.

  Args:
    block: the fields.
    config: the whole checked config: sampler, clients, participation, rounds, seeds and how many of its methods add
      this noise decide.

  Raises:
    ValueError: if no noise is enough, or dp-accounting is not installed.
  """
  if not block.target_epsilon:
    return block
  words = config.algorithm, config.compare
  noise = privacy.noise_multiplier(
    block.target_epsilon,
    block.delta,
    privacy.sampling_of(config),
    methods=sum('dp' in word.split('+') for word in words),
  )
  return dataclasses.replace(block, noise_multiplier=noise)


def dp(
  base: Method | None = None,
  *,
  clip: float = 1.0,
  noise_multiplier: float = 1.0,
  target_epsilon: float = 0.0,
  delta: float = 1e-5,
) -> Method:
  """Clips every client's update to norm C and adds N(0, (z C)^2) to the sum, over the expected number of clients.

  Args:
    base: a method that trains locally and sends only its update; FedAvg by default.
    clip: C; a client with any samples weighs 1, whatever the base's weighting.
    noise_multiplier: z.
    target_epsilon: a run with less noise than this needs over all its seeds and rounds is refused; a config chooses
      the noise, `privacy.noise_multiplier` from Python.
    delta: at which epsilon is stated.

  Returns:
    The method. One client, all its samples, is what is protected, against whoever sees the models of all
    rounds; what follows from those, as DynaFed's synthetic set, is protected too. Not protected: that a
    client takes part, and numbers that are logged for the experimenter ('train/loss').

  Raises:
    ValueError: if the base's server looks at each client's model (FedDF, FedBE); if its clients send anything but
      their update (when an engine is built).
  """
  base = base or fedavg()
  privacy.check_deviation('dp.clip', noise_multiplier, clip)

  def stays(task, path):  # on the client: not sent, and not noised
    return base.is_private(task.model, path)

  def client(task):
    def seal(key, body):
      others = [k for k, v in body.items() if k != 'params' and jax.tree.leaves(v)]
      if others:
        raise ValueError(
          f"algorithm={f'{base.name}+dp'!r}: 'dp' protects updates only, and the clients of {base.name!r} also"
          f' send {", ".join(others)}'
        )
      params = body['params']
      norm = optax.tree.norm(params)
      if noise_multiplier:  # what is not finite has no bound: it counts for nothing
        finite = jnp.isfinite(norm)
        params = jax.tree.map(lambda d: jnp.where(finite, d, 0), params)
        norm = jnp.where(finite, norm, 0)
      scale = jnp.minimum(1.0, task.hyper['dp']['clip'] / jnp.maximum(norm, 1e-12))
      return body | {'params': jax.tree.map(lambda d: scale * d, params)}

    def metrics(ctx, visit, trained):
      moved = optax.tree.sub(trained.params, visit.params)
      sent = lambda path, d: jnp.zeros_like(d) if stays(task, path) else d
      norm = optax.tree.norm(jax.tree_util.tree_map_with_path(sent, moved))
      return {'clipped': (norm > task.hyper['dp']['clip']).astype(norm.dtype), 'norm': norm}

    return ClientTransform('dp', seal=seal, metrics=metrics)

  def aggregate(task):
    def noised(key, old, messages):
      h = task.hyper['dp']
      # By the expected number: the real one would tell who was there.
      expected = jnp.maximum(task.cohort, 1)
      leaves, structure = jax.tree_util.tree_flatten_with_path(messages.sum('params'))
      spread = h['noise_multiplier'] * h['clip']
      sums = [
        total
        if stays(task, path)
        else total + spread * jax.random.normal(fold(key, i), total.shape, total.dtype)
        for i, (path, total) in enumerate(leaves)
      ]
      new = jax.tree.map(lambda w, s: w + s / expected, old, jax.tree.unflatten(structure, sums))
      return new, {}

    return noised

  mechanism = privacy.Mechanism(noise_multiplier, delta, target_epsilon=target_epsilon, layer='dp')
  hyper = {'clip': clip, 'noise_multiplier': noise_multiplier}
  method = base.extend('dp', client=client, aggregate=aggregate, sums_only=True, hyper=hyper)
  return method._replace(mechanism=mechanism)
