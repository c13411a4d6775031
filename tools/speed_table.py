"""Writes the table of docs/speed.md from the files in results/benchmarks.

  python launch/benchmark.py --peer=torch,flower --only=w1,... --results=results/benchmarks
  python -m tools.speed_table

The table stands between two comments of the page, and everything else stays. A workload without a
file has no row. Exit status: 0.
"""

import json
import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, FOLDER = ROOT / 'docs' / 'speed.md', ROOT / 'results' / 'benchmarks'
BEGIN, END = '<!-- results/benchmarks -->\n', '<!-- end of results/benchmarks -->\n'
ABOUT = {  # the rows, by file
  'w1': 'W1: a round of FedAvg, Fashion-MNIST, 32 of 80 clients x 750, batch 32, MLP'
  ' 784-128-128-10',
  'w2': 'W2: the same, ConvNet of width 32',
  'w3': 'W3: W1 on a Dirichlet split, alpha 0.1',
  'w3x': 'W3x: the same at 0.01',
  'w4': 'W4: an iteration of trajectory matching, 20 steps on 150 images, the MLP',
  'w4conv': 'W4 with the ConvNet of width 32',
  'w4c': 'W4 with the ConvNet of width 128, CIFAR-10',
  'w5': 'W5: a round of FedCOG after T0, 4 clients, 100 steps of generation of 256 images and 100'
  ' local steps of 64 + 64 images, LeNet-like CNN, Fashion-MNIST',
  'w6': 'W6: two clients of FedDualMatch distil their data (LDM), MNIST, ten classes, 600 real and'
  ' 100 learned images, 20 iterations in each of 3 stages, ConvNet of width 32',
  'w6dm': 'W6 with FedDM: 6 iterations, each with 256 real images a class',
  'w7': "W7: the server's gradient matching (FedDualMatch), MNIST, 10 steps on 4 sets of 100"
  ' images, ConvNet of width 32',
  'w8': 'W8: a whole run of DynaFed in a new process, compilation included: digits, MLP, 60 rounds,'
  ' 300 iterations of synthesis',
  'tutorial': 'A round of the public comparison of BlazeFL and Flower: CIFAR-10, 100 clients,'
  " 5 epochs, batch 50, the tutorial's CNN",
  'seeds': 'W1 for three seeds, one after the other',
}


def number(value: float) -> str:
  """Writes seconds or a ratio with three digits."""
  return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


def _seconds(median: float, spread: list[float]) -> str:
  low, high = map(number, spread)
  return number(median) + (f' ({low} to {high})' if low != high else '')


def rows(content: dict[str, Any]) -> list[str]:
  """Returns the rows of one file; a second peer has a row of its own, beside the same seconds."""
  written = []
  for result in content['results']:
    floor, ratio = result['floor_seconds'], result['ratio']
    ours = _seconds(result['seconds'], result['spread'])
    cells = [ABOUT[content['name']], ours, number(floor) if floor else '', '', '', '']
    if ratio is not None:
      cells[3] = _seconds(result['peer_seconds'], result['peer_spread'])
      cells[3] += f', {content["peers"][result["peer"]]}'
      cells[4] = f'{number(ratio)} ({number(result["ratio_low"])})'
      sizes = result['peak_memory_bytes'], result['peer_peak_bytes']
      if any(sizes):
        cells[5] = '; '.join(f'{size / 2**20:,.0f} MiB' if size else '-' for size in sizes)
    if written:
      cells[:3] = '', '', ''
    written.append(f'| {" | ".join(cells)} |')
  return written


def _ends(values: list[float], unit: str) -> str:
  low, high = map(number, (min(values), max(values)))
  return f'{low} {unit}' if low == high else f'{low} to {high} {unit}'


def source(contents: list[dict[str, Any]]) -> str:
  """States in one line where and when files with the same command, commit and machine were made."""
  first, machine = contents[0], contents[0]['machine']
  speeds = [c['rates']['float32']['operations'] / 1e12 for c in contents if c['rates']]
  said = [f'commit {first["commit"]}', first['date'].split()[0]]
  said += [f'{machine["cores"]} cores ({machine["processor"]})', f'jax {machine["jax"]}']
  said += [_ends(speeds, 'TFLOP/s in a matrix product')] if speeds else []
  said += [_ends([c['load'] for c in contents], 'other processes at the start')]
  return f'`{first["command"]}`: {", ".join(said)}.'


def table(read: dict[str, dict[str, Any]]) -> str:
  """Writes the table.

  Args:
    read: contents of the files by name.

  Returns:
    Markdown: the rows in the order of `ABOUT`, then where they come from.
  """
  contents = [read[name] for name in ABOUT if name in read]
  groups: dict[tuple, list[dict[str, Any]]] = {}
  for content in contents:
    key = content['command'], content['commit'], content['date'].split()[0]
    groups.setdefault((*key, *content['machine'].values()), []).append(content)
  head = (
    '| work | ours, seconds | least time by operations | peer, seconds | times as fast as the peer:'
    " median (lower quartile) | memory: our program's temporary arrays; growth of the peer |"
  )
  body = [row for content in contents for row in rows(content)]
  said = [source(group) for group in groups.values()]
  return '\n'.join([head, '|---|---|---|---|---|---|', *body, '', *said, ''])


def read_files() -> dict[str, dict[str, Any]]:
  """Reads the files in results/benchmarks, by name."""
  return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob('*.json'))}


def main() -> None:
  """Rewrites the table."""
  page = PAGE.read_text()
  before, rest = page.split(BEGIN)
  PAGE.write_text(before + BEGIN + table(read_files()) + END + rest.split(END)[1])


if __name__ == '__main__':
  main()
