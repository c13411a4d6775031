"""Measures the library on fixed work: seconds, beside peers, and against this machine's floor.

  python launch/benchmark.py --suite=cpu [--only=w1,w4] [--peer=torch,flower] [--results=DIR]

  --suite        cpu (w1 w2 w3 w3x w4 w4conv w5 w6 w6dm w7 w8 tutorial w4c seeds) or gpu (g1 g2 g3
                 seeds)
  --only         names of the suite, separated by commas
  --peer         torch: the same work in plain PyTorch; flower: as a simulation of Flower, for w1,
                 w2, w3 and tutorial. Several take turns with ours
  --peer_python  the Python that has the peers; this one by default
  --json         a file for the list of results, rewritten after each of them
  --results      a folder for one file for each workload; a workload whose file this commit wrote is
                 not run again. docs/speed.md: python -m tools.speed_table
  --scale        smoke: a tiny version of everything, which shows only that it runs

  w1      one round on data of Fashion-MNIST's size: 32 of 80 clients of 750, one epoch, batch 32,
          Adam; MLP 784-128-128-10
  w2      w1 with the ConvNet of width 32
  w3 w3x  w1 on a Dirichlet split, alpha 0.1 and 0.01
  w4      one iteration of trajectory matching: 20 steps on 150 images of 28x28; MLP
  w4conv  w4 with the ConvNet of width 32
  w4c     w4 with the ConvNet of width 128 on 32x32x3
  w5      one round of FedCOG after T0, four clients: 100 steps of generation of 256 images of
          28x28, 100 local steps of 64 real and 64 generated images; LeNet-like CNN
  w6      two clients of FedDualMatch distil ten classes: 20 iterations in each of three stages, 10
          images a class, 600 real images each; ConvNet of width 32
  w6dm    w6 with FedDM: 6 iterations, each with 256 real images a class
  w7      FedDualMatch's server: R_t, and 10 steps of gradient matching for 4 sets of 100 images
          (ours makes the sets too, in one step); ConvNet of width 32
  w8      a whole run of DynaFed on digits in a process of its own, compilation included
  tutorial  one of the five rounds of the public comparison of BlazeFL and Flower: data of
          CIFAR-10's size, 100 clients of 500, 5 epochs, batch 50, SGD; PyTorch's tutorial's CNN
  g1      one round on data of CIFAR-10's size: 32 of 80 clients of 625; ConvNet of width 128
  g2      1,500 rounds on data of CIFAR-10's size: 50 of 1,000 clients of 50, batch 10, SGD; CNN;
          evaluated every 10 rounds
  g3      1,000 iterations of w4c
  seeds   one round of w1 for each of three seeds, one seed after the other or side by side

Pixels and labels are random; their values do not change the speed. Seconds are medians of 5 after a
warm-up (w8: of 2); lines with "/all" measure one complete run with compilation. Processor seconds
are those of all threads. A round of Flower is timed on its server, from the first message to the
averaged model, in steady state: as many clients train at a time as there are cores.
The floor is the longer of two times: for the operations at the speed of a large matrix product, and
for the bytes at the speed of a large copy. Exit status: 0, 1 if something failed, 2 refused.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks import timing, workloads
from benchmarks.suite import Suite
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.core import paths

PEERS = ('torch', 'flower')

# Not absl's global flags, whose names another launcher in the same process may use.
FLAGS = flags.FlagValues()
flags.DEFINE_enum('suite', 'cpu', list(workloads.SUITES), 'which work', flag_values=FLAGS)
flags.DEFINE_list('only', [], 'names out of the suite', flag_values=FLAGS)
flags.DEFINE_list('peer', [], 'what to compare with', flag_values=FLAGS)
flags.DEFINE_string('peer_python', sys.executable, 'the peers run in it', flag_values=FLAGS)
flags.DEFINE_string('json', None, 'a file for the results', flag_values=FLAGS)
flags.DEFINE_string('results', None, 'a folder for the results', flag_values=FLAGS)
flags.DEFINE_enum('scale', 'full', ['full', 'smoke'], 'how large', flag_values=FLAGS)


def choose(jobs: Sequence, only: Sequence[str], suite: str) -> list:
  """Returns the jobs that are asked for.

  Raises:
    ValueError: if a name is not in the suite.
  """
  known = list(dict.fromkeys(job.name for job in jobs))
  for name in only:
    if name not in known:
      raise ValueError(f'--only={name}: not in --suite={suite}, which has {", ".join(known)}')
  return [job for job in jobs if job.name in (only or known)]


def peer_command(python: str, name: str) -> list[str]:
  """Returns the command of a peer's process."""
  return [python, '-m', f'benchmarks.peer_{name}']


