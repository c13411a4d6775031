"""How sampled clients are laid out on devices: the table measured beforehand, and what a config overrides.

| backend | devices          | lanes | why                                                                  |
|---------|------------------|-------|----------------------------------------------------------------------|
| cpu     | one per core     | 1     | a client's state stays in cache; own trip counts, so nothing is padded |
| gpu     | all              | 32    | one wide step instead of 32 launches                                 |
| tpu     | all              | 32    | the same                                                             |
"""

from typing import NamedTuple

import jax
import numpy as np

LANES = {'cpu': 1, 'gpu': 32, 'tpu': 32}
FORMS = ('blocks', 'loop')


class Layout(NamedTuple):
  """Blocks of `lanes` clients, vmapped, are queued on `devices` devices, longest first; 'loop' is the reference."""

  lanes: int = 0  # clients in one vmapped block; 0: from the table
  form: str = (
    'blocks'  # or 'loop': one client after another on one device, in the order of sampling
  )
  devices: int = 0  # 0: all local devices


def resolve(layout: Layout, sampled: int) -> Layout:
  """Fills in what a layout leaves open.

  Args:
    layout: lanes, form and devices as configured.
    sampled: slots for sampled clients in a round.

  Returns:
    A layout without zeros.

  Raises:
    ValueError: if there are fewer devices than asked for, or the form is unknown.
  """
  form = layout.form or 'blocks'
  if form not in FORMS:
    raise ValueError(f'layout.form={form!r} is unknown; known: {", ".join(FORMS)}')
  available = jax.local_device_count()
  if layout.devices > available:
    raise ValueError(f'layout.devices={layout.devices}, but there are {available} devices')
  if form == 'loop':
    return Layout(lanes=1, form=form, devices=1)
  lanes = min(layout.lanes or LANES.get(jax.default_backend(), 32), sampled)
  blocks = -(-sampled // lanes)
  return Layout(lanes=lanes, form=form, devices=min(layout.devices or available, blocks))


def mesh_of(layout: Layout) -> jax.sharding.Mesh:
  """Returns the mesh, with one axis 'lanes', that a resolved layout runs on."""
  return jax.sharding.Mesh(np.array(jax.local_devices()[: layout.devices]), ('lanes',))
