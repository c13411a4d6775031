"""Tiny models and data whose numbers can be worked by hand.

Equal arguments give the same model, since compiled programs are looked up by it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.layer import Layer


@functools.cache
def quadratic(start: float) -> Model:
  """logits = w - x with one parameter w: with `half_square` the loss is (w - x)^2 / 2."""

  def apply(variables, x, train=False, mask=None):
    params, stats = variables
    residual = params['w'] - x.reshape(x.shape[0], 1)
    return Output(residual, residual, stats)

  init = lambda key: Variables({'w': jnp.full((), start, jnp.result_type(float))}, {})
  return Model('quadratic', init, apply, lambda params, z: z, lambda path: False)


@functools.cache
def product(body: float, head: float) -> Model:
  """Returns logits = body * head - x, for `half_square`; body and head are one number each."""

  def apply(variables, x, train=False, mask=None):
    params, stats = variables
    residual = params['body'] * params['head'] - x.reshape(x.shape[0], 1)
    return Output(residual, residual, stats)

  number = lambda value: jnp.full((), value, jnp.result_type(float))
  init = lambda key: Variables({'body': number(body), 'head': number(head)}, {})
  is_head = lambda path: path[0].key == 'head'
  return Model('product', init, apply, lambda params, z: z, is_head)


@functools.cache
def table(classes: int) -> Model:
  """Predicts the value of an image's one pixel, whatever the parameter.

  So the test rows give a confusion matrix.
  """

  def apply(variables, x, train=False, mask=None):
    logits = jax.nn.one_hot(x.reshape(x.shape[0]).astype(jnp.int32), classes)
    return Output(logits * (1 + variables.params['w'] ** 2), logits, variables.stats)

  init = lambda key: Variables({'w': jnp.ones((), jnp.result_type(float))}, {})
  return Model('table', init, apply, lambda params, z: z, lambda path: False)


def half_square(logits, y, mask):
  return 0.5 * jnp.sum(logits[:, 0] ** 2 * mask) / jnp.maximum(mask.sum(), 1)


@functools.cache
def net(inputs: int, classes: int, hidden: int = 5) -> Model:
  """A small tanh network; smooth, so that finite differences of any order hold."""

  def init(key):
    k0, k1 = jax.random.split(key)
    dtype = jnp.result_type(float)
    params = {
      'w0': jax.random.normal(k0, (inputs, hidden), dtype) / np.sqrt(inputs),
      'b0': jnp.zeros(hidden, dtype),
      'w1': jax.random.normal(k1, (hidden, classes), dtype) / np.sqrt(hidden),
    }
    return Variables(params, {})

  def apply(variables, x, train=False, mask=None):
    params, stats = variables
    z = jnp.tanh(x.reshape(x.shape[0], -1) @ params['w0'] + params['b0'])
    return Output(z @ params['w1'], z, stats)

  return Model('net', init, apply, lambda p, z: z @ p['w1'], lambda path: path[0].key == 'w1')


def federated(sizes, classes: int = 3, side: int = 2, seed: int = 0) -> FederatedData:
  """Random images of `side` x `side` pixels, clients of the given sizes."""
  rng = np.random.default_rng(seed)
  rows = sum(sizes)
  return clients_of(
    rng.integers(0, 256, (rows, side, side, 1)).astype(np.uint8),
    rng.integers(0, classes, rows),
    sizes,
    classes,
  )._replace(mean=jnp.array([0.5]), std=jnp.array([0.3]))


def clients_of(x, y, sizes, classes: int) -> FederatedData:
  """Gives consecutive rows to clients; a pixel of value v is seen as the float v."""
  sizes = np.asarray(sizes)
  start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
  counts = np.stack(
    [np.bincount(y[a : a + n], minlength=classes) for a, n in zip(start, sizes, strict=True)]
  )
  return FederatedData(
    x=jnp.asarray(x),
    y=jnp.asarray(y, jnp.int32),
    order=jnp.arange(len(y), dtype=jnp.int32),
    start=jnp.asarray(start, jnp.int32),
    size=jnp.asarray(sizes, jnp.int32),
    class_counts=jnp.asarray(counts, jnp.int32),
    positions=jnp.arange(int(sizes.max()), dtype=jnp.int32),
    mean=jnp.zeros(1, jnp.result_type(float)),
    std=jnp.full(1, 1 / 255, jnp.result_type(float)),
  )


def two_points() -> FederatedData:
  """Client A holds {0}, client B {4, 4, 4}."""
  x = np.array([0, 4, 4, 4], np.uint8).reshape(4, 1, 1, 1)
  return clients_of(x, np.zeros(4, int), [1, 3], 1)


def build(*args, **kwargs) -> Engine:
  """Returns an engine on one device, whose programs compile in two thirds of the time.

  Tests of layouts use the library's own engine.
  """
  return Engine(*args, **{'layout': Layout(devices=1), **kwargs})


def client_of(
  engine: Engine, kind: type[Layer], client: int = 0, round: int = 1, **other
) -> ClientContext:
  """Returns a client as one layer sees it in a round of seed 0 that begins with the initial model.

  `other` changes fields of it.
  """
  state = engine.init(0)._replace(round=jnp.int32(round - 1))
  return engine.client_context(0, state, client, kind)._replace(**other)
