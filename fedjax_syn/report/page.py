"""The page: tables, pictures and numbers of runs in a template, and the plotting library."""

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core import paths
from fedjax_syn.plotting import numbers
from fedjax_syn.report import tables
from fedjax_syn.report.commands import command_of
from fedjax_syn.report.pictures import as_uri, montage
from fedjax_syn.report.runs import INSPECTED, Run, open_runs, short_names
from fedjax_syn.runs.stored_files import read_bytes

COLOURS = ('#0072b2', '#d55e00', '#009e73', '#b65c9b', '#b8860b', '#3a9bd9', '#808080')
"""Okabe and Ito's, which most colour-blind people tell apart, for both backgrounds."""
DASHES = (('solid', ''), ('dash', '8 4'), ('dot', '2 4'), ('dashdot', '8 4 2 4'))
"""Plotly's and SVG's; they change when the colours begin again."""
NOT_CURVES = ('round', 'seed', 'seconds', 'padding_efficiency')
FIRST = 'test/accuracy'
CLIENTS = 1000
"""Drawn at most, in the partition."""
CLIENT_ROWS = 60
"""Listed at most, beside it."""
IN_SCRIPT = ('counts', 'class_names', 'client_names')
"""What the script draws of a partition."""
SIGNATURE = b'Made by fedjax_syn. The page holds all'
"""In every page."""
LETTERS = 20
"""Of a name beside a picture."""


def write(folders: Sequence[str | Path], output: str | Path) -> int:
  """Writes the page of some runs.

  Args:
    folders: of the runs; what each was compared with (`compare/`) is shown too.
    output: the page, one HTML file.

  Returns:
    How many runs it shows.

  Raises:
    ValueError: if a folder is no run, the extra `report` is not installed, or `output` is a file
      that is no report.
    OSError: if the page cannot be written.
  """
  runs = open_runs(folders)
  page = render(runs, {run.label: command_of(run) for run in runs})
  output = paths.given(output)
  if output.exists() and not (output.is_file() and SIGNATURE in (read_bytes(output) or b'')):
    raise ValueError(f'--output={output}: is there and is no report; name another file')
  paths.write_whole(output, page.encode(errors='replace'))
  return len(runs)


def render(runs: Sequence[Run], commands: dict[str, str]) -> str:
  """Returns the page of runs as HTML that asks nothing of any network; see `write`.

  Args:
    runs: from `open_runs`.
    commands: by label, what to type to train it again.

  Returns:
    The HTML.

  Raises:
    ValueError: if the extra `report` is not installed.
  """
  try:
    import jinja2
    from plotly.offline import get_plotlyjs
  except ImportError as error:
    raise ValueError(f"{error}: pip install -e '.[report]'") from error
  part = lambda name: resources.files('fedjax_syn.report').joinpath(name).read_text('utf-8')
  loader = jinja2.DictLoader({'page.html': part('page.html')})
  environment = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined)
  environment.policies['json.dumps_kwargs'] = {'sort_keys': False, 'allow_nan': False}
  client_table, partitions = tables.client_accuracy(runs), _partitions(runs)
  styled = [{'label': run.label, **_style(i)} for i, run in enumerate(runs)]
  shared_settings, own_settings = tables.settings(runs)
  one_seed = all(len(run.seeds) == 1 for run in runs)
  sets = [_set(run) for run in runs if run.synthetic]
  return environment.get_template('page.html').render(
    css=part('page.css'),
    script=part('page.js'),
    plotly=get_plotlyjs(),
    title=', '.join(dict.fromkeys(short_names(runs))),
    datasets=', '.join(dict.fromkeys(run.stored['dataset']['title'] for run in runs)),
    unlike=_unlike(runs),
    runs=list(zip(styled, runs, strict=True)),
    results=tables.results(runs),
    one_seed=one_seed,
    over_seeds='one seed' if one_seed else 'mean ± standard deviation over seeds',
    eval_every=sorted({run.settings['eval_every'] for run in runs}),
    metrics=_metrics(runs),
    curve_table=tables.accuracy_over_rounds(runs),
    partitions=partitions,
    without_partition=[run.label for run in runs if run.counts is None],
    client_table=client_table,
    unmeasured=[r.label for r in runs if r.label not in {row[0] for row in client_table.rows}],
    sets=sets,
    inspected=[_inspected(run) for run in runs if run.inspected],
    settings=shared_settings,
    own_settings=own_settings,
    commands=commands,
    made_on=tables.made_on(runs),
    data={
      'runs': [{**style, **_curves(run)} for style, run in zip(styled, runs, strict=True)],
      'partitions': [{key: p[key] for key in IN_SCRIPT} for p in partitions],
      'spread': _spreads(runs),
      'sets': [{'pictures': s['montage'].pictures, 'texts': s['texts']} for s in sets],
    },
  )


