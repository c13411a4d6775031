"""VHL: noise, alignment and loss against hand values and numpy, and at the neutral setting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms import vhl
from fedjax_syn.algorithms.vhl import contrastive_loss, noise_set, render
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.sampling import minibatch
from fedjax_syn.core.types import Step, Variables
from fedjax_syn.engine import Layout
from fedjax_syn.models import create
from fedjax_syn.models.extra_outputs import extra_logits
from tests import tiny

SHAPE = (2, 2, 1)


def test_contrastive_loss_by_hand():
  """Directions (1, 0), (0, 1), (1, 0) of classes 0, 1, 0, with tau 1/2.

  The first and the third are partners. Their cosine is 1, and 0 with the second:
  -ln(e^2 / (e^2 + 1)) each. The second has no partner and adds 0. The mean is over three.
  """
  z = jnp.array([[2.0, 0.0], [0.0, 3.0], [0.5, 0.0], [-7.0, 1.0]])
  y, mask = jnp.array([0, 1, 0, 0]), jnp.array([1.0, 1.0, 1.0, 0.0])
  want = 2 / 3 * np.log(1 + np.exp(-2))
  np.testing.assert_allclose(contrastive_loss(z, y, mask, 0.5), want, rtol=1e-5)
  np.testing.assert_allclose(contrastive_loss(z[:3], y[:3], mask[:3], 0.5), want, rtol=1e-5)


def supcon(z, y, tau):
  """Every pair by itself, in numpy."""
  z = z / np.linalg.norm(z, axis=1, keepdims=True)
  total = 0.0
  for i in range(len(y)):
    others = [j for j in range(len(y)) if j != i]
    below = sum(np.exp(z[i] @ z[j] / tau) for j in others)
    same = [j for j in others if y[j] == y[i]]
    total -= sum(np.log(np.exp(z[i] @ z[j] / tau) / below) for j in same) / max(len(same), 1)
  return total / len(y)


def test_contrastive_loss_against_numpy_and_without_nan():
  rng = np.random.default_rng(0)
  z, y = rng.normal(size=(9, 4)), rng.integers(0, 3, 9)
  mask = jnp.concatenate([jnp.ones(7), jnp.zeros(2)])
  got = contrastive_loss(jnp.asarray(z), jnp.asarray(y), mask, 0.07)
  np.testing.assert_allclose(got, supcon(z[:7], y[:7], 0.07), rtol=1e-4)
  for features, kept in ((jnp.zeros((9, 4)), mask), (jnp.asarray(z), mask.at[1:].set(0))):
    value, grads = jax.value_and_grad(contrastive_loss)(features, jnp.asarray(y), kept, 0.07)
    assert np.isfinite(value) and np.isfinite(grads).all()


def test_every_class_has_a_distribution_of_its_own():
  """2,000 images give the mean of a class to 0.5 / sqrt(2000) = 0.0112 a pixel.

  The means are of N(0, 1).
  """
  virtual = noise_set(jax.random.key(3), (8, 8, 1), 4, 2000)
  np.testing.assert_array_equal(virtual.y, np.repeat(np.arange(4), 2000))
  x = np.asarray(render(virtual, jnp.arange(8000), (8, 8, 1))).reshape(4, 2000, 64)
  means = np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(3), 0), (4, 64)))
  np.testing.assert_allclose(x.mean(1), means, atol=5 * 0.0112)
  np.testing.assert_allclose(x.std(1), 0.5, atol=0.05)
  assert np.abs(means[0] - means[1]).max() > 1
  np.testing.assert_allclose(np.corrcoef(x[0].T)[0, 1:], 0, atol=0.12)


def test_coarse_noise_is_stretched_to_the_image():
  virtual = noise_set(jax.random.key(0), (16, 16, 3), 2, 3)
  assert virtual.z.shape == (6, 8 * 8 * 3)
  flat = virtual._replace(z=jnp.ones_like(virtual.z))
  np.testing.assert_allclose(render(flat, jnp.array([4]), (16, 16, 3)), np.ones((1, 16, 16, 3)))
  # Bilinear at twice the size: a corner keeps its value.
  x = render(virtual, jnp.array([5, 1]), (16, 16, 3))
  np.testing.assert_allclose(x[:, 0, 0], virtual.z[jnp.array([5, 1]), :3], rtol=1e-6)


def test_noise_is_the_same_in_every_round_and_costs_no_bytes():
  """4 * 5 + 5 + 5 * 3 = 40 parameters, 5 * 3 + 3 = 18 for the extra outputs.

  Four clients, 4 bytes: 928.
  """

  def common(round):
    method = fs.VHL()
    task = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 2])).task(round)
    return method.common(task, jax.random.key(round), jnp.int32(round), None)

  jax.tree.map(np.testing.assert_array_equal, common(1), common(7))
  engine = tiny.build(fs.VHL(images_per_class=1000), tiny.net(4, 3), tiny.federated([3, 3, 3, 3]))
  assert engine.bytes_per_round() == (928, 928)
  assert 'vhl' not in engine.init(0).server


def test_extra_outputs_are_not_evaluated():
  plain, data = tiny.net(4, 3), tiny.federated([6, 3])
  engine = tiny.build(fs.VHL(), plain, data)
  variables = engine.model.init(jax.random.key(5))
  jax.tree.map(
    np.testing.assert_array_equal,
    {k: v for k, v in variables.params.items() if k != 'extra'},
    plain.init(jax.random.key(5)).params,
  )
  x, y = np.asarray(data.x), np.asarray(data.y)
  loud = {**variables.params, 'extra': jax.tree.map(lambda a: a + 1e3, variables.params['extra'])}
  evaluate, reference = (
    tiny.build(m, plain, data).evaluator(x, y) for m in (fs.VHL(), fs.FedAvg())
  )
  want = reference(plain.init(jax.random.key(5)).params, {})
  assert evaluate(variables.params, {}) == evaluate(loud, {}) == want
  out = engine.model.apply(variables, jnp.ones((2, *SHAPE)))
  assert out.logits.shape == extra_logits(variables.params, out.features).shape == (2, 3)
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(variables.params)]
  assert {p[0].key for p in paths if engine.model.is_head(p)} == {'w1', 'extra'}


def local_loss(index, padding=0.0, **fields):
  """The loss of a batch whose last sample is padding, and what a test needs to compute it."""
  method = fs.VHL(noise_batch=5, images_per_class=4, **fields)
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 2]))
  params = engine.model.init(jax.random.key(2)).params
  params['extra']['bias'] = jnp.array([0.3, -0.2, 0.1])
  virtual = noise_set(jax.random.key(1), SHAPE, 3, 4)
  x = np.random.default_rng(1).normal(size=(4, *SHAPE)).astype(np.float32)
  x[3] += padding
  y, mask = np.array([0, 2, 0, 1]), jnp.array([1.0, 1.0, 1.0, 0.0])
  step = Step(jax.random.key(9), jnp.int32(index), jnp.asarray(x), jnp.asarray(y), mask, {})

  def plain(params, step):
    out = engine.model.apply(Variables(params, {}), step.x)
    return cross_entropy(out.logits, step.y, step.mask), out

  client = tiny.client_of(engine, fs.VHL, broadcast=virtual, prepared=(jax.random.key(4), 6))
  loss_fn = jax.jit(lambda params: method.loss(client, plain, params, step))
  return loss_fn, params, engine.model, virtual, x, y


@pytest.mark.parametrize('joint', [False, True])
@pytest.mark.parametrize('index', [5, 6])
def test_local_loss_against_numpy(index, joint):
  """The loss is CE(real) + 0.7 CE(noise, y + 3).

  Steps 0 .. 5 add 0.4 (SupCon(real, noise) + 0.1 SupCon(noise)).
  """
  loss_fn, params, _, virtual, x, y = local_loss(
    index, lambda_noise=0.7, alignment=0.4, temperature=0.5, joint=joint
  )
  rows = np.asarray(minibatch(jax.random.key(4), 12, 5, jnp.int32(index)))
  noise, noise_y = np.asarray(virtual.z)[rows], np.asarray(virtual.y)[rows]
  p = jax.tree.map(lambda a: np.asarray(a, float), params)
  features = lambda x: np.tanh(x @ p['w0'] + p['b0'])
  all_logits = lambda z: np.concatenate(
    [z @ p['w1'], z @ p['extra']['kernel'] + p['extra']['bias']], axis=1
  )
  log_p = lambda z: z - np.log(np.exp(z).sum(1, keepdims=True))
  z, z_noise = features(x[:3].reshape(3, 4)), features(noise)
  own = log_p(all_logits(z) if joint else all_logits(z)[:, :3])
  want = -own[np.arange(3), y[:3]].mean()
  want -= 0.7 * log_p(all_logits(z_noise))[np.arange(5), noise_y + 3].mean()
  if index == 5:
    both = supcon(np.concatenate([z, z_noise]), np.concatenate([y[:3], noise_y]), 0.5)
    want += 0.4 * (both + 0.1 * supcon(z_noise, noise_y, 0.5))
  value, out = loss_fn(params)
  np.testing.assert_allclose(value, want, rtol=1e-5)
  assert out.logits.shape == (4, 3) and out.features.shape == (4, 5)


def test_padding_does_not_matter():
  results = []
  for padding in (0.0, 1e3):
    loss_fn, params, *_ = local_loss(0, padding)
    results.append(jax.jit(jax.grad(lambda p, of=loss_fn: of(p)[0]))(params))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), *results)


def test_noise_gets_no_gradient_from_the_alignment(monkeypatch):
  """With the alignment alone, the gradient is that for the noise features as constants."""
  monkeypatch.setattr(vhl, 'NOISE_CONTRAST', 0.0)
  loss_fn, params, model, virtual, x, y = local_loss(0, lambda_noise=0.0)
  rows = minibatch(jax.random.key(4), 12, 5, jnp.int32(0))
  features = lambda p, x: model.apply(Variables(p, {}), x).features
  constant = features(params, virtual.z[rows].reshape(5, *SHAPE))
  mask = jnp.array([1.0, 1.0, 1.0, 0.0])
  labels = jnp.concatenate([jnp.asarray(y), virtual.y[rows]])

  def expected(p):
    z = jnp.concatenate([features(p, jnp.asarray(x)), constant])
    pull = contrastive_loss(z, labels, jnp.concatenate([mask, jnp.ones(5)]), 0.07)
    real = model.apply(Variables(p, {}), jnp.asarray(x))
    return pull + cross_entropy(real.logits, jnp.asarray(y), mask)

  got = jax.jit(jax.grad(lambda p: loss_fn(p)[0]))(params)
  want = jax.jit(jax.grad(expected))(params)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), got, want)
  assert all((leaf == 0).all() for leaf in jax.tree.leaves(got['extra']))


def params_after(method, model=None, sizes=(4, 0, 3), **kwargs):
  kwargs = {'data': tiny.federated(list(sizes)), **kwargs}
  engine = tiny.build(method, model or tiny.net(4, 3), **kwargs)
  state = engine.run(0, engine.init(0), 3)[0]
  params = {k: v for k, v in state.params.items() if k != 'extra'}
  return jax.tree.leaves((params, state.stats))


def base(**fields):
  return fs.FedAvg(lr=0.1, **{'optimizer': 'sgd', 'batch_size': 2, **fields})


def small(method, **fields):
  return fs.chain(method, fs.VHL(**{'images_per_class': 5, 'noise_batch': 6, **fields}))


def distance(one, other):
  return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.slow  # tests/float64 and the next test would fail as well
@pytest.mark.parametrize('optimizer', ['sgd', 'adam'])
def test_neutral_setting_is_fedavg_and_others_are_not(optimizer):
  plain = params_after(base(optimizer=optimizer))
  away = lambda **f: distance(params_after(small(base(optimizer=optimizer), **f)), plain)
  assert away(lambda_noise=0.0, alignment=0.0) <= 1e-6
  if optimizer == 'sgd':
    assert away(alignment=0.0) > 1e-4
    assert away(lambda_noise=0.0) > 1e-4


def test_neutral_setting_is_fedavg_with_batch_norm():
  model = create('convnet', shape=SHAPE, num_classes=3, width=4, depth=1, norm='batch')
  neutral = params_after(small(base(), lambda_noise=0.0, alignment=0.0), model)
  assert distance(neutral, params_after(base(), model)) <= 1e-6


def test_alignment_ends_after_passes_of_the_clients_own_size():
  """Sizes 4, 3, 1 and 0 in batches of 2 are 2, 2, 1 and 0 steps a pass, of which 5 are aligned."""
  method = fs.chain(base(epochs=0, steps=7), fs.VHL())
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([4, 3, 1, 0]))

  def aligned(client):
    return int(method[fs.VHL].prepare(tiny.client_of(engine, fs.VHL, client))[-1])

  assert [aligned(client) for client in range(4)] == [10, 10, 5, 0]


def test_a_projection_head_goes_before_the_extra_outputs():
  model, data = create('mlp', shape=SHAPE, num_classes=3, width=8, depth=1), tiny.federated([4, 3])
  engine = tiny.build(small(fs.chain(base(), fs.MOON(projection=5))), model, data)
  assert engine.init(0).params['extra']['kernel'].shape == (5, 3)
  assert engine.bytes_per_round()[0] > 0  # local training can be traced
  with pytest.raises(ValueError, match='are for 8 features.* made them 5: name it first.*moon'):
    tiny.build(fs.chain(small(base()), fs.MOON(projection=5)), model, data)


@pytest.mark.slow
def test_layouts_agree_in_float64():
  with jax.enable_x64(True):
    data = tiny.federated([5, 0, 1, 3])
    data = data._replace(mean=data.mean.astype(jnp.float64), std=data.std.astype(jnp.float64))
    one, blocks = (
      params_after(small(base()), data=data, layout=layout)
      for layout in (Layout(1, 'loop', 1), Layout(3, 'blocks', 2))
    )
    for a, b in zip(one, blocks, strict=True):
      assert a.dtype == jnp.float64
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
