"""FedDualMatch: layer-wise distribution matching on the clients, gradient matching on the server (ICLR 2025 submission)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing import gradient_matching, perturbation
from fedjax_syn.algorithms.set_sharing import server as sets_lib
from fedjax_syn.algorithms.set_sharing.base import SetSharing, blank, listed
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.core import privacy
from fedjax_syn.core.contexts import ClientContext, Round, Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import OPTIMIZERS
from fedjax_syn.core.optimizers import optimizer as optimizer_by_name
from fedjax_syn.core.types import Array, Measured, Params, PRNGKey, Variables

Embedding = Callable[[Array], dm.Layers]


class Server(NamedTuple):
  """The server's state."""

  radius: Array  # [], R_t; goes down to the clients
  distance: Array  # [], mean gradient distance before the last matching step
  images: Array  # [], distilled images of the last round
  sets: ClassSet  # S, what its clients sent, leaves [cohort, ...]


class FedDualMatch(SetSharing):
  """Clients distil (LDM, Eq. 3), the server distils again (GGM, Eq. 4) and trains on both unions (Algorithm 1).

  Clients send their sets and keep nothing; R_t goes down to them with the model. They draw their model within the
  radius of the round before (R_0 at first): the server knows R_t only when it has their sets. With plain gradient
  matching absent classes of a client stay absent. What the paper leaves open is a field, whose help says why.

  Differential privacy (`clip`, `sigma_s`): the unit is one example, exchanged for another one of its class at the same
  client; epsilon composes all rounds, whoever takes part, since the server sees who does. 'example' bounds each
  example's features (all layers together) by C and adds N(0, (sigma_s C)^2) to the sums of a class: one release a
  round, and what is computed from it is protected: the set, R_t, the model. 'set' is the paper's: the gradient of the
  whole set is cut to C, so that one example may move it by 2 C, and N(0, (sigma_s C / images)^2) is added in every one
  of the iterations. The stated epsilon is that of the client with the most images. Not protected: which classes a
  client has, how many samples of each ('example' divides by them), who takes part, and what is logged for the
  experimenter. R_t is computed from the sets: noise on it (`sigma_r`) adds no protection to noised sets, and to clear
  ones none either, as the server has them. (The paper calls R_t independent of the clients' data; it is not.)
  """

  images_per_class: int = field(
    default=10,
    help='distilled images of each class of a client (paper not stated)',
    low=1,
    high=10**5,
  )
  init: str = field(
    default='noise',
    help="images begin as 'noise' (paper) or as 'real' ones",
    choices=('noise', 'real'),
  )
  iterations: int = field(
    default=200, help='local matching iterations (paper 200)', low=1, high=10**7
  )
  per_stage: bool = field(
    default=True, help='iterations count for each layer stage (Algorithm 1 loops so), not for all'
  )
  lr: float = field(default=1.0, help='rate of the images, SGD (paper 1.0)', above=0.0)
  momentum: float = field(
    default=0.5, help='of the images (not stated; as in FedDM)', low=0.0, high=1.0
  )
  layers: str = field(
    default='pooled',
    help="embedding: 'pooled' (J = 3) or 'pooled+logits' (the text's last layer)",
    choices=('pooled', 'pooled+logits'),
  )
  alignment: str = field(
    default='backward',
    help="'backward': stages p = J..1 with the layers q >= p; 'all' at once; 'last' alone",
    choices=('backward', 'all', 'last'),
  )
  squared: bool = field(
    default=True, help='squared norms (paper not; the images move further, accuracy is higher)'
  )
  resample: bool = field(
    default=False,
    help='w^k is drawn anew in every iteration (Algorithm 1: once, real means are constants)',
  )
  radius: float = field(default=5.0, help='R_0, of the first round (paper 5)', low=0.0)
  radius_lr: float = field(
    default=1e-3,
    help="step that R_t is measured with (paper: 'one gradient step', not of which rate): the model's; the images' 1.0"
    ' was worse on held-out data',
    low=0.0,
  )
  matches: int = field(
    default=10,
    help='M, models that the server matches gradients at (paper 10), each anew: with `restart` the last alone counts'
    ' and is computed; 0: no gradient matching',
    low=0,
    high=10**5,
  )
  match_steps: int = field(default=10, help='steps at each (paper 10)', low=1, high=10**6)
  match_lr: float = field(default=0.1, help='their rate (paper 0.1)', above=0.0)
  restart: bool = field(
    default=True, help="S' begins at S for every model (Algorithm 1), and does not accumulate"
  )
  alternate: bool = field(
    default=False, help='fine-tune after every one of the M matches (text), not once (Algorithm 1)'
  )
  server_steps: int = field(
    default=500, help='T_g, fine-tuning steps in a round (paper 500)', low=1, high=10**7
  )
  server_batch: int = field(default=256, help='images in a step (paper 256)', low=1, high=10**6)
  server_lr: float = field(default=1e-3, help='fine-tuning rate (paper 0.001)', above=0.0)
  server_optimizer: str = field(
    default='adam', help='not stated; SGD of this rate hardly moves', choices=OPTIMIZERS
  )
  clip: float = field(
    default=0.0,
    help='C, bound on what `clipping` names; 0: none (paper: not stated)',
    low=0.0,
    static=True,  # whether there is one decides what is computed
  )
  clipping: str = field(
    default='example',
    help="'example': each example's features, whose class means are noised once a round; 'set': the gradient of the"
    ' whole set in every iteration (paper), which takes far more noise for the same epsilon',
    choices=('example', 'set'),
  )
  sigma_s: float = field(
    default=0.0,
    help="noise (paper 0): of C on a class's sum of features ('example'), of C / images on the gradient ('set')",
    low=0.0,
  )
  sigma_r: float = field(default=0.0, help='noise on R_t (paper 0); it changes no epsilon', low=0.0)
  target_epsilon: float = field(
    default=0.0,
    help="choose sigma_s for this epsilon, with clipping='example'; 0: do not",
    low=0.0,
  )
  delta: float = field(default=1e-5, help='delta, at which epsilon is stated', above=0.0, high=0.5)

  def check(self):
    if self.target_epsilon and not (self.clip and self.clipping == 'example'):
      raise ValueError(
        f'feddualmatch.target_epsilon={self.target_epsilon}: needs feddualmatch.clip above 0 and'
        " feddualmatch.clipping=example; that of 'set' depends on the clients' classes and is only reported"
      )
    if self.sigma_s and not self.clip:
      raise ValueError(
        f'feddualmatch.sigma_s={self.sigma_s} needs a bound: set feddualmatch.clip above 0'
      )
    privacy.check_deviation('feddualmatch.clip', self.sigma_s, self.clip)
    if self.init == 'real' and self.clip:
      raise ValueError(
        "feddualmatch.init='real' with feddualmatch.clip: images that begin as real ones are not private; use 'noise'"
      )
    if self.resample and self.sigma_s:
      raise ValueError(
        'feddualmatch.resample=True with sigma_s: draw w^k once for differential privacy'
      )

  def resolve(self, run):
    if not self.target_epsilon:
      return self
    self.check()
    methods = max(run.count(self.name), 1)
    wanted = self.target_epsilon, self.delta, run.sampling
    sigma = privacy.noise_multiplier(*wanted, unit='example', methods=methods)
    return dataclasses.replace(self, sigma_s=sigma)

  def privacy(self, task):
    if not (self.clip and self.sigma_s):
      return None
    if self.clipping == 'example':
      target = self.target_epsilon
      return privacy.Mechanism(self.sigma_s, self.delta, 'example', target_epsilon=target)
    if task is None:  # how many images a client has follows from its classes
      return privacy.Mechanism(self.sigma_s, self.delta, 'example', releases=0)
    classes = self._present(np.asarray(task.data.class_counts)).sum(axis=1)
    noise = self.sigma_s / (self.images_per_class * int(classes.max()))
    return privacy.Mechanism(noise, self.delta, 'example', self._iterations(task))

  # Clients, LDM: sets whose features have the class means of the data, layer by layer.

  def client_update(self, client):
    data, shard = client.task.data, client.shard
    present = self._present(shard.class_counts)
    embed = self._embedding(client, fold(client.key, 0))  # h of w^k
    goal = dm.class_means(data, shard, embed)
    if self.clip and self.clipping == 'example':
      goal = dm.noised_means(fold(client.key, 0, 2), goal, shard.class_counts, self._noise)
    iterations = self._iterations(client.task)
    loss = functools.partial(self._loss, client, embed, goal)
    noised = None
    if self.clip and self.clipping == 'set':  # lines 13-16
      noised = lambda g, i: dm.privatise(fold(client.key, i, 2), g, present, self._noise)
    start = blank(self._first(client), present)
    rates = {'lr': self.lr, 'momentum': self.momentum}
    own = dm.descend(loss, start, iterations, **rates, noise=noised)
    message, numbers = self._message(own, loss, iterations)
    return message, None, numbers

  def _first(self, client: ClientContext) -> Array:
    """Returns the images to begin with, [classes, images, height, width, channels]."""
    task, shard = client.task, client.shard
    if self.init == 'noise':
      shape = task.num_classes, self.images_per_class, *task.data.x.shape[1:]
      return jax.random.normal(fold(client.key, 0, 3), shape)
    positions = dm.by_class(task.data, shard)
    one = lambda c: dm.draw(
      fold(client.key, c, 3), task.data, shard, positions, c, self.images_per_class
    )
    return jax.vmap(one)(jnp.arange(task.num_classes, dtype=jnp.int32))

  def _embedding(self, client: ClientContext, key: PRNGKey) -> Embedding:
    """Draws w^k in B(w; R) and returns its layers as functions of images."""
    w = Variables(perturbation.sample(key, client.params, client.broadcast), client.stats)
    embed = lambda x: dm.layers(client.task.model, w, x, self.layers)
    return (
      dm.bounded(embed, self._noise.clip) if self.clip and self.clipping == 'example' else embed
    )

  def _loss(
    self, client: ClientContext, embed: Embedding, goal: dm.Layers, x: Array, c: Array, i: Array
  ) -> Array:
    """Eq. 3: the distances of a class's means, of the layers that belong to the stage of iteration i."""
    stages, total = self._stages(len(goal)), self._iterations(client.task)
    stage = stages[jnp.minimum(i * len(stages) // total, len(stages) - 1)]
    if self.resample:
      embed = self._embedding(client, fold(client.key, i, 1))
      goal = dm.class_means(client.task.data, client.shard, embed)
    apart = [
      dm.distance(a[c], b.mean(0), self.squared) for a, b in zip(goal, embed(x), strict=True)
    ]
    return jnp.dot(stage.astype(apart[0].dtype), jnp.stack(apart))

  def _present(self, class_counts):
    return class_counts > 0

  @property
  def _noise(self) -> dm.Noise:
    clip = jnp.asarray(self.clip, jnp.result_type(float))
    # As a constant, XLA would turn a division by it into a product, whose last digit may differ.
    return dm.Noise(jax.lax.optimization_barrier(clip), self.sigma_s)

  def _stages(self, layers: int) -> Array:
    """Returns which layers count in each stage, [stages, layers]."""
    if self.alignment == 'backward':
      return dm.backward_stages(layers)
    return jnp.ones((1, layers)) * (jnp.arange(layers) >= (layers - 1) * (self.alignment == 'last'))

  def _iterations(self, task: Task) -> int:
    """Returns the iterations by which a set is distilled, from the first to the last stage."""
    variables = jax.eval_shape(task.model.init, jax.random.key(0))
    one = jax.ShapeDtypeStruct((1, *task.data.x.shape[1:]), task.data.mean.dtype)
    embed = lambda w, x: dm.layers(task.model, w, x, self.layers)
    stages = len(self._stages(len(jax.eval_shape(embed, variables, one))))
    return self.iterations * (stages if self.per_stage else 1)

  # Server, GGM: sets S' whose gradient is the union's at models around w_{t-1}; it trains on S and S'.

  def server_init(self, task, key, params, messages):
    radius = jnp.asarray(self.radius, jnp.result_type(float))
    return Server(radius, jnp.zeros(()), jnp.zeros(()), self._none_yet(task))

  def broadcast(self, state):
    return state.radius

  def server_update(self, round, new):
    sets = self._received(round.messages.payload)  # S
    radius = self._radius(round, sets)  # line 4
    # Where every match begins anew and the last is kept, the models before it leave no trace.
    models = jnp.arange(self.matches)[-1 if self.restart and not self.alternate else 0 :]
    match = functools.partial(self._match, round, sets, radius)
    (w, matched), distances = jax.lax.scan(match, (round.params, sets), models)
    if not self.alternate or not self.matches:
      w = self._tune(round, w, sets, matched, fold(round.key, 0, 2), self.server_steps)
    last = distances[-1] if self.matches else jnp.zeros(())
    images = sets.present.sum() * float(self.images_per_class)
    return w, Server(radius.astype(round.state.radius.dtype), last, images, sets)

  def _radius(self, round: Round, sets: ClassSet) -> Array:
    """Returns R_t = max_k ||w^{S_k} - w^S||, with noise; the round before's where nobody sent an image."""
    radius = gradient_matching.radius(
      round.task.model, round.params, round.stats, sets, self.radius_lr
    )
    radius += self.sigma_r * jax.random.normal(fold(round.key, 0))
    return jnp.where(sets.present.any(), jnp.maximum(radius, 0.0), round.state.radius)

  def _match(
    self,
    round: Round,
    sets: ClassSet,
    radius: Array,
    carry: tuple[Params, ClassSet],
    m: Array,
  ) -> tuple[tuple[Params, ClassSet], Array]:
    """Eq. 4 at the m-th model: returns the global model with S', and the mean gradient distance."""
    (w, matched), (model, stats) = carry, (round.task.model, round.stats)
    center = w if self.alternate else round.params
    w_g = perturbation.sample(fold(round.key, m, 1), center, radius)
    target = gradient_matching.union_gradient(model, w_g, stats, sets)
    rule = target, self.match_steps, self.match_lr
    one = lambda own: gradient_matching.match(model, w_g, stats, own, *rule)
    matched, distances = jax.lax.map(one, sets if self.restart else matched)
    anyone = sets.present.any(axis=-1)
    distance = jnp.sum(distances * anyone) / jnp.maximum(anyone.sum(), 1)
    if self.alternate:
      steps = max(self.server_steps // self.matches, 1)
      w = self._tune(round, w, sets, matched, fold(round.key, m, 2), steps)
    return (w, matched), distance

  def _tune(
    self,
    round: Round,
    w: Params,
    sets: ClassSet,
    matched: ClassSet,
    key: PRNGKey,
    steps: int,
  ) -> Params:
    """Trains the global model on S and S'."""
    union = [sets, matched] if self.matches else [sets]
    sizes = {'steps': steps, 'batch_size': self.server_batch}
    return sets_lib.train(key, round.task, w, round.stats, union, self._server_optimizer(), **sizes)

  def server_metrics(self, state):
    return {
      'radius': state.radius,
      'distance': Measured(state.distance, jnp.asarray(self.matches > 0)),
      'images': state.images,
    }

  def artifacts(self, task, state):
    return listed(state.sets, self._iterations(task))

  def _server_optimizer(self):
    return optimizer_by_name(self.server_optimizer)(self.server_lr)
