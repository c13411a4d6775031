"""The devices share a synthesis: results are those of one device, and each does its part."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.dynafed import dynafed, finetuning
from fedjax_syn.algorithms.fedcog.fedcog import Previous
from fedjax_syn.algorithms.set_sharing import gradient_matching
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.core import clients
from fedjax_syn.core.contexts import Messages, Round
from fedjax_syn.core.mesh import mesh_of, place, replicated
from fedjax_syn.core.microbatches import Microbatches
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.engine import Engine, Layout
from tests import tiny

SIZES, CLASSES, SIDE = [3, 2, 4], 3, 4
# 21 images are 12 + 9 on two devices and 6 + 6 + 6 + 3 on four.
DYNAFED = fs.DynaFed(
  length=2,
  segment=1,
  iterations=2,
  inner_steps=2,
  images_per_class=7,
  image_lr=1e-3,
  label_lr=1e-3,
  inner_lr_lr=1e-3,
  finetune_steps=2,
)
DUAL = fs.FedDualMatch(
  images_per_class=2, iterations=1, match_steps=2, server_steps=2, server_batch=21
)
PRESENT = [[True, False, True], [False, False, False], [False, True, False]]


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


@functools.cache
def convolution() -> Model:
  """A convolution of 3 x 3, tanh and a classifier."""

  def init(key):
    k0, k1 = jax.random.split(key)
    params = {
      'conv': jax.random.normal(k0, (3, 3, 1, 8), float) / 3,
      'head': jax.random.normal(k1, (8 * SIDE**2, CLASSES), float) / 11,
    }
    return Variables(params, {})

  def apply(variables, x, train=False, mask=None, stages=False):
    params, stats = variables
    layout = ('NHWC', 'HWIO', 'NHWC')
    z = jax.lax.conv_general_dilated(
      x, params['conv'].astype(x.dtype), (1, 1), 'SAME', dimension_numbers=layout
    )
    z = jnp.tanh(z).reshape(len(x), -1)
    out = Output(z @ params['head'], z, stats)
    return (out, (z,)) if stages else out

  return Model('convolution', init, apply, lambda p, z: z @ p['head'], lambda path: False)


def task_of(method, mesh):
  data = tiny.federated(SIZES, classes=CLASSES, side=SIDE)
  dtype = jnp.result_type(float)
  data = data._replace(mean=data.mean.astype(dtype), std=data.std.astype(dtype))
  engine = Engine(method, convolution(), data, layout=Layout(1))
  return engine.task()._replace(mesh=mesh)


def sets_of(present):
  present = jnp.asarray(present)
  x = jax.random.normal(jax.random.key(1), (*present.shape, 2, SIDE, SIDE, 1), float)
  return ClassSet(x * present[..., None, None, None, None], present)


def synthesis(mesh, layer=DYNAFED):
  """The server's state after DynaFed's synthesis on a made-up trajectory, and a fine-tuned w."""
  task = task_of(fs.chain(fs.FedAvg(), layer), mesh)
  layer, path = task.chain[fs.DynaFed], [convolution().init(jax.random.key(i)) for i in range(3)]
  state = layer.server_init(task, jax.random.key(4), path[0].params, None)
  for i, w in enumerate(path):
    state = dynafed._record(state, i, w.params)
  _, state, report = layer.server_work(task, jax.random.key(5), state, path[-1], 1e9)
  assert 'reason' not in report
  tune = lambda w, syn, key: finetuning.finetune(layer, task.model, w, syn, key, mesh=mesh)[0]
  arguments = jax.tree.map(np.asarray, (path[1], state.syn)), jax.random.key(6)
  arguments = place(arguments, replicated(mesh)) if mesh else arguments
  tuned = jax.jit(lambda two, key: tune(*two, key))(*arguments)
  return jax.tree.map(np.asarray, (state, tuned))


def server_program(mesh, layer, present):
  """FedDualMatch's server in a round in which clients sent sets, and its arguments."""
  task, count = task_of(layer, mesh), len(present)

  def update(w, sets, key):
    sent = {'feddualmatch': {'x': sets.x, 'present': sets.present.astype(float)}}
    messages = Messages(jnp.ones(count), {}, {}, sent)
    server = layer.server_init(task, key, w, None)
    return layer.server_update(Round(task, key, jnp.int32(1), w, {}, messages, server), w)

  arguments = convolution().init(jax.random.key(0)).params, sets_of(present), jax.random.key(2)
  return jax.jit(update), place(arguments, replicated(mesh)) if mesh else arguments


def server_update(mesh):
  """What the server makes of the sets: the model and its state."""
  update, arguments = server_program(mesh, DUAL, PRESENT)
  return jax.tree.map(np.asarray, update(*arguments))


def synthesised(devices):
  """The results of both in float64, on so many devices, a list of arrays."""
  with jax.enable_x64(True):
    mesh = mesh_of(devices) if devices > 1 else None
    return jax.tree.leaves((synthesis(mesh), server_update(mesh)))


def projections(leaves):
  """A number for each array, in which each of its elements has another weight."""
  flat = (np.asarray(leaf, float).ravel() for leaf in leaves)
  return [float(v @ np.cos(np.arange(v.size))) for v in flat]


def assert_equal(one, other, atol=1e-10):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=0, atol=atol), one, other)


