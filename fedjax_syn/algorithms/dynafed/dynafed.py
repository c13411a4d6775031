"""DynaFed: a set distilled from the global trajectory refines later rounds (Pi et al., 2023)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed import dynamics, synthetic_set
from fedjax_syn.algorithms.dynafed.finetuning import finetune
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.algorithms.dynafed.unroll import (
  ADJOINTS,
  SegmentRule,
  augmentation,
  draw_segment,
  inner_loss,
  smallest_move,
  squared_distance,
  unroll,
)
from fedjax_syn.core import microbatches
from fedjax_syn.core.chunks import Chunks
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.mesh import place, replicated, zeros_like
from fedjax_syn.core.microbatches import Microbatches
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.programs import ByModel, Once, bounded
from fedjax_syn.core.types import Array, Measured, Model, Params, PRNGKey, PyTree, Stats, Variables
from fedjax_syn.data.augment import parse_strategy
from fedjax_syn.layer import Layer


class Synthesis(NamedTuple):
  """The server's state: trajectory, synthetic set and the state of its optimizers."""

  trajectory: Params  # w^0 ... w^L, leaves [L + 1, ...]
  syn: SyntheticSet
  opt_state: PyTree  # zeros after the last iteration
  iteration: Array  # [], outer iterations done
  losses: Array  # [N], the distance d of every iteration
  snapshots: SyntheticSet  # after 0, ..., N iterations, evenly spaced, leaves [snapshots, ...]


