"""Reports: reading run folders, the tables, and commands that train the same run."""

import base64
import json
import re
import shlex
import shutil

import numpy as np
import pytest

from fedjax_syn import report
from fedjax_syn.config import files, identity
from fedjax_syn.core import paths
from fedjax_syn.report import commands, heatmaps, page, pictures, runs, tables
from fedjax_syn.runs import metrics
from tests.report.stored import HOSTILE, KINDS, edit

pytest_plugins = ['tests.run_fixtures', 'tests.report.report_runs']


@pytest.mark.parametrize('folders', [['compare'], ['compare/fedavg', 'compare/scaffold']])
def test_a_run_brings_what_it_was_compared_with(run_folders, tmp_path, folders):
  """One method in compare/, or several in compare/<method>/."""
  names = ['fedavg', 'scaffold'][: len(folders)]
  for name, folder in zip(['dynafed', *names], ['', *folders], strict=True):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / 'config.json').write_text((run_folders[1] / 'config.json').read_text())
    edit(tmp_path / folder, lambda stored, name=name: stored['config'].update(algorithm=name))
  found = report.open_runs([tmp_path, tmp_path / folders[0]])  # named twice, shown once
  assert [run.label for run in found] == ['DynaFed', 'FedAvg', 'SCAFFOLD'][: 1 + len(folders)]


def rendered(opened):
  return report.render(opened, {run.label: '' for run in opened})


def test_one_seed_has_no_deviation(opened):
  assert '± standard deviation' in rendered(opened)
  page = rendered([opened[1]]).partition('id="data"')[0]
  assert 'one seed' in page and 'over seeds' not in page and 'standard deviation over' not in page
  warning = 'With one seed, a difference of several points can be chance.'
  assert warning not in page  # one run: nothing is compared
  assert warning in rendered([opened[1], opened[1]._replace(label='another')])
  assert warning not in rendered(opened)  # one of them has two seeds


def test_an_unfinished_run_has_no_set_yet(opened):
  html = lambda *runs: report.render(runs, {run.label: '' for run in runs})
  learned, fedavg, unfinished = opened
  assert 'No synthetic images yet: DynaFed (2) (not finished).' in html(*opened)
  assert 'No synthetic images yet' not in html(learned, fedavg)
  assert 'No server learned' in html(fedavg) and 'No server learned' not in html(unfinished, fedavg)
  begun = fedavg._replace(summary=None)  # FedAvg will not learn one
  assert 'No synthetic images yet' not in html(begun)


def test_runs_that_cannot_be_compared_are_told(opened):
  plain = opened[1]
  assert 'class="unlike"' not in rendered(opened)
  longer = plain._replace(label='longer', settings=plain.settings | {'rounds': 9})
  assert 'of different length: 7, 9 rounds' in rendered([plain, longer])
  elsewhere = {**plain.stored, 'dataset': {**plain.stored['dataset'], 'checksum': 'abcdefghi'}}
  for title, words in (('faces', 'digits, faces'), ('digits', '(abcdefgh)')):
    elsewhere['dataset']['title'] = title
    page = rendered([plain, plain._replace(label='elsewhere', stored=elsewhere)])
    (line,) = re.findall('<p class="unlike">.*', page)
    assert 'on different data sets' in line and words in line and 'length' not in line


def test_clients_and_classes_have_their_names(named):
  (run,) = report.open_runs([named])
  assert run.clients[0]['client_names'].tolist() == ['ann', 'bob']
  page = rendered([run])
  before = page.partition('id="data">')[0]
  head = '<tr><th scope="col">client</th><th scope="col">&lt;i&gt;dog</th><th scope="col">ant</th>'
  assert head in before and '<i>dog' not in page
  assert '<th scope="row">ann</th>' in before and '<th scope="row">bob</th>' in before
  (held,) = heatmaps.partitions([run])
  assert held['heat'].head == ['client', *KINDS, 'all'] and held['picture'] == ''
  assert [name for name, _ in held['heat'].rows] == ['ann', 'bob']
  assert '<li>&lt;i&gt;dog</li><li>ant</li>' in before
  assert 'whose largest learned label is its class' in before


