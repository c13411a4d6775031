"""DynaFed: a data set distilled from the global model's trajectory refines every later round (Pi et al., CVPR 2023)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed import dynamics, finetuning, synthetic_set, trajectory
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core import microbatches
from fedjax_syn.core.chunks import Chunks
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.mesh import place, replicated
from fedjax_syn.core.microbatches import Microbatches
from fedjax_syn.core.optimizers import OPTIMIZERS
from fedjax_syn.core.programs import bounded
from fedjax_syn.core.types import Array, Measured, Model, Params, PRNGKey, PyTree, Stats, Variables
from fedjax_syn.data.augment import parse_strategy
from fedjax_syn.layer import Layer


class Synthesis(NamedTuple):
  """The server's state: trajectory, synthetic set and the state of its optimizers."""

  trajectory: Params  # w^0 ... w^L, leaves [L + 1, ...]
  syn: SyntheticSet
  opt_state: PyTree
  iteration: Array  # [], outer iterations done
  losses: Array  # [N], the distance d of every iteration
  snapshots: SyntheticSet  # after 0, ..., N iterations, evenly spaced, leaves [snapshots, ...]


class DynaFed(Layer):
  """Synthesises data on the server after round L and fine-tunes the global model on them in every later round.

  Rounds 1..L run the layers before this one; the server records w^0..w^L, where w^c is the model after round c.
  (Algorithm 2 names a model after the round that sends it: its w^c is w^{c-1} here.) After round L, N iterations of
  Algorithm 1 learn D_syn = (X, y). From round L + 1 on, the aggregated model is fine-tuned on D_syn before it is sent.

  Eqs. 3 and 4 in this file: w~ is w^t after s' steps of size alpha on D_syn. The target w* is w^{t+s}, or by default
  the mean of drawn checkpoints (Section 6). d(w~, w*) is the squared distance divided by ||w^t - w*||^2 (code; the
  paper leaves d open). alpha is learned with X and y (code). The fields say where each default comes from.
  """

  length: int = field(
    default=20, help='L, rounds before synthesis (paper 20, code 24)', low=1, high=10**5
  )
  segment: int = field(
    default=5, help='s, rounds from w^t to w^{t+s} (paper 5, code 3)', low=1, high=10**5
  )
  inner_steps: int = field(
    default=20, help="s', steps on the set (paper silent, code 20)", low=1, high=10**5
  )
  iterations: int = field(
    default=1000, help='N, outer iterations (paper 1000, code 3000)', low=1, high=10**7
  )
  images_per_class: int = field(
    default=15, help='synthetic images (code 15; paper 150 in all)', low=1, high=10**5
  )
  include_initial: bool = field(
    default=True,
    help='w^0 belongs to the trajectory (paper: yes in Section 4.1, no in Eq. 3; code yes)',
  )
  targets: int = field(
    default=2,
    help='checkpoints drawn from w^{t+1}..w^{t+s}, whose mean is w* (paper 2, code 2 or 3); 0: w* is w^{t+s}',
    low=0,
    high=10_000,
  )
  distance: str = field(
    default='squared',
    help="d(w~, w*): 'squared', divided by ||w^t - w*||^2 (code), or 'cosine'",
    choices=('squared', 'cosine'),
  )
  inner_batch: int = field(default=0, help='images per inner step; 0: all', low=0, high=10**9)
  inner_lr: float = field(default=0.04, help='initial alpha (paper 1e-5, code 0.04)', above=0.0)
  inner_lr_lr: float = field(
    default=1e-2, help='Adam rate of log alpha (code 1e-5 on alpha, which moves nothing)', low=0.0
  )
  image_lr: float = field(
    default=5e-2, help='Adam rate of the images (paper and code 5e-2)', low=0.0
  )
  label_lr: float = field(
    default=5e-2, help='Adam rate of the label logits (paper 5e-2, code 1e-2)', low=0.0
  )
  augment: str = field(
    default='',
    help="DSA operations of the inner loop, 'colour_crop_cutout_flip_scale_rotate'; '': none",
  )
  segments: int = field(
    default=1, help='segments matched at once in an iteration', low=1, high=1000
  )
  adjoint: str = field(
    default='jvp',
    help="backward pass of the unroll; 'stored' is faster and keeps all activations",
    choices=tuple(trajectory.ADJOINTS),
  )
  together: int = field(
    default=1,
    help='inner steps per iteration of the compiled loop: small networks run faster, compile slower',
    low=1,
    high=1000,
  )
  pieces: int = field(
    default=0,
    help='pieces into which an inner step divides the images, shared by the devices; 1: all at once, on one device;'
    ' 0: the fastest',
    low=0,
    high=10**5,
  )
  finetune_steps: int = field(
    default=20, help='fine-tuning steps in every round after L (code 20)', low=0, high=10**7
  )
  finetune_lr: float = field(default=1e-4, help='fine-tuning rate (code 1e-4)', above=0.0)
  finetune_optimizer: str = field(default='adam', help='fresh in every round', choices=OPTIMIZERS)
  finetune_batch: int = field(
    default=0, help='images per fine-tuning step; 0: all (code 256)', low=0, high=10**9
  )
  finetune_augment: str = field(default='', help="DSA operations of fine-tuning; '': none")

  def check(self):
    checkpoints = self.length + self.include_initial
    if checkpoints < self.segment + 1:
      raise ValueError(
        f'dynafed.segment={self.segment} needs {self.segment + 1} checkpoints, but dynafed.length={self.length} '
        f'gives {checkpoints}; try --config.dynafed.segment={max(checkpoints - 1, 1)}, or raise length'
      )
    for key in ('augment', 'finetune_augment'):
      try:
        parse_strategy(getattr(self, key))
      except ValueError as error:
        raise ValueError(f'dynafed.{key}: {error}') from error

  def resolve(self, run):
    if self.length >= run.rounds:
      raise ValueError(
        f'dynafed.length={self.length} must be smaller than rounds={run.rounds}: no round would be fine-tuned;'
        f' try --config.dynafed.length={max(run.rounds // 2, 1)}'
      )
    return self

  def phases(self):
    return (self.length,)  # task.first_round <= L in rounds 1..L only

  def requires(self):
    return frozenset({'one class', 'pixels', 'full history'})

  def server_init(self, task, key, params, messages):
    self._microbatches(task)  # raises ValueError before round 1 if `pieces` does not fit
    images, shape = self.images_per_class * task.num_classes, task.data.x.shape[1:]
    # Algorithm 1, line 1
    syn = synthetic_set.noise(key, images, shape, task.num_classes, self.inner_lr)
    snapshots = synthetic_set.snapshot_count(images, shape)
    initial = lambda w: jnp.zeros((self.length + 1, *w.shape), w.dtype).at[0].set(w)
    return Synthesis(
      trajectory=jax.tree.map(initial, params),
      syn=syn,
      opt_state=self._optimizer().init(syn),
      iteration=jnp.zeros((), jnp.int32),
      losses=jnp.zeros(self.iterations),
      snapshots=jax.tree.map(lambda leaf: jnp.stack([leaf] * snapshots), syn),
    )

  def server_update(self, round, new):
    model, state = round.task.model, round.state
    if round.task.first_round <= self.length:  # Algorithm 2, line 14
      # Round c records w^{c-1}, which it sent: layers after this one may still change `new`, its w^c.
      return new, _record(state, round.round - 1, round.params)
    # Algorithm 2, lines 11 and 12
    return finetune(self, model, Variables(new, round.stats), state.syn, round.key)[0], state

  def pending(self, state, round):  # Algorithm 2, line 8
    return round == self.length and int(state.iteration) < self.iterations

  def server_work(self, task, key, state, w, seconds):  # Algorithm 2, line 9: DataSyn
    if int(state.iteration) == 0:
      state = _record(state, self.length, w.params)  # w^L
      # d divides by ||w^t - w*||^2, which must not be 0.
      move = float(_smallest_move(state.trajectory, self._first_t, self.length, self.segment))
      if not 0 < move < np.inf:
        reason = f'the trajectory stands still or is not finite (smallest squared move {move}): nothing to match'
        return w.params, state, self._diverged(reason)
    batches, stats = self._microbatches(task), w.stats
    if batches.mesh:
      key, state, stats = place((key, state, stats), replicated(batches.mesh))
    chunks, ok = Chunks(seconds), True
    while ok and (count := chunks.next(self.iterations - int(state.iteration))):
      state, ok = _chunk(self, task.model, batches, key, state, stats, jnp.int32(count))
      ok = bool(ok)
    done = int(state.iteration)
    report = {
      'synthesis/iteration': done,
      'synthesis/iterations': self.iterations,
      'synthesis/loss': float(state.losses[max(done - 1, 0)]),
      'synthesis/step_size': float(jnp.exp(state.syn.log_step)),
    }
    if not ok:
      report |= self._diverged(f'synthesis diverged in iteration {done}')
    return w.params, state, report

  def _iterate(
    self, model: Model, batches: Microbatches, key: PRNGKey, state: Synthesis, stats: Stats
  ) -> Synthesis:
    """Takes one outer iteration n: Algorithm 1, lines 3 to 6."""
    key = fold(key, state.iteration)
    loss = trajectory.inner_loss(model, stats, trajectory.augmentation(self.augment), *batches)

    def distance(syn, j):  # Eq. 3 for one segment
      path = state.trajectory, self._first_t, self.length, self.segment, self.targets
      w_t, w_star = trajectory.draw_segment(fold(key, j, 0), *path)  # line 3: t ~ U, w^t and w*
      # Line 4, Eq. 4: w~ by s' steps w <- w - alpha grad L(w; X, y) from w^t.
      options = {'batch_size': self.inner_batch, 'adjoint': self.adjoint, 'together': self.together}
      w_end = trajectory.unroll(loss, w_t, syn, fold(key, j, 1), self.inner_steps, **options)
      # Line 5: d(w~, w*); for 'squared' ||w~ - w*||^2 / ||w^t - w*||^2.
      return trajectory.DISTANCES[self.distance](w_end, w_star, w_t)

    def mean_distance(syn):
      if self.segments == 1:
        return distance(syn, 0)
      return jax.vmap(distance, (None, 0))(syn, jnp.arange(self.segments)).mean()

    value, grads = jax.value_and_grad(mean_distance)(state.syn)  # line 5, for X, y and log alpha
    updates, opt_state = self._optimizer().update(grads, state.opt_state, state.syn)
    syn = optax.apply_updates(state.syn, updates)  # line 6, by Adam (Appendix B)
    done = state.iteration + 1
    return state._replace(
      syn=syn,
      opt_state=opt_state,
      iteration=done,
      losses=state.losses.at[state.iteration].set(value),
      snapshots=synthetic_set.keep(state.snapshots, syn, done, self.iterations),
    )

  def _optimizer(self) -> optax.GradientTransformation:
    rates = {'x': self.image_lr, 'y': self.label_lr, 'step': self.inner_lr_lr}
    adams = {name: optax.adam(rate) for name, rate in rates.items()}
    return optax.partition(adams, SyntheticSet('x', 'y', 'step'))

  def artifacts(self, task, state):
    done = int(state.iteration)
    if done < self.iterations:
      return None
    out = synthetic_set.to_numpy(state.snapshots)
    return out | {
      'iterations': synthetic_set.snapshot_iterations(len(out['x']), done),
      'step_size': float(out['step_size'][-1]),
      'losses': np.asarray(state.losses),
    }

  def evaluate(self, task, key, state, stats):  # the paper's Figure 6, left
    if int(state.iteration) < self.iterations:
      return {}
    others = dynamics.drawn_sets(key, task.data, state.syn, task.num_classes)
    if task.noised:  # no epsilon covers real images
      del others['real']
    return dynamics.dynamics(
      fold(key, 0, 2),
      task.model,
      stats,
      state.trajectory,
      {'synthetic': state.syn, **others},
      first=self._first_t,
      length=self.length,
      segment=self.segment,
      targets=self.targets,
      steps=self.inner_steps,
    )

  def server_metrics(self, state):
    loss = Measured(state.losses[state.iteration - 1], state.iteration > 0)
    return {'iterations': state.iteration, 'loss': loss}

  @property
  def _first_t(self) -> int:
    """The smallest t of a segment."""
    return 0 if self.include_initial else 1

  def _microbatches(self, task: Task) -> Microbatches:
    """Says how an inner step divides its images; raises ValueError where the field `pieces` does not fit."""
    images = self.images_per_class * task.num_classes
    step_images = min(self.inner_batch or images, images)
    return microbatches.synthetic_microbatches(
      self.pieces, step_images, task.model, task.mesh, 'dynafed.pieces'
    )

  def _diverged(self, reason: str) -> dict[str, Any]:
    return {'diverged_round': self.length, 'diverged_client': -1, 'reason': reason}