class DynaFed(Layer):
  """Synthesises data on the server after round L and fine-tunes the global model on them.

  Rounds 1..L run the layers before this one; the server records w^0..w^L, where w^c is the model
  after round c. (Algorithm 2 names a model after the round that sends it: its w^c is w^{c-1} here.)
  After round L, N iterations of Algorithm 1 learn D_syn = (X, y). From round L + 1 on, the
  aggregated model is fine-tuned on D_syn before it is sent.

  Eqs. 3 and 4 in this file: w~ is w^t after s' steps of size alpha on D_syn. The target w* is
  w^{t+s}, or by default the mean of drawn checkpoints (Section 6). d(w~, w*) is the squared
  distance divided by ||w^t - w*||^2 (code; the paper leaves d open). alpha is learned with X and y
  (code). The fields say where each default comes from.
  """

  idles = True

  length: int = field(20, 'L, rounds before synthesis (paper 20, code 24)', low=1, high=10**5)
  segment: int = field(5, 's, rounds from w^t to w^{t+s} (paper 5, code 3)', low=1, high=10**5)
  inner_steps: int = field(20, "s', inner steps on the set (code 20)", low=1, high=10**5)
  iterations: int = field(1000, 'N, outer iterations (paper 1000, code 3000)', low=1, high=10**7)
  images_per_class: int = field(15, 'synthetic images of each class (code 15)', low=1, high=10**5)
  include_initial: bool = field(True, 'w^0 belongs to the trajectory (code yes; Eq. 3: no)')
  targets: int = field(
    2, 'checkpoints whose mean is w* (paper 2, code 2 or 3); 0: w^{t+s}', low=0, high=10_000
  )
  include_end: bool = field(False, 'w^{t+s} joins them in the mean (a third reading)')
  init_std: float = field(
    1.0, 'standard deviation of the initial pixels, normalised (paper and code 1)', above=0.0
  )
  inner_lr: float = field(0.04, 'initial alpha (paper 1e-5, code 0.04)', above=0.0)
  inner_lr_lr: float = field(1e-2, 'Adam rate of log alpha (code: of alpha, 1e-5)', low=0.0)
  image_lr: float = field(5e-2, 'Adam rate of the images (paper and code 5e-2)', low=0.0)
  label_lr: float = field(5e-2, 'Adam rate of the label logits (paper 5e-2, code 1e-2)', low=0.0)
  augment: str = field('', "DSA operations of the inner loop, as 'colour_crop'; '': none")
  finetune_steps: int = field(20, 'fine-tuning steps in a round (code 20)', low=0, high=10**7)
  finetune_lr: float = field(
    1e-4, 'fine-tuning rate, new Adam in each round (code 1e-4)', above=0.0
  )
  finetune_augment: str = field('', "DSA operations of fine-tuning; '': none")

  def server_init(self, task, key, params, messages):
    images, shape = self.images_per_class * task.num_classes, task.data.x.shape[1:]
    # Algorithm 1, line 1
    syn = synthetic_set.noise(key, images, shape, task.num_classes, self.inner_lr, self.init_std)
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
    # One program for all rounds: clients do the same. Without a set no model changes (`idles`).
    recording = (round.round <= self.length) | (state.iteration == 0)
    # Algorithm 2, line 14. Round c records the w^{c-1} it sent: later layers may change its w^c.
    number = jnp.where(recording, round.round - 1, self.length + 1)
    w = Variables(new, round.stats)  # Algorithm 2, lines 11 and 12
    tuned = lambda: finetune(self, model, w, state.syn, round.key, mesh=round.task.mesh)[0]
    return jax.lax.cond(recording, lambda: new, tuned), _record(state, number, round.params)

  def pending(self, state, round):  # Algorithm 2, line 8
    return round == self.length and int(state.iteration) < self.iterations

  def server_work(self, task, key, state, w, seconds):  # Algorithm 2, line 9: DataSyn
    if int(state.iteration) == 0:
      state, move = _with_last(self, state, w.params)
      move = float(move)  # d divides by ||w^t - w*||^2, which must not be 0
      if not 0 < move < np.inf:
        moved = f'(smallest squared move {move})'
        reason = f'the trajectory does not move or is not finite {moved}: nothing to match'
        return w.params, state, self._diverged(reason)
    batches, *fixed, state = self._placed(task, key, state, w)
    chunks, ok = Chunks(seconds), True
    while ok and (count := chunks.next(self.iterations - int(state.iteration))):
      state, ok = _chunk(self, task.model, batches, *fixed, state, np.int32(count))
      ok = bool(ok)
    state = state._replace(trajectory=fixed[-1])
    done = int(state.iteration)
    if done == self.iterations:  # zeros take no space in a checkpoint
      state = state._replace(opt_state=jax.tree.map(zeros_like, state.opt_state))
    report = {
      'synthesis/iteration': done,
      'synthesis/iterations': self.iterations,
      'synthesis/loss': float(np.asarray(state.losses)[max(done - 1, 0)]),
      'synthesis/step_size': float(np.exp(np.asarray(state.syn.log_step))),
    }
    if not ok:
      report |= self._diverged(f'synthesis diverged in iteration {done}')
    return w.params, state, report

  def server_programs(self, task, key, state, w):
    arguments = *self._placed(task, key, state, w), jax.ShapeDtypeStruct((), jnp.int32)
    return {'synthesis': lambda: _chunk.lower(self, task.model, *arguments)}

  def _placed(self, task: Task, key: PRNGKey, state: Synthesis, w: Variables) -> tuple[Any, ...]:
    """Returns how images are divided, and the arguments of `_chunk` on the devices that do so."""
    images = self.images_per_class * task.num_classes
    size = min(self.inner_batch or images, images)
    batches = microbatches.synthetic_microbatches(size, task.model, task.mesh)
    own = key, w.stats, state.trajectory, state._replace(trajectory=())
    return batches, *(place(own, replicated(batches.mesh)) if batches.mesh else own)

  def _iterate(
    self, model: Model, batches: Microbatches, key: PRNGKey, state: Synthesis, stats: Stats
  ) -> Synthesis:
    """Takes one outer iteration n: Algorithm 1, lines 3 to 6."""
    key = fold(key, state.iteration)
    # Line 3: t ~ U, w^t and w*.
    w_t, w_star = draw_segment(fold(key, 0, 0), state.trajectory, *self._rule)
    loss = inner_loss(model, stats, augmentation(self.augment), *batches)

    def distance(syn):  # Eq. 3
      # Line 4, Eq. 4: w~ by s' steps w <- w - alpha grad L(w; X, y) from w^t.
      w_end = unroll(
        loss,
        w_t,
        syn,
        fold(key, 0, 1),
        self.inner_steps,
        batch_size=self.inner_batch,
        adjoint=self.adjoint,
        scan_unroll=self.together,
        backward_steps=self.backward_steps,
      )
      return squared_distance(w_end, w_star, w_t)  # line 5: d(w~, w*)

    # Lines 5 and 6: a step of Adam (Appendix B) for X, y and log alpha.
    step = training_step(distance, self._optimizer())
    (syn, opt_state), value = step((state.syn, state.opt_state))
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
    labels = SyntheticSet('x', 'y', 'step')  # type: ignore[arg-type]
    return optax.partition(adams, labels)

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
      rule=self._rule,
      steps=self.inner_steps,
    )

  def server_metrics(self, state):
    loss = Measured(state.losses[state.iteration - 1], state.iteration > 0)
    return {'iterations': state.iteration, 'loss': loss}

  def check(self):
    checkpoints = self.length + self.include_initial
    if checkpoints < self.segment + 1:
      raise ValueError(
        f'dynafed.segment={self.segment} needs {self.segment + 1} checkpoints, but'
        f' dynafed.length={self.length} gives {checkpoints};'
        f' try --config.dynafed.segment={max(checkpoints - 1, 1)}, or raise length'
      )
    for key in ('augment', 'finetune_augment'):
      try:
        parse_strategy(getattr(self, key))
      except ValueError as error:
        raise ValueError(f'dynafed.{key}: {error}') from error

  def resolve(self, run):
    if self.length >= run.rounds:
      length = max(run.rounds // 2, 1)
      most = max(length + self.include_initial - 1, 1)
      shorter = f' --config.dynafed.segment={most}' if self.segment > most else ''
      raise ValueError(
        f'dynafed.length={self.length} must be smaller than rounds={run.rounds}: no round would be'
        f' fine-tuned; try --config.dynafed.length={length}{shorter}'
      )
    return self

  def pauses(self):
    return (self.length,)

  def requires(self):
    rows = 'pixels' if self.augment or self.finetune_augment else 'real values'
    return frozenset({'one class', rows, 'full history'})

  # How an iteration is computed, and in which batches.

  inner_batch: int = field(0, 'images per inner step; 0: all', low=0, high=10**9)
  finetune_batch: int = field(
    0, 'images per fine-tuning step; 0: all (code 256)', low=0, high=10**9
  )
  adjoint: str = field(
    'jvp',
    "backward pass of the unroll; 'stored' keeps all activations",
    choices=tuple(ADJOINTS),
  )
  backward_steps: int = field(
    0, "the last n of the s' steps that the gradient goes through; 0: all, exact", low=0, high=10**5
  )
  together: int = field(
    1, 'inner steps per iteration of the compiled loop (docs/speed.md)', low=1, high=1000
  )

  @property
  def _first_t(self) -> int:
    """The smallest t of a segment."""
    return 0 if self.include_initial else 1

  @property
  def _rule(self) -> SegmentRule:
    """How segments are drawn."""
    targets = self.targets, self.include_end and self.targets > 0
    return SegmentRule(self._first_t, self.length, self.segment, *targets)

  def _diverged(self, reason: str) -> dict[str, Any]:
    return {'diverged_round': self.length, 'diverged_client': -1, 'reason': reason}


def _record(state: Synthesis, number: Array | int, w: Params) -> Synthesis:
  """Writes w^number into the trajectory; a number beyond it writes nothing."""
  put = lambda path, leaf: path.at[number].set(leaf, mode='drop')
  return state._replace(trajectory=jax.tree.map(put, state.trajectory, w))


@Once
def _with_last(layer: DynaFed, state: Synthesis, w: Params) -> tuple[Synthesis, Array]:
  """Writes w^L; returns the state, and the smallest squared move along the trajectory, []."""
  state = _record(state, layer.length, w)
  return state, smallest_move(state.trajectory, layer._first_t, layer.length, layer.segment)


@bounded
@functools.partial(
  ByModel,
  of=lambda _, model, batches, *__: (model, batches.mesh),
  static_argnums=(1, 2),
  donate_argnums=6,
)
def _chunk(
  layer: DynaFed,
  model: Model,
  batches: Microbatches,
  key: PRNGKey,
  stats: Stats,
  trajectory: Params,
  state: Synthesis,
  count: Array,
) -> tuple[Synthesis, Array]:
  """Takes `count` iterations, or fewer; returns the state (that given is consumed), if finite.

  The trajectory of both states is (): it does not change, and no second one is written.
  """

  def go(carry):
    i, _, ok = carry
    return (i < count) & ok

  def body(carry):
    i, state, _ = carry
    new = layer._iterate(model, batches, key, state._replace(trajectory=trajectory), stats)
    finite = jnp.isfinite(new.losses[state.iteration]) & jnp.isfinite(new.syn.log_step)
    return i + 1, new._replace(trajectory=()), finite

  _, state, ok = jax.lax.while_loop(go, body, (jnp.int32(0), state, jnp.ones((), bool)))
  if batches.mesh:
    state, ok = jax.lax.with_sharding_constraint((state, ok), replicated(batches.mesh))
  return state, ok
