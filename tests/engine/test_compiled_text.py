"""The compiled programs of every method: no data set is gathered, nothing goes to the host.

The programs are those of four devices; rows are shapes, so that there can be many of them. Methods
with synthetic images also do a quarter of the work of one device on each of the four.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.mesh import mesh_of, replicated
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.fits import costs, hlo
from fedjax_syn.models import create
from tests.algorithms.test_partitions import NET, OTHERS, TOGETHER, data_of, small

ROWS = 100_000
FAST = ('dynafed',)  # has two phases and work between rounds


@pytest.fixture(autouse=True, scope='module')
def named_loops():
  """A program from the cache may have been compiled before loops had the names of today."""
  jax.config.update('jax_compilation_cache_include_metadata_in_key', True)
  yield
  jax.config.update('jax_compilation_cache_include_metadata_in_key', False)


def compiled(method, net, sizes, devices=4):
  """The costs of a method's programs by their names, on data that are shapes."""
  data = data_of(sizes)
  rows = lambda leaf: jax.ShapeDtypeStruct((ROWS, *leaf.shape[1:]), leaf.dtype)
  data = data._replace(x=rows(data.x), y=rows(data.y), order=rows(data.order))
  among = jax.devices()[:devices]
  engine = Engine(method, net, data, layout=Layout(devices=devices), devices=among)
  programs = engine.programs({'test': 40}, np.array(sizes))
  text = lambda program: program.lower().compile().as_text()
  return {p.name: costs.analyse(hlo.parse(text(p)), p.trips) for p in programs}


def check(name):
  found = compiled(small(name), NET(), [5, 7, 4, 6])
  assert any(program.startswith('rounds') for program in found)
  for program, cost in found.items():
    assert not cost.host_transfers, (program, cost.host_transfers)
    # The smallest array of the data has 400,000 bytes; models, sets and messages have far fewer.
    assert max(cost.largest_collective.values(), default=0) < ROWS, (program, cost)
    assert not cost.unknown_loops, (program, cost.unknown_loops)
  assert any(cost.collectives for cost in found.values())


@pytest.mark.parametrize('name', FAST)
def test_no_data_set_is_gathered_and_nothing_goes_to_the_host(name):
  check(name)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedavg', *TOGETHER, *(n for n in OTHERS if n not in FAST)])
def test_nor_by_any_other_method(name):
  check(name)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['dynafed', 'fedcog', 'feddm', 'feddualmatch', 'fedmix', 'vhl'])
def test_no_work_on_images_is_repeated_on_several_devices(name):
  """Four equal clients, and a server with 21 images, which are 6, 6, 6 and 3 on four devices.

  tests/engine/test_shared_synthesis.py looks at the parts of such a round, in seconds.
  """
  net = create('convnet', shape=(2, 2, 1), num_classes=3, width=8, depth=1, pooling='none')
  layers = [
    dataclasses.replace(layer, images_per_class=7) if hasattr(layer, 'images_per_class') else layer
    for layer in small(name)
  ]
  one, four = (compiled(fs.chain(*layers), net, [8] * 4, devices) for devices in (1, 4))
  programs = [name for name in one if name.startswith(('rounds', 'synthesis'))]
  assert len(programs) == {'dynafed': 2, 'fedcog': 2}.get(name, 1)
  for program in programs:
    share = four[program].operations / one[program].operations
    assert 0.2 < share < 0.35, (program, share)  # 6 of 21 images are 0.29


def test_a_gathered_array_and_a_callback_are_seen():
  mesh = mesh_of(4)
  spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('lanes'))

  def f(x):
    jax.debug.callback(lambda _: None, x.sum())
    return jnp.sin(x)

  x = jax.ShapeDtypeStruct((ROWS,), jnp.float32, sharding=spread)
  program = jax.jit(f, out_shardings=replicated(mesh)).lower(x).compile()
  cost = costs.analyse(hlo.parse(program.as_text()))
  assert cost.largest_collective['all-gather'] == 4 * ROWS
  assert cost.host_transfers
