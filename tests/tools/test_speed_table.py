"""The table of docs/speed.md: rows by hand, and the page shows what the files say."""

from benchmarks import workloads
from tools import speed_table


def content(name, **changes):
  result = {
    'seconds': 0.0741,
    'spread': [0.0719, 0.0752],
    'peer_seconds': 0.4521,
    'peer_spread': [0.44, 0.46],
    'ratio': 6.31,
    'ratio_low': 6.04,
    'floor_seconds': 0.0277,
    'peak_memory_bytes': None,
    'peer_peak_bytes': 44 << 20,
    'peer': 'torch',
  }
  return {
    'name': name,
    'command': 'python launch/benchmark.py --peer=torch',
    'commit': 'abc',
    'date': '2026-11-30 16:20',
    'load': 0.3,
    'machine': {'processor': 'P', 'cores': 2, 'jax': '0.10.2'},
    'rates': {'float32': {'operations': 4.4e11, 'bytes': 7e9}},
    'peers': {'torch': 'PyTorch 2.14.0', 'flower': 'Flower 1'},
    'results': [result | changes],
  }


def test_rows_by_hand():
  both = content('w3')
  both['results'].append(both['results'][0] | {'peer': 'flower', 'peer_peak_bytes': None})
  alone = {'ratio': None, 'floor_seconds': None}
  lines = speed_table.table({'w3': both, 'w1': content('w1', **alone)}).splitlines()
  ours, about = '0.0741 (0.0719 to 0.0752)', speed_table.ABOUT
  assert lines[2:5] == [
    f'| {about["w1"]} | {ours} |  |  |  |  |',
    f'| {about["w3"]} | {ours} | 0.0277 | 0.452 (0.44 to 0.46), PyTorch 2.14.0 | 6.31 (6.04) |'
    ' -; 44 MiB |',
    '|  |  |  | 0.452 (0.44 to 0.46), Flower 1 | 6.31 (6.04) |  |',
  ]
  assert lines[6:] == [
    '`python launch/benchmark.py --peer=torch`: commit abc, 2026-11-30, 2 cores (P), jax 0.10.2,'
    ' 0.44 TFLOP/s in a matrix product, 0.3 other processes at the start.'
  ]


def test_every_workload_of_the_cpu_has_a_row():
  assert {job.name for job in workloads.SUITES['cpu']()} == set(speed_table.ABOUT)


def test_the_page_shows_what_the_files_say():
  page = speed_table.PAGE.read_text()
  shown = page.split(speed_table.BEGIN)[1].split(speed_table.END)[0]
  if read := speed_table.read_files():
    assert shown == speed_table.table(read)
