"""Every method with clients of one sample or none, and with every partition.

No number is NaN, and all of JAX's checks are on.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.federated import Proxy
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.models import create
from tests import tiny
from tests.debug_checks import debug_checks, recorded_keys

NET = lambda: create('mlp', shape=(2, 2, 1), num_classes=3, width=5, depth=1)
# These methods draw the same numbers again in each of the five rounds on purpose: VHL its noise,
# and attacks their clients.
AGAIN = {'vhl': 5, 'labelflip': 5, 'signflip': 5}
CLIENTS = 6
ROWS = 60
# Methods that change different hooks are one program, which compiles in half the time of two.
TOGETHER = (
  'fedprox+feddecorr+serverwarmup+fedavgm+labelflip+median',
  'fedsam+fedopt+signflip+trimmedmean',
  'moon+fedproto',
  'feddyn+krum+serverrate',
  'ditto+fedmix+fedexp',
  'fedreg+vhl+feddf',
  'scaffold+fedbe',
  'fedgen+abavg',
)
OTHERS = [n for n in algorithms.names() if n not in '+'.join(('fedavg', *TOGETHER)).split('+')]


def small(name: str):
  """A method with few steps. It sets sizes by field name, so that a new method is small too."""
  changes = {
    'length': 3,
    'segment': 2,
    'iterations': 2,
    'inner_steps': 2,
    'images_per_class': 1,
    'steps': 2,
    'batch_size': 4,
    'hidden': 4,
    'noise': 2,
    'start': 2,
    'samples': 4,
    'server_steps': 3,
    'server_batch': 4,
    'real_batch': 4,
    'matches': 2,
    'match_steps': 2,
    'least': 2,
    'noise_batch': 4,
  }
  config = config_lib.get_default()
  config.data.proxy = 'held_out'
  config.client.batch_size = 4
  config.client.optimizer = 'sgd'  # FedNova counts its steps
  config.client.lr = 0.01
  config.rounds = 5
  config.algorithm = name
  for part in name.split('+'):
    block = config.get(part, {})
    for key, value in changes.items():
      if key in block:
        block[key] = value
  return algorithms.create(name, config_lib.check(config))


def data_of(sizes, seed=0):
  rng = np.random.default_rng(seed)
  data = tiny.federated(sizes)
  x = jnp.asarray(rng.integers(0, 256, (7, *data.x.shape[1:])).astype(np.uint8))
  return data._replace(
    positions=jnp.arange(64, dtype=jnp.int32),
    proxy=Proxy(x, jnp.asarray(rng.integers(0, 3, 7), jnp.int32)),
  )


def partitioned(name: str):
  """Tiny data, dealt by a partition. The last two clients keep one sample and no sample."""
  data = data_of([ROWS])
  y = np.asarray(data.y)
  dealt = partition_lib.partition(
    name,
    y,
    CLIENTS,
    alpha=0.3,
    num_classes=3,
    min_size=1,
    labels=1,
    client_ids=np.arange(ROWS) % CLIENTS,
  )
  size = dealt.size.copy()
  size[-2:] = (1, 0)
  held = [dealt.order[a : a + n] for a, n in zip(dealt.start, size, strict=True)]
  counts = np.stack([np.bincount(y[rows], minlength=3) for rows in held])
  return data._replace(
    order=jnp.asarray(dealt.order, jnp.int32),
    start=jnp.asarray(dealt.start, jnp.int32),
    size=jnp.asarray(size, jnp.int32),
    class_counts=jnp.asarray(counts, jnp.int32),
  )


def rounds_without_nan(name, data, checks=lambda *_: contextlib.nullcontext()):
  engine = Engine(small(name), NET(), data, layout=Layout(devices=1))
  state, done = engine.init(0), 0
  while done < 5:
    while engine.pending(state):
      with checks('allow'):
        state, _, report = engine.server_work(0, state, 60.0)
      assert 'diverged_round' not in report, report
    stop = engine.next_stop(done) or 5
    with (
      checks()
    ):  # every program of rounds is called once: with leaks looked for, each call compiles
      state, report = engine.run(0, state, stop - done)
    assert report['diverged_round'] == 0, report
    done = stop
  for leaf in jax.tree.leaves((state.params, state.server, state.clients)):
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      assert np.isfinite(np.asarray(leaf)).all()
  assert all(np.isfinite(value) for value in report.values()), report


@pytest.mark.parametrize('name', [*TOGETHER, *OTHERS])
def test_five_rounds_with_an_empty_and_a_one_sample_client(name):
  with recorded_keys() as drawn:
    rounds_without_nan(name, data_of([9, 0, 1, 5]), debug_checks)
  assert len(drawn) >= 6  # the initial model, and who takes part in every round
  assert all(len(what) == 1 for what in drawn.values()), 'two uses of one key'
  most = max(count for what in drawn.values() for count in what.values())
  again = max(AGAIN.get(part, 1) for part in name.split('+'))
  assert most == again, f'{most} draws from one key'


@pytest.mark.slow
@pytest.mark.parametrize('partition', partition_lib.names())
@pytest.mark.parametrize('name', algorithms.names())
def test_every_method_under_every_partition(name, partition):
  rounds_without_nan(name, partitioned(partition))
