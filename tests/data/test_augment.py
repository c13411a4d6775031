"""Augmentation: operations against hand-worked pictures and plain numpy; DSA's draws and slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn.data import image_ops
from fedjax_syn.data.augment import AUGMENTATIONS, GROUPS, crop_flip, dsa, parse_strategy

ALL = tuple(GROUPS)
SHIFT, CUTOUT, SCALE, ROTATE = map(
  jax.jit, (image_ops.shift, image_ops.cutout, image_ops.scale, image_ops.rotate)
)


def picture(height=5, width=6, channels=3):
  return np.random.default_rng(0).normal(size=(height, width, channels)).astype(np.float32)


def read(x, row, col):
  """Bilinear value of x at a real position, zero outside: the definition, pixel by pixel."""
  total = np.zeros(x.shape[2])
  for r in (int(np.floor(row)), int(np.floor(row)) + 1):
    for c in (int(np.floor(col)), int(np.floor(col)) + 1):
      if 0 <= r < x.shape[0] and 0 <= c < x.shape[1]:
        total += (1 - abs(row - r)) * (1 - abs(col - c)) * x[r, c]
  return total


def warp(x, matrix):
  """Reads x at matrix @ (distance from the centre), for every pixel."""
  centre = (np.array(x.shape[:2]) - 1) / 2
  out = np.zeros(x.shape)
  for pixel in np.ndindex(x.shape[:2]):
    out[pixel] = read(x, *(centre + matrix @ (pixel - centre)))
  return out


def test_colour_operations_by_hand():
  """One row of two pixels, (1, 3) and (4, 8): greys 2 and 6, mean 4.

  Brightness .5 adds .5. Saturation 2: 2 -+ 2, 6 -+ 4. Contrast .5: halfway to 4.
  """
  x = jnp.array([[[1.0, 3.0], [4.0, 8.0]]])
  np.testing.assert_allclose(image_ops.brightness(0.5, x), x + 0.5)
  np.testing.assert_allclose(image_ops.saturation(2.0, x), [[[0, 4], [2, 10]]])
  np.testing.assert_allclose(image_ops.contrast(0.5, x), [[[2.5, 3.5], [4, 6]]])
  np.testing.assert_allclose(image_ops.saturation(0.0, x), [[[2, 2], [6, 6]]])
  np.testing.assert_allclose(image_ops.contrast(0.0, x), jnp.full(x.shape, 4.0))


def test_colour_is_brightness_then_saturation_then_contrast():
  """Same pixels: + 1: (2, 4), (5, 9). Saturation 0: 3, 7. Contrast 2 about 5: 1, 9."""
  x = jnp.array([[[1.0, 3.0], [4.0, 8.0]]])
  np.testing.assert_allclose(image_ops.colour(jnp.array([1.0, 0, 2]), x), [[[1, 1], [9, 9]]])
  np.testing.assert_allclose(image_ops.colour(jnp.array([0.0, 1, 1]), x), x)


@pytest.mark.parametrize('offset', [(0, 0), (1, 0), (-2, 1), (0, -3), (5, 0), (2, 9)])
def test_shift_is_a_crop_of_the_padded_image(offset):
  x = picture()
  fill = np.array([1.0, 2.0, 3.0], np.float32)
  for value in (0.0, fill):
    padded = np.tile(np.zeros(3, np.float32) + value, (25, 26, 1))
    padded[10:15, 10:16] = x
    cropped = padded[10 + offset[0] :, 10 + offset[1] :][:5, :6]
    np.testing.assert_array_equal(
      SHIFT(np.array(offset), x, np.zeros(3, np.float32) + value), cropped
    )


@pytest.mark.parametrize('box', [(1, 2, 3, 5), (-2, 3, 2, 9), (3, 3, 3, 3), (0, 0, 5, 6)])
def test_cutout_blanks_the_window(box):
  expected = picture()
  expected[max(box[0], 0) : box[2], max(box[1], 0) : box[3]] = 0
  np.testing.assert_array_equal(CUTOUT(np.array(box), picture()), expected)


def test_mirror():
  x = picture()
  np.testing.assert_array_equal(image_ops.mirror(True, x), x[:, ::-1])
  np.testing.assert_array_equal(image_ops.mirror(False, x), x)


def test_scale_by_hand():
  """Row 1 2 4: factor .5 reads it at .5, 1, 1.5: 1.5, 2, 3; factor 2 at -1, 1, 3: 0, 2, 0."""
  x = np.array([1.0, 2.0, 4.0], np.float32).reshape(1, 3, 1)
  np.testing.assert_allclose(SCALE((1.0, 0.5), x).ravel(), [1.5, 2, 3])
  np.testing.assert_allclose(SCALE((1.0, 2.0), x).ravel(), [0, 2, 0])


@pytest.mark.parametrize('factors', [(1.0, 1.0), (0.83, 1.2), (1.1, 0.9)])
def test_scale_is_bilinear(factors):
  x = picture()
  np.testing.assert_allclose(SCALE(factors, x), warp(x, np.diag(factors)), atol=1e-5)
  if factors == (1.0, 1.0):
    np.testing.assert_array_equal(SCALE(factors, x), x)


@pytest.mark.parametrize('angle', [0.0, 0.2, -0.26, 1.0])
def test_rotate_is_bilinear(angle):
  """Positions of the source: a rotation of rows and columns about the centre."""
  x = picture()
  matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
  np.testing.assert_allclose(ROTATE(angle, x), warp(x, matrix), atol=1e-5)
  if angle == 0:
    np.testing.assert_array_equal(ROTATE(angle, x), x)


@pytest.mark.parametrize('quarters', [1, 2, 3])
def test_quarter_turns_are_counter_clockwise(quarters):
  x = picture(5, 5)
  turned = ROTATE(quarters * np.pi / 2, x)
  np.testing.assert_allclose(turned, np.rot90(x, quarters), atol=1e-5)


def test_parameters_at_the_ends_of_the_uniform_numbers():
  """32 x 32: shifts -4..4; window of 16 about 0..32; factors 1/1.2..1.2; +-15 degrees."""
  below_one = np.float32(1) - np.float32(2) ** -24
  low, high = jnp.zeros(3), jnp.full(3, below_one)
  shape = (32, 32, 3)

  def both(name):
    return [np.asarray(GROUPS[name].params(u, shape)) for u in (low, high)]

  np.testing.assert_allclose(both('colour'), [[-0.5, 0, 0.5], [0.5, 2, 1.5]], atol=1e-6)
  np.testing.assert_array_equal(both('crop'), [[-4, -4], [4, 4]])
  np.testing.assert_array_equal(both('cutout'), [[-8, -8, 8, 8], [24, 24, 40, 40]])
  np.testing.assert_array_equal(both('flip'), [True, False])
  np.testing.assert_allclose(both('scale'), [[1 / 1.2] * 2, [1.2] * 2], rtol=1e-6)
  np.testing.assert_allclose(both('rotate'), [-np.pi / 12, np.pi / 12], rtol=1e-6)
  odd = GROUPS['cutout'].params(high, (5, 6, 1))  # windows of 3 about 0..4 and 0..5
  np.testing.assert_array_equal(odd, [3, 4, 6, 7])


def test_dsa_applies_the_group_to_every_image():
  """The groups' own pieces, fed with the call's uniform numbers, give the same images.

  Each image has its own numbers.
  """
  x = jnp.broadcast_to(picture(8, 8), (2, 8, 8, 3))

  @jax.jit
  def run(key):
    u = jax.random.uniform(key, (3, 3), jnp.float32)[1:]
    result = {}
    for name, group in GROUPS.items():
      alone = [group.apply(group.params(a, x.shape[1:]), x[0]) for a in u]
      result[name] = (jnp.stack(alone), dsa(key, x, (name,)))
    return result

  for alone, out in jax.device_get(run(jax.random.key(3))).values():
    np.testing.assert_allclose(out, alone, atol=1e-5)
    assert np.ptp(out, axis=0).max() > 0.1


def test_groups_are_picked_uniformly():
  """3000 keys, three groups: 1000 each, four sigma are 4 sqrt(3000 2/9) = 103.

  On an image of ones each leaves its mark: cutout zeros, flip nothing, colour another constant.
  """
  x = jnp.ones((1, 8, 8, 1))
  call = jax.vmap(lambda key: dsa(key, x, ('colour', 'cutout', 'flip')).ravel())
  out = np.asarray(jax.jit(call)(jax.random.split(jax.random.key(5), 3000)))
  cut = (out.min(1) == 0) & (out.max(1) == 1)
  still = (out == 1).all(1)
  colour = np.ptp(out, axis=1) < 1e-5
  counts = [cut.sum(), still.sum(), (colour & ~still).sum()]
  assert sum(counts) == 3000
  assert np.abs(np.array(counts) - 1000).max() < 103


def test_key_decides_the_call():
  """A call alone equals the call mapped over keys, where all branches run and one is selected."""
  x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
  keys = jax.random.split(jax.random.key(1), 12)
  alone = jax.jit(dsa)
  mapped = np.asarray(jax.jit(jax.vmap(dsa, in_axes=(0, None)))(keys, x))
  for key, out in zip(keys, mapped, strict=True):
    np.testing.assert_allclose(alone(key, x), out, atol=1e-5)
  different = [(a != b).any() for i, a in enumerate(mapped) for b in mapped[:i]]
  assert np.mean(different) > 0.8  # two flips of two images may well agree


def test_gradients_in_float64():
  """Slopes of a curved function of every group's output along a direction: central differences."""
  with jax.enable_x64(True):
    rng = np.random.default_rng(1)
    x, v = (jnp.asarray(rng.normal(size=(2, 6, 6, 3))) for _ in range(2))

    def f(x, name):
      return jnp.sin(dsa(jax.random.key(7), x, (name,))).sum()

    each = jax.jit(lambda x: [jax.value_and_grad(f)(x, name) for name in ALL])
    h = 1e-6
    for (_, slope), (up, _), (down, _) in zip(
      each(x), each(x + h * v), each(x - h * v), strict=True
    ):
      assert slope.dtype == jnp.float64
      np.testing.assert_allclose((slope * v).sum(), (up - down) / (2 * h), rtol=1e-6)


