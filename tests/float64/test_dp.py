"""DP-FedAvg in numpy (McMahan et al., 2018, Algorithm 1).

The server divides a noised sum of clipped differences by the expected number of clients.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.keys import Purpose, fold, stream
from tests.float64 import library as lib

COVERS = ('dp',)
Z = 0.5


def noise(number):
  """The round's N(0, 1), drawn leaf by leaf in the order of their names."""
  key = stream(lib.SEED, Purpose.AGGREGATE, number)
  shapes = {name: leaf.shape for name, leaf in sorted(lib.tree(lib.W0).items())}
  draw = lambda i, shape: jax.random.normal(fold(key, i), shape, jnp.float64)
  return lib.flat({name: draw(i, shape) for i, (name, shape) in enumerate(shapes.items())})


def test_two_rounds():
  d = [np.linalg.norm(lib.local(1, k, lib.W0) - lib.W0) for k in lib.CLIENTS]
  clip = np.median(d)  # one difference is longer, and is cut
  path = lib.rounds(fs.chain(lib.base(weighting='size'), fs.DP(clip=clip, noise_multiplier=Z)), 2)
  w = lib.W0
  for number in (1, 2):
    d = [lib.local(number, k, w) - w for k in lib.CLIENTS]
    cut = [v * min(1, clip / np.linalg.norm(v)) for v in d]
    w = w + (np.sum(cut, axis=0) + Z * clip * noise(number)) / len(lib.SIZES)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')


@pytest.mark.parametrize(('z', 'sent'), [(Z, 0.0), (0.0, np.nan)])
def test_under_noise_an_update_that_is_not_finite_counts_for_nothing(z, sent):
  """It has no norm to be cut to; without noise it goes out, so that the run is seen to diverge."""
  method = fs.DP(clip=1.0, noise_multiplier=z)
  engine = lib.engine_of(fs.chain(lib.base(), method))
  client = engine.client_context(lib.SEED, engine.init(lib.SEED), 0, fs.DP)
  payload = method.postprocess_update(client, {'params': {'u': jnp.array([1.0, jnp.nan])}})
  np.testing.assert_array_equal(payload['params']['u'], [sent, sent])
