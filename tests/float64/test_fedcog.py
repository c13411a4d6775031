"""FedCOG in numpy (Ye et al., 2024, Algorithm 1, Eqs. 1-3, A.1.1, A.3.2).

Clients generate complementary data and distil on them.
"""

import jax
import numpy as np

import fedjax_syn as fs
from fedjax_syn.core.keys import fold
from fedjax_syn.core.sampling import minibatch
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedcog',)
START, SAMPLES, STEPS, KD_BATCH = 1, 7, 4, 4
# Adam's steps depend little on a gradient's size. A term is visible only if the models differ, its
# weight is large, and images move far.
RATE, LR, DISAGREE = 1.0, 0.3, 20.0


def target_labels(counts):
  """Class c gets a share in proportion to max(d) - d_c.

  Rounding leaves a rest, which goes to the largest remainders.
  """
  lacking = counts.max() - counts
  exact = SAMPLES * lacking / lacking.sum()
  dealt = np.floor(exact).astype(int)
  for c in sorted(range(tiny.CLASSES), key=lambda c: dealt[c] - exact[c])[: SAMPLES - dealt.sum()]:
    dealt[c] += 1
  return np.repeat(np.arange(tiny.CLASSES), dealt)


def jensen_shannon(p, q):
  m = (p + q) / 2
  return 0.5 * np.sum(p * np.log(p / m) + q * np.log(q / m), axis=1)


def generate(key, w, previous, y):
  """Eq. 1: Adam with betas 0.5 and 0.9 on pixels that begin as noise."""
  x = np.asarray(jax.random.normal(fold(key, 0, 1), (SAMPLES, 2, 2, 1))).reshape(SAMPLES, -1)
  adam = tiny.Adam(LR, 0.5, 0.9)

  def loss(x):
    total = tiny.losses(w, x, y)
    if previous is not None:
      p, q = (tiny.softmax(tiny.logits(model, x)) for model in (w, previous))
      total = total + DISAGREE * (1 - jensen_shannon(p, q))
    return total.mean()

  for _ in range(STEPS):
    x = adam(x, tiny.differences(loss, x))
  return x


def local(number, k, w, previous):
  key, counts = lib.client_key(number, k), lib.COUNTS[k]
  x_g = generate(fold(key, 0), w, previous, target_labels(counts))
  teacher = tiny.softmax(tiny.logits(w, x_g))
  lacking = (counts.max() - counts).sum()
  share = lacking / (lacking + counts.sum())  # A.3.2
  trained = w
  for i, (x, y) in enumerate(lib.batches(key, k, batch_size=lib.BATCH)):
    rows = np.asarray(minibatch(fold(key, 0, 1), SAMPLES, KD_BATCH, i))
    g = (1 - share) * tiny.gradient(trained, x, y)
    g += share * tiny.gradient(trained, x_g[rows], teacher[rows])  # KL and CE have one gradient
    trained = trained - RATE * g
  return trained


def test_three_rounds():
  """Two of three clients per round. Round 1 is FedAvg's. A new client has no previous model."""
  share, kinds = 2 / 3, set()
  method = fs.chain(
    lib.base(lr=RATE, weighting='size'),
    fs.FedCOG(
      start=START,
      samples=SAMPLES,
      steps=STEPS,
      lr=LR,
      lambda_dis=DISAGREE,
      kd_batch=KD_BATCH,
    ),
  )
  path = lib.rounds(method, 3, participation=share)
  w, previous = lib.W0, [None] * len(lib.SIZES)
  for number in (1, 2, 3):
    chosen = lib.sampled(number, share)
    for k in chosen:
      if number > START:
        kinds.add(previous[k] is None)
        previous[k] = local(number, k, w, previous[k])
      else:
        previous[k] = lib.local(number, k, w, optimizer=tiny.Sgd(RATE))
    w = tiny.average([previous[k] for k in chosen], lib.SIZES[chosen])
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    for k in lib.CLIENTS:
      if previous[k] is not None:
        lib.close(lib.row(state.clients['fedcog'].model.params, k), previous[k], f'{k}, {number}')
  assert kinds == {True, False}
