"""Runs the sampled clients on the devices: queues of vmapped blocks, longest first, or a loop."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fedjax_syn.client.local import DirectClient, LocalClient
from fedjax_syn.core.contexts import ClientContext, Messages
from fedjax_syn.core.mesh import replicated
from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import Array, PyTree
from fedjax_syn.engine.inputs import RoundInputs, client_context
from fedjax_syn.engine.layout import Layout
from fedjax_syn.engine.trace_once import traced

Client = LocalClient | DirectClient


def run_block(client: Client, contexts: ClientContext, across: str = '') -> PyTree:
  """Runs a block of contexts in lockstep; lanes that are done keep their state untouched.

  Args:
    client: bound to a task.
    contexts: leaves [lanes, ...].
    across: the axis of an enclosing vmap whose blocks end together: the loop has one trip count.

  Returns:
    (message, state, metrics), leaves [lanes, ...].
  """
  lanes = contexts.shard.size.shape[0]
  if lanes == 1:  # no select, no padding, real branches
    one = client.update(jax.tree.map(lambda leaf: leaf[0], contexts))
    return jax.tree.map(lambda leaf: leaf[None], one)
  if isinstance(client, DirectClient):
    return jax.vmap(client.update)(contexts)
  total = jax.vmap(client.steps_of)(contexts).max()
  if across:
    total = jax.lax.pmax(total, across)

  def step(carry):
    new = client.step(carry)
    active = carry.index < client.steps_of(carry.client)
    # Masking the gradient is not enough (Adam moves on a zero gradient): select the whole state.
    changed = jax.tree.map(
      lambda n, o: jnp.where(active, n, o),
      new._replace(client=None),
      carry._replace(client=None),
    )
    return changed._replace(client=carry.client)

  carry = jax.vmap(client.begin)(contexts)
  with loop('local_steps'):
    carry = jax.lax.fori_loop(0, total, lambda _, c: jax.vmap(step)(c), carry)
  return jax.vmap(client.end)(carry)


def schedule(
  cost: Array, lanes: int, devices: int, least: int = 0
) -> tuple[Array, Array, Array, Array]:
  """Assigns sampled clients to blocks, and blocks to devices, longest first.

  Args:
    cost: [cohort], steps of each sampled client.
    lanes: clients in a block.
    devices: queues.
    least: blocks at least; those beyond the cohort are padding.

  Returns:
    Positions in the cohort by block [blocks, lanes] (those beyond the last are padding), block
    numbers by device [devices, blocks], how many of them each device runs [devices], and the steps
    of the longest queue [].
  """
  cohort = cost.shape[0]
  blocks = max(-(-cohort // lanes), least)
  longest_first = jnp.argsort(-cost, stable=True)
  padded = jnp.concatenate([longest_first, cohort + jnp.arange(blocks * lanes - cohort)])
  table = padded.reshape(blocks, lanes).astype(jnp.int32)
  block_cost = jnp.where(table < cohort, cost[jnp.minimum(table, cohort - 1)], 0).max(axis=1)

  def assign(carry, block):
    load, queue, count = carry
    device = jnp.argmin(load)
    queue = queue.at[device, count[device]].set(block)
    # One unit beside the steps, so that blocks without a step are distributed over the devices too.
    return (load.at[device].add(block_cost[block] + 1), queue, count.at[device].add(1)), None

  empty = (
    jnp.zeros(devices, block_cost.dtype),
    jnp.zeros((devices, blocks), jnp.int32),
    jnp.zeros(devices, jnp.int32),
  )
  (load, queue, count), _ = jax.lax.scan(assign, empty, jnp.arange(blocks, dtype=jnp.int32))
  return table, queue, count, (load - count).max()


def queues_of(layout: Layout, mesh: jax.sharding.Mesh) -> tuple[int, int, int]:
  """Returns what `schedule` needs beside the steps: lanes, queues, and the fewest blocks."""
  # Devices of different groups run as many collectives of their groups: no queue is empty.
  return layout.lanes, layout.devices, layout.devices if mesh.devices.ndim > 1 else 0


class CohortResult(NamedTuple):
  """The results of a round's clients, in the order in which they were sampled."""

  messages: Messages
  state: PyTree
  """Leaves [cohort, ...]."""
  metrics: dict[str, Array]
  """[cohort], by name."""
  padding_efficiency: Array
  """[], real steps / (lanes x steps of the longest queue)."""


def weighted_sum(payload: PyTree, weight: Array) -> PyTree:
  """Sums the payloads of a block of clients.

  Args:
    payload: leaves [clients, ...].
    weight: [clients]; booleans select clients.

  Returns:
    Leaves [...], of the payload's type. Whole numbers become floats if the weights are floats, and
    booleans are counted.
  """

  def total(leaf):
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
      return jnp.tensordot(weight.astype(leaf.dtype), leaf, axes=1)
    kind = jnp.promote_types(leaf.dtype, weight.dtype)
    kind = kind if kind.itemsize >= 4 else jnp.int32  # sums of bytes and booleans
    return jnp.tensordot(weight.astype(kind), leaf.astype(kind), axes=1)

  return jax.tree.map(total, payload)


