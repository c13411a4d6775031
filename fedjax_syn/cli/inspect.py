"""Looks into a finished run: what its synthetic set, or its clients' sets, are, do and give away.

  python launch/inspect_run.py W [--seed=S] [--steps=N] [--clients=K] [--data_dir=DIR] [--trusted]

  W           the run's folder
  --seed      which seed; without it the first that did not diverge
  --steps     steps of training from scratch on the set; 1000
  --clients   clients whose losses are drawn; 3
  --data_dir  where the data set lies, if not where it lay for the run
  --trusted   the folder may name code (my_module:MyNet), which is then imported and called; only for folders that you trust

Of DynaFed:
  gradient error   is grad L(w, D_syn) near grad L(w, D)? (Assumption 3 of the paper; along the trajectory
                   and at later checkpoints; beside as many real images, and noise)
  privacy          distances to the nearest training image, and two membership attacks
  from scratch     test accuracy of new networks trained on the set alone (Figure 6, right)
  client losses    losses through the first round that was fine-tuned (Figure 3)

Of FedDM and FedDualMatch, for the round after the last checkpoint:
  spread           of the clients' gradients on their data, on their sets, and after gradient matching
  sigma_d, sigma_g what Assumptions 3 and 4 of FedDualMatch bound

It leaves W/inspect.json and W/figures/{gradient_error,privacy,from_scratch,client_losses}.png, or client_set.png, and
changes nothing else. Exit status: 0, 2 after one line that says why not, or 74 where the disk is full.
"""

import os

from absl import app, flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import paths

PICTURES = tuple(f'{n}.png' for n in ('gradient_error', 'privacy', 'from_scratch', 'client_losses'))
# Not absl's global flags: another launcher in the same process may call its own by the same names.
FLAGS = flags.FlagValues()
flags.DEFINE_integer('seed', None, 'which seed', flag_values=FLAGS)
flags.DEFINE_integer('steps', 1000, 'of training from scratch', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer('clients', 3, 'how many are drawn', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_bool('trusted', False, 'import code that the folder names', flag_values=FLAGS)
flags.DEFINE_string('data_dir', None, 'where the data set lies', flag_values=FLAGS)


def print_summary(report: dict) -> None:
  """Prints what matters most of a report, a line each."""
  number = lambda value: 'none' if value is None else f'{value:.3g}'
  print(f'{report["algorithm"]} on {report["dataset"]}, seed {report["seed"]}')
  for label, e in report['gradient_error']['sets'].items():
    print(
      f'gradient on {label}: median cosine {number(e["median_cosine"])}; delta {number(e["delta"])} with'
      f' epsilon {number(e["epsilon"])}, {number(e["delta_alone"])} without'
    )
  near = report['privacy']['nearest']
  print(
    f'nearest training image: median {near["median"]:.3g}, of held-out images'
    f' {near["held_out_median"]:.3g}; nearer than their 5 % quantile: {near["share_nearer"]:.1%}'
  )
  for name, attack in report['privacy']['membership'].items():
    print(f'membership by {name}: AUC {attack["auc"]:.3f} +- {attack["std_error"]:.3f}')
  for label, run in report['from_scratch']['sets'].items():
    print(f'from scratch on {label}: test accuracy {run["accuracy"][-1]:.4f}')
  losses = report['client_losses']
  print(
    f'round {losses["round"]}: mean loss {losses["mean"][0]:.3g} after aggregation,'
    f' {losses["mean"][-1]:.3g} after fine-tuning'
  )


def print_sets(report: dict) -> None:
  """Prints what was found of clients' sets, a line each."""
  print(f'{report["algorithm"]} on {report["dataset"]}, seed {report["seed"]}')
  for name, value in report.items():
    if isinstance(value, float):
      print(f'{name}: {value:.4g}')


def main(argv: list[str]) -> int:
  """Inspects one run; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  with cli.refusals():
    FLAGS.unparse_flags()
    folders = FLAGS(argv)[1:]
    if len(folders) != 1:
      raise app.UsageError(f'{len(folders)} folders given: name the folder of one run')
    folder = paths.given(folders[0], 'folder')
    if not os.path.lexists(folder / 'config.json'):
      raise ValueError(f'{folder}: holds no config.json; name the folder of a run')
    from fedjax_syn.cli import jax_setup

    jax_setup.prepare_jax(1)
    from fedjax_syn.papers.dynafed import finished_run
    from fedjax_syn.papers.feddualmatch import client_sets
    from fedjax_syn.runs import metrics, stored_files, work_folder

    stored = work_folder.config(folder)['config']
    if stored['algorithm'] in client_sets.NAMES:
      report = client_sets.inspect(folder, FLAGS.seed, FLAGS.data_dir, FLAGS.trusted)
      stored_files.write_json(folder / 'inspect.json', report)
      print_sets(report)
      print(f'{folder / "inspect.json"} and {folder / "figures"}')
      return 0

    run = finished_run.read_run(folder, FLAGS.seed, FLAGS.trusted)
    for path in (folder / 'inspect.json', *(folder / 'figures' / n for n in PICTURES)):
      if path.is_dir():
        raise ValueError(f'{path} is a folder and not a file; move it away')
    work_folder.summary(folder / 'compare')
    metrics.read(folder / 'compare' / 'metrics.jsonl')  # whose rounds are compared
    subject = finished_run.open_subject(run, FLAGS.data_dir)
  import jax

  from fedjax_syn.papers.dynafed import inspections

  with jax.default_matmul_precision(run.config.precision):
    report = inspections.inspect(subject, folder, steps=FLAGS.steps, clients=FLAGS.clients)
  stored_files.write_json(folder / 'inspect.json', report)
  print_summary(report)
  print(f'{folder / "inspect.json"} and {folder / "figures"}')
  return 0