def test_clients_that_were_dealt_have_numbers(named):
  """Names are those of the data set's own clients; a run of an older version has none at all."""
  (run,) = report.open_runs([named])
  dealt = run._replace(settings=run.settings | {'data.partition': 'iid'})
  assert [dealt.client_name(1), dealt.class_names()[1]] == ['1', 'ant']
  some = run._replace(counts=run.counts[:1])  # of natural_sample
  assert some.client_name(0) == '0'
  old = {k: v for k, v in run.stored['dataset'].items() if not k.endswith('_names')}
  older = run._replace(stored={**run.stored, 'dataset': old})
  assert [older.client_name(1), older.class_names()[1]] == ['1', '1']
  assert '<th scope="col">class 1</th>' in rendered([older])


def test_an_epsilon_of_before_is_that_of_one_seed(opened):
  """Two seeds: what was stated before seeds were counted is marked, the total is not."""
  run, stated = opened[0], {'epsilon': 24.7}
  before = {key: value for key, value in run.summary.items() if key != 'epsilon_per_seed'}
  for more, shown in (({}, '24.7 (one seed)'), ({'epsilon_per_seed': 12.0}, '24.7')):
    table = tables.results([run._replace(summary={**before, **stated, **more})])
    assert dict(zip(table.head, table.rows[0], strict=True))['epsilon'] == shown


def test_results(opened, run_folders):
  table = tables.results(opened)
  whole, plain, broken = (dict(zip(table.head, row, strict=True)) for row in table.rows)
  summary = json.loads((run_folders[0] / 'summary.json').read_text())
  a, b = summary['test_accuracy']['last']['per_seed']
  # ddof 1 of two numbers: their difference over the square root of two
  assert whole['last'] == f'{50 * (a + b):.2f} ± {100 * abs(a - b) / 2**0.5:.2f}'
  assert (whole['sent up'], whole['sent down']) == ('70 B', '140 B')
  assert 'epsilon' not in table.head  # no run has one
  assert whole['how it ended'] == plain['how it ended'] == 'finished'
  reached = min(line['round'] for line in opened[1].lines if line['test/accuracy'] >= 0.1)
  assert plain['rounds to 10 %'] == f'{reached}' and plain['rounds to 100 %'] == 'not reached'
  assert broken['last'] == '–'
  assert broken['how it ended'] == 'interrupted after round 7 (seed 0), 7 (seed 1) of 7'


@pytest.mark.parametrize(
  'value, text',
  [
    ({'mean': 0.5, 'std': None, 'per_seed': [0.5]}, '50.00'),
    ({'mean': 0.5, 'std': 0.0123, 'per_seed': [0.4, 0.6]}, '50.00 ± 1.23'),
    ({'mean': None, 'std': None, 'per_seed': [0.25, None]}, '25.00, –'),
  ],
)
def test_accuracies_are_per_cent(value, text):
  assert tables.percent(value) == text


@pytest.mark.parametrize(
  ('per_seed', 'text'),
  [
    ([16, 17, 19], '17.3 ± 1.5'),  # variance (16/9 + 1/9 + 25/9) / 2 = 7/3
    ([10, 30], '20 ± 14'),
    ([17], '17'),
    ([22, None], '22, not reached'),
    ([None, None], 'not reached'),
  ],
)
def test_rounds_have_the_digits_of_their_deviation(per_seed, text):
  assert tables._rounds(metrics.statistics(per_seed)) == text


def test_sizes():
  assert [tables.size(n) for n in (0, 999, 1000, 999_600, 50_230_000, 2e12)] == [
    '0 B',
    '999 B',
    '1 kB',
    '1 MB',
    '50.2 MB',
    '2 TB',
  ]