def run_clients(
  make_client: Callable[[RoundInputs], Client],
  inputs: RoundInputs,
  size: Array,
  layout: Layout,
  mesh: jax.sharding.Mesh,
  *,
  uniform: bool,
  keep_messages: bool,
  across: str = '',
) -> CohortResult:
  """Runs all sampled clients.

  Args:
    make_client: binds the client to what it reads.
    inputs: everything that a client reads, the same on every device.
    size: [cohort], samples of each sampled client.
    layout: a resolved layout.
    mesh: of the layout's devices; a second axis has those of a group, which run the same queue.
    uniform: all weights are 0 or 1.
    keep_messages: keep the payloads of all messages, not only their sums.
    across: the axis of a vmap around it, see `run_block`.
  """

  def reduce(results):
    """Returns what is summed over clients, and what is kept of each of them."""
    message, state, metrics = results
    present = message.weight > 0
    weighted = weighted_sum(message.payload, present if uniform else message.weight)
    unweighted = None if uniform else weighted_sum(message.payload, present)
    kept = message.weight, message.payload if keep_messages else None, state, metrics
    return (weighted, unweighted), kept

  if layout.form == 'loop':
    client = make_client(inputs)
    one = lambda position: client.update(client_context(inputs, position))
    sums, kept = reduce(jax.lax.map(one, jnp.arange(size.shape[0], dtype=jnp.int32)))
    efficiency = jnp.ones(())
  else:
    cost = make_client(inputs).steps(size)
    *queues, steps = schedule(cost, *queues_of(layout, mesh))
    if mesh.devices.size > 1:  # every device makes the queues of all: no step of it communicates
      queues = jax.lax.with_sharding_constraint(queues, replicated(mesh))

    def one_block(inputs, positions):
      contexts = jax.vmap(lambda position: client_context(inputs, position))(positions)
      return reduce(run_block(make_client(inputs), contexts, across))

    sums, kept = _run_queues(one_block, inputs, size.shape[0], queues, mesh)
    efficiency = cost.sum() / jnp.maximum(layout.devices * layout.lanes * steps, 1)
  (weighted, unweighted), (weight, payload, state, metrics) = sums, kept
  messages = Messages(weight, weighted, weighted if uniform else unweighted, payload)
  return CohortResult(messages, state, metrics, efficiency)


def _run_queues(
  one_block: Callable[[RoundInputs, Array], tuple[PyTree, PyTree]],
  inputs: RoundInputs,
  cohort: int,
  queues: Sequence[Array],
  mesh: jax.sharding.Mesh,
) -> tuple[PyTree, PyTree]:
  """Runs each device's queue of blocks; returns sums over clients, and rows [cohort, ...]."""

  def device_queue(inputs, table, queue, count):
    run, (sums, kept) = traced(lambda number: one_block(inputs, table[number]), jnp.int32(0))
    zeros = lambda leaf, shape: jnp.zeros(shape, leaf.dtype)
    start = (
      jax.tree.map(lambda leaf: zeros(leaf, leaf.shape), sums),
      jax.tree.map(lambda leaf: zeros(leaf, (cohort, *leaf.shape[1:])), kept),
    )

    def body(place, carry):
      number = queue[0, place]
      sums, kept = run(number)
      put = lambda buffer, rows: buffer.at[table[number]].set(rows, mode='drop')
      return jax.tree.map(jnp.add, carry[0], sums), jax.tree.map(put, carry[1], kept)

    with loop('queue'):
      total = jax.lax.fori_loop(0, count[0], body, start)
    if mesh.devices.ndim > 1:  # one device of each group counts
      first = jax.lax.axis_index(mesh.axis_names[1]) == 0
      total = jax.tree.map(lambda leaf: jnp.where(first, leaf, jnp.zeros_like(leaf)), total)
    # Each row was written by one device and is zero on the others.
    add = functools.partial(_psum, axes=mesh.axis_names)
    return total if mesh.devices.size == 1 else jax.tree.map(add, total)

  if mesh.devices.size > 1:
    device_queue = jax.shard_map(
      device_queue,
      mesh=mesh,
      in_specs=(_specs(inputs), P(), P('lanes'), P('lanes')),
      out_specs=P(),
      check_vma=False,
    )
  return device_queue(inputs, *queues)


def _specs(inputs: RoundInputs) -> PyTree:
  """Returns which inputs are on every device: all but rows that are with their clients' queue."""
  if inputs.data.clients is None:
    return P()
  everywhere = jax.tree.map(lambda _: P(), inputs)
  own = everywhere.data._replace(x=P('lanes'), y=P('lanes'))
  return everywhere._replace(data=own)


def _psum(leaf: Array, axes: tuple[str, ...]) -> Array:
  if leaf.dtype == jnp.bool_:
    return jax.lax.psum(leaf.astype(jnp.int32), axes) > 0
  return jax.lax.psum(leaf, axes)
