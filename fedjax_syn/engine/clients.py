"""Runs the sampled clients: blocks of vmapped lanes, queued on devices longest first, or a plain loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fedjax_syn.client.local import DirectClient, LocalClient
from fedjax_syn.core.contexts import ClientContext, Message, Messages
from fedjax_syn.core.types import Array, PyTree
from fedjax_syn.engine.layout import Layout
from fedjax_syn.engine.tracing import traced


def run_one(client: LocalClient | DirectClient, context: ClientContext) -> PyTree:
  """Runs one client with its own number of steps; returns (message, state, metrics)."""
  if isinstance(client, DirectClient):
    return client.update(context)
  steps = client.steps(context.shard.size)
  return client.end(
    jax.lax.fori_loop(0, steps, lambda _, carry: client.step(carry), client.begin(context))
  )


def run_block(
  client: LocalClient | DirectClient, contexts: ClientContext, across: str = ''
) -> PyTree:
  """Runs a block of contexts in lockstep; lanes that are done keep their state untouched.

  Args:
    client: the closed client.
    contexts: leaves [lanes, ...].
    across: the axis of a vmap around it whose blocks end together, so that the loop has one trip count.

  Returns:
    (message, state, metrics), leaves [lanes, ...].
  """
  lanes = contexts.shard.size.shape[0]
  if lanes == 1:  # no select, no padding, real branches
    one = run_one(client, jax.tree.map(lambda leaf: leaf[0], contexts))
    return jax.tree.map(lambda leaf: leaf[None], one)
  if isinstance(client, DirectClient):
    return jax.vmap(client.update)(contexts)
  total = client.steps(contexts.shard.size).max()
  if across:
    total = jax.lax.pmax(total, across)

  def step(carry):
    new = client.step(carry)
    active = carry.index < client.steps(carry.client.shard.size)
    # Masking the gradient is not enough (Adam moves on a zero gradient): select the whole state.
    changed = jax.tree.map(
      lambda n, o: jnp.where(active, n, o),
      new._replace(client=None),
      carry._replace(client=None),
    )
    return changed._replace(client=carry.client)

  carry = jax.vmap(client.begin)(contexts)
  carry = jax.lax.fori_loop(0, total, lambda _, c: jax.vmap(step)(c), carry)
  return jax.vmap(client.end)(carry)


def schedule(cost: Array, lanes: int, devices: int) -> tuple[Array, Array, Array]:
  """Assigns slots to blocks and blocks to devices, longest first.

  Args:
    cost: [slots], steps of each sampled client.
    lanes: clients in a block.
    devices: queues.

  Returns:
    blocks [blocks, lanes] of slots (slots beyond the last are padding), queue [devices, blocks] of block
    numbers, and how many of them each device runs, [devices].
  """
  slots = cost.shape[0]
  blocks = -(-slots // lanes)
  longest_first = jnp.argsort(-cost, stable=True)
  padded = jnp.concatenate([longest_first, slots + jnp.arange(blocks * lanes - slots)])
  table = padded.reshape(blocks, lanes).astype(jnp.int32)
  block_cost = jnp.where(table < slots, cost[jnp.minimum(table, slots - 1)], 0).max(axis=1)

  def assign(carry, block):
    load, queue, count = carry
    device = jnp.argmin(load)
    queue = queue.at[device, count[device]].set(block)
    # One unit beside the steps, so that blocks without a step still spread over the devices.
    return (load.at[device].add(block_cost[block] + 1), queue, count.at[device].add(1)), None

  empty = (
    jnp.zeros(devices, block_cost.dtype),
    jnp.zeros((devices, blocks), jnp.int32),
    jnp.zeros(devices, jnp.int32),
  )
  (_, queue, count), _ = jax.lax.scan(assign, empty, jnp.arange(blocks, dtype=jnp.int32))
  return table, queue, count


class CohortResult(NamedTuple):
  """What the sampled clients of a round bring back, in the order of the slots whatever the layout."""

  messages: Messages
  state: PyTree  # leaves [slots, ...]
  metrics: dict[str, Array]  # [slots]
  padding_efficiency: Array  # [], real steps / (lanes x trip count of the longest queue)


def _tally(message: Message, uniform: bool) -> tuple[PyTree, PyTree]:
  """Sums a block of messages, leaves [lanes, ...], by weight and by presence; one sum if those are equal."""

  def total(weight):
    return jax.tree.map(lambda m: jnp.tensordot(weight.astype(m.dtype), m, axes=1), message.payload)

  return total(message.weight), None if uniform else total(message.weight > 0)


def run_clients(
  make_client: Callable[[PyTree], LocalClient | DirectClient],
  make_context: Callable[[PyTree, Array], ClientContext],
  operands: PyTree,
  cost: Array,
  layout: Layout,
  mesh: jax.sharding.Mesh,
  *,
  uniform: bool,
  keep_messages: bool,
  across: str = '',
) -> CohortResult:
  """Runs all sampled clients.

  Args:
    make_client: closes the client over the operands.
    make_context: (operands, slot) -> ClientContext; slots beyond the last give a client without samples.
    operands: everything that a client reads, the same on every device.
    cost: [slots], steps of each sampled client.
    layout: a resolved layout.
    mesh: the layout's mesh.
    uniform: all weights are 0 or 1.
    keep_messages: keep the payloads of all messages, not only their sums.
    across: the axis of a vmap around it, see `run_block`.

  Returns:
    The round's results.
  """
  slots = cost.shape[0]

  def outcome(sums, kept, efficiency):
    (weighted, present), (weight, payload, state, metrics) = sums, kept
    return CohortResult(
      Messages(weight, weighted, weighted if uniform else present, payload),
      state,
      metrics,
      efficiency,
    )

  def split(results):  # what is summed on the way, and what is kept for every slot
    message, state, metrics = results
    kept = message.weight, message.payload if keep_messages else None, state, metrics
    return _tally(message, uniform), kept

  if layout.form == 'loop':
    client = make_client(operands)
    one = lambda slot: run_one(client, make_context(operands, slot))
    results = jax.lax.map(one, jnp.arange(slots, dtype=jnp.int32))
    return outcome(*split(results), jnp.ones(()))

  table, queue, count = schedule(cost, layout.lanes, layout.devices)

  def device_queue(operands, table, queue, count):
    client = make_client(operands)

    def go(number):
      contexts = jax.vmap(lambda slot: make_context(operands, slot))(table[number])
      return split(run_block(client, contexts, across))

    zeros = lambda leaf, shape: jnp.zeros(shape, leaf.dtype)
    block, (sums, kept) = traced(go, jnp.int32(0))
    start = (
      jax.tree.map(lambda leaf: zeros(leaf, leaf.shape), sums),
      jax.tree.map(lambda leaf: zeros(leaf, (slots, *leaf.shape[1:])), kept),
    )

    def body(position, carry):
      number = queue[0, position]
      sums, kept = block(number)
      put = lambda buffer, rows: buffer.at[table[number]].set(rows, mode='drop')
      return jax.tree.map(jnp.add, carry[0], sums), jax.tree.map(put, carry[1], kept)

    total = jax.lax.fori_loop(0, count[0], body, start)
    if layout.devices == 1:
      return total
    # Each slot was filled by one device and is zero on the others.
    return jax.tree.map(lambda leaf: _psum(leaf, 'lanes'), total)

  if layout.devices > 1:
    device_queue = jax.shard_map(
      device_queue,
      mesh=mesh,
      in_specs=(P(), P(), P('lanes'), P('lanes')),
      out_specs=P(),
      check_vma=False,
    )
  sums, kept = device_queue(operands, table, queue, count)
  trips = layout.devices * layout.lanes * _trips(cost, table, queue, count)
  return outcome(sums, kept, cost.sum() / jnp.maximum(trips, 1))


def _psum(leaf: Array, axis: str) -> Any:
  if leaf.dtype == jnp.bool_:
    return jax.lax.psum(leaf.astype(jnp.int32), axis) > 0
  return jax.lax.psum(leaf, axis)


def _trips(cost: Array, table: Array, queue: Array, count: Array) -> Array:
  """Steps on the longest queue, []."""
  slots = cost.shape[0]
  block_cost = jnp.where(table < slots, cost[jnp.minimum(table, slots - 1)], 0).max(axis=1)
  runs = jnp.arange(queue.shape[1])[None] < count[:, None]
  return jnp.where(runs, block_cost[queue], 0).sum(axis=1).max()
