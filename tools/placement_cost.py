"""Measures what registered clients and training rows cost with rows on the device and on the host.

  python -m tools.placement_cost --workdir=W [--clients=10000,100000,1000000] [--rounds=40]

  --clients  registered clients of the runs; each has 4 rows of 8 x 8 random pixels
  --rounds   of each run

FedAvg, an MLP, 32 clients in a round. Each run is a process of its own, and its rows are a memory
map in W. A last pair of runs has 1,000 clients with 20 rows of 32 x 32 x 3 pixels each, four times
as many bytes as a device is said to have.

Prints a table: seconds of the processor before round 1 and for a round (after the first ten), bytes
of all arrays on the device, most memory that the process had. W/placement.json has the numbers.
Exit status: 0, 1 if rows on the host break a promise (`broken`), 2 refused.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.split import check_split
from tools import long_run

FLAGS = flags.FlagValues()
flags.DEFINE_string('workdir', None, 'where results go', flag_values=FLAGS)
flags.DEFINE_list('clients', ['10000', '100000', '1000000'], 'registered', flag_values=FLAGS)
flags.DEFINE_integer('rounds', 40, 'of each run', lower_bound=20, flag_values=FLAGS)
flags.DEFINE_string('one', '', 'a run of its own process, as JSON', flag_values=FLAGS)

FOLDER = 'FEDJAX_SYN_PLACEMENT_ROWS'  # in the environment: where `rows` finds its files
SMALL, LARGE = (4, 8, 1), (20, 32, 3)  # rows of a client, side, channels
MOST_MEMORY, MOST_GROWTH = 6e9, 1.1  # bytes of a process; arrays of most clients against fewest


def rows() -> Dataset:
  """Returns the data set that `write` has written; `data.name` of the runs."""
  folder = pathlib.Path(os.environ[FOLDER])
  x, y, clients = (np.load(folder / f'{name}.npy', mmap_mode='r') for name in ('x', 'y', 'clients'))
  train = check_split(x, y, str(folder))
  test = check_split(x[:500], y[:500], str(folder))
  return make('rows', 'random pixels', train, test, 10, 'half', clients=np.asarray(clients))


def write(folder: pathlib.Path, clients: int, shape: tuple[int, int, int]) -> int:
  """Writes random rows as files that can be mapped; returns the bytes of their pixels.

  Args:
    folder: is made.
    clients: registered.
    shape: rows of a client, side and channels of an image.
  """
  each, side, channels = shape
  folder.mkdir(parents=True)
  total, rng = clients * each, np.random.default_rng(0)
  x = np.lib.format.open_memmap(folder / 'x.npy', 'w+', np.uint8, (total, side, side, channels))
  for first in range(0, total, 100_000):
    part = x[first : first + 100_000]
    part[:] = rng.integers(0, 256, part.shape, np.uint8)
  x.flush()
  np.save(folder / 'y.npy', (np.arange(total) % 10).astype(np.int32))
  np.save(folder / 'clients.npy', np.repeat(np.arange(clients, dtype=np.int32), each))
  return x.nbytes


def run_one(clients: int, placement: str, rounds: int, folder: str) -> dict[str, Any]:
  """Runs FedAvg in this process and measures it."""
  config = long_run.config_of(
    rounds,
    **{
      'data.name': 'tools.placement_cost:rows',
      'data.partition': 'natural',
      'data.clients': clients,
      'data.placement': placement,
      'checkpoint_every': rounds,
      'layout.devices': 1,
    },
  )
  samples = long_run.measure(config, pathlib.Path(folder))
  settled = [s for s in samples if s.round >= 10]
  pairs = zip(settled[:-1], settled[1:], strict=True)
  seconds = [(b.seconds - a.seconds) / (b.round - a.round) for a, b in pairs if b.round > a.round]
  return {
    'clients': clients,
    'placement': placement,
    'before_round_1': samples[0].seconds,
    'seconds_a_round': float(np.median(seconds)),
    'device_bytes': max(s.live_bytes for s in samples),
    'most_memory': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
  }


def broken(results: Sequence[dict[str, Any]]) -> list[str]:
  """States which promises of rows on the host do not hold.

  Args:
    results: of `run_one`, with 'limit', the bytes that a device is said to have; 0: any.
  """
  hosts = [r for r in results if r['placement'] == 'host']
  free = [r for r in hosts if not r['limit']]
  found = [
    f'{r["clients"]} clients: the process had {r["most_memory"]} bytes of memory'
    for r in free
    if r['most_memory'] > MOST_MEMORY
  ]
  sizes = [r['device_bytes'] for r in free]
  if sizes and max(sizes) > MOST_GROWTH * min(sizes):
    found.append(f'arrays grow from {min(sizes)} to {max(sizes)} bytes')
  for r in hosts:
    if r['limit'] and r['device_bytes'] > r['limit']:
      found.append(f'{r["device_bytes"]} bytes are more than the {r["limit"]} of the device')
  return found


def table(results: Sequence[dict[str, Any]]) -> str:
  """Returns the results as a table in Markdown."""
  lines = [
    '| clients | rows, MB | placement | before round 1, s | a round, ms | on the device, MB |'
    ' most memory, MB |',
    '|---|---|---|---|---|---|---|',
  ]
  for r in results:
    limit = f' (of {r["limit"] / 1e6:,.1f})' if r['limit'] else ''
    lines.append(
      f'| {r["clients"]:,} | {r["row_bytes"] / 1e6:,.1f} | {r["placement"]} |'
      f' {r["before_round_1"]:.1f} | {1000 * r["seconds_a_round"]:.1f} |'
      f' {r["device_bytes"] / 1e6:,.2f}{limit} | {r["most_memory"] / 1e6:,.0f} |'
    )
  return '\n'.join(lines)


def in_process(data: pathlib.Path, **work: Any) -> dict[str, Any]:
  """Runs `run_one` in a process of its own."""
  command = [sys.executable, '-m', 'tools.placement_cost', f'--one={json.dumps(work)}']
  environment = os.environ | {FOLDER: str(data)}
  done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
  return json.loads(done.stdout.strip().splitlines()[-1])


def main(argv: Sequence[str]) -> int:
  """Runs what is asked for; returns the exit status."""
  if any(argument.startswith('--one=') for argument in argv):
    FLAGS(argv)
    jax_setup.prepare_jax()
    print(json.dumps(run_one(**json.loads(FLAGS.one))))
    return 0
  with cli.refusals():
    workdir = cli.new_folder(FLAGS, argv, __doc__)
    plan = [(int(number), SMALL) for number in FLAGS.clients] + [(1000, LARGE)]
  results = []
  for clients, shape in plan:
    data = workdir / f'rows_{clients}_{shape[1]}'
    row_bytes = write(data, clients, shape)
    for placement in ('device', 'host'):
      folder = str(workdir / f'{data.name}_{placement}')
      work = {'clients': clients, 'placement': placement, 'rounds': FLAGS.rounds, 'folder': folder}
      limit = row_bytes // 4 if shape == LARGE else 0
      results.append({**in_process(data, **work), 'row_bytes': row_bytes, 'limit': limit})
      print(json.dumps(results[-1]), file=sys.stderr, flush=True)
  (workdir / 'placement.json').write_text(json.dumps(results, indent=1))
  print(table(results))
  for line in (faults := broken(results)):
    print(f'BROKEN: {line}')
  return 1 if faults else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