def file_names(jobs: Sequence[workloads.Job]) -> list[str]:
  """Returns the jobs' files: by name, and where several share it by their first variant too."""
  names = [job.name for job in jobs]
  labels = [job.label(job.variants[0]).replace('/', '-') for job in jobs]
  pairs = zip(names, labels, strict=True)
  return [f'{name if names.count(name) == 1 else label}.json' for name, label in pairs]


def commit() -> str | None:
  """Returns this checkout's commit, '-dirty' appended if files but results differ, or None."""
  git = ['git', '-C', str(timing.ROOT)]
  try:
    said = subprocess.run([*git, 'rev-parse', '--short', 'HEAD'], capture_output=True, check=True)
    differs = subprocess.run([*git, 'diff', '--quiet', 'HEAD', '--', '.', ':!results', ':!docs'])
  except (OSError, subprocess.CalledProcessError):
    return None
  return said.stdout.decode().strip() + ('-dirty' if differs.returncode else '')


def read_arguments(argv: list[str]) -> tuple[list[workloads.Job], Suite]:
  """Reads and checks the command line.

  Raises:
    ValueError: a value is not known, or a folder is not there.
  """
  if words := cli.read(FLAGS, argv, __doc__):
    raise app.UsageError(f'{words[0]!r}: unexpected')
  file = paths.given(FLAGS.json, '--json') if FLAGS.json else None
  if file and not file.absolute().parent.is_dir():
    raise ValueError(f'--json={FLAGS.json}: there is no such folder')
  folder = paths.given(FLAGS.results, '--results') if FLAGS.results else None
  if folder and not folder.absolute().parent.is_dir():
    raise ValueError(f'--results={FLAGS.results}: there is no folder for it')
  for name in FLAGS.peer:
    if name not in PEERS:
      raise ValueError(f'--peer={name}: only {", ".join(PEERS)}')
  jobs = choose(workloads.SUITES[FLAGS.suite](), [n.lower() for n in FLAGS.only], FLAGS.suite)
  peers = {name: peer_command(FLAGS.peer_python, name) for name in FLAGS.peer}
  said = [word for word in argv[1:] if not word.startswith('--peer_python')]
  about = {'command': ' '.join(['python launch/benchmark.py', *said]), 'commit': commit()}
  return jobs, Suite(peers, file, FLAGS.scale == 'smoke', folder, about)


def main(argv: list[str]) -> int:
  """Runs a suite; returns the exit status."""
  began = time.monotonic()
  with cli.refusals():
    jobs, suite = read_arguments(argv)
    jax_setup.prepare_jax()
  if suite.folder:
    suite.folder.mkdir(exist_ok=True)
  import jax

  jax.config.update('jax_enable_compilation_cache', False)  # compilation is measured too
  smoke = suite.smoke
  devices = jax.local_devices()
  kind = f'{len(devices)} x {devices[0].device_kind}, {os.cpu_count()} cores'
  print(f'jax {jax.__version__}, {kind}{", smoke: the numbers mean nothing" if smoke else ""}')
  succeeded = True
  for job, file in zip(jobs, file_names(jobs), strict=True):
    try:
      succeeded &= suite.run(workloads.smoke(job) if smoke else job, file)
    except ValueError as error:
      print(f'{job.name}: {error}', flush=True)
      succeeded = False
  print(f'{time.monotonic() - began:.0f} s in all', flush=True)
  return 0 if succeeded else 1


if __name__ == '__main__':
  sys.exit(main(sys.argv))
