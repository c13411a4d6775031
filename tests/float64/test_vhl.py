"""VHL in numpy (Tang et al., 2022).

Local steps also classify common noise. The first steps also align features with the noise.
"""

import numpy as np

import fedjax_syn as fs
from fedjax_syn.algorithms.vhl import ORDER, noise_set
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.sampling import minibatch
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('vhl',)
LAMBDA, ALIGNMENT, CONTRAST, TAU = 0.8, 0.7, 0.1, 0.5
PER_CLASS, NOISE_BATCH, ALIGNED_EPOCHS, EPOCHS = 2, 4, 1, 2
OWN = slice(
  0, tiny.SIZE
)  # of the parameters: the network's own; then the C other outputs' [features, C] and [C]


def double_logits(w, x):
  """All 2C outputs: the network's own, then those for the kinds of noise."""
  extra, z = w[tiny.SIZE :], tiny.features(w[OWN], x)
  kernel = extra[: -tiny.CLASSES].reshape(tiny.FEATURES, tiny.CLASSES)
  return np.hstack([tiny.head(w[OWN], z), z @ kernel + extra[-tiny.CLASSES :]])


def contrastive(z, y):
  """Khosla et al. (2020), Eq. 2: the mean over samples. One without a partner adds 0."""
  z, total = z / np.linalg.norm(z, axis=1, keepdims=True), 0.0
  for i in range(len(y)):
    others = [j for j in range(len(y)) if j != i]
    partners = [j for j in others if y[j] == y[i]]
    away = np.log(sum(np.exp(z[i] @ z[j] / TAU) for j in others))
    if partners:
      total -= np.mean([z[i] @ z[p] / TAU - away for p in partners])
  return total / len(y)


def loss(w, still, x, y, noise, kind, aligned):
  """`still` are the same parameters without a derivative: features of the noise are targets."""
  total = tiny.loss(w[OWN], x, y)
  p = tiny.log_softmax(double_logits(w, noise))
  total -= LAMBDA * np.mean(p[np.arange(len(kind)), tiny.CLASSES + kind])
  if aligned:
    z, z_noise = tiny.features(w[OWN], x), tiny.features(w[OWN], noise)
    fixed = tiny.features(still[OWN], noise)
    both = contrastive(np.vstack([z, fixed]), np.concatenate([y, kind]))
    total += ALIGNMENT * (both + CONTRAST * contrastive(z_noise, kind))
  return total


def test_a_round():
  method = fs.chain(
    lib.base(epochs=EPOCHS),
    fs.VHL(
      lambda_noise=LAMBDA,
      alignment=ALIGNMENT,
      temperature=TAU,
      align_epochs=ALIGNED_EPOCHS,
      noise_batch=NOISE_BATCH,
      images_per_class=PER_CLASS,
    ),
  )
  (start, _), (state, _) = lib.rounds(method, 1)
  everything = lambda params: np.concatenate(
    [lib.flat(params), params['extra']['kernel'].ravel(), params['extra']['bias']]
  )
  w0, trained = everything(start.params), []
  key = stream(0, Purpose.COMMON)  # whatever the run's seed
  drawn = noise_set(key, (2, 2, 1), tiny.CLASSES, PER_CLASS)
  noise, kind = np.asarray(drawn.z), np.asarray(drawn.y)  # 2 x 2 pixels need no enlargement
  for k in lib.CLIENTS:
    key, w = lib.client_key(1, k), w0
    per_epoch = -(-lib.SIZES[k] // lib.BATCH)
    for i, (x, y) in enumerate(lib.batches(key, k, batch_size=lib.BATCH, epochs=EPOCHS)):
      rows = np.asarray(minibatch(fold(key, 0, ORDER), len(kind), NOISE_BATCH, i))
      rest = w, x, y, noise[rows], kind[rows], i < ALIGNED_EPOCHS * per_epoch
      w = w - lib.RATE * tiny.differences(lambda w: loss(w, *rest), w)
    trained.append(w)
  lib.close(everything(state.params), tiny.average(trained))