def test_second_derivatives_through_checkpointed_steps():
  """Meta-gradient of three checkpointed SGD steps with DSA, against central differences.

  Each step has its own key; that the backward pass replays the same draws is what makes them agree.
  """
  with jax.enable_x64(True):
    rng = np.random.default_rng(2)
    x, v = (jnp.asarray(rng.normal(size=(4, 6, 6, 2))) for _ in range(2))
    w = jnp.asarray(rng.normal(size=(72, 3)) / 8)
    y = jnp.asarray(np.eye(3)[[0, 1, 2, 0]])
    keys = jax.random.split(jax.random.key(11), 3)

    def loss(w, x, key):
      logits = dsa(key, x, ('colour', 'cutout', 'rotate')).reshape(4, -1) @ w
      return -(y * jax.nn.log_softmax(logits)).sum(-1).mean()

    @jax.jit
    @jax.value_and_grad
    def distance(x):
      step = jax.checkpoint(lambda w, key: (w - 0.5 * jax.grad(loss)(w, x, key), None))
      return (jax.lax.scan(step, w, keys)[0] ** 2).sum()

    slope = (distance(x)[1] * v).sum()
    h = 1e-5
    finite = (distance(x + h * v)[0] - distance(x - h * v)[0]) / (2 * h)
    np.testing.assert_allclose(slope, finite, rtol=1e-6)
    assert abs(slope) > 1e-3


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float32])
def test_dtype_and_shape_stay(dtype):
  x = jax.ShapeDtypeStruct((2, 8, 9, 3), dtype)
  calls = [crop_flip, dsa, *(lambda key, x, n=name: dsa(key, x, (n,)) for name in ALL)]
  for call in calls:
    out = jax.eval_shape(call, jax.random.key(0), x)
    assert (out.shape, out.dtype) == (x.shape, dtype)