def test_a_diverged_seed_is_named(opened):
  status = {'status': 'diverged', 'round': 3, 'client': 2}
  summary = {**opened[0].summary, 'status': {'0': {'status': 'finished'}, '1': status}}
  (row,) = tables.results([opened[0]._replace(summary=summary)]).rows
  assert row[-1] == 'seed 1 diverged in round 3, client 2'


def test_the_protocol_names_whoever_differs(opened):
  """DynaFed's and FedAvg's differ in the rate and the seeds alone."""
  table = dict(tables.protocol(opened[:2]))
  assert table['Data'] == ['digits: 1198 training and 599 test rows (one is 0.17 points)']
  assert table['Clients'] == ['4, partition iid; 40 % in a round']
  more = {'client.schedule': 'cosine', 'client.augment': 'crop_flip', 'client.momentum': 0.9}
  one = dict(tables.protocol([opened[0]._replace(settings={**opened[0].settings, **more})]))
  assert one['Optimizer'] == ['adam with momentum 0.9, learning rate 0.001 (cosine)']
  assert one['Local training'] == ['1 epoch a round, batches of 32, crop_flip augmentation']
  few = {**opened[0].settings, 'data.partition': 'labels_per_client', 'data.labels': 2}
  clients = dict(tables.protocol([opened[0]._replace(settings=few)]))['Clients']
  assert clients == ['4, partition labels_per_client (2 classes each); 40 % in a round']
  assert table['Model'] == ['mlp (width 8, depth 1); 610 parameters']  # 64 * 8 + 8 + 8 * 10 + 10
  rate = opened[0].settings['client.lr']
  assert table['Optimizer'] == [
    f'adam, learning rate {rate} (DynaFed (1))',
    'adam, learning rate 0.5 (FedAvg)',
  ]
  assert table['Rounds'] == ['7; seeds 0, 1 (DynaFed (1))', '7; seed 0 (FedAvg)']
  # An unfinished run does not know its parameters, and has the same network.
  network = 'mlp (width 8, depth 1); 610 parameters'
  assert dict(tables.protocol(opened))['Model'] == [network]
  other = opened[2]._replace(settings={**opened[2].settings, 'model.width': 9})
  assert dict(tables.protocol([opened[0], other]))['Model'] == [
    f'{network} (DynaFed (1))',
    'mlp (width 9, depth 1) (DynaFed (2))',
  ]
  old = {'title': 'digits (1a2b3c4d)'}  # of an older version
  run = opened[2]._replace(stored={**opened[2].stored, 'dataset': old})
  assert dict(tables.protocol([run]))['Data'] == ['digits: – training and – test rows']


def test_accuracy_by_class_and_confusions(opened):
  """Seeds have 3 of 4 and 1 of 4 rows of class 0 right, and no row of class 2."""
  first, second = [[3, 1, 0], [0, 2, 0], [0, 0, 0]], [[1, 0, 3], [1, 1, 0], [0, 0, 0]]
  clients = {
    seed: {'confusion': np.array(rows), 'class_accuracy': np.array([*right, np.nan])}
    for seed, (rows, right) in enumerate([(first, (0.75, 1.0)), (second, (0.25, 0.5))])
  }
  stored = {**opened[1].stored, 'dataset': {'title': 'd', 'class_names': ['a', 'b', 'c']}}
  run = opened[1]._replace(clients=clients, stored=stored)
  (table,) = heatmaps.by_class([run])
  assert table.head == ['class', 'FedAvg']
  assert table.rows == [('a', [('50.0', '0.50')]), ('b', [('75.0', '0.75')]), ('c', [('–', '')])]
  (confusion,) = heatmaps.confusions([run])
  assert confusion['heat'].head == ['true class', 'a', 'b', 'c', 'all'] and confusion['seeds'] == 2
  name, cells = confusion['heat'].rows[0]
  assert (name, cells) == ('a', [('4', '0.50'), ('1', '0.12'), ('3', '0.38'), ('8', '')])
  assert confusion['heat'].rows[2] == ('c', [('', '')] * 3 + [('0', '')])
  assert heatmaps.without_confusions([run]) == ''
  many = run._replace(label='many', stored={'dataset': {'class_names': [*map(str, range(41))]}})
  older = run._replace(label='old', clients={})
  text = heatmaps.without_confusions([many, older, opened[2]])
  assert text.startswith('many (more than 40 classes); old (made by an older version')
  assert text.endswith('DynaFed (2) (not finished)')


