"""The cost of FedCOG's generation beside a round's local training, counted and measured.

  python -m tools.generation_cost W [--seed=S] [--client=K] [--repeats=N] [--trusted]

  W          the folder of a run of FedCOG (its state after round T0), or a config file (the initial
             model, which costs the same)
  --seed     of the run, or of the initial model; by default the first of the config
  --client   which client; 0
  --repeats  of each timed program, alternating; medians of 5
  --trusted  imports and calls code that the folder names (my_module:MyNet)

The compiler counts the operations of each program without its loops; the count is multiplied by the
steps. Times are those of one client on the default device, without compilation. Prints operations
and seconds of generation and of local training with distillation, the ratio of generation to
training in both, and the ratio of these ratios. Exit status: 0, or 2 after one line of reason.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
from absl import app, flags

from fedjax_syn.algorithms.fedcog.generation import AT_A_TIME
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.config import files
from fedjax_syn.core import paths
from fedjax_syn.papers.fedcog import generation
from fedjax_syn.runs.restore import Restored

FLAGS = cli.own_flags('seed', 'trusted')
flags.DEFINE_integer('client', 0, 'which client', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('repeats', 5, 'of a timed program', lower_bound=1, flag_values=FLAGS)


class Cost(NamedTuple):
  """Operations or seconds of one client in one round."""

  generation: float
  training: float  # with distillation

  @property
  def ratio(self) -> float:
    """Generation over training."""
    return self.generation / self.training


def compiler_count(function: Callable[..., Any], *args: Any) -> float:
  """Returns the compiler's count of a function's operations; the body of a loop counts once."""
  return jax.jit(function).lower(*args).cost_analysis()['flops']


def operations(run: Restored, client: int = 0) -> Cost:
  """Counts the operations of one client: all generation steps, and all local steps.

  Args:
    run: a run at the end of round T0.
    client: which client.
  """
  context, data = generation.context_of(run, client), run.problem.data
  block = run.engine.chain[generation.FedCOG]

  def generating(steps):
    program = generation.generator(generation.with_fields(run, steps=steps))
    # Samples in batches need as many operations, in a loop that contains the steps.
    with mock.patch.dict(AT_A_TIME, clear=True):
      return compiler_count(program, context, data)

  steps = 0 if block.source == 'noise' else block.steps
  outside_steps = generating(0)
  begin, step, count = generation.distilling(run)
  training_step = compiler_count(step, begin(context, data), data)
  return Cost(
    outside_steps + steps * (generating(1) - outside_steps),
    training_step * int(count(context, data)),
  )


def seconds(run: Restored, client: int = 0, repeats: int = 5) -> Cost:
  """Times generation and local training of one client on the default device.

  Args:
    run: a run at the end of round T0.
    client: which client.
    repeats: of each; they alternate, so that a machine that slows down slows both.

  Returns:
    Medians, in seconds, without compilation.
  """
  context, data = generation.context_of(run, client), run.problem.data
  begin, step, count = generation.distilling(run)
  train = jax.jit(
    lambda carry, data, steps: jax.lax.fori_loop(0, steps, lambda _, c: step(c, data), carry)
  )
  calls = (
    (generation.generator(run), (context, data), []),
    (train, (begin(context, data), data, count(context, data)), []),
  )
  for repeat in range(repeats + 1):
    for program, arguments, times in calls:
      start = time.perf_counter()
      jax.block_until_ready(program(*arguments))
      if repeat:  # the first call compiles
        times.append(time.perf_counter() - start)
  return Cost(*(statistics.median(times) for _, _, times in calls))


def report(counted: Cost, measured: Cost) -> str:
  """Returns the printed table."""
  rows = (
    ('', 'operations', 'seconds'),
    ('generation', f'{counted.generation:.4g}', f'{measured.generation:.4g}'),
    ('local training with distillation', f'{counted.training:.4g}', f'{measured.training:.4g}'),
    ('generation / training', f'{counted.ratio:.3f}', f'{measured.ratio:.3f}'),
    ('measured / counted', '', f'{measured.ratio / counted.ratio:.2f}'),
  )
  return '\n'.join(f'{a:<34}{b:>12}{c:>12}'.rstrip() for a, b, c in rows)


def main(argv: list[str]) -> int:
  """Counts and measures; returns the exit status."""
  with cli.refusals():
    arguments = cli.read(FLAGS, argv, __doc__)
    if len(arguments) != 1:
      raise app.UsageError(
        f'{len(arguments)} given: name the folder of one run, or one config file'
      )
    jax_setup.prepare_jax(1)
    path = paths.given(arguments[0], 'folder')
    if path.suffix == '.py':
      run = generation.begin_run(files.load_config(str(path)), FLAGS.seed)
    elif (path / 'config.json').is_file():
      run = generation.open_run(path, FLAGS.seed, FLAGS.trusted)
    else:
      raise ValueError(f'{path}: neither the folder of a run nor a config file')
    clients = run.config.data.clients
    if FLAGS.client >= clients:
      raise ValueError(f'--client={FLAGS.client}: there are clients 0 .. {clients - 1}')
  config, block = run.config, run.engine.chain[generation.FedCOG]
  local = config.client
  length = f'{local.steps} steps' if local.steps else f'{local.epochs} epochs'
  with jax.default_matmul_precision(config.precision):
    counted = operations(run, FLAGS.client)
    measured = seconds(run, FLAGS.client, FLAGS.repeats)
  print(
    f'{config.algorithm} on {run.problem.dataset.title}, client {FLAGS.client}: '
    f'{block.steps} steps on {block.samples} samples, and {length} on '
    f'{local.batch_size} + {min(block.kd_batch, block.samples)}'
  )
  print(report(counted, measured))
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
