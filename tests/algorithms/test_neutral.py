"""Methods at neutral settings are FedAvg, and at others they are not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.data.federated import Proxy
from tests import tiny


def with_proxy(data, rows=6, seed=3):
  rng = np.random.default_rng(seed)
  x = jnp.asarray(rng.integers(0, 256, (rows, *data.x.shape[1:])).astype(np.uint8))
  return data._replace(proxy=Proxy(x, jnp.asarray(rng.integers(0, 3, rows), jnp.int32)))


def base(lr=0.1):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=2)


# Fields with which a method is FedAvg, and the clients' sizes.
SIZES = (4, 0, 3)
NEUTRAL = {
  'fedprox, fedsam, feddecorr, moon, fedavgm': (  # one program
    lambda: (
      fs.FedProx(mu=0.0),
      fs.FedSAM(rho=0.0),
      fs.FedDecorr(beta=0.0),
      fs.MOON(mu=0.0),
      fs.FedAvgM(momentum=0.0),
    ),
    SIZES,
  ),
  'fedmix': (lambda: fs.FedMix(mixing=0.0), SIZES),
  'fedgen': (lambda: fs.FedGen(alpha=0.0, beta=0.0), SIZES),
  'feddf': (lambda: fs.FedDF(lr=1e-30), SIZES),
  'fedbe': (lambda: fs.FedBE(lr=1e-30), SIZES),
  'abavg with one client': (lambda: fs.ABAVG(), (5,)),
  'scaffold with one client': (lambda: fs.SCAFFOLD(), (5,)),
  'fedavgm average': (lambda: fs.FedAvgM(momentum=0.0, form='average'), SIZES),
  'fedavgm damped': (lambda: fs.FedAvgM(momentum=0.0, form='damped'), SIZES),
  'fedopt': (lambda: fs.FedOpt(optimizer='sgd', lr=1.0), SIZES),
  'fedexp': (lambda: fs.FedExP(epsilon=1e6), SIZES),
}


def params_after(method, sizes, rows):
  """The leaves at the start and after three rounds."""
  engine = tiny.build(method, tiny.net(4, 3), with_proxy(tiny.federated(list(sizes)), rows=rows))
  start = jax.tree.map(np.array, engine.init(0).params)
  return jax.tree.leaves(start), jax.tree.leaves(engine.run(0, engine.init(0), 3)[0].params)


@functools.cache
def fedavg_params(lr, sizes, rows):
  return params_after(base(lr), sizes, rows)


@pytest.mark.parametrize('name', NEUTRAL)
def test_neutral_settings_are_fedavg(name):
  make, sizes = NEUTRAL[name]
  start, plain = fedavg_params(0.1, sizes, 5)
  made = make()
  layers = made if isinstance(made, tuple) else (made,)
  got = params_after(fs.chain(base(), *layers), sizes, 5)[1]
  for a, b in zip(got, plain, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  assert max(np.abs(a - b).max() for a, b in zip(got, start, strict=True)) > 1e-3


OTHERS = (fs.FedProx, fs.FedDF, fs.FedBE, fs.ABAVG, fs.FedGen, fs.FedAvgM, fs.FedSAM, fs.FedDecorr)


@pytest.mark.slow  # tests/float64 would fail as well
@pytest.mark.parametrize('make', (*OTHERS, fs.MOON))
def test_other_settings_are_not(make):
  got = params_after(fs.chain(base(1.0), make()), SIZES, 61)[1]
  pairs = zip(got, fedavg_params(1.0, SIZES, 61)[1], strict=True)
  assert max(float(np.abs(a - b).max()) for a, b in pairs) > 1e-6
