"""The tiny problem in numpy: a linear softmax network, its gradients, optimizers, local training.

Parameters are one flat vector w = (U, V, b): features z = x U, logits z V + b. So a client's
difference, a norm or an average over models is plain vector arithmetic.
"""

import numpy as np

PIXELS, FEATURES, CLASSES = 4, 2, 3
SIZE = PIXELS * FEATURES + FEATURES * CLASSES + CLASSES
BODY, HEAD = slice(0, PIXELS * FEATURES), slice(PIXELS * FEATURES, SIZE)


def unpack(w):
  """Returns U [pixels, features], V [features, classes], b [classes]."""
  v, b = w[HEAD][:-CLASSES], w[HEAD][-CLASSES:]
  return w[BODY].reshape(PIXELS, FEATURES), v.reshape(FEATURES, CLASSES), b


def pack(u, v, b):
  return np.concatenate([u.ravel(), v.ravel(), b])


def features(w, x):
  """x [rows, pixels] -> [rows, features]."""
  return x @ unpack(w)[0]


def head(w, z):
  """z [rows, features] -> logits [rows, classes]."""
  _, v, b = unpack(w)
  return z @ v + b


def logits(w, x):
  return head(w, features(w, x))


def log_softmax(a):
  a = a - a.max(axis=-1, keepdims=True)
  return a - np.log(np.exp(a).sum(axis=-1, keepdims=True))


def softmax(a):
  return np.exp(log_softmax(a))


def targets(y):
  """Class labels [rows], or probabilities [rows, classes] as they are."""
  y = np.asarray(y)
  return y if y.ndim == 2 else np.eye(CLASSES)[y]


def losses(w, x, y):
  """Cross-entropy of each sample, [rows]; y are labels or probabilities."""
  return -np.sum(targets(y) * log_softmax(logits(w, x)), axis=1)


def loss(w, x, y):
  return losses(w, x, y).mean()


def backward(w, x, d_logits):
  """The gradient in w of a sum whose derivative in the logits is d_logits [rows, classes]."""
  z, (_, v, _) = features(w, x), unpack(w)
  return pack(x.T @ (d_logits @ v.T), z.T @ d_logits, d_logits.sum(axis=0))


def gradient(w, x, y):
  """The gradient in w of the mean cross-entropy, for targets that add up to 1.

  d logits = (p - target) / rows.
  """
  return backward(w, x, (softmax(logits(w, x)) - targets(y)) / len(x))


def input_gradient(w, d_logits):
  """What a derivative in the logits [rows, classes] is in the pixels: [rows, pixels]."""
  u, v, _ = unpack(w)
  return d_logits @ v.T @ u.T


def differences(f, at, step=1e-3):
  """The gradient of f at an array, by central differences of fourth order; error about step^4."""
  at, grad = np.array(at, float), np.zeros(np.shape(at))
  for i in np.ndindex(at.shape):

    def moved(by, i=i):
      there = at.copy()
      there[i] += by * step
      return f(there)

    grad[i] = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step)
  return grad


class Sgd:
  """Heavy-ball SGD with coupled weight decay: v = momentum v + g + decay w; w = w - lr v."""

  def __init__(self, lr, momentum=0.0, decay=0.0):
    self.lr, self.momentum, self.decay, self.v = lr, momentum, decay, 0.0

  def __call__(self, w, g):
    self.v = self.momentum * self.v + g + self.decay * w
    return w - self.lr * self.v


class Adam:
  """Adam (Kingma and Ba, 2015, Algorithm 1), with coupled weight decay."""

  def __init__(self, lr, b1=0.9, b2=0.999, epsilon=1e-8, decay=0.0):
    self.lr, self.b1, self.b2, self.epsilon, self.decay = lr, b1, b2, epsilon, decay
    self.t, self.m, self.v = 0, 0.0, 0.0

  def __call__(self, w, g):
    g = g + self.decay * w
    self.t += 1
    self.m = self.b1 * self.m + (1 - self.b1) * g
    self.v = self.b2 * self.v + (1 - self.b2) * g**2
    m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
    return w - self.lr * m / (np.sqrt(v) + self.epsilon)


def train(w, batches, optimizer, grad=gradient):
  """Local training: a step of the optimizer for every batch (x, y)."""
  for x, y in batches:
    w = optimizer(w, grad(w, x, y))
  return w


def average(values, weights=None):
  """The weighted mean of vectors."""
  return np.average(np.stack(values), axis=0, weights=weights)
