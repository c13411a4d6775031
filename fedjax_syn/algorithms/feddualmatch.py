"""FedDualMatch: layer-wise distribution matching on the clients, gradient matching on the server (ICLR 2025 submission)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn import privacy
from fedjax_syn.algorithms import _sets
from fedjax_syn.client.optimizers import OPTIMIZERS
from fedjax_syn.client.optimizers import optimizer as optimizer_by_name
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import Method, ServerTransform, Task
from fedjax_syn.server import sets as sets_lib
from fedjax_syn.synthesis import ball, gradient
from fedjax_syn.synthesis import distribution as dm
from fedjax_syn.synthesis.class_sets import ClassSet
from fedjax_syn.typing import Array, Measured, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  images_per_class: int = field(
    10, 'distilled images of each class of a client (paper not stated)', low=1, high=10**5
  )
  init: str = field(
    'noise', "images begin as 'noise' (paper) or as 'real' ones", choices=('noise', 'real')
  )
  iterations: int = field(200, 'local matching iterations (paper 200)', low=1, high=10**7)
  per_stage: bool = field(
    True, 'iterations count for each layer stage (Algorithm 1 loops so), not for all'
  )
  lr: float = field(1.0, 'rate of the images, SGD (paper 1.0)', above=0.0)
  momentum: float = field(0.5, 'of the images (not stated; as in FedDM)', low=0.0, high=1.0)
  layers: str = field(
    'pooled',
    "embedding: 'pooled' (J = 3) or 'pooled+logits' (the text's last layer)",
    choices=('pooled', 'pooled+logits'),
  )
  alignment: str = field(
    'backward',
    "'backward': stages p = J..1 with the layers q >= p; 'all' at once; 'last' alone",
    choices=('backward', 'all', 'last'),
  )
  squared: bool = field(
    True, 'squared norms (paper not; the images move further, accuracy is higher)'
  )
  resample: bool = field(
    False, 'w^k is drawn anew in every iteration (Algorithm 1: once, real means are constants)'
  )
  radius: float = field(5.0, 'R_0, of the first round (paper 5)', low=0.0)
  radius_lr: float = field(
    1e-3,
    "step that R_t is measured with (paper: 'one gradient step', not of which rate): the model's; the images' 1.0 was"
    ' worse on held-out data',
    low=0.0,
  )
  matches: int = field(
    10,
    'M, models that the server matches gradients at (paper 10), each anew: with `restart` the last alone counts and is'
    ' computed; 0: no gradient matching',
    low=0,
    high=10**5,
  )
  match_steps: int = field(10, 'steps at each (paper 10)', low=1, high=10**6)
  match_lr: float = field(0.1, 'their rate (paper 0.1)', above=0.0)
  restart: bool = field(
    True, "S' begins at S for every model (Algorithm 1), and does not accumulate"
  )
  alternate: bool = field(
    False, 'fine-tune after every one of the M matches (text), not once (Algorithm 1)'
  )
  server_steps: int = field(500, 'T_g, fine-tuning steps in a round (paper 500)', low=1, high=10**7)
  server_batch: int = field(256, 'images in a step (paper 256)', low=1, high=10**6)
  server_lr: float = field(1e-3, 'fine-tuning rate (paper 0.001)', above=0.0)
  server_optimizer: str = field(
    'adam', 'not stated; SGD of this rate hardly moves', choices=OPTIMIZERS
  )
  clip: float = field(
    0.0, 'C, bound on what `clipping` names; 0: none (paper: not stated)', low=0.0
  )
  clipping: str = field(
    'example',
    "'example': each example's features, whose class means are noised once a round; 'set': the gradient of the whole"
    ' set in every iteration (paper), which takes far more noise for the same epsilon',
    choices=('example', 'set'),
  )
  sigma_s: float = field(
    0.0,
    "noise (paper 0): of C on a class's sum of features ('example'), of C / images on the gradient ('set')",
    low=0.0,
  )
  sigma_r: float = field(0.0, 'noise on R_t (paper 0); it changes no epsilon', low=0.0)
  target_epsilon: float = field(
    0.0, "choose sigma_s for this epsilon, with clipping='example'; 0: do not", low=0.0
  )
  delta: float = field(1e-5, 'delta, at which epsilon is stated', above=0.0, high=0.5)


def resolve(block: Config, config: Any) -> Config:
  """Returns the block with the noise that its target epsilon needs, if it has one.

  Args:
    block: the fields.
    config: the whole checked config: its rounds and seeds decide.

  Raises:
    ValueError: if there is nothing to be noised, no noise is enough, or dp-accounting is not installed.
  """
  if not block.target_epsilon:
    return block
  if not block.clip or block.clipping != 'example':
    raise ValueError(
      f'feddualmatch.target_epsilon={block.target_epsilon}: needs feddualmatch.clip above 0 and'
      " feddualmatch.clipping=example; that of 'set' depends on the clients' classes and is only reported"
    )
  sampling = privacy.sampling_of(config)
  sigma = privacy.noise_multiplier(block.target_epsilon, block.delta, sampling, 'example')
  return dataclasses.replace(block, sigma_s=sigma)


def check(block: Config, rounds: int) -> None:
  """Refuses settings that cannot work together, with one line.

  Raises:
    ValueError: naming the key, the value and what would work.
  """
  if block.sigma_s and not block.clip:
    raise ValueError(
      f'feddualmatch.sigma_s={block.sigma_s} needs a bound: set feddualmatch.clip above 0'
    )
  privacy.check_deviation('feddualmatch.clip', block.sigma_s, block.clip)
  if block.init == 'real' and block.clip:
    raise ValueError(
      "feddualmatch.init='real' with feddualmatch.clip: images that begin as real ones are not private; use 'noise'"
    )
  if block.resample and block.sigma_s:
    raise ValueError(
      'feddualmatch.resample=True with sigma_s: draw w^k once for differential privacy'
    )


class Server(NamedTuple):
  """The server's state."""

  radius: Array  # [], R_t; goes down to the clients
  distance: Array  # [], mean gradient distance before the last matching step
  images: Array  # [], distilled images of the last round
  sets: ClassSet  # S, what its clients sent, leaves [slots, ...]


