"""Runs the sampled clients: blocks of vmapped lanes, queued on devices longest first, or a plain loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fedjax_syn.client.local import LocalClient
from fedjax_syn.engine.layout import Layout
from fedjax_syn.method import Client, Visit
from fedjax_syn.typing import Array, PyTree

Run = Callable[[Visit], PyTree]  # one visit or, under vmap, a block of them


def run_one(client: LocalClient | Client, visit: Visit) -> PyTree:
  """Runs one visit with its own number of steps; returns (message, state, metrics)."""
  if isinstance(client, Client):
    return client.update(visit)
  steps = client.steps(visit.shard.size)
  return client.end(
    jax.lax.fori_loop(0, steps, lambda _, carry: client.step(carry), client.begin(visit))
  )


def run_block(client: LocalClient | Client, visits: Visit) -> PyTree:
  """Runs a block of visits in lockstep; lanes that are done keep their state untouched.

  Args:
    client: the closed client.
    visits: leaves [lanes, ...].

  Returns:
    (message, state, metrics), leaves [lanes, ...].
  """
  lanes = visits.shard.size.shape[0]
  if lanes == 1:  # no select, no padding, real branches
    one = run_one(client, jax.tree.map(lambda leaf: leaf[0], visits))
    return jax.tree.map(lambda leaf: leaf[None], one)
  if isinstance(client, Client):
    return jax.vmap(client.update)(visits)
  total = client.steps(visits.shard.size)

  def step(carry):
    new = client.step(carry)
    active = carry.index < client.steps(carry.visit.shard.size)
    # Masking the gradient is not enough (Adam moves on a zero gradient): select the whole state.
    changed = jax.tree.map(
      lambda n, o: jnp.where(active, n, o),
      new._replace(visit=None, ctx=None),
      carry._replace(visit=None, ctx=None),
    )
    return changed._replace(visit=carry.visit, ctx=carry.ctx)

  carry = jax.vmap(client.begin)(visits)
  carry = jax.lax.fori_loop(0, total.max(), lambda _, c: jax.vmap(step)(c), carry)
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


def run_clients(
  make_client: Callable[[PyTree], LocalClient | Client],
  make_visit: Callable[[PyTree, Array], Visit],
  operands: PyTree,
  cost: Array,
  layout: Layout,
  mesh: jax.sharding.Mesh,
) -> tuple[PyTree, Array]:
  """Runs all sampled clients.

  Args:
    make_client: closes the client over the operands.
    make_visit: (operands, slot) -> Visit; slots beyond the last give a visit without samples.
    operands: everything that a client reads, the same on every device.
    cost: [slots], steps of each sampled client.
    layout: a resolved layout.
    mesh: the layout's mesh.

  Returns:
    (message, state, metrics) with leaves [slots, ...], in the order of the slots whatever the layout,
    and the padding efficiency: real steps / (lanes x trip count of the longest queue), [].
  """
  slots = cost.shape[0]
  if layout.form == 'loop':
    client = make_client(operands)
    visit = lambda slot: run_one(client, make_visit(operands, slot))
    return jax.lax.map(visit, jnp.arange(slots, dtype=jnp.int32)), jnp.ones(())

  table, queue, count = schedule(cost, layout.lanes, layout.devices)

  def device_queue(operands, table, queue, count):
    client = make_client(operands)

    def block(number):
      return run_block(client, jax.vmap(lambda slot: make_visit(operands, slot))(table[number]))

    shapes = jax.eval_shape(block, jnp.int32(0))
    buffers = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape[1:]), leaf.dtype), shapes)

    def body(position, buffers):
      number = queue[0, position]
      return jax.tree.map(
        lambda b, r: b.at[table[number]].set(r, mode='drop'), buffers, block(number)
      )

    buffers = jax.lax.fori_loop(0, count[0], body, buffers)
    if layout.devices == 1:
      return buffers
    # Each slot was filled by one device and is zero on the others.
    return jax.tree.map(lambda b: _psum(b, 'lanes'), buffers)

  if layout.devices > 1:
    device_queue = jax.shard_map(
      device_queue,
      mesh=mesh,
      in_specs=(P(), P(), P('lanes'), P('lanes')),
      out_specs=P(),
      check_vma=False,
    )
  results = device_queue(operands, table, queue, count)
  trips = _trips(cost, table, queue, count)
  return results, cost.sum() / jnp.maximum(layout.devices * layout.lanes * trips, 1)


def _psum(leaf: Array, axis: str) -> Any:
  if leaf.dtype == jnp.bool_:
    return jax.lax.psum(leaf.astype(jnp.int32), axis) > 0
  return jax.lax.psum(leaf, axis)


def _trips(cost: Array, table: Array, queue: Array, count: Array) -> Array:
  """Steps on the longest queue, []."""
  slots = cost.shape[0]
  block_cost = jnp.where(table < slots, cost[jnp.minimum(table, slots - 1)], 0).max(axis=1)
  runs = jnp.arange(queue.shape[1]) < count[:, None]
  return jnp.where(runs, block_cost[queue], 0).sum(axis=1).max()
