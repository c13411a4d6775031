"""Names, colours and dashes of methods."""

import pytest

from fedjax_syn import algorithms
from fedjax_syn.plotting import numbers, style


@pytest.mark.parametrize(
  'algorithm, name',
  [
    ('fedavg', 'FedAvg'),
    ('scaffold+dynafed', 'SCAFFOLD + DynaFed'),
    ('fedavg+moon', 'MOON'),
    ('my.pull3:Pull+dynafed', 'Pull + DynaFed'),
    ('own/file.py:Pull', 'Pull'),
    ('SCAFFOLD + DynaFed', 'SCAFFOLD + DynaFed'),
    ('alpha: 0.1', 'alpha: 0.1'),
    ('scaffold+dynafed(client.lr=0.1)', 'SCAFFOLD + DynaFed (client.lr=0.1)'),
    ('FedAvg (client.lr=0.1)', 'FedAvg (client.lr=0.1)'),
    ('rates (two)', 'rates (two)'),
    ('', ''),
  ],
)
def test_methods_have_the_names_that_papers_write(algorithm, name):
  assert style.method_name(algorithm) == name


def test_all_methods_look_different():
  assert len(set(style.styles([*algorithms.LAYERS]))) == len(algorithms.LAYERS)
  assert len(set(style.styles(['dynafed'] * 28))) == 28
  assert len(style.styles(['dynafed'] * 40)) == 40


def test_a_method_looks_the_same_wherever_it_is():
  alone = {name: style.styles([name])[0] for name in ('fedavg', 'scaffold', 'scaffold+dynafed')}
  assert style.styles([*alone]) == [*alone.values()]
  assert style.styles([*alone][::-1]) == [*alone.values()][::-1]
  assert style.styles(['SCAFFOLD + DynaFed']) == [alone['scaffold+dynafed']]
  (dynafed,) = style.styles(['dynafed'])
  assert style.styles(['scaffold(client.lr=0.1,client.schedule=exponential(0.9))']) == [
    alone['scaffold']
  ]
  assert alone['scaffold+dynafed'].colour == dynafed.colour  # and another dash


@pytest.mark.parametrize(
  'title, plain',
  [
    ('shapes (1a2b3c4d), seed 0', 'shapes, seed 0'),
    ('rows (arrays 1a2b3c4d)', 'rows'),
    ('shapes (of 2024)', 'shapes (of 2024)'),
  ],
)
def test_titles_have_no_checksum(title, plain):
  assert style.plain_title(title) == plain


def test_shares_are_per_cent():
  assert numbers.metric_title('test/accuracy') == 'test accuracy (%)'
  assert numbers.metric_title('train/loss') == 'train loss'
  assert [numbers.percent(key) for key in ('test/o_f1', 'test/loss', 'dp/norm')] == [100, 1, 1]