def feddualmatch(base: Method | None = None, **fields) -> Method:
  """Clients distil (LDM, Eq. 3), the server re-distils (GGM, Eq. 4) and trains on both unions (Algorithm 1).

  Differential privacy (`clip`, `sigma_s`): the unit is one example, exchanged for another one of its class at the
  same client; epsilon composes all rounds, whoever takes part, since the server sees who does. 'example' bounds each
  example's features (all layers together) by C and adds N(0, (sigma_s C)^2) to the sums of a class: one release a
  round, and what is made of it is protected: the set, R_t, the model. 'set' is the paper's: the gradient of the whole
  set is cut to C, so that one example may move it by 2 C, and N(0, (sigma_s C / images)^2) is added in every one of
  the iterations. The stated epsilon is that of the client with the most images. Not protected: which classes a client
  has, how many samples of each ('example' divides by them), who takes part, and what is logged for the experimenter.
  R_t is computed from the sets: noise on it (`sigma_r`) adds no protection to noised sets, and to clear ones none
  either, as the server has them. (The paper calls R_t independent of the clients' data; it is not.)

  Args:
    base: must be None or plain FedAvg, whose participation it shares; nothing is trained locally.
    **fields: see `Config`: what the paper leaves open, with the reason for each default.

  Returns:
    The method. Clients draw their model within the radius of the round before (R_0 at first): the server
    knows R_t only when it has their sets. With plain gradient matching absent classes of a client stay absent.

  Raises:
    TypeError: if a field does not exist.
    ValueError: if the fields do not go together, or it is put around another method.
  """
  c = Config(**fields)
  check(c, 1)

  def stages_of(count):
    return {
      'backward': dm.backward_stages(count),
      'all': jnp.ones((1, count)),
      'last': jnp.ones((1, 1)) * (jnp.arange(count) == count - 1)[None],
    }[c.alignment]

  def iterations_of(stages):
    return c.iterations * (len(stages) if c.per_stage else 1)

  def iterations_in(task):  # of a set, from first to last stage
    variables = jax.eval_shape(task.model.init, jax.random.key(0))
    one = jax.ShapeDtypeStruct((1, *task.data.x.shape[1:]), task.data.mean.dtype)
    found = jax.eval_shape(lambda w, x: dm.layers(task.model, w, x, c.layers), variables, one)
    return iterations_of(stages_of(len(found)))

  def client(task):
    shape = task.data.x.shape[1:]
    h = task.hyper['feddualmatch']

    def first(visit):
      if c.init == 'noise':
        return jax.random.normal(
          fold(visit.key, 0, 3), (task.num_classes, c.images_per_class, *shape)
        )
      positions = dm.by_class(task.data, visit.shard)
      one = lambda cls: dm.draw(
        fold(visit.key, cls, 3), task.data, visit.shard, positions, cls, c.images_per_class
      )
      return jax.vmap(one)(jnp.arange(task.num_classes, dtype=jnp.int32))

    def distil(visit):
      counts, data = visit.shard.class_counts, task.data
      present = counts > 0
      mechanism = dm.Noise(h['clip'], h['sigma_s'])

      def embedding(key):
        w = ball.sample(key, visit.params, visit.broadcast['feddualmatch'])
        embed = lambda x: dm.layers(task.model, Variables(w, visit.stats), x, c.layers)
        return dm.bounded(embed, h['clip']) if c.clip and c.clipping == 'example' else embed

      embed = embedding(fold(visit.key, 0))
      goal = dm.class_means(data, visit.shard, embed)
      if c.clip and c.clipping == 'example':
        goal = dm.noised_means(fold(visit.key, 0, 2), goal, counts, mechanism)
      stages = stages_of(len(goal))
      steps = iterations_of(stages)

      def loss(x, cls, i):
        weights = stages[jnp.minimum(i * len(stages) // steps, len(stages) - 1)]
        here, there = embed, goal
        if c.resample:
          here = embedding(fold(visit.key, i, 1))
          there = dm.class_means(data, visit.shard, here)
        apart = [
          dm.distance(a[cls], b.mean(0), c.squared) for a, b in zip(there, here(x), strict=True)
        ]
        return jnp.dot(weights.astype(apart[0].dtype), jnp.stack(apart))

      noise = None
      if c.clip and c.clipping == 'set':
        noise = lambda grads, i: dm.privatise(fold(visit.key, i, 2), grads, present, mechanism)
      start = _sets.blank(first(visit), present)
      own = dm.descend(loss, start, steps, lr=h['lr'], momentum=c.momentum, noise=noise)
      return own, loss, steps

    return _sets.client('feddualmatch', task, distil, c.images_per_class, 1)

  def server(task):
    h = task.hyper['feddualmatch']

    def update(key, round, state, before, new, messages):
      sets = sets_lib.received(messages.body['feddualmatch'])
      center, stats = before.params, before.stats  # w_{t-1}
      radius = gradient.radius(task.model, center, stats, sets, h['radius_lr'])
      radius += h['sigma_r'] * jax.random.normal(fold(key, 0))
      radius = jnp.where(sets.present.any(), jnp.maximum(radius, 0.0), state.radius)
      optimizer = optimizer_by_name(c.server_optimizer)(h['server_lr'])

      def tune(w, matched, key, steps):
        union = [sets, matched] if c.matches else [sets]
        return sets_lib.train(
          key, task, w, stats, union, optimizer, steps=steps, batch_size=c.server_batch
        )

      def match(carry, m):
        w, matched = carry
        w_g = ball.sample(fold(key, m, 1), w if c.alternate else center, radius)
        target = gradient.union_gradient(task.model, w_g, stats, sets)
        one = lambda own: gradient.match(
          task.model, w_g, stats, own, target, c.match_steps, h['match_lr']
        )
        matched, distances = jax.lax.map(one, sets if c.restart else matched)
        anyone = sets.present.any(axis=-1)
        distance = jnp.sum(distances * anyone) / jnp.maximum(anyone.sum(), 1)
        if c.alternate:
          w = tune(w, matched, fold(key, m, 2), max(c.server_steps // c.matches, 1))
        return (w, matched), distance

      # Where every match begins anew and the last is kept, the models before it leave no trace.
      models = jnp.arange(c.matches)[-1 if c.restart and not c.alternate else 0 :]
      (w, matched), distances = jax.lax.scan(match, (center, sets), models)
      if not c.alternate or not c.matches:
        w = tune(w, matched, fold(key, 0, 2), c.server_steps)
      last = distances[-1] if c.matches else jnp.zeros(())
      images = sets.present.sum() * float(c.images_per_class)
      return w, Server(radius.astype(state.radius.dtype), last, images, sets)

    return ServerTransform(
      'feddualmatch',
      init=lambda key, params, enrolled: Server(
        jnp.asarray(c.radius, jnp.result_type(float)),
        jnp.zeros(()),
        jnp.zeros(()),
        _sets.none_yet(task, c.images_per_class),
      ),
      broadcast=lambda state: state.radius,
      update=update,
      synthetic=lambda state: _sets.learned(state.sets, iterations_in(task)),
      metrics=lambda state: {
        'radius': state.radius,
        'distance': Measured(state.distance, jnp.asarray(c.matches > 0)),
        'images': state.images,
      },
    )

  def mechanism(task: Task) -> privacy.Mechanism:
    if c.clipping == 'example':
      return privacy.Mechanism(c.sigma_s, c.delta, 'example', target_epsilon=c.target_epsilon)
    images = c.images_per_class * int((np.asarray(task.data.class_counts) > 0).sum(axis=1).max())
    return privacy.Mechanism(c.sigma_s / images, c.delta, 'example', iterations_in(task))

  rates = ('lr', 'radius_lr', 'match_lr', 'server_lr', 'clip', 'sigma_s', 'sigma_r')
  hyper = {name: getattr(c, name) for name in rates}
  made = _sets.method('feddualmatch', base, client, server, hyper)
  return made._replace(mechanism=mechanism if c.clip and c.sigma_s else None)
