"""The page: tables, pictures and numbers of runs, put into a template together with the plotting library."""

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

# Okabe and Ito's colours, which most colour-blind people tell apart, dark enough or bright enough for both
# backgrounds; the dashes change when the colours begin again.
COLOURS = ('#0072b2', '#d55e00', '#009e73', '#b65c9b', '#b8860b', '#3a9bd9', '#808080')
DASHES = (('solid', ''), ('dash', '8 4'), ('dot', '2 4'), ('dashdot', '8 4 2 4'))  # Plotly's, SVG's
NOT_CURVES = ('round', 'seed', 'seconds', 'padding_efficiency')
FIRST = 'test/accuracy'
CLIENTS = 1000  # drawn at most, in the partition
CLIENT_ROWS = 60  # listed at most, beside it
IN_SCRIPT = ('counts', 'class_names', 'client_names')  # what the script draws of a partition
SIGNATURE = b'Made by fedjax_syn. The page holds all'  # in every page
LETTERS = 20  # of a name, beside a picture


def write(folders: Sequence[str | Path], output: str | Path) -> int:
  """Writes the page of some runs.

  Args:
    folders: of the runs; what each was compared with (`compare/`) is shown too.
    output: the page, one HTML file.

  Returns:
    How many runs it shows.

  Raises:
    ValueError: if a folder is no run, the extra `report` is not installed, or `output` is a file that is no report.
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
  spread, partitions = tables.spread(runs), _partitions(runs)
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
    runs=[{'label': run.label, **_style(i), **_about(run)} for i, run in enumerate(runs)],
    results=tables.results(runs),
    one_seed=one_seed,
    over_seeds='one seed' if one_seed else 'mean ± standard deviation over seeds',
    eval_every=sorted({run.settings['eval_every'] for run in runs}),
    metrics=_metrics(runs),
    curve_table=tables.accuracy_over_rounds(runs),
    partitions=partitions,
    without_partition=[run.label for run in runs if run.counts is None],
    spread=spread,
    without_spread=[run.label for run in runs if run.label not in {r[0] for r in spread.rows}],
    sets=sets,
    inspected=[_inspected(run) for run in runs if run.inspected],
    settings=shared_settings,
    own_settings=own_settings,
    commands=commands,
    made_on=tables.made_on(runs),
    data={
      'runs': [{'label': run.label, **_style(i), **_curves(run)} for i, run in enumerate(runs)],
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


def _about(run: Run) -> dict[str, Any]:
  return {'seeds': len(run.seeds), 'finished': run.summary is not None}


def _metrics(runs: Sequence[Run]) -> list[str]:
  """Names of what can be drawn, accuracy on the test split first."""
  keys = dict.fromkeys(key for run in runs for line in run.lines for key in line)
  return sorted((k for k in keys if k not in NOT_CURVES), key=lambda k: (k != FIRST, k))


def _curves(run: Run) -> dict[str, Any]:
  """A run's metrics over rounds: mean over seeds, and standard deviation where there are several."""
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
  groups: list[tuple[dict[str, Any], list[str]]] = []
  for run in runs:
    if run.counts is None:
      continue
    made = _partition(run)
    same = [names for other, names in groups if other['held'] == made['held']]
    if same:
      same[0].append(run.label)
    else:
      groups.append((made, [run.label]))
  return [{**made, 'names': ', '.join(names)} for made, names in groups]


def _partition(run: Run) -> dict[str, Any]:
  counts = run.counts
  sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
  classes = [run.class_name(c) for c in range(counts.shape[1])]
  clients = [run.client_name(i) for i in range(len(counts))]
  rows = [
    [clients[i], *map(str, row), f'{row.sum()}'] for i, row in enumerate(counts[:CLIENT_ROWS])
  ]
  head = [
    'client',
    *(f'class {name}' if name == f'{c}' else name for c, name in enumerate(classes)),
  ]
  return {
    'held': (counts.tolist(), classes, clients),  # two runs that agree in it share the partition
    'clients': len(counts),
    'classes': counts.shape[1],
    'text': (
      f'{len(counts)} clients, {sizes.min()} to {sizes.max()} samples each (median {np.median(sizes):g}), '
      f'of {held.min()} to {held.max()} of {counts.shape[1]} classes (median {np.median(held):g})'
    ),
    'shown': min(len(counts), CLIENTS),
    'counts': counts[:CLIENTS].T.tolist(),
    'class_names': _beside(classes),
    'client_names': _beside(clients[:CLIENTS]),
    'table': tables.Table([*head, 'all'], rows),
  }


def _beside(names: Sequence[str]) -> list[str]:
  """Names short enough to stand beside a picture, still different from each other."""
  cut = [name if len(name) <= LETTERS else name[: LETTERS - 1] + '…' for name in names]
  return cut if len(set(cut)) == len(set(names)) else [f'{i} {name}' for i, name in enumerate(cut)]


def _spreads(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """What the box plots show: every client of every seed."""
  found = []
  for i, run in enumerate(runs):
    for key, name in (('global_accuracy', ''), ('personal_accuracy', ', personal models')):
      values = tables.client_values(run, key)
      if values:
        together = np.concatenate(list(values.values()))
        found.append(
          {'label': run.label + name, **_style(i), 'values': np.round(together, 4).tolist()}
        )
  return found


def _set(run: Run) -> dict[str, Any]:
  seed, learned = next(iter(run.synthetic.items()))
  made = montage(learned)
  texts = [f'iteration {i} of {made.iterations[-1]}' for i in made.iterations]
  names = [run.class_name(c) for c in made.classes]
  return {
    'label': run.label,
    'seed': seed,
    'montage': made,
    'texts': texts,
    'names': names,
    'beside': _beside(names),
  }


def _inspected(run: Run) -> dict[str, Any]:
  pictures = [(INSPECTED[name], as_uri(content)) for name, content in run.inspected.items()]
  return {'label': run.label, 'pictures': pictures}
