"""Folders of arrays: whose rows are whose, order of axes, meaning of labels; no silent guesses."""

import codecs
import dataclasses
import json

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.normalisation import Normalisation
from fedjax_syn.data.partition import partition
from fedjax_syn.data.split import Split
from tests.data import fakes

NFC, NFD = 'Zo\u00eb', 'Zoe\u0308'
VALUES = fakes.arrays(1)
TRAIN, TEST = fakes.TRAIN, fakes.TEST


def write(root, *, meta=None, test=None, others=(), clients=None, **changes):
  """Writes a folder of 40 training and 20 test rows.

  `clients` cycle through the training rows, `test` through the test rows.
  """
  values = VALUES | changes
  more = {} if clients is None else {'clients': np.resize(clients, TRAIN)}
  fakes.write_arrays(root, values, **more, **{name: VALUES['train_y'] for name in others})
  if test is not None:
    np.savez(
      root / 'test.npz', x=values['test_x'], y=values['test_y'], clients=np.resize(test, TEST)
    )
  if meta is not None:
    (root / 'meta.json').write_text(json.dumps(meta))
  return root


def load(root, **more):
  return datasets.load('arrays', str(root), **more)


# ---- clients


IDS = {  # what the file has, the numbers by hand, the names
  'numbers beyond 32 bits': (np.array([2**40 + 7, 17, 7]), [2, 1, 0], ('7', '17', f'{2**40 + 7}')),
  'equal modulo 2 ** 32': (np.array([5, 2**32 + 5]), [0, 1], ('5', f'{2**32 + 5}')),
  'beyond 63 bits': (np.array([2**64 - 1, 1], np.uint64), [1, 0], ('1', f'{2**64 - 1}')),
  'negative': (np.array([-3, 0, 2]), [0, 1, 2], ('-3', '0', '2')),
  'gaps': (np.array([9, 4, 100], np.uint8), [1, 0, 2], ('4', '9', '100')),
  'texts': (np.array(['f10', 'f9', 'ann']), [1, 2, 0], ('ann', 'f10', 'f9')),
  'bytes': (np.array([NFC.encode(), b'ann']), [0, 1], (NFC, 'ann')),
  'whole floats': (np.array([3.0, 1.0]), [1, 0], ('1', '3')),
  'as they are': (np.array([1, 0, 2], np.int16), [1, 0, 2], ()),
  'from 0, as floats': (np.array([1.0, 0.0]), [1, 0], ()),
  'true and false': (np.array([True, False]), [1, 0], ()),
  'numbers as texts': (np.array(['2', '10']), [1, 0], ('10', '2')),
}


@pytest.mark.parametrize('name', IDS)
def test_ids_of_any_kind_are_numbered_and_kept_as_names(tmp_path, name):
  ids, numbers, names = IDS[name]
  found = load(write(tmp_path, clients=ids))
  assert found.clients.dtype == np.int32 and found.clients[: len(ids)].tolist() == numbers
  assert found.client_names == names and found.num_clients() == len(set(numbers))
  assert f'{TRAIN} training and {TEST} test rows of {len(set(numbers))} clients' in found.notes[0]


BAD_IDS = {
  'too few': (np.arange(39), r'clients must be integers or texts \[40\], got int64 \[39\]'),
  'a column': (np.zeros((TRAIN, 1), int), r'clients must be integers .* got int64 \[40, 1\]'),
  'not whole': (
    np.arange(TRAIN) / 2,
    'clients are float64, and row 1 has 0.5: use integers or texts',
  ),
  'missing': (np.where(np.arange(TRAIN) == 3, np.nan, 1), 'and row 3 has nan'),
  'floats that have merged': (np.full(TRAIN, 2.0**60), 'clients are float64, and row 0 has'),
  'a column of a table': (
    np.array(['a', 1] * 20, object),
    r'allow_pickle=False; np.asarray\(a, str\)',
  ),
  'complex': (np.zeros(TRAIN, complex), 'clients must be integers or texts .* got complex128'),
  'an empty text': (np.array(['a'] * 39 + [' ']), 'row 39 has no client'),
  'differ in spaces': (
    np.array(['ann', 'ann '] * 20),
    "train.npz: the clients 'ann', 'ann ' look alike",
  ),
}


