"""Settings of how sampled clients lie on devices, with measured defaults; `placement` places them.

| backend | devices      | lanes | why                                                     |
|---------|--------------|-------|---------------------------------------------------------|
| cpu     | one per core | 1     | a client's state stays in cache; nothing is padded      |
| gpu     | all          | 32    | one wide step instead of 32 launches                    |
| tpu     | all          | 32    | the same; not measured (docs/speed.md has its bytes)    |
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax

from fedjax_syn.chains import Chain
from fedjax_syn.core.clients import LANES
from fedjax_syn.core.mesh import backend_of, mesh_of

FORMS = ('blocks', 'loop')


class Layout(NamedTuple):
  """Blocks of `lanes` vmapped clients are queued on `devices` devices, longest first."""

  lanes: int = 0
  """Clients in one vmapped block; 0: from the table."""
  form: str = 'blocks'
  """Or 'loop', the reference: one client after another on one device, in the order of sampling."""
  devices: int = 0
  """0: all devices of all processes."""
  seeds: int = 1
  """Of a run, side by side under vmap."""
  client_state_bytes: int = 0
  """A device's budget for per-client state, which beyond it is in host memory; 0: no limit."""


def resolve(layout: Layout, sampled: int, among: Sequence[jax.Device] = ()) -> Layout:
  """Fills in what a layout leaves open.

  Args:
    layout: lanes, form and devices as configured.
    sampled: the cohort's size.
    among: the devices that there are; () is JAX's.

  Returns:
    A layout without zeros.

  Raises:
    ValueError: if there are fewer devices than asked for, the form is unknown, or several processes
      cannot have it.
  """
  form = layout.form or 'blocks'
  if form not in FORMS:
    raise ValueError(f'layout.form={form!r} is unknown; known: {", ".join(FORMS)}')
  among = among or jax.devices()
  available, processes = len(among), len({device.process_index for device in among})
  if layout.devices > available:
    raise ValueError(f'layout.devices={layout.devices}, but there are {available} devices')
  if processes > 1 and (form == 'loop' or layout.devices % processes):
    raise ValueError(
      f'layout.form={form!r}, layout.devices={layout.devices}: {processes} processes need blocks'
      ' and equally many devices each (0: all)'
    )
  if form == 'loop':
    return layout._replace(lanes=1, form=form, devices=1)
  devices = layout.devices or available
  # As few equal blocks as the table allows, and no wider than what keeps every device busy.
  blocks = devices * -(-sampled // (devices * LANES.get(backend_of(mesh_of(1, among)), 32)))
  lanes = layout.lanes or -(-sampled // blocks)
  lanes = min(lanes, sampled)
  if processes == 1:  # with several, every process has its part of the mesh
    devices = min(devices, -(-sampled // lanes))
  return layout._replace(lanes=lanes, form=form, devices=devices)


def with_groups(
  layout: Layout, configured: int, sampled: int, chain: Chain, among: Sequence[jax.Device] = ()
) -> tuple[Layout, int]:
  """Gives devices that no client needs to groups, where a layer shares a client's work.

  Args:
    layout: resolved.
    configured: `layout.devices` as configured; 0: all.
    sampled: the cohort's size.
    chain: the method.
    among: the devices that there are; () is JAX's.

  Returns:
    The layout, whose devices are one of each group, and the size of a group. With several
    processes all devices take part, and a group is no larger than what divides them.
  """
  among = among or jax.devices()
  backend = backend_of(mesh_of(1, among))
  if layout.form == 'loop' or not any(backend in layer.shares_on for layer in chain):
    return layout, 1
  devices, blocks = configured or len(among), -(-sampled // layout.lanes)
  size = max(devices // blocks, 1)
  if len({device.process_index for device in among}) > 1:
    size = next(size for size in range(size, 0, -1) if devices % size == 0)
    return layout._replace(devices=devices // size), size
  return layout, size