def test_metrics_of_splits_come_first(opened):
  keys = ('moon/cosine', 'seed', 'train/loss', 'test/top', 'validation/loss', 'test/accuracy')
  run = opened[1]._replace(lines=[dict.fromkeys(keys, 0.5)])
  assert page._metrics([run]) == [
    'test/accuracy',
    'test/top',
    'validation/loss',
    'train/loss',
    'moon/cosine',
  ]


def test_long_curves_are_thinned(opened):
  lines = [{'round': r, 'seed': 0, 'test/accuracy': r / 2000} for r in range(2001)]
  curve = page._curves(opened[1]._replace(lines=lines))['curves']['test/accuracy']
  assert len(curve['round']) == 500 and (curve['round'][0], curve['round'][-1]) == (0, 2000)
  assert curve['mean'][-1] == 100.0 and curve['std'] == [0.0] * 500


def test_a_page_is_small(opened):
  """Without pictures, a page of three runs is a twentieth of what it may be."""
  plain = [run._replace(synthetic={}) for run in opened]
  assert len(rendered(plain)) < 100_000


def test_spread_over_clients(opened):
  """Ten clients 0.1 ... 1.0 and one without a value: mean 0.55, worst tenth the one worst."""
  values = np.array([*np.arange(1, 11) / 10, np.nan])
  run = opened[1]._replace(clients={0: {'global_accuracy': values}})
  (row,) = tables.client_accuracy([run]).rows
  std = np.sqrt(((np.arange(1, 11) / 10 - 0.55) ** 2).mean())
  assert row == ['FedAvg', 'global', '10', '55.00', f'{100 * std:.2f}', '10.00', '10.00', '100.00']
  models = [row[1] for row in tables.client_accuracy(opened).rows]
  assert models == ['global', 'global', 'personal']  # the fake measured FedAvg's personal models


def test_a_command_gives_the_very_config(run_folders, opened):
  edit(run_folders[1], lambda stored: stored['config']['data'].update(dir='my data'))
  try:
    for run in report.open_runs(run_folders):
      words = shlex.split(commands.command_of(run).replace('\\\n', ''))
      assert words[:2] == ['python', 'launch/main.py']
      assert words.pop() == f'--workdir={run.folder}'
      file = words[2].removeprefix('--config=')
      config = files.load_config(str(paths.CONFIGS.parent / file), words[3:])
      assert identity.diff(run.stored['config'], config) == []
  finally:
    edit(run_folders[1], lambda stored: stored['config']['data'].update(dir=HOSTILE))


def test_values_of_a_run_are_no_markup(opened):
  page = report.render(opened, {run.label: HOSTILE for run in opened})
  without_library = re.sub(r'<script>.*?</script>', '', page, flags=re.S)
  assert '<img src=x' not in without_library
  assert '&lt;img src=x' in without_library


def test_figures_of_an_inspection_are_shown(run_folders, tmp_path):
  png = pictures.data_uri(np.full((2, 2, 2), 255, np.uint8))
  assert 'Inspection' not in report.render(report.open_runs([run_folders[1]]), {})
  shutil.copytree(run_folders[1], tmp_path / 'run')
  (tmp_path / 'run/figures').mkdir(exist_ok=True)
  (tmp_path / 'run/figures/client_set.png').write_bytes(base64.b64decode(png.partition(',')[2]))
  page = report.render(report.open_runs([tmp_path / 'run']), {})
  assert '<a href="#inspected">' in page and f'<img src="{png}"' in page
  assert page.count('Images that one client sends') == 2  # the caption, and for who does not see
  assert runs.INSPECTED['privacy'] not in page