@pytest.mark.parametrize('name', BAD_IDS)
def test_ids_that_name_nobody_are_refused(tmp_path, name):
  ids, line = BAD_IDS[name]
  fakes.write_arrays(tmp_path, VALUES, clients=ids)
  with pytest.raises(ValueError, match=line) as error:
    load(tmp_path)
  assert '\n' not in str(error.value)


def test_names_that_look_alike_are_said(tmp_path):
  found = load(write(tmp_path, clients=[NFC, NFD, 'ann', 'Ann', 'nan']))
  assert found.client_names == ('Ann', NFC, 'ann', 'nan')
  assert found.clients[:5].tolist() == [1, 1, 2, 0, 3]
  notes = ' | '.join(found.notes)
  assert f"'{NFC}': two Unicode spellings, taken as one client" in notes
  assert "'Ann', 'ann' are 2 clients, though they differ in case alone" in notes
  assert "'nan' is taken as the name of a client" in notes


@pytest.mark.parametrize('test', [['b', 'c', 'a', 'zed'], np.array([b'b', b'c', b'a', b'zed'])])
def test_test_rows_have_their_own_clients(tmp_path, test):
  found = load(write(tmp_path, clients=['c', 'a', 'b'], test=test))
  assert found.test_clients[:4].tolist() == [1, 2, 0, -1]
  line = (
    "5 test rows are of clients without training rows ('zed'): "
    'they count in the whole test split alone'
  )
  assert line in found.notes
  others = load(write(tmp_path, clients=['c', 'a', 'b'], test=['a', 'c', 'b', 'zed']))
  assert others.checksum != found.checksum  # it decides what is measured of whom


def test_one_id_is_one_client_whatever_its_type(tmp_path):
  found = load(write(tmp_path, clients=np.array([17, 5]), test=np.array(['5', '17'])))
  assert found.test_clients[:2].tolist() == [0, 1] and found.client_names == ('5', '17')


def test_clients_of_test_rows_alone_are_not_used(tmp_path):
  found = load(write(tmp_path, test=[1, 2]))
  assert found.clients is None is found.test_clients
  assert "'clients' of test.npz is not used, as train.npz has none" in found.notes


def test_natural_clients_beyond_32_bits_are_refused_in_python():
  with pytest.raises(ValueError, match='one is 1099511627776: np.unique'):
    partition('natural', np.arange(2), 2, client_ids=np.array([0, 2**40]))


def outside(clients=None, test_clients=None, names=()):
  split = Split(np.arange(16, dtype=np.uint8).reshape(4, 2, 2, 1), np.arange(4, dtype=np.int32) % 2)
  constants = Normalisation('unit', (0.0,), (1.0,))
  return datasets.Dataset(
    'own', 'Own', split, split, None, 2, constants, 'none', clients,
    client_names=names, test_clients=test_clients,
  )  # fmt: skip


def test_a_functions_clients_are_numbered_too(monkeypatch):
  make = lambda *args: monkeypatch.setattr(f'{__name__}.own', lambda: outside(*args), raising=False)
  make(np.array([2**40, 3, 3, 2**40]), np.array([3, 3, 2**40, 8]))
  found = datasets.load(f'{__name__}:own')
  assert found.clients.tolist() == [1, 0, 0, 1] and found.test_clients.tolist() == [0, 0, 1, -1]
  assert found.client_names == ('3', f'{2**40}')
  make(np.array([0, 0, 1, 1]), None, ('ann', 'bob', 'zed'))
  assert datasets.load(f'{__name__}:own').num_clients() == 3  # zed has no row
  make(np.array([0, 0, 3, 1]), None, ('ann', 'bob', 'zed'))
  with pytest.raises(ValueError, match='3 client_names, and one of clients is 3'):
    datasets.load(f'{__name__}:own')


