"""FedReg: local steps that forget are projected back, by pseudo and perturbed data (Xu et al., 2022)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method, Task
from fedjax_syn.typing import Array, Params, Step, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  gamma: float = field(
    0.5,
    'share of w in the point gamma w + (1 - gamma) w_global of the gradient (code 0.5 for CIFAR-10, 0.25 for CIFAR-100)',
    low=0.0,
    high=1.0,
  )
  projection: bool = field(True, 'project every step by pseudo and perturbed data')
  iterations: int = field(10, 'ascent steps on an input (code 10)', low=0, high=10**6)
  eta_s: float = field(0.1, 'ascent step for pseudo data, in normalised pixels (code 0.1)', low=0.0)
  eta_p: float = field(1e-3, 'ascent step for perturbed data (code 1e-3)', low=0.0)
  beta: float = field(
    0.5,
    'share of w in the point beta w + (1 - beta) w_global of the projection (code 0.5)',
    low=0.0,
    high=1.0,
  )
  perturbed_labels: str = field(
    'hard',
    "labels of perturbed data: the samples' own, 'hard' (code), or 'soft' by the global model",
    choices=('hard', 'soft'),
  )


def ascend(task: Task, w_global: Variables, step: Step, eta, iterations: int) -> Array:
  """Moves inputs by the sign of their gradient up the global model's loss on their own labels.

  Args:
    task: gives the network and the loss.
    w_global: the model whose loss rises.
    step: the batch, x [batch, height, width, channels].
    eta: length of a step in every pixel, [].
    iterations: steps.

  Returns:
    The moved inputs, [batch, height, width, channels]; padding does not move. There is no limit to the
    range of pixels: the clamp in the authors' code has no effect.
  """

  def loss(x):
    return task.loss(task.model.apply(w_global, x, train=False).logits, step.y, step.mask)

  return jax.lax.fori_loop(
    0, iterations, lambda _, x: x + (eta * jnp.sign(jax.grad(loss)(x))).astype(x.dtype), step.x
  )


def coefficients(drift: Params, g2: Params, g3: Params) -> tuple[Array, Array]:
  """How far the drift from the global model points up the losses on pseudo and perturbed data.

  Args:
    drift: w - w_global.
    g2: gradient of the loss on pseudo data.
    g3: gradient of the loss on perturbed data.

  Returns:
    a = max(0, <drift, g2> / |g2|^2) and b = max(0, <drift - a g2, g3> / |g3|^2), both []; 0 where the
    gradient is.
  """

  def share(v, g):
    square = optax.tree.vdot(g, g)
    along = optax.tree.vdot(v, g) / jnp.where(square > 0, square, 1)
    return jnp.where(square > 0, jnp.maximum(along, 0), 0)

  a = share(drift, g2)
  return a, share(jax.tree.map(lambda d, g: d - a * g, drift, g2), g3)


def mix(share, w: Params, w_global: Params) -> Params:
  """share w + (1 - share) w_global."""
  return jax.tree.map(lambda p, g: share * p + (1 - share) * g, w, w_global)


def fedreg(base: Method | None = None, **fields) -> Method:
  """Takes the gradient between w and w_global, and after each step w -= a g2 + b g3.

  g2 and g3 are gradients at beta w + (1 - beta) w_global on pseudo data (far from the samples, labelled by
  the global model) and on perturbed ones (near them), made from the batch at hand; see `coefficients` for
  a and b. A step costs 2 `iterations` + 3 times one of the base.

  Args:
    base: a method that trains locally; FedAvg by default.
    **fields: see `Config`; gamma = 1 without projection is the base itself.

  Returns:
    The method. All of the base's gradient is taken between w and w_global, what its layers add to the loss too: FedProx pulls
    with gamma mu. The loss that is logged is that at gamma w + (1 - gamma) w_global. Deviations: the base's
    optimizer makes the step (the authors' is plain SGD), and the projection comes after it, outside its
    moments; both kinds of data are made anew in every step instead of once in a visit, which gives the
    same samples, as the global model does not change, and needs no memory; the optional masking of the
    gradient, for privacy, is left out.

  Raises:
    TypeError: if a field does not exist.
    ValueError: if a part of the base's model stays on the client (FedRep), which is put around FedReg instead.
  """
  c = Config(**fields)
  base = base or fedavg()
  if base.private:
    raise ValueError(
      f"'fedreg' cannot be put around {base.name!r}: its projection would move the part that rests; use fedreg+fedrep"
    )

  def client(task):
    h = task.hyper['fedreg']

    def grad(w_global, grad_fn):
      return lambda w, step: grad_fn(mix(h['gamma'], w, w_global.params), step)

    def project(w_global, old, new, grads, step):
      between = mix(h['beta'], new, w_global.params)

      def gradient(eta, soft):
        x = ascend(task, w_global, step, eta, c.iterations)
        target = jax.nn.softmax(task.model.apply(w_global, x, train=False).logits)

        def loss(params):
          model = Variables(params, step.stats)
          logits = task.model.apply(model, x, train=True, mask=step.mask).logits
          if not soft:
            return task.loss(logits, step.y, step.mask)
          losses = optax.softmax_cross_entropy(logits, target)
          return jnp.sum(losses * step.mask) / jnp.maximum(step.mask.sum(), 1)

        return jax.grad(loss)(between)

      g2 = gradient(h['eta_s'], True)
      g3 = gradient(h['eta_p'], c.perturbed_labels == 'soft')
      drift = jax.tree.map(jnp.subtract, new, w_global.params)
      a, b = coefficients(drift, g2, g3)
      return jax.tree.map(lambda w, g2, g3: w - a * g2 - b * g3, new, g2, g3)

    def metrics(w_global, visit, trained):
      x, y, mask = federated.first(task.data, visit.shard)
      step = Step(visit.key, jnp.zeros((), jnp.int32), x, y, mask, visit.stats)
      pseudo = ascend(task, w_global, step, h['eta_s'], c.iterations)
      log_p, log_q = (
        jax.nn.log_softmax(task.model.apply(w, pseudo, train=False).logits)
        for w in (w_global, trained)
      )
      lost = optax.losses.kl_divergence_with_log_targets(log_q, log_p)
      return {'forgotten': jnp.sum(lost * mask) / jnp.maximum(mask.sum(), 1)}

    return ClientTransform(
      'fedreg',
      metrics=metrics,
      prepare=lambda visit: Variables(visit.params, visit.stats),
      grad=grad,
      step=project if c.projection else None,
    )

  conflicts = {
    'fednova': "'fednova' counts gradients at the model of each step, and 'fedreg' takes them elsewhere and projects"
    ' after the step: use one of the two'
  }
  rates = ('gamma', 'eta_s', 'eta_p', 'beta')
  return base.extend(
    'fedreg',
    client=client,
    needs=('one_class', 'pixels'),
    conflicts=conflicts,
    hyper={name: getattr(c, name) for name in rates},
  )
