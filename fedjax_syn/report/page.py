"""The page: tables, pictures and numbers of runs in a template."""

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn import algorithms
from fedjax_syn.core import paths
from fedjax_syn.layer import overrides
from fedjax_syn.plotting import numbers
from fedjax_syn.plotting.style import plain_title, styles
from fedjax_syn.report import heatmaps, tables
from fedjax_syn.report.commands import command_of
from fedjax_syn.report.pictures import as_uri, montage
from fedjax_syn.report.runs import INSPECTED, Run, open_runs, short_names, why_not
from fedjax_syn.runs.stored_files import read_bytes

NOT_CURVES = ('round', 'seed', 'seconds', 'padding_efficiency', 'collapsed_since')
ORDER = ('test/accuracy', 'test/loss', 'test/', 'validation/', 'personal/', 'unseen/', 'train/')
"""How the names of the first metrics begin."""
POINTS = 500
"""Of a curve, at most."""
DOTS = 200
"""Of a box, at most."""
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
    raise ValueError(f'--output={output}: exists and is not a report; name another file')
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
  except ImportError as error:
    raise ValueError(f"{error}: pip install -e '.[report]'") from error
  part = lambda name: resources.files('fedjax_syn.report').joinpath(name).read_text('utf-8')
  loader = jinja2.DictLoader({'page.html': part('page.html')})
  environment = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined)
  environment.policies['json.dumps_kwargs'] = {'sort_keys': False, 'allow_nan': False}
  client_table, styled, metrics = tables.client_accuracy(runs), _styled(runs), _metrics(runs)
  measured = {row[0] for row in client_table.rows}
  shared_settings, own_settings = tables.settings(runs)
  one_seed = all(len(run.seeds) == 1 for run in runs)
  sets = [_set(run) for run in runs if run.synthetic]
  classless = [run for run in runs if not any('class_accuracy' in a for a in run.clients.values())]
  return environment.get_template('page.html').render(
    css=part('page.css'),
    script=part('page.js'),
    title=', '.join(dict.fromkeys(short_names(runs))),
    datasets=', '.join(dict.fromkeys(plain_title(run.stored['dataset']['title']) for run in runs)),
    unlike=_unlike(runs),
    protocol=tables.protocol(runs),
    runs=list(zip(styled, runs, strict=True)),
    results=tables.results(runs),
    one_seed=one_seed,
    over_seeds='one seed' if one_seed else 'mean ± standard deviation over seeds',
    eval_every=sorted({run.settings['eval_every'] for run in runs}),
    metrics={key: numbers.metric_title(key).removesuffix(' (%)') for key in metrics},
    thinned=any(len(run.lines) > POINTS * len(run.seeds) for run in runs),
    points=POINTS,
    curve_table=tables.accuracy_over_rounds(runs),
    partitions=heatmaps.partitions(runs),
    without_partition=', '.join(run.label for run in runs if run.counts is None),
    by_class=heatmaps.by_class(runs),
    without_classes=why_not(classless),
    confusions=heatmaps.confusions(runs),
    without_confusions=heatmaps.without_confusions(runs),
    boxes=_boxes(runs, styled),
    client_table=client_table,
    unmeasured=why_not([run for run in runs if run.label not in measured]),
    sets=sets,
    without_set=why_not([run for run in runs if run.summary is None and _learns(run)]),
    inspected=[_inspected(run) for run in runs if run.inspected],
    settings=shared_settings,
    own_settings=own_settings,
    commands=commands,
    made_on=tables.made_on(runs),
    data={
      'runs': [{**style, **_curves(run)} for style, run in zip(styled, runs, strict=True)],
      'titles': {key: numbers.metric_title(key) for key in metrics},
      'sets': [{'pictures': s['montage'].pictures, 'texts': s['texts']} for s in sets],
    },
  )


def _unlike(runs: Sequence[Run]) -> str:
  """States in what runs differ that makes their numbers hard to compare; '' if in nothing."""
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


def _styled(runs: Sequence[Run]) -> list[dict[str, str]]:
  """Labels, colours and dashes; dashes as SVG reads them, of a line two pixels wide."""
  looks = styles([run.settings['algorithm'] for run in runs])
  return [
    {'label': run.label, 'colour': colour, 'pattern': ' '.join(str(2 * n) for n in dash)}
    for run, (colour, dash) in zip(runs, looks, strict=True)
  ]


def _metrics(runs: Sequence[Run]) -> list[str]:
  """Names of what can be drawn: those of splits and training, then those of methods."""
  keys = dict.fromkeys(key for run in runs for line in run.lines for key in line)
  rank = lambda key: next((i for i, name in enumerate(ORDER) if key.startswith(name)), len(ORDER))
  return sorted((k for k in keys if k not in NOT_CURVES), key=lambda k: (rank(k), k))


def _curves(run: Run) -> dict[str, Any]:
  """A run's metrics over rounds, mean and standard deviation over seeds, and its bytes."""
  curves = {}
  for key in _metrics([run]):
    c, scale = numbers.curve(run.lines, key), numbers.percent(key)
    kept = np.unique(np.linspace(0, len(c.rounds) - 1, min(POINTS, len(c.rounds))).astype(int))
    short = lambda values: [float(f'{scale * v:.5g}') if math.isfinite(v) else None for v in values]
    mean, std = short(c.mean[kept]), short(c.std[kept])
    curves[key] = {'round': c.rounds[kept].tolist(), 'mean': mean, 'std': std}
  summary = run.summary or {}
  up, before = summary.get('bytes_up'), summary.get('bytes_before', 0)
  each = None if up is None else (up - before) / run.settings['rounds']
  return {'curves': curves, 'up': each, 'before': before}


def _beside(names: Sequence[str]) -> list[str]:
  """Names that are short enough beside a picture, and different from each other."""
  cut = [name if len(name) <= LETTERS else name[: LETTERS - 1] + '…' for name in names]
  return cut if len(set(cut)) == len(set(names)) else [f'{i} {name}' for i, name in enumerate(cut)]


def _boxes(runs: Sequence[Run], styled: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
  """What the box plots show, in per cent: every client of every seed."""
  boxes = []
  for run, style in zip(runs, styled, strict=True):
    for key, name in (('global_accuracy', ''), ('personal_accuracy', ', personal models')):
      if by_seed := tables.client_values(run, key):
        values = 100 * np.concatenate(list(by_seed.values()))
        five = np.percentile(values, (0, 25, 50, 75, 100)).round(2).tolist()
        dots = values.round(2).tolist() if len(values) <= DOTS else []
        boxes.append({**style, 'label': run.label + name, 'five': five, 'dots': dots})
  return boxes


def _set(run: Run) -> dict[str, Any]:
  seed, learned = next(iter(run.synthetic.items()))
  pictures = montage(learned)
  texts = [f'iteration {i} of {pictures.iterations[-1]}' for i in pictures.iterations]
  names = [run.class_names()[c] for c in pictures.classes]
  more = {'texts': texts, 'names': names, 'beside': _beside(names)}
  return {'label': run.label, 'seed': seed, 'montage': pictures, **more}


def _learns(run: Run) -> bool:
  """Returns whether a run's server is to learn a set; own methods are not asked."""
  layers = [algorithms.LAYERS.get(word) for word in run.settings['algorithm'].split('+')]
  return any(overrides(layer(), 'artifacts') for layer in layers if layer)


def _inspected(run: Run) -> dict[str, Any]:
  pictures = [(INSPECTED[name], as_uri(content)) for name, content in run.inspected.items()]
  return {'label': run.label, 'pictures': pictures}
