"""Measures the synthetic set of a finished run, or its clients' sets, and what they reveal.

  python launch/inspect_run.py W [--seed=S] [--steps=N] [--clients=K] [--data_dir=DIR] [--trusted]

  W           the run's folder
  --seed      which seed; by default the first one that did not diverge
  --steps     steps of training from scratch on the set; 1000 by default
  --clients   number of clients whose losses are drawn; 3 by default
  --data_dir  the folder of the data set, if it is not the run's
  --trusted   if the folder names code (my_module:MyNet), imports and calls it; only for folders
              that you trust

Of DynaFed:
  gradient error   is grad L(w, D_syn) near grad L(w, D)? (Assumption 3 of the paper; along the
                   trajectory and at later checkpoints; beside as many real images, and noise)
  privacy          distances to the nearest training image, and two membership attacks
  from scratch     test accuracy of new networks trained on the set alone (Figure 6, right)
  client losses    losses through the first round that was fine-tuned (Figure 3)

Of FedDM and FedDualMatch, for the round after the last checkpoint:
  spread           of the clients' gradients on their data, their sets, and after gradient matching
  sigma_d, sigma_g what Assumptions 3 and 4 of FedDualMatch bound

It writes W/inspect.json and W/figures/{gradient_error,privacy,from_scratch,client_losses}.png, or
client_set.png, and changes nothing else. Exit status: 0 written, 2 refused (one line gives the
reason), 74 the disk is full.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import exit_status

PICTURES = ('gradient_error.png', 'privacy.png', 'from_scratch.png', 'client_losses.png')
FLAGS = cli.own_flags('seed', 'trusted')
flags.DEFINE_integer('steps', 1000, 'of training from scratch', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer('clients', 3, 'how many are drawn', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_string('data_dir', None, 'the folder of the data set', flag_values=FLAGS)


def summary(report: Mapping[str, Any]) -> list[str]:
  """Returns what matters most of a report, a line each."""
  number = lambda value: 'none' if value is None else f'{value:.3g}'
  lines = [f'{report["algorithm"]} on {report["dataset"]}, seed {report["seed"]}']
  if 'gradient_error' not in report:  # of clients' sets
    numbers = ((name, v) for name, v in report.items() if isinstance(v, float))
    return lines + [f'{name}: {value:.4g}' for name, value in numbers]
  for label, e in report['gradient_error']['sets'].items():
    lines.append(
      f'gradient on {label}: median cosine {number(e["median_cosine"])}; delta {number(e["delta"])}'
      f' with epsilon {number(e["epsilon"])}, {number(e["delta_alone"])} without'
    )
  near = report['privacy']['nearest']
  lines.append(
    f'nearest training image: median {near["median"]:.3g}, of held-out images'
    f' {near["held_out_median"]:.3g}; nearer than their 5 % quantile: {near["share_nearer"]:.1%}'
  )
  for name, attack in report['privacy']['membership'].items():
    lines.append(f'membership by {name}: AUC {attack["auc"]:.3f} +- {attack["std_error"]:.3f}')
  for label, run in report['from_scratch']['sets'].items():
    lines.append(f'from scratch on {label}: test accuracy {run["accuracy"][-1]:.4f}')
  losses = report['client_losses']
  mean = f'mean loss {losses["mean"][0]:.3g} after aggregation'
  tuned = f'{losses["mean"][-1]:.3g} after fine-tuning'
  return [*lines, f'round {losses["round"]}: {mean}, {tuned}']


def main(argv: Sequence[str]) -> int:
  """Inspects one run; returns the exit status."""
  with cli.refusals():
    folder = cli.one_folder(cli.read(FLAGS, argv, __doc__))
    if not os.path.lexists(folder / 'config.json'):
      raise ValueError(f'{folder}: holds no config.json; name the folder of a run')
    from fedjax_syn.cli import jax_setup

    jax_setup.prepare_jax(1)
    import jax

    from fedjax_syn.papers.dynafed import inspections
    from fedjax_syn.papers.feddualmatch import client_sets
    from fedjax_syn.runs import metrics, stored_files, work_folder

    config = (work_folder.config(folder) or {})['config']
    of_sets = config['algorithm'] in client_sets.NAMES
    for path in (folder / 'inspect.json', *(folder / 'figures' / n for n in PICTURES)):
      if path.is_dir():
        raise ValueError(f'{path} is a folder and not a file; move or delete it')
    for other in (folder / work_folder.COMPARE, *work_folder.compared(folder)):
      work_folder.summary(other)
      metrics.read(other / 'metrics.jsonl')  # whose rounds are compared
    module = client_sets if of_sets else inspections
    run = module.open_run(folder, FLAGS.seed, FLAGS.data_dir, FLAGS.trusted)
  with jax.default_matmul_precision(config['precision']):
    if of_sets:
      report = client_sets.inspect(run, folder)
    else:
      report = inspections.inspect(run, folder, FLAGS.steps, FLAGS.clients)
  stored_files.write_json(folder / 'inspect.json', report)
  print('\n'.join([*summary(report), f'{folder / "inspect.json"} and {folder / "figures"}']))
  return exit_status.FINISHED
