"""FedReg: local steps are projected against forgetting (Xu et al., 2022)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.contexts import ClientContext, Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Params, Step, Variables
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer


class FedReg(Layer):
  """Takes the gradient at gamma w + (1 - gamma) w_global, and projects each step: w -= a g2 + b g3.

  g2 and g3 are gradients at beta w + (1 - beta) w_global: g2 on pseudo data (far from the batch,
  labelled by the global model), g3 on perturbed data (near it, with its labels); see `coefficients`
  for a and b. A step costs 2 `iterations` + 3 times a step without this layer.

  The gradient of all layers before this one is taken at gamma w + (1 - gamma) w_global, so
  FedProx's term is multiplied by gamma. The logged loss is that at the same point.

  Deviations: the client's optimizer takes the step (the authors' is plain SGD), and the projection
  follows it, outside its moments. Both kinds of data are computed in every step instead of once in
  a round: the samples are the same, as the global model does not change, and no memory is needed.
  The optional masking of the gradient, for privacy, is left out.
  """

  gamma: float = field(
    0.5, 'share of w where the gradient is taken (code 0.5, CIFAR-100 0.25)', low=0.0, high=1.0
  )
  iterations: int = field(10, 'ascent steps on an input (code 10)', low=0, high=10**6)
  eta_s: float = field(0.1, 'ascent step for pseudo data, normalised pixels (code 0.1)', low=0.0)
  eta_p: float = field(1e-3, 'ascent step for perturbed data (code 1e-3)', low=0.0)
  beta: float = field(0.5, 'share of w in the projection (code 0.5)', low=0.0, high=1.0)

  def requires(self):
    return frozenset({'one class', 'real values'})

  def conflicts(self):
    return {
      'fednova': "'fednova' counts gradients at the model of each step, and 'fedreg' takes them"
      ' elsewhere and projects after the step: use one of the two'
    }

  def inside_of(self):
    return {'private parameters': 'since its projection would move what stays on the client'}

  def grad(self, client, grad_fn, w, step):
    return grad_fn(mix(self.gamma, w, client.params), step)

  def step(self, client, old, new, grads, step):
    g2 = self._gradient(client, new, step, self.eta_s, soft=True)  # pseudo data
    g3 = self._gradient(client, new, step, self.eta_p, soft=False)  # perturbed data
    drift = jax.tree.map(jnp.subtract, new, client.params)
    a, b = coefficients(drift, g2, g3)
    return jax.tree.map(lambda w, g2, g3: w - a * g2 - b * g3, new, g2, g3)

  def client_metrics(self, client, trained):
    task, w_global = client.task, Variables(client.params, client.stats)
    x, y, mask = federated.first_rows(task.data, client.shard)
    step = Step(client.key, jnp.zeros((), jnp.int32), x, y, mask, client.stats)
    pseudo = ascend(task, w_global, step, self.eta_s, self.iterations)
    log_p, log_q = (
      jax.nn.log_softmax(task.model.apply(w, pseudo, train=False).logits)
      for w in (w_global, trained)
    )
    lost = optax.losses.kl_divergence_with_log_targets(log_q, log_p)
    return {'forgotten': jnp.sum(lost * mask) / jnp.maximum(mask.sum(), 1)}

  def _gradient(
    self, client: ClientContext, w: Params, step: Step, eta: Array, soft: bool
  ) -> Params:
    """Returns the gradient at beta w + (1 - beta) w_global on inputs moved by `ascend`."""
    task, w_global = client.task, Variables(client.params, client.stats)
    between = mix(self.beta, w, w_global.params)
    x = ascend(task, w_global, step, eta, self.iterations)
    target = jax.nn.softmax(task.model.apply(w_global, x, train=False).logits)

    def loss(params):
      model = Variables(params, step.stats)
      logits = task.model.apply(model, x, train=True, mask=step.mask).logits
      if not soft:
        return task.loss(logits, step.y, step.mask)
      losses = optax.softmax_cross_entropy(logits, target)
      return jnp.sum(losses * step.mask) / jnp.maximum(step.mask.sum(), 1)

    return jax.grad(loss)(between)


def ascend(task: Task, w_global: Variables, step: Step, eta: Array, iterations: int) -> Array:
  """Moves inputs by the sign of the gradient so that the global model's loss on their labels rises.

  Args:
    task: gives the network and the loss.
    w_global: the global model.
    step: the batch, x [batch, height, width, channels].
    eta: change of every pixel in a step, [].
    iterations: steps.

  Returns:
    The moved inputs, [batch, height, width, channels]; padding does not move. Pixels have no
    limits: the clamp in the authors' code has no effect.
  """

  def loss(x):
    return task.loss(task.model.apply(w_global, x, train=False).logits, step.y, step.mask)

  return jax.lax.fori_loop(
    0, iterations, lambda _, x: x + (eta * jnp.sign(jax.grad(loss)(x))).astype(x.dtype), step.x
  )


def coefficients(drift: Params, g2: Params, g3: Params) -> tuple[Array, Array]:
  """Projects the drift from the global model onto the gradients on pseudo and perturbed data.

  Args:
    drift: w - w_global.
    g2: gradient of the loss on pseudo data.
    g3: gradient of the loss on perturbed data.

  Returns:
    a = max(0, <drift, g2> / |g2|^2) and b = max(0, <drift - a g2, g3> / |g3|^2), both []; 0 for a
    zero gradient.
  """

  def share(v, g):
    square = optax.tree.vdot(g, g)
    along = optax.tree.vdot(v, g) / jnp.where(square > 0, square, 1)
    return jnp.where(square > 0, jnp.maximum(along, 0), 0)

  a = share(drift, g2)
  return a, share(jax.tree.map(lambda d, g: d - a * g, drift, g2), g3)


def mix(share: Array | float, w: Params, w_global: Params) -> Params:
  """Returns share w + (1 - share) w_global."""
  return jax.tree.map(lambda p, g: share * p + (1 - share) * g, w, w_global)