def test_a_function_may_hold_rows_out_itself(monkeypatch):
  """Client 1 has no training row left, and keeps its number; nobody takes its place."""
  whole = outside(np.array([0, 0, 3, 2]), np.array([1, 0, 3, 2]))
  said = lambda **more: dataclasses.replace(whole, **more)
  own = lambda value: monkeypatch.setattr(f'{__name__}.own', lambda: value, raising=False)
  own(said(natural_clients=4))
  found = datasets.load(f'{__name__}:own')
  assert found.clients.tolist() == [0, 0, 3, 2] and found.test_clients.tolist() == [1, 0, 3, 2]
  assert (found.num_clients(), found.client_names) == (4, ())
  own(said(natural_clients=3))
  with pytest.raises(ValueError, match='3 natural_clients, and one of clients is 3'):
    datasets.load(f'{__name__}:own')
  own(said(natural_clients=5, client_names=tuple('abcd')))
  with pytest.raises(ValueError, match='4 client_names for 5 natural_clients'):
    datasets.load(f'{__name__}:own')


# ---- the order of axes


ORDERS = {
  'channels first': ((0, 3, 1, 2), r'np.transpose\(x, \(0, 2, 3, 1\)\)'),
  'channels before columns': ((0, 1, 3, 2), r'np.transpose\(x, \(0, 1, 3, 2\)\)'),
  'rows last': ((1, 2, 3, 0), r'np.moveaxis\(x, -1, 0\)'),
}


@pytest.mark.parametrize('name', ORDERS)
@pytest.mark.parametrize('channels', [1, 3])
def test_axes_in_another_order_are_refused_with_what_helps(tmp_path, name, channels):
  axes, line = ORDERS[name]
  values = fakes.arrays(1, (6, 5, channels))
  turned = {f'{s}_x': values[f'{s}_x'].transpose(axes) for s in ('train', 'test')}
  with pytest.raises(ValueError, match=f'train.npz: x is .*looks like {name}.*{line}'):
    load(write(tmp_path, **turned))


def test_many_channels_are_legal_and_few_rows_can_be_said(tmp_path):
  many = fakes.arrays(1, (6, 5, 13))
  assert load(write(tmp_path / 'a', **many)).shape == (6, 5, 13)
  few = fakes.arrays(1, (1, 9, 8))
  assert load(write(tmp_path / 'b', meta={'layout': 'NHWC'}, **few)).shape == (1, 9, 8)
  with pytest.raises(ValueError, match="layout='NCHW' must be one of 'NHWC'"):
    load(write(tmp_path / 'c', meta={'layout': 'NCHW'}, **few))


def test_grey_images_without_channels_are_told_what_helps(tmp_path):
  with pytest.raises(ValueError, match=r'got uint8 \[40, 6, 5\]; x\[..., None\] if they are grey'):
    load(write(tmp_path, train_x=VALUES['train_x'][..., 0]))


# ---- labels


def hot(dtype=np.uint8):
  return {
    f'{split}_y': np.eye(10, dtype=dtype)[VALUES[f'{split}_y']] for split in ('train', 'test')
  }


def test_one_hot_labels_are_said_and_can_be_classes(tmp_path):
  found = load(write(tmp_path, **hot()))
  assert found.train.y.shape == (TRAIN, 10)
  assert any(
    'every row of y has one label' in n and '"labels": "classes"' in n for n in found.notes
  )
  for dtype in (np.uint8, np.float64, bool):
    classes = load(write(tmp_path, meta={'labels': 'classes'}, **hot(dtype)))
    np.testing.assert_array_equal(classes.train.y, VALUES['train_y'])
    assert classes.num_classes == 10 and not any('one label' in note for note in classes.notes)
  several = load(write(tmp_path, meta={'labels': 'several'}, **hot()))
  assert several.train.y.shape == (TRAIN, 10) and not any('one label' in n for n in several.notes)


def test_classes_that_are_none_are_refused(tmp_path):
  labels = hot()
  labels['train_y'][4] = 0
  with pytest.raises(ValueError, match='row 4 of y is no row of zeros with a single 1'):
    load(write(tmp_path, meta={'labels': 'classes'}, **labels))
  assert not any('one label' in note for note in load(write(tmp_path, meta={}, **labels)).notes)


def test_a_label_that_no_row_has_is_said(tmp_path):
  labels = {name: np.where(np.arange(10) == 3, 0, y) for name, y in hot().items()}
  assert "no training row has the labels '3'" in load(write(tmp_path, **labels)).notes