def test_no_operation_leaves_the_images():
  x = jnp.ones((2, 8, 8, 3))
  assert dsa(jax.random.key(0), x, ()) is x


def test_parse_strategy():
  assert parse_strategy('colour_crop_cutout_flip_scale_rotate') == ALL
  assert parse_strategy('flip_crop') == ('flip', 'crop')
  assert parse_strategy('') == ()
  for wrong in ('color_crop', 'flip_flip', 'crop_', 'crop,flip'):
    with pytest.raises(ValueError, match=f'{wrong}.*colour, crop') as refusal:
      parse_strategy(wrong)
    assert '\n' not in str(refusal.value)
  with pytest.raises(ValueError, match='blur'):
    dsa(jax.random.key(0), jnp.ones((1, 8, 8, 1)), ('blur',))


def test_crop_flip_gives_crops_of_the_padded_image():
  """Each result is one of 25 crops or their mirrors; all 50 turn up, 20 times on average."""
  x = picture(4, 5)
  black = np.array([-1.0, -2.0, -3.0], np.float32)
  padded = np.tile(black, (8, 9, 1))
  padded[2:6, 2:7] = x
  crops = np.stack([padded[r : r + 4, c : c + 5] for r in range(5) for c in range(5)])
  crops = np.concatenate([crops, crops[:, :, ::-1]])
  many = np.broadcast_to(x, (1000, 4, 5, 3))
  run = jax.jit(crop_flip, static_argnames=('padding', 'flip'))
  out = run(jax.random.key(0), many, padding=2, fill=black)
  match = (np.asarray(out)[:, None] == crops).all((2, 3, 4))
  assert (match.sum(1) == 1).all()
  counts = match.sum(0)
  assert counts.min() > 2 and counts.max() < 20 + 6 * np.sqrt(20)
  plain = run(jax.random.key(0), many, padding=2, flip=False, fill=black)
  assert (np.asarray(plain)[:, None] == crops[:25]).all((2, 3, 4)).any(1).all()