@pytest.mark.parametrize('devices', [pytest.param(2, marks=pytest.mark.slow), 4])
def test_synthesis_on_several_devices_is_that_on_one(x64, devices):
  """What fills the parts of images changes nothing.

  tests/core/test_processes.py compares two processes.
  """
  assert_equal(synthesis(None), synthesis(mesh_of(devices)))


def test_clients_in_blocks_and_on_devices_match_as_one_after_the_other(x64, monkeypatch):
  """Three clients in blocks of two, and on two devices, leave places that nobody has."""
  sets, model = sets_of(PRESENT), convolution()
  w = model.init(jax.random.key(0)).params
  target = gradient_matching.union_gradient(model, w, {}, sets)
  one = lambda own: gradient_matching.match(model, w, {}, own, target, 2, 0.1)
  want = jax.jit(lambda: jax.lax.map(one, sets))()
  monkeypatch.setitem(clients.LANES, 'cpu', 2)
  for mesh in (None, mesh_of(2)):
    match = functools.partial(gradient_matching.match_all, model, steps=2, lr=0.1, mesh=mesh)
    arguments = place((w, sets), replicated(mesh)) if mesh else (w, sets)
    got = jax.jit(lambda w, sets, match=match: match(w, {}, sets, sets))(*arguments)
    assert_equal(want, got, 1e-12)


def test_each_device_has_its_part_of_an_iteration_of_trajectory_matching():
  """An iteration on four devices has about a quarter of the operations of one.

  These are the compiler's counts; a loop's body counts once.
  """
  counts = []
  for mesh in (None, mesh_of(4)):
    task, w = task_of(fs.chain(fs.FedAvg(), DYNAFED), mesh), convolution().init(jax.random.key(0))
    layer = dataclasses.replace(task.chain[fs.DynaFed], images_per_class=40)
    state = layer.server_init(task, jax.random.key(4), w.params, None)
    trajectory, state = state.trajectory, state._replace(trajectory=())
    arguments = jax.random.key(5), {}, trajectory, state, jnp.int32(1)
    arguments = place(arguments, replicated(mesh)) if mesh else arguments
    chunk = dynafed._chunk.lower(layer, task.model, Microbatches(1, mesh), *arguments).compile()
    # Every array of the state but the trajectory takes the place of the one given.
    assert chunk.as_text().count('may-alias') == len(jax.tree.leaves(state))
    counts.append(chunk.cost_analysis()['flops'])
  one, four = counts
  assert four < 0.35 * one


def test_a_server_on_several_devices_does_what_one_does_and_each_its_part(x64, monkeypatch):
  """Of four clients, which one device has in one block, and of the images of a training step.

  57 images are 15 on each of four devices, and three places that nobody has.
  """
  monkeypatch.setitem(clients.LANES, 'cpu', 4)
  compiled = []
  for mesh in (None, mesh_of(4)):
    layer, present = dataclasses.replace(DUAL, server_batch=57), PRESENT + [[True] * 3]
    program, arguments = server_program(mesh, layer, present)
    compiled.append((program.lower(*arguments).compile(), arguments))
  (one, few), (four, many) = compiled
  assert_equal(one(*few), four(*many))
  assert four.cost_analysis()['flops'] < 0.4 * one.cost_analysis()['flops']


COG = fs.FedCOG(start=1, samples=10, steps=2, kd_batch=4)


def generator(group):
  """FedCOG's generation for one client on a group of so many devices, and its arguments."""
  task, model = task_of(fs.chain(fs.FedAvg(), COG), None), convolution()
  layer, mesh = task.chain[fs.FedCOG], mesh_of(group)
  if group > 1:
    task = task._replace(group=clients.Group('lanes', group))

  def generate(key, w, other, y):
    return layer._generate(task, key, w, Previous(other, jnp.ones((), bool)), y)

  everywhere = jax.sharding.PartitionSpec()
  specs = {'mesh': mesh, 'in_specs': everywhere, 'out_specs': everywhere, 'check_vma': False}
  w, other = (model.init(jax.random.key(i)) for i in (0, 1))
  arguments = jax.random.key(2), w, other, jnp.arange(10) % CLASSES
  return jax.jit(jax.shard_map(generate, **specs)), place(arguments, replicated(mesh))


def test_a_group_generates_what_one_device_does_and_each_device_its_part(x64):
  """Ten samples are 3 on each of four devices, and two places that nobody has."""
  compiled = []
  for group in (1, 4):
    program, arguments = generator(group)
    compiled.append((program.lower(*arguments).compile(), arguments))
  (one, few), (four, many) = compiled
  assert_equal(one(*few), four(*many))
  assert four.cost_analysis()['flops'] < 0.5 * one.cost_analysis()['flops']


@pytest.mark.slow
def test_devices_that_no_client_needs_generate_too(monkeypatch):
  """Two clients on four devices: groups of two give the round of two devices without groups."""
  method = fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), COG)
  data, states = tiny.federated([3, 2, 4], classes=CLASSES), []
  for backends in ((), ('cpu',)):
    monkeypatch.setattr(fs.FedCOG, 'shares_on', backends)
    engine = Engine(method, tiny.net(4, CLASSES), data, participation=0.67, layout=Layout(1))
    assert engine.layout.devices == 2
    assert engine.setting.mesh.devices.size == (4 if backends else 2)
    state = engine.init(0)
    for _ in range(2):
      state, report = engine.run(0, state, 1)
    states.append(jax.tree.map(np.asarray, (state, report)))
  assert_equal(*states, 1e-5)