@pytest.mark.parametrize('name', ['arrays', 'mnist'])
@pytest.mark.parametrize('form', [lambda y: y, lambda y: np.eye(10, dtype=int)[y]])
def test_a_label_that_only_test_rows_have_is_refused(tmp_path, name, form):
  train = np.where(VALUES['train_y'] == 9, 0, VALUES['train_y'])
  write(tmp_path, train_y=form(train), test_y=form(VALUES['test_y']))
  with pytest.raises(ValueError, match='train.npz: no row has label 9, and test rows have'):
    datasets.load(name, str(tmp_path))


LABELS = {
  'whole floats': (
    VALUES['train_y'].astype(float),
    r'got float64 \[40\]; y.astype\(int\) would work',
  ),
  'booleans': (hot(bool)['train_y'], r'got bool \[40, 10\]; y.astype\(int\) would work'),
  'no label': (np.where(np.arange(TRAIN) == 7, np.nan, 1), 'row 7 has no label: remove it'),
  'names': (np.array(['cat', 'dog'] * 20), 'return_inverse=True'),
  'a column': (VALUES['train_y'][:, None], r'y\[:, 0\] would work'),
  'halves': (np.full(TRAIN, 0.5), r'got float64 \[40\]$'),
}


@pytest.mark.parametrize('name', LABELS)
def test_labels_of_another_form_are_told_what_helps(tmp_path, name):
  labels, line = LABELS[name]
  with pytest.raises(ValueError, match=f'train.npz: y must be an integer type .*{line}'):
    load(write(tmp_path, train_y=labels))


# ---- meta.json, and what lies beside


def test_a_byte_order_mark_is_no_damage(tmp_path):
  write(tmp_path)
  text = json.dumps({'name': 'Mine', 'normalisation': 'half'}).encode()
  (tmp_path / 'meta.json').write_bytes(codecs.BOM_UTF8 + text)
  found = load(tmp_path)
  assert (found.title, found.normalisation.name) == ('Mine', 'half')


@pytest.mark.parametrize(
  'meta, line',
  [
    ({'normalization': 'half'}, "'normalization' is unknown; did you mean 'normalisation'?"),
    ({'Name': 'x'}, "'Name' is unknown; did you mean 'name'?"),
    ({'labels': 'one'}, "labels='one' must be one of 'classes', 'several'"),
    ({'labels': []}, r'labels=\[\] must be one of'),
  ],
)
def test_keys_that_nobody_reads_are_refused_if_another_is_meant(tmp_path, meta, line):
  with pytest.raises(ValueError, match=f'meta.json: {line}'):
    load(write(tmp_path, meta=meta))


def test_what_is_not_used_is_said(tmp_path):
  write(tmp_path, meta={'source': 'camera 3'}, others=('users',))
  np.savez(tmp_path / 'validation.npz', x=VALUES['test_x'], y=VALUES['test_y'])
  notes = load(tmp_path).notes
  assert "meta.json: 'source' not used" in notes and "train.npz: 'users' not used" in notes
  assert "'validation.npz' beside train.npz not read" in notes


def test_rows_of_both_splits_are_said(tmp_path):
  both = VALUES['test_x'].copy()
  both[:3] = VALUES['train_x'][:3]
  assert (
    f'3 of {TEST} test rows are training rows as well' in load(write(tmp_path, test_x=both)).notes
  )
  assert load(write(tmp_path / 'apart')).notes == (f'read {TRAIN} training and {TEST} test rows',)


def test_what_a_refusal_of_equal_pixels_says_works(tmp_path):
  """One value in all training images has no deviation; named constants need none."""
  write(tmp_path, train_x=np.full_like(VALUES['train_x'], 7))
  with pytest.raises(ValueError, match='all training pixels of channel 0 are equal; use "unit"'):
    load(tmp_path)
  assert load(tmp_path, normalisation='unit').normalisation.name == 'unit'
  rows = load(write(tmp_path / 'b')).train.x / 255
  measured = load(tmp_path / 'b').normalisation
  np.testing.assert_allclose([*measured.mean, *measured.std], [rows.mean(), rows.std()], rtol=1e-12)
