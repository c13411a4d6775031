"""What FedCOG's generation costs a client beside a round's local training with distillation: counted and measured.

  python -m tools.generation_cost W [--seed=S] [--client=K] [--repeats=N] [--trusted]

  W           the folder of a run of FedCOG (its state after round T0), or a config file: its initial model, which
              costs the same
  --trusted   the folder may name code (my_module:MyNet), which is then imported and called; only for folders that you trust
  --seed      of the run, or of the initial model; the config's first
  --client    which client; 0
  --repeats   of each timed program, in turns; 5, the medians count

Operations are the compiler's count of each program without its loops, times the steps; times are of one client
alone on the default device, compilation excluded. Prints both, the ratio of generation to training in each, and the
ratio of these two. Exit status: 0, or 2 after one line that says why not.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import app, flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.config import files
from fedjax_syn.core import paths

# Not absl's global flags: another launcher in the same process may call its own by the same names.
FLAGS = flags.FlagValues()
flags.DEFINE_integer('seed', None, 'which seed', flag_values=FLAGS)
flags.DEFINE_bool('trusted', False, 'import code that the folder names', flag_values=FLAGS)
flags.DEFINE_integer('client', 0, 'which client', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer('repeats', 5, 'of a timed program', lower_bound=1, flag_values=FLAGS)


class Cost(NamedTuple):
  """What generation and local training with distillation come to for one client in one round."""

  generation: float
  training: float

  @property
  def ratio(self) -> float:
    """Generation over training."""
    return self.generation / self.training


def compiler_count(function: Callable, *args: Any) -> float:
  """Returns the compiler's count of a function's operations; the body of a loop counts once."""
  import jax

  return jax.jit(function).lower(*args).cost_analysis()['flops']


def operations(subject: Any, client: int = 0) -> Cost:
  """Counts the operations of one client.

  Args:
    subject: a `fedjax_syn.papers.fedcog.generation.Subject`.
    client: which client.

  Returns:
    Operations: of generation with all its steps, and of the steps of local training on real and generated samples.
  """
  from fedjax_syn.papers.fedcog import generation

  context, data = generation.context_of(subject, client), subject.problem.data
  block = subject.config.blocks[generation.NAME]
  # Samples by batches need as many operations, in a loop around that of the steps.
  together = 0 if block.generator or block.statistics else block.samples
  of = lambda steps: compiler_count(
    generation.generator(generation.with_fields(subject, steps=steps, batch=together)),
    context,
    data,
  )
  steps = 0 if block.source == 'noise' else block.steps
  around, first = of(0), of(1)
  begin, step, count = generation.distilling(subject)
  carry = begin(context, data)
  each = compiler_count(step, carry, data)
  return Cost(around + steps * (first - around), each * int(count(context, data)))


def seconds(subject: Any, client: int = 0, repeats: int = 5) -> Cost:
  """Times the same two, alone on the default device, compilation excluded.

  Args:
    subject: a `fedjax_syn.papers.fedcog.generation.Subject`.
    client: which client.
    repeats: of each; they take turns, so that a machine that slows down slows both.

  Returns:
    Medians, in seconds.
  """
  import jax

  from fedjax_syn.papers.fedcog import generation

  context, data = generation.context_of(subject, client), subject.problem.data
  begin, step, count = generation.distilling(subject)
  train = jax.jit(
    lambda carry, data, steps: jax.lax.fori_loop(0, steps, lambda _, c: step(c, data), carry)
  )
  carry, steps = begin(context, data), count(context, data)
  programs = generation.generator(subject), train
  arguments = (context, data), (carry, data, steps)
  taken: tuple[list[float], list[float]] = [], []
  for turn in range(repeats + 1):
    for program, args, times in zip(programs, arguments, taken, strict=True):
      start = time.perf_counter()
      jax.block_until_ready(program(*args))
      if turn:  # the first one compiles
        times.append(time.perf_counter() - start)
  return Cost(*map(statistics.median, taken))


def report(counted: Cost, measured: Cost) -> str:
  """Returns the printed table of both."""
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
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  with cli.refusals():
    FLAGS.unparse_flags()
    found = FLAGS(argv)[1:]
    if len(found) != 1:
      raise app.UsageError(f'{len(found)} given: name the folder of one run, or one config file')
    jax_setup.prepare_jax(1)
    from fedjax_syn.papers.fedcog import generation

    path = paths.given(found[0], 'folder')
    if path.suffix == '.py':
      subject = generation.begin_subject(files.load_config(str(path)), FLAGS.seed)
    elif (path / 'config.json').is_file():
      subject = generation.open_subject(path, FLAGS.seed, FLAGS.trusted)
    else:
      raise ValueError(f'{path}: neither the folder of a run nor a config file')
    clients = subject.config.data.clients
    if FLAGS.client >= clients:
      raise ValueError(f'--client={FLAGS.client}: there are clients 0 .. {clients - 1}')
  import jax

  config, block = subject.config, subject.config.blocks[generation.NAME]
  client = config.client
  length = f'{client.steps} steps' if client.steps else f'{client.epochs} epochs'
  with jax.default_matmul_precision(config.precision):
    counted = operations(subject, FLAGS.client)
    measured = seconds(subject, FLAGS.client, FLAGS.repeats)
  print(
    f'{config.algorithm} on {subject.problem.dataset.title}, client {FLAGS.client}: {block.steps} steps on'
    f' {block.samples} samples, and {length} on {client.batch_size} + {min(block.kd_batch, block.samples)}'
  )
  print(report(counted, measured))
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
