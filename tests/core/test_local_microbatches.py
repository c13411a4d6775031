"""A batch taken in pieces: the same loss, gradient and output as at once, and when it is done."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core import microbatches, objectives
from fedjax_syn.core.types import Step, Variables
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.models import blocks
from tests import tiny


@pytest.mark.parametrize('kept', [12, 7, 0])
@pytest.mark.parametrize('count', [2, 4, 12])
def test_loss_gradient_and_output_are_those_of_the_whole(kept, count):
  """Of 12 samples the mask keeps the first 7, say: pieces have unequal weights, and some none."""
  with jax.enable_x64(True):
    model = tiny.net(9, 3)
    variables = model.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (12, 3, 3, 1), float)
    y, mask = jnp.arange(12) % 3, jnp.asarray(np.arange(12) < kept, float)
    step = Step(jax.random.key(2), jnp.int32(0), x, y, mask, {})

    def loss_fn(params, step):
      out = model.apply(Variables(params, step.stats), step.x)
      return objectives.cross_entropy(out.logits, step.y, step.mask), out

    whole, split = (
      jax.jit(microbatches.value_and_grad(loss_fn, n))(variables.params, step) for n in (1, count)
    )
    assert kept == 0 or float(whole[0][0]) > 0.1
    assert jax.tree.structure(whole) == jax.tree.structure(split)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-14), whole, split)


LEAST = 8 if blocks.FAST else 16  # images of a microbatch


def convnet(side, width, norm='group'):
  shape = (side, side, 1)
  return models.create('convnet', shape=shape, num_classes=3, width=width, norm=norm, depth=1)


@pytest.mark.parametrize(
  ('model', 'side', 'batch', 'expected'),
  [
    (convnet(16, 32), 16, 256, 256 // LEAST),  # 16 x 16 x 32 numbers an image: 8 MiB
    (convnet(16, 32), 16, 64, 64 // LEAST),
    (convnet(16, 32), 16, 50, 5 if blocks.FAST else 2),  # 6 and 3 do not divide 50
    (convnet(16, 32), 16, 31, 1),
    (convnet(16, 32), 16, 32, 1),  # 1 MiB is kept
    (convnet(16, 32, 'batch'), 16, 256, 1),
    (tiny.net(256, 3), 16, 4096, 1),
  ],
)
def test_when_a_batch_is_taken_in_pieces(model, side, batch, expected):
  assert microbatches.num_microbatches(model, (side, side, 1), jnp.float32, batch) == expected


def test_a_round_in_pieces_is_that_at_once():
  """FedProx with mu = 0 has its own loss, so a batch stays whole. The last batches are partial."""
  data = tiny.federated([40, 70, 0, 33], side=16)
  model = convnet(16, 32)
  assert microbatches.num_microbatches(model, (16, 16, 1), jnp.float32, 64) == 64 // LEAST
  plain = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=64, epochs=2)
  found = []
  for method in (plain, fs.chain(plain, fs.FedProx(mu=0.0))):
    engine = Engine(method, model, data, layout=Layout(1, 'loop', 1))
    state, report = engine.run(0, engine.init(0), 1)
    found.append((state.params, report))
  (one, report), (other, whole) = found
  moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), one, engine.init(0).params)
  assert max(jax.tree.leaves(moved)) > 1e-2
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), one, other)
  assert report['train/loss'] == pytest.approx(whole['train/loss'], rel=1e-5)