def test_crop_flip_is_the_same_in_a_block_of_clients():
  """Mapped over clients, each with its key, it draws what it draws for each client alone."""
  x = np.random.default_rng(0).normal(size=(3, 4, 8, 8, 1))
  keys = jax.random.split(jax.random.key(2), 3)
  block, alone = jax.jit(jax.vmap(crop_flip))(keys, x), jax.jit(crop_flip)
  for key, client, mapped in zip(keys, x, block, strict=True):
    np.testing.assert_array_equal(alone(key, client), mapped)


def test_augmentations_by_name():
  """With black = 9, 'crop' of an 8 x 8 image moves in an eighth of a side, one pixel, of 9."""
  x = np.broadcast_to(picture(8, 8), (32, 8, 8, 3))
  calls = {name: AUGMENTATIONS[name] for name in ('crop', 'crop_flip', 'flip')}
  out = jax.jit(lambda key: {name: call(key, x, 9.0) for name, call in calls.items()})
  out = jax.device_get(out(jax.random.key(0)))
  assert AUGMENTATIONS['none'] is None
  assert all(o.shape == x.shape and (o != x).any() for o in out.values())
  kept, turned = ((out['flip'] == o).all((1, 2, 3)) for o in (x[0], x[0, :, ::-1]))
  assert (kept ^ turned).all() and kept.any() and turned.any()
  for name in ('crop', 'crop_flip'):
    assert (out[name][:, 1:-1, 1:-1] != 9).all() and (out[name][:, [0, -1]] == 9).any()
  for name, groups in (('dsa', 6), ('dsa_no_flip', 5)):
    program = jax.make_jaxpr(AUGMENTATIONS[name])(jax.random.key(0), x, 9.0)
    (switch,) = [e for e in program.eqns if e.primitive.name == 'cond']
    assert len(switch.params['branches']) == groups
    assert set(AUGMENTATIONS) == {*calls, 'none', 'dsa', 'dsa_no_flip'}