def _unlike(runs: Sequence[Run]) -> str:
  """Says in what runs differ that makes their numbers hard to compare; '' if in nothing."""
  data = {run.stored['dataset'].get('checksum'): run.stored['dataset']['title'] for run in runs}
  rounds = sorted({run.settings['rounds'] for run in runs})
  texts = []
  if len(data) > 1:
    alike = len(set(data.values())) < len(data)
    names = [f'{title} ({f"{key}"[:8]})' if alike else title for key, title in data.items()]
    texts.append(f'on different data sets: {", ".join(names)}')
  if len(rounds) > 1:
    texts.append(f'of different length: {", ".join(map(str, rounds))} rounds')
  return '; '.join(texts)


def _style(position: int) -> dict[str, str]:
  dash, pattern = DASHES[position // len(COLOURS) % len(DASHES)]
  return {'colour': COLOURS[position % len(COLOURS)], 'dash': dash, 'pattern': pattern}


def _metrics(runs: Sequence[Run]) -> list[str]:
  """Names of what can be drawn, accuracy on the test split first."""
  keys = dict.fromkeys(key for run in runs for line in run.lines for key in line)
  return sorted((k for k in keys if k not in NOT_CURVES), key=lambda k: (k != FIRST, k))


def _curves(run: Run) -> dict[str, Any]:
  """A run's metrics over rounds, mean and standard deviation over seeds, and its bytes."""
  curves = {}
  for key in dict.fromkeys(key for line in run.lines for key in line if key not in NOT_CURVES):
    values = numbers.curve(run.lines, key)
    finite = lambda array: [float(v) if math.isfinite(v) else None for v in array]
    mean, std = finite(values.mean), finite(values.std)
    curves[key] = {'round': values.rounds.tolist(), 'mean': mean, 'std': std}
  summary = run.summary or {}
  up, before = summary.get('bytes_up'), summary.get('bytes_before', 0)
  each = None if up is None else (up - before) / run.settings['rounds']
  return {'curves': curves, 'up': each, 'before': before}


def _partitions(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """The partitions, each once, with the runs that share it."""
  groups: dict[str, tuple[np.ndarray, list[Run]]] = {}
  for run in runs:
    if run.counts is not None:
      key = f'{run.counts.tolist()} {_names(run, run.counts)}'
      groups.setdefault(key, (run.counts, []))[1].append(run)
  return [
    {**_partition(group[0], counts), 'names': ', '.join(run.label for run in group)}
    for counts, group in groups.values()
  ]


def _names(run: Run, counts: np.ndarray) -> tuple[list[str], list[str]]:
  """Classes and clients."""
  clients, classes = counts.shape
  return [run.class_name(c) for c in range(classes)], [run.client_name(i) for i in range(clients)]


def _partition(run: Run, counts: np.ndarray) -> dict[str, Any]:
  classes, clients = _names(run, counts)
  sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
  listed = enumerate(counts[:CLIENT_ROWS])
  rows = [[clients[i], *map(str, row), f'{row.sum()}'] for i, row in listed]
  head = [f'class {name}' if name == f'{c}' else name for c, name in enumerate(classes)]
  return {
    'clients': len(counts),
    'text': (
      f'{len(counts)} clients, {sizes.min()} to {sizes.max()} samples each (median'
      f' {np.median(sizes):g}), of {held.min()} to {held.max()} of {len(classes)} classes (median'
      f' {np.median(held):g})'
    ),
    'shown': min(len(counts), CLIENTS),
    'counts': counts[:CLIENTS].T.tolist(),
    'class_names': _beside(classes),
    'client_names': _beside(clients[:CLIENTS]),
    'table': tables.Table(['client', *head, 'all'], rows),
  }


def _beside(names: Sequence[str]) -> list[str]:
  """Names that are short enough beside a picture, and different from each other."""
  cut = [name if len(name) <= LETTERS else name[: LETTERS - 1] + '…' for name in names]
  return cut if len(set(cut)) == len(set(names)) else [f'{i} {name}' for i, name in enumerate(cut)]


def _spreads(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """What the box plots show: every client of every seed."""
  boxes = []
  for i, run in enumerate(runs):
    for key, name in (('global_accuracy', ''), ('personal_accuracy', ', personal models')):
      if by_seed := tables.client_values(run, key):
        values = np.round(np.concatenate(list(by_seed.values())), 4).tolist()
        boxes.append({'label': run.label + name, **_style(i), 'values': values})
  return boxes


def _set(run: Run) -> dict[str, Any]:
  seed, learned = next(iter(run.synthetic.items()))
  pictures = montage(learned)
  texts = [f'iteration {i} of {pictures.iterations[-1]}' for i in pictures.iterations]
  names = [run.class_name(c) for c in pictures.classes]
  more = {'texts': texts, 'names': names, 'beside': _beside(names)}
  return {'label': run.label, 'seed': seed, 'montage': pictures, **more}


def _inspected(run: Run) -> dict[str, Any]:
  pictures = [(INSPECTED[name], as_uri(content)) for name, content in run.inspected.items()]
  return {'label': run.label, 'pictures': pictures}
