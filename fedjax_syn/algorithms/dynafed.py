"""DynaFed: a data set distilled from the global model's trajectory refines every later round (Pi et al., CVPR 2023)."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.chunks import Chunks
from fedjax_syn.client.optimizers import OPTIMIZERS
from fedjax_syn.data import federated
from fedjax_syn.data.augment import dsa, parse_strategy
from fedjax_syn.engine.mesh import place, replicated
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import Method, ServerTransform
from fedjax_syn.synthesis import diagnostics, finetuning, pieces, synthetic, trajectory
from fedjax_syn.synthesis.synthetic import SyntheticSet
from fedjax_syn.typing import Array, Measured, Params, PyTree


@dataclasses.dataclass(frozen=True)
class Config:
  length: int = field(
    20, 'L, rounds of the trajectory, before synthesis (paper 20, code 24)', low=1, high=10**5
  )
  segment: int = field(5, 's, rounds from w^t to its target (paper 5, code 3)', low=1, high=10**5)
  inner_steps: int = field(20, "s', steps on the set (paper silent, code 20)", low=1, high=10**5)
  iterations: int = field(1000, 'N, outer iterations (paper 1000, code 3000)', low=1, high=10**7)
  images_per_class: int = field(15, 'synthetic images (150 for 10 classes)', low=1, high=10**5)
  include_initial: bool = field(
    True, 'w^0 belongs to the trajectory (paper: yes in Section 4.1, no in Eq. 3; code yes)'
  )
  targets: int = field(
    2, 'checkpoints averaged into the target, of w^{t+1}..w^{t+s}; 0: w^{t+s}', low=0, high=10_000
  )
  distance: str = field(
    'squared', 'd(w~, w*): normalised squared or cosine distance', choices=('squared', 'cosine')
  )
  inner_batch: int = field(0, 'images per inner step; 0: all', low=0, high=10**9)
  inner_lr: float = field(0.04, 'inner step size at first (code 0.04)', above=0.0)
  inner_lr_lr: float = field(
    1e-2, 'Adam rate of the log step size (paper 1e-5, which moves nothing)', low=0.0
  )
  image_lr: float = field(5e-2, 'Adam rate of the images (paper and code 5e-2)', low=0.0)
  label_lr: float = field(5e-2, 'Adam rate of the label logits (paper 5e-2, code 1e-2)', low=0.0)
  augment: str = field(
    '', "DSA operations of the inner loop, 'colour_crop_cutout_flip_scale_rotate'; '': none"
  )
  segments: int = field(1, 'segments matched at once in an iteration', low=1, high=1000)
  adjoint: str = field(
    'jvp',
    "backward pass of the unroll; 'stored' is faster and keeps all activations",
    choices=tuple(trajectory.ADJOINTS),
  )
  together: int = field(
    1, 'inner steps compiled at once: small networks run faster, compile slower', low=1, high=1000
  )
  pieces: int = field(
    0,
    'pieces in which a step of synthesis takes the images, shared by the devices; 1: all at once, on one'
    ' device; 0: as is fastest',
    low=0,
    high=10**5,
  )
  finetune_steps: int = field(20, 'steps in every round after L (code 20)', low=0, high=10**7)
  finetune_lr: float = field(1e-4, 'fine-tuning rate (code 1e-4)', above=0.0)
  finetune_optimizer: str = field('adam', 'fresh in every round', choices=OPTIMIZERS)
  finetune_batch: int = field(0, 'images per such step; 0: all (code 256)', low=0, high=10**9)
  finetune_augment: str = field('', "DSA operations of fine-tuning; '': none")


def check(block: Config, rounds: int) -> None:
  """Refuses settings that cannot work together, with one line.

  Args:
    block: the fields.
    rounds: rounds of the run.

  Raises:
    ValueError: naming the key, the value and what would work.
  """
  checkpoints = block.length + block.include_initial
  if block.length >= rounds:
    raise ValueError(
      f'dynafed.length={block.length} must be smaller than rounds={rounds}: no round would be fine-tuned;'
      f' try --config.dynafed.length={max(rounds // 2, 1)}'
    )
  if checkpoints < block.segment + 1:
    raise ValueError(
      f'dynafed.segment={block.segment} needs {block.segment + 1} checkpoints, but dynafed.length={block.length} '
      f'gives {checkpoints}; try --config.dynafed.segment={max(checkpoints - 1, 1)}, or raise length'
    )
  for key in ('augment', 'finetune_augment'):
    try:
      parse_strategy(getattr(block, key))
    except ValueError as error:
      raise ValueError(f'dynafed.{key}: {error}') from error


class Synthesis(NamedTuple):
  """The server's state: trajectory, synthetic set and the state of its optimizers."""

  trajectory: Params  # w^0 ... w^L, leaves [L + 1, ...]
  syn: SyntheticSet
  opt_state: PyTree
  iteration: Array  # [], outer iterations done
  losses: Array  # [N], matching loss of every iteration
  snapshots: SyntheticSet  # evenly from before to after, leaves [snapshots, ...]


