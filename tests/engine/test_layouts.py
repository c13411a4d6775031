"""Layouts: equal draws, and lanes that are kept busy."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.data.partition import partition
from fedjax_syn.engine import Engine, Layout, placement
from tests import tiny


def test_layouts_draw_the_same_numbers_bit_for_bit():
  """Only the sampled clients and the order of their samples can change the result.

  Halving the distance to integers and averaging four models are exact in float32.
  """
  x = np.random.default_rng(0).integers(0, 256, (16, 1, 1, 1)).astype(np.uint8)
  data = tiny.clients_of(x, np.zeros(16, int), [2] * 8, 1)
  method = fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1)
  found = {}
  for layout in (
    Layout(1, 'loop', 1),
    Layout(3, 'blocks', 1),
    *(Layout(1, 'blocks', d) for d in (2, 4)),
  ):
    build_with = {'participation': 0.5, 'layout': layout, 'loss': tiny.half_square}
    engine = Engine(method, tiny.quadratic(1.0), data, **build_with)
    found[layout] = [float(engine.run(s, engine.init(s), 2)[0].params['w']) for s in range(5)]
  first, *others = found.values()
  assert len(set(first)) == 5 and all(other == first for other in others)


@pytest.mark.parametrize(('devices', 'least'), [(2, 0.97), (4, 0.9)])
def test_ragged_clients_are_packed(devices, least):
  """Packs 32 of 80 clients into one lane per device.

  The clients are of a Dirichlet split at alpha 0.01, with 0 to thousands of samples.
  """
  labels = np.repeat(np.arange(10), 6000)
  part = partition('dirichlet', labels, 80, num_classes=10, alpha=0.01)
  steps = -(-part.size // 32)
  assert part.size.max() > 30 * np.median(part.size)  # else the test shows little
  efficiency = []
  for seed in range(30):
    cost = jnp.asarray(np.random.default_rng(seed).permutation(steps)[:32], jnp.int32)
    *_, steps_of_longest = placement.schedule(cost, 1, devices)
    efficiency.append(float(cost.sum() / (devices * steps_of_longest)))
  assert np.mean(efficiency) > least
