"""FedDualMatch: clients match distributions, the server gradients (ICLR 2025 submission)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing import gradient_matching
from fedjax_syn.algorithms.set_sharing.base import SetSharing, blank, listed, perturb_weights, train
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

  radius: Array  # [], R_t; sent to the clients
  distance: Array  # [], mean gradient distance before the last matching step
  images: Array  # [], distilled images of the last round
  sets: ClassSet  # S, what its clients sent, leaves [cohort, ...]


class FedDualMatch(SetSharing):
  """Clients distil (Eq. 3), the server distils again (Eq. 4) and trains on both (Algorithm 1).

  Clients send their sets and keep nothing; the server sends R_t with the model. Clients draw their
  model within the radius of the round before (R_0 at first), since the server computes R_t from
  their sets. With plain gradient matching, absent classes of a client stay absent. R_t takes the
  model's rate (`radius_lr`): with the images' rate of 1.0, accuracy on held-out data was lower.
  With `restart` only the last of the M models changes the result, and only it is computed.
  docs/algorithms/feddualmatch.md gives the reason for each choice that the paper leaves open.

  Differential privacy (`clip`, `sigma_s`): the unit is one example, exchanged for another one of
  its class at the same client. Epsilon composes all rounds, whoever takes part, since the server
  sees who does. clipping='example' bounds each example's features (all layers together) by C and
  adds N(0, (sigma_s C)^2) to the sums of a class, once a round. All that is computed from the sums
  is protected: the set, R_t, the model. clipping='set' is the paper's: it clips the gradient of the
  whole set to C, so that one example changes it by 2 C at most, and adds N(0, (sigma_s C /
  images)^2) in every iteration, which needs far more noise for the same epsilon. The stated epsilon
  is that of the client with the most images. Not protected: which classes a client has, its samples
  of each ('example' divides by them), who takes part, and what is logged for the experimenter. R_t
  follows from the sets: noise on it (`sigma_r`) adds no protection to noised sets, and none to
  clear ones, which the server has. (The paper says that R_t does not depend on the clients' data;
  it does.)
  """

  init: str = field(
    'noise', "images start as 'noise' (paper) or 'real' ones", choices=('noise', 'real')
  )
  iterations: int = field(200, 'local matching iterations (paper 200)', low=1, high=10**7)
  per_stage: bool = field(True, 'iterations of each stage (Algorithm 1), not of all')
  lr: float = field(1.0, 'rate of the images, SGD (paper 1.0)', above=0.0)
  momentum: float = field(0.5, 'momentum of the images (as in FedDM)', low=0.0, high=1.0)
  layers: str = field(
    'pooled', "'pooled' (J = 3) or 'pooled+logits' (the text's last layer)", choices=dm.LAYERS[:2]
  )
  alignment: str = field(
    'backward',
    "'backward': stages p = J..1 with the layers q >= p; 'all' at once; 'last' alone",
    choices=('backward', 'all', 'last'),
  )
  squared: bool = field(True, 'squared norms (paper: not squared, less accurate)')
  real_batch: int = field(
    0, 'real samples per class and iteration (paper 256); 0: all, once a round', low=0, high=10**6
  )
  resample: bool = field(
    False, 'w^k is drawn in every iteration (Algorithm 1: once); affordable with real_batch'
  )
  radius: float = field(5.0, 'R_0, of the first round (paper 5)', low=0.0)
  radius_lr: float = field(1e-3, 'rate of the gradient step in R_t (paper silent)', low=0.0)
  matches: int = field(
    10, 'M, models at which gradients are matched (paper 10); 0: no matching', low=0, high=10**5
  )
  match_steps: int = field(10, 'matching steps at each model (paper 10)', low=1, high=10**6)
  match_lr: float = field(0.1, 'matching rate (paper 0.1)', above=0.0)
  restart: bool = field(True, "S' starts at S for every model (Algorithm 1)")
  alternate: bool = field(False, 'fine-tune after every match (text), not once (Algorithm 1)')
  server_steps: int = field(500, 'T_g, fine-tuning steps (paper 500)', low=1, high=10**7)
  server_batch: int = field(256, 'images in a fine-tuning step (paper 256)', low=1, high=10**6)
  server_lr: float = field(1e-3, 'fine-tuning rate (paper 0.001)', above=0.0)
  server_optimizer: str = field(
    'adam', 'optimizer of fine-tuning (paper silent)', choices=OPTIMIZERS
  )

  # Clients, LDM: sets that match the class means of the data's features, layer by layer.

  def client_update(self, client):
    data, shard = client.task.data, client.shard
    present = self._present(shard.class_counts)
    embed = self._embedding(client, fold(client.key, 0))  # h of w^k
    goal = None if self.real_batch else self._means(client, embed)
    if goal is not None and self._noises_examples:
      goal = dm.noised_means(fold(client.key, 0, 2), goal, shard.class_counts, self._noise)
    iterations = self._iterations(client.task)
    positions = dm.by_class(data, shard) if self.real_batch else None
    losses = functools.partial(self._losses, client, embed, goal, positions)
    noised = None
    if self.clip and self.clipping == 'set':  # lines 13-16
      noised = lambda g, i: dm.privatise(fold(client.key, i, 2), g, present, self._noise)
    start = blank(self._first(client), present)
    rates = {'lr': self.lr, 'momentum': self.momentum}
    own = dm.descend(losses, start, iterations, **rates, noise=noised)
    message, numbers = self._message(own, losses, iterations)
    return message, None, numbers

  def _first(self, client: ClientContext) -> Array:
    """Returns the initial images, [classes, images, height, width, channels]."""
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
    w = Variables(perturb_weights(key, client.params, client.broadcast), client.stats)
    embed = lambda x: dm.layers(client.task.model, w, x, self.layers)
    return dm.bounded(embed, self._noise.clip) if self._noises_examples else embed

  def _means(self, client: ClientContext, embed: Embedding) -> dm.Layers:
    """Returns the class means of all of a client's samples, [classes, ...] per layer."""
    return dm.class_means(client.task.data, client.shard, embed, client.task.backend)

  def _losses(
    self,
    client: ClientContext,
    embed: Embedding,
    goal: dm.Layers | None,
    positions: tuple[Array, Array] | None,
    i: Array,
  ) -> dm.ClassLoss:
    """Returns Eq. 3 for a class: its means' distances in the layers of the stage of i."""
    task, key = client.task, fold(client.key, i, 4)
    if self.resample:
      embed = self._embedding(client, fold(client.key, i, 1))
      goal = None
    means = self._means(client, embed) if goal is None and positions is None else goal

    def loss(x, c):
      if positions is not None:
        own = fold(key, c), task.data, client.shard, positions, c, self.real_batch
        real = dm.means(dm.draw(*own), embed, task.backend)
      else:
        real = tuple(z[c] for z in means)
      pairs = zip(real, embed(x), strict=True)
      distances = [dm.distance(a, b.mean(0), self.squared) for a, b in pairs]
      stages, total = self._stages(len(distances)), self._iterations(task)
      stage = stages[jnp.minimum(i * len(stages) // total, len(stages) - 1)]
      return jnp.dot(stage.astype(distances[0].dtype), jnp.stack(distances))

    return loss

  def _present(self, class_counts):
    return class_counts > 0

  @property
  def _noises_examples(self) -> bool:
    return bool(self.clip) and self.clipping == 'example'

  @property
  def _noise(self) -> dm.Noise:
    clip = jnp.asarray(self.clip, jnp.result_type(float))
    # XLA replaces division by a constant by a product, whose last digit may differ.
    return dm.Noise(jax.lax.optimization_barrier(clip), self.sigma_s)

  def _stages(self, layers: int) -> Array:
    """Returns which layers count in each stage, [stages, layers]."""
    if self.alignment == 'backward':
      return dm.backward_stages(layers)
    return jnp.ones((1, layers)) * (jnp.arange(layers) >= (layers - 1) * (self.alignment == 'last'))

  def _iterations(self, task: Task) -> int:
    """Returns the iterations of all stages."""
    outputs = task.shapes_of(lambda w, x: dm.layers(task.model, w, x, self.layers))
    stages = len(self._stages(len(outputs)))
    return self.iterations * (stages if self.per_stage else 1)

  # Server, GGM: sets S' whose gradient matches the union's at models around w_{t-1}; training on S
  # and S'.

  def server_init(self, task, key, params, messages):
    radius = jnp.asarray(self.radius, jnp.result_type(float))
    return Server(radius, jnp.zeros(()), jnp.zeros(()), self._none_yet(task))

  def broadcast(self, state):
    return state.radius

  def server_update(self, round, new):
    sets = self._received(round.messages.payload)  # S
    radius = self._radius(round, sets)  # line 4
    # Where every match starts at S, only the last model changes the result.
    models = jnp.arange(self.matches)[-1 if self.restart and not self.alternate else 0 :]
    match = functools.partial(self._match, round, sets, radius)
    (w, matched), distances = jax.lax.scan(match, (round.params, sets), models)
    if not self.alternate or not self.matches:
      w = self._tune(round, w, sets, matched, fold(round.key, 0, 2), self.server_steps)
    last = distances[-1] if self.matches else jnp.zeros(())
    images = sets.present.sum() * float(self.images_per_class)
    return w, Server(radius.astype(round.state.radius.dtype), last, images, sets)

  def _radius(self, round: Round, sets: ClassSet) -> Array:
    """Returns R_t (line 4) with noise; that of the round before where nobody sent an image."""
    task, where = round.task, (round.params, round.stats)
    radius = gradient_matching.radius(task.model, *where, sets, self.radius_lr, task.mesh)
    radius += self.sigma_r * jax.random.normal(fold(round.key, 0))
    return jnp.where(sets.present.any(), jnp.maximum(radius, 0.0), round.state.radius)

  def _match(
    self, round: Round, sets: ClassSet, radius: Array, carry: tuple[Params, ClassSet], m: Array
  ) -> tuple[tuple[Params, ClassSet], Array]:
    """Eq. 4 at the m-th model: returns the global model with S', and the mean gradient distance."""
    (w, matched), (model, stats) = carry, (round.task.model, round.stats)
    center = w if self.alternate else round.params
    w_g = perturb_weights(fold(round.key, m, 1), center, radius)
    start = sets if self.restart else matched
    rule = self.match_steps, self.match_lr, round.task.mesh
    matched, distances = gradient_matching.match_all(model, w_g, stats, sets, start, *rule)
    anyone = sets.present.any(axis=-1)
    distance = jnp.sum(distances * anyone) / jnp.maximum(anyone.sum(), 1)
    if self.alternate:
      steps = max(self.server_steps // self.matches, 1)
      w = self._tune(round, w, sets, matched, fold(round.key, m, 2), steps)
    return (w, matched), distance

  def _tune(
    self, round: Round, w: Params, sets: ClassSet, matched: ClassSet, key: PRNGKey, steps: int
  ) -> Params:
    """Trains the global model on S and S'."""
    union = [sets, matched] if self.matches else [sets]
    sizes = {'steps': steps, 'batch_size': self.server_batch}
    return train(key, round.task, w, round.stats, union, self._optimizer(), **sizes)

  def _optimizer(self) -> optax.GradientTransformation:
    """Returns the optimizer of the server."""
    return optimizer_by_name(self.server_optimizer)(self.server_lr)

  def server_metrics(self, state):
    return {
      'radius': state.radius,
      'distance': Measured(state.distance, jnp.asarray(self.matches > 0)),
      'images': state.images,
    }

  def artifacts(self, task, state):
    return listed(state.sets, self._iterations(task))

  # Differential privacy, off in the paper's main tables.

  clip: float = field(
    0.0,
    'C, bound on what `clipping` selects; 0: none',
    low=0.0,
    static=True,  # whether there is one decides what is computed
  )
  clipping: str = field(
    'example',
    "'example': an example's features; 'set' (paper): the gradient of the set in each iteration",
    choices=('example', 'set'),
  )
  sigma_s: float = field(
    0.0, "noise: of C on a class's sum ('example'), of C / images on the gradient ('set')", low=0.0
  )
  sigma_r: float = field(0.0, 'noise on R_t; it changes no epsilon', low=0.0)
  target_epsilon: float = field(0.0, 'epsilon for which sigma_s is chosen; 0: none', low=0.0)
  delta: float = field(1e-5, 'delta, at which epsilon is stated', above=0.0, high=0.5)

  def check(self):
    if self.target_epsilon and not self._noises_examples:
      raise ValueError(
        f'feddualmatch.target_epsilon={self.target_epsilon}: needs feddualmatch.clip above 0 and'
        " feddualmatch.clipping=example; that of 'set' depends on the clients' classes and is only"
        ' reported'
      )
    if self.sigma_s and not self.clip:
      raise ValueError(
        f'feddualmatch.sigma_s={self.sigma_s} needs a bound: set feddualmatch.clip above 0'
      )
    privacy.check_deviation('feddualmatch.clip', self.sigma_s, self.clip)
    if self.init == 'real' and self.clip:
      raise ValueError(
        "feddualmatch.init='real' with feddualmatch.clip: images that begin as real ones are not"
        " private; use 'noise'"
      )
    if self.real_batch and self._noises_examples:
      raise ValueError(
        f"feddualmatch.real_batch={self.real_batch} with clip and clipping='example': the noised"
        ' means are those of all samples, once a round; use 0'
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