def _record(state: Synthesis, number: Array | int, w: Params) -> Synthesis:
  """Writes w^number into the trajectory."""
  put = lambda path, leaf: path.at[number].set(leaf)
  return state._replace(trajectory=jax.tree.map(put, state.trajectory, w))


_smallest_move = jax.jit(trajectory.smallest_move, static_argnums=(1, 2, 3))


@bounded
@functools.partial(jax.jit, static_argnums=(1, 2))
def _chunk(
  layer: DynaFed,
  model: Model,
  batches: Microbatches,
  key: PRNGKey,
  state: Synthesis,
  stats: Stats,
  count: Array,
) -> tuple[Synthesis, Array]:
  """Takes `count` iterations, or fewer if they diverge; returns the state, and whether it is finite."""

  def go(carry):
    i, _, ok = carry
    return (i < count) & ok

  def body(carry):
    i, state, _ = carry
    new = layer._iterate(model, batches, key, state, stats)
    finite = jnp.isfinite(new.losses[state.iteration]) & jnp.isfinite(new.syn.log_step)
    return i + 1, new, finite

  _, state, ok = jax.lax.while_loop(go, body, (jnp.int32(0), state, jnp.ones((), bool)))
  if batches.mesh:
    state, ok = jax.lax.with_sharding_constraint((state, ok), replicated(batches.mesh))
  return state, ok


def finetune(
  layer: DynaFed,
  model: Model,
  w: Variables,
  syn: SyntheticSet,
  key: PRNGKey,
  record: Callable[[Params], PyTree] = lambda w: None,
) -> tuple[Params, PyTree]:
  """Fine-tunes a model on D_syn (Algorithm 2, line 12); `finetuning.finetune` documents `record` and the results."""
  loss = trajectory.inner_loss(model, w.stats, trajectory.augmentation(layer.finetune_augment))
  optimizer = getattr(optax, layer.finetune_optimizer)(layer.finetune_lr)
  steps, batch_size = layer.finetune_steps, layer.finetune_batch
  return finetuning.finetune(
    loss, optimizer, w.params, syn, key, steps, batch_size=batch_size, record=record
  )