def dynafed(base: Method | None = None, **fields) -> Method:
  """Puts data synthesis and fine-tuning on the server around any method (Algorithms 1 and 2).

  Rounds 1..L run `base` and record w^0..w^L. After round L, N iterations of trajectory matching learn
  D_syn = (X, y) and a step size; from round L+1 on, the aggregated model is fine-tuned on D_syn before
  it goes down again.

  Args:
    base: the method whose trajectory is distilled; FedAvg by default.
    **fields: see `Config`, which also says where each default comes from.

  Returns:
    The method.

  Raises:
    TypeError: if a field does not exist.
    ValueError: if the trajectory is shorter than a segment.
  """
  c = Config(**fields)
  check(c, c.length + 1)
  base = base or fedavg()
  first = 0 if c.include_initial else 1

  def server(task):
    shape = task.data.x.shape[1:]
    images = c.images_per_class * task.num_classes
    augment, finetune_augment = augmentation(c.augment), augmentation(c.finetune_augment)
    step_images = min(c.inner_batch or images, images)
    split = pieces.split_of(c.pieces, step_images, task.model, task.mesh, 'dynafed.pieces')
    snapshots = synthetic.snapshot_count(images, shape)
    h = task.hyper['dynafed']
    optimizer = optax.partition(
      {
        'x': optax.adam(h['image_lr']),
        'y': optax.adam(h['label_lr']),
        'step': optax.adam(h['inner_lr_lr']),
      },
      SyntheticSet('x', 'y', 'step'),
    )

    def init(key, params, enrolled):
      syn = synthetic.noise(key, images, shape, task.num_classes, c.inner_lr)
      stack = lambda copies: (
        lambda leaf: jnp.zeros((copies, *leaf.shape), leaf.dtype).at[0].set(leaf)
      )
      return Synthesis(
        trajectory=jax.tree.map(stack(c.length + 1), params),
        syn=syn,
        opt_state=optimizer.init(syn),
        iteration=jnp.zeros((), jnp.int32),
        losses=jnp.zeros(c.iterations),
        snapshots=jax.tree.map(lambda leaf: jnp.stack([leaf] * snapshots), syn),
      )

    def update(key, round, state, before, new, messages):
      if task.first_round <= c.length:  # Algorithm 2, line 14
        # What went down, and not `new`, which layers around this one may move on.
        return new, record(state, round - 1, before.params)
      return finetune(key, state.syn, new, before.stats), state  # Algorithm 2, line 12

    def record(state, number, w):
      put = lambda path, leaf: path.at[number].set(leaf)
      return state._replace(trajectory=jax.tree.map(put, state.trajectory, w))

    def finetune(key, syn, w, stats):
      loss = trajectory.inner_loss(task.model, stats, finetune_augment)
      opt = getattr(optax, c.finetune_optimizer)(h['finetune_lr'])
      return finetuning.finetune(
        loss, opt, w, syn, key, c.finetune_steps, batch_size=c.finetune_batch
      )[0]

    def pending(state, round):
      return round == c.length and int(state.iteration) < c.iterations

    def iterate(key, state, stats, hyper):  # Algorithm 1, lines 3-6
      key = fold(key, state.iteration)
      loss = trajectory.inner_loss(task.model, stats, augment, *split)

      def one(syn, j):
        segment = trajectory.draw_segment(
          fold(key, j, 0), state.trajectory, first, c.length, c.segment, c.targets
        )
        return trajectory.matching_loss(
          loss,
          syn,
          segment,
          fold(key, j, 1),
          steps=c.inner_steps,
          batch_size=c.inner_batch,
          distance=c.distance,
          adjoint=c.adjoint,
          together=c.together,
        )

      def total(syn):
        if c.segments == 1:
          return one(syn, 0)
        return jax.vmap(one, (None, 0))(syn, jnp.arange(c.segments)).mean()

      value, grads = jax.value_and_grad(total)(state.syn)
      updates, opt_state = optimizer.update(grads, state.opt_state, state.syn)
      syn = optax.apply_updates(state.syn, updates)
      done = state.iteration + 1
      kept = synthetic.snapshot_iterations(len(state.snapshots.x), c.iterations)
      # Of few iterations several slots have the same.
      turn = lambda leaf: (done == kept).reshape(-1, *[1] * (leaf.ndim - 1))
      keep = lambda all_kept, new: jnp.where(turn(all_kept), new, all_kept)
      return state._replace(
        syn=syn,
        opt_state=opt_state,
        iteration=done,
        losses=state.losses.at[state.iteration].set(value),
        snapshots=jax.tree.map(keep, state.snapshots, syn),
      )

    everywhere = replicated(split.mesh) if split.mesh else None

    @functools.partial(jax.jit, out_shardings=everywhere)
    def chunk(key, state, stats, hyper, iterations):
      fine = lambda carry: (carry[0] < iterations) & carry[2]

      def body(carry):
        i, state, _ = carry
        new = iterate(key, state, stats, hyper)
        return (
          i + 1,
          new,
          jnp.isfinite(new.losses[state.iteration]) & jnp.isfinite(new.syn.log_step),
        )

      _, state, ok = jax.lax.while_loop(fine, body, (jnp.int32(0), state, jnp.ones((), bool)))
      return state, ok

    smallest_move = jax.jit(lambda path: trajectory.smallest_move(path, first, c.length, c.segment))

    def between(key, state, params, stats, seconds):
      if int(state.iteration) == 0:
        state = record(state, c.length, params)
        move = float(smallest_move(state.trajectory))
        if not move > 0 or not np.isfinite(move):
          reason = f'the trajectory stands still or is not finite (smallest squared move {move}): nothing to match'
          return (
            params,
            state,
            {'diverged_round': c.length, 'diverged_client': -1, 'reason': reason},
          )
      if everywhere:
        key, state, stats = place((key, state, stats), everywhere)
      chunks, ok = Chunks(seconds), True
      while ok and (count := chunks.next(c.iterations - int(state.iteration))):
        state, ok = chunk(key, state, stats, h, jnp.int32(count))
        ok = bool(ok)
      done = int(state.iteration)
      report = {
        'synthesis/iteration': done,
        'synthesis/iterations': c.iterations,
        'synthesis/loss': float(state.losses[max(done - 1, 0)]),
        'synthesis/step_size': float(jnp.exp(state.syn.log_step)),
      }
      if not ok:
        report |= {
          'diverged_round': c.length,
          'diverged_client': -1,
          'reason': f'synthesis diverged in iteration {done}',
        }
      return params, state, report

    def learned(state):
      done = int(state.iteration)
      if done < c.iterations:
        return None
      out = synthetic.to_numpy(state.snapshots)
      return out | {
        'iterations': synthetic.snapshot_iterations(len(out['x']), done),
        'step_size': float(out['step_size'][-1]),
        'losses': np.asarray(state.losses),
      }

    def diagnose(key, state, stats):  # the paper's Figure 6, left
      if int(state.iteration) < c.iterations:
        return {}

      @jax.jit
      def compared(key, data, syn):
        rows = jax.random.randint(fold(key, 0), (images,), 0, data.x.shape[0])
        x, y = federated.normalise(data, data.x[rows]), data.y[rows]
        others = diagnostics.real_and_noise(fold(key, 0, 1), x, y, syn, task.num_classes)
        return {'noise': others['noise']} if task.noised else others  # real ones: no epsilon covers

      return diagnostics.dynamics(
        fold(key, 0, 2),
        trajectory.inner_loss(task.model, stats, None),
        state.trajectory,
        {'synthetic': state.syn, **compared(key, task.data, state.syn)},
        first=first,
        length=c.length,
        segment=c.segment,
        targets=c.targets,
        steps=c.inner_steps,
      )

    def metrics(state):
      loss = Measured(state.losses[state.iteration - 1], state.iteration > 0)
      return {'iterations': state.iteration, 'loss': loss}

    return ServerTransform(
      name='dynafed',
      init=init,
      metrics=metrics,
      update=update,
      pending=pending,
      between=between,
      synthetic=learned,
      diagnose=diagnose,
    )

  rates = {
    name: getattr(c, name) for name in ('image_lr', 'label_lr', 'inner_lr_lr', 'finetune_lr')
  }
  return base.extend(
    'dynafed',
    server=server,
    phases=(c.length,),
    needs=('one_class', 'pixels'),
    records=True,
    hyper=rates,
  )


def augmentation(strategy: str) -> trajectory.Augment | None:
  """Returns the augmentation of a config's DSA operations, (key, x) -> x; None if it names none."""
  operations = parse_strategy(strategy)
  return (lambda key, x: dsa(key, x, operations)) if operations else None
