"""DynaFed in numpy (Pi et al., 2023, Algorithms 1 and 2).

Training on the synthetic set follows the trajectory. Fine-tuning on it comes next.
"""

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.algorithms.dynafed.unroll import draw_segment
from fedjax_syn.core.keys import Purpose, fold, stream
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('dynafed',)
L, S, INNER, N, TARGETS = 3, 2, 3, 3, 2
STEP, STEP_LR, IMAGE_LR, LABEL_LR, TUNE_STEPS, TUNE_LR = 0.2, 0.03, 0.1, 0.07, 3, 0.02
IMAGES = tiny.CLASSES


def follow(w, x, y, log_step):
  """s' steps of gradient descent from w on soft labels softmax(y)."""
  for _ in range(INNER):
    w = w - np.exp(log_step) * tiny.gradient(w, x, tiny.softmax(y))
  return w


def segment(key):
  """t, and the weights of w^0..w^L in the target: drawn from a trajectory of unit vectors."""
  drawn = draw_segment(key, jnp.eye(L + 1), 0, L, S, TARGETS)
  t, weights = int(np.argmax(drawn.start)), np.asarray(drawn.target)
  assert 0 <= t <= L - S and set(np.flatnonzero(weights)) <= {t + 1, t + 2}
  return t, weights


def synthesise(trajectory, x):
  """Algorithm 1; returns images, label logits, log of the step size and the losses."""
  y, log_step, losses = np.zeros((IMAGES, tiny.CLASSES)), np.array(np.log(STEP)), []
  optimizers = tiny.Adam(IMAGE_LR), tiny.Adam(LABEL_LR), tiny.Adam(STEP_LR)
  key = fold(stream(lib.SEED, Purpose.SERVER_WORK, L), 0)
  for i in range(N):
    t, weights = segment(fold(fold(key, i), 0, 0))
    w, target = trajectory[t], weights @ trajectory

    def loss(x, y, log_step):
      end = follow(w, x, y, log_step)
      return np.sum((end - target) ** 2) / np.sum((w - target) ** 2)

    losses.append(loss(x, y, log_step))
    slopes = (
      tiny.differences(lambda x: loss(x, y, log_step), x),
      tiny.differences(lambda y: loss(x, y, log_step), y),
      tiny.differences(lambda log_step: loss(x, y, log_step), log_step),
    )
    old = x, y, log_step
    x, y, log_step = (adam(v, g) for adam, v, g in zip(optimizers, old, slopes, strict=True))
  return x, y, log_step, losses


def test_trajectory_synthesis_and_a_tuned_round():
  method = fs.chain(
    lib.base(),
    fs.DynaFed(
      length=L,
      segment=S,
      inner_steps=INNER,
      iterations=N,
      images_per_class=1,
      targets=TARGETS,
      inner_lr=STEP,
      inner_lr_lr=STEP_LR,
      image_lr=IMAGE_LR,
      label_lr=LABEL_LR,
      finetune_steps=TUNE_STEPS,
      finetune_lr=TUNE_LR,
    ),
  )
  engine = lib.engine_of(method)
  state, _ = engine.run(lib.SEED, engine.init(lib.SEED), L)
  first = np.asarray(state.server['dynafed'].syn.x).reshape(IMAGES, -1)
  done = False
  while not done:
    state, done, _ = engine.server_work(lib.SEED, state, 60.0)
  learned = jax.tree.map(np.asarray, state.server['dynafed'])
  state, _ = engine.run(lib.SEED, state, 1)

  trajectory = [lib.W0]
  for number in range(1, L + 1):
    w = trajectory[-1]
    trajectory.append(tiny.average([lib.local(number, k, w) for k in lib.CLIENTS]))
  trajectory = np.stack(trajectory)
  for c in range(L + 1):
    lib.close(lib.row(learned.trajectory, c), trajectory[c], f'w^{c}')

  x, y, log_step, losses = synthesise(trajectory, first)
  lib.close(learned.losses, losses, 'matching losses')
  lib.close(learned.syn.x.reshape(IMAGES, -1), x, 'images')
  lib.close(learned.syn.y, y, 'label logits')
  lib.close(learned.syn.log_step, log_step, 'log step size')

  w = tiny.average([lib.local(L + 1, k, trajectory[L]) for k in lib.CLIENTS])
  adam = tiny.Adam(TUNE_LR)
  for _ in range(TUNE_STEPS):  # Algorithm 2, line 12
    w = adam(w, tiny.gradient(w, x, tiny.softmax(y)))
  lib.close(lib.flat(state.params), w, f'round {L + 1}')
