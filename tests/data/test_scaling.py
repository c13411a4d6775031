"""Arrays of pixels of any type are scaled by their range, the same for all splits, or refused."""

import numpy as np
import pytest

from fedjax_syn.data import datasets, federated, normalisation
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.dataset import make
from fedjax_syn.data.scaling import scale, scale_together

PIXELS = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)  # all there are
Y = np.array([0, 1, 0, 1], np.int32)
UNIT = datasets.Normalisation('unit', (0.0,), (1.0,))


@pytest.mark.parametrize(
  'array, wanted',
  [
    (PIXELS, PIXELS),
    (np.float32(PIXELS / 255), PIXELS),
    (PIXELS / 255, PIXELS),
    (np.float16(PIXELS / 255), PIXELS),
    (PIXELS / 255 + 5e-7, PIXELS),  # one rounding beyond 1
    (PIXELS.astype(np.uint16) * 257, PIXELS),
    (PIXELS.astype(np.int64), PIXELS),  # 8 bits in a wider type
    (PIXELS.astype(np.int16), PIXELS),
    (PIXELS.astype(np.uint32) * 257, PIXELS),
    (np.array([0, 2048, 4095], np.uint16), [0, 128, 255]),
    (np.array([0, 1, 512, 1023], np.int32), [0, 0, 128, 255]),
    (PIXELS > 100, 255 * (PIXELS > 100)),
    (np.zeros((0, 2, 2, 1), np.float32), np.zeros((0, 2, 2, 1))),
  ],
  ids=lambda array: getattr(array, 'dtype', np.dtype(int)).name,
)
def test_by_their_own_range(array, wanted):
  scaled = scale(array)
  assert scaled.dtype == np.uint8
  np.testing.assert_array_equal(scaled, wanted)


@pytest.mark.parametrize(
  'array, words',
  [
    (PIXELS.astype(np.float32), r'float32 0..255; floats must lie in 0..1.*divide'),
    ((PIXELS - 33.3) / 78.6, 'before any normalisation'),
    (np.where(PIXELS == 3, np.nan, PIXELS / 255), 'nan'),
    (np.where(PIXELS == 3, np.inf, PIXELS / 255), 'inf'),
    (PIXELS / 255 / 255, 'divided by 255 twice'),
    (PIXELS.astype(np.int64) - 1, r'int64 -1..254'),
    (PIXELS.view(np.int8), r'int8 -128..127'),
    (PIXELS.astype(np.int64) * 1000, r'0..255000'),
    (np.int64(PIXELS > 9), 'the integers 0 and 1 alone; bool'),
    (PIXELS.astype(complex), 'complex128'),
    (PIXELS.astype(object), 'object'),
    (PIXELS.astype(str), '<U'),
  ],
  ids=lambda value: getattr(value, 'dtype', np.dtype(int)).name,
)
def test_what_has_no_range_is_refused(array, words):
  with pytest.raises(ValueError, match=words) as refused:
    scale(array)
  assert '\n' not in str(refused.value)


def test_the_splits_of_a_set_share_one_range():
  """Alone, the second array would be of 8 bits and 200 stay 200."""
  arrays = {'train': np.array([0, 65535], np.uint16), 'test': np.array([200], np.uint16)}
  scaled, notes = scale_together(arrays)
  assert {name: x.tolist() for name, x in scaled.items()} == {'train': [0, 255], 'test': [1]}
  assert notes == ('pixels scaled from uint16, 16 bits',)


def dataset(change, **more):
  split = datasets.Split(change(PIXELS), Y)
  fields = {'train': split, 'test': split, 'validation': split, 'proxy': split} | more
  return datasets.Dataset(
    'own',
    'own',
    **{'num_classes': 2, 'normalisation': UNIT, 'checksum': '', 'clients': None, **fields},
  )


@pytest.mark.parametrize(
  'change',
  [
    lambda x: x,
    lambda x: np.float32(x / 255),
    lambda x: x.astype(int),
    lambda x: (x * 257.0).astype(np.uint16),
  ],
)
def test_a_model_sees_the_same_whatever_the_type(change):
  """(x / 255 - 0) / 1, of every split; floats were divided by 255 once more."""
  own = dataset(change)
  part = partition_lib.partition('iid', Y, 2, num_classes=2)
  data = federated.from_partition(own, part)
  for x in (data.x, data.proxy.x, own.test.x, own.validation.x):
    np.testing.assert_allclose(federated.normalise(data, x), PIXELS / 255, rtol=1e-6)
  assert bool(own.notes) == (change(PIXELS).dtype != np.uint8)
  made = make('own', 'own', datasets.Split(change(PIXELS), Y), own.test, 2, 'auto')
  assert made.normalisation.mean == pytest.approx((0.5,)) and made.train.x.dtype == np.uint8


def test_a_dataset_refuses_in_one_line():
  with pytest.raises(
    ValueError, match="data set 'own': pixels of train are float64 0..255"
  ) as refused:
    dataset(lambda x: x.astype(float))
  assert '\n' not in str(refused.value)
  with pytest.raises(ValueError, match="data set 'own'.*3 channels"):
    dataset(lambda x: x, **{'normalisation': datasets.Normalisation('a', (0.1,) * 3, (0.2,) * 3)})


def test_what_is_no_dataset_is_not_divided_by_255():
  data = federated.from_partition(
    dataset(lambda x: x), partition_lib.partition('iid', Y, 2, num_classes=2)
  )
  for wrong in (np.float32(PIXELS / 255), PIXELS > 100, PIXELS.astype(np.uint16)):
    with pytest.raises(ValueError, match='pixels are'):
      federated.normalise(data, wrong)


@pytest.mark.parametrize('mean, std', [([127.5], [127.5]), ([0.0], [255.0]), ([-0.5], [0.5])])
def test_constants_for_another_range_are_refused(mean, std):
  with pytest.raises(ValueError, match='divide those of 0..255 by 255'):
    normalisation.parse({'mean': mean, 'std': std}, 'meta.json')
  constants = datasets.Normalisation('own', tuple(mean), tuple(std))
  with pytest.raises(ValueError, match="data set 'own': normalisation"):
    dataset(lambda x: x, **{'normalisation': constants})


@pytest.mark.parametrize(
  'x, words',
  [
    (np.zeros(4), r'train: x must be images .* got float64 \[4\]; x\[:, None\] if it is a table'),
    (PIXELS[..., 0], r'got uint8 \[4, 8, 8\]; x\[..., None\] if they are grey'),
    (PIXELS[None], r'train: x must be images .* got uint8 \[1, 4, 8, 8, 1\]$'),
  ],
)
def test_what_is_of_no_kind(x, words):
  with pytest.raises(ValueError, match=words):
    datasets.Dataset('a', 'a', *[datasets.Split(x, Y)] * 2, None, 2, UNIT, '', None)


def test_splits_have_one_shape():
  with pytest.raises(
    ValueError, match=r'test: x is \[4, 8, 7, 1\], but that of train \[4, 8, 8, 1\]'
  ):
    dataset(lambda x: x, test=datasets.Split(PIXELS[:, :, 1:], Y))


def test_a_function_that_returns_floats(tmp_path, monkeypatch):
  """In 0..1 they are scaled; else the line names the user's own file."""
  (tmp_path / 'float_data.py').write_text("""
import numpy as np
from fedjax_syn.data.datasets import Dataset, Normalisation, Split
def data(top=1.0):
  split = Split(np.linspace(0, top, 256).reshape(4, 8, 8, 1), np.arange(4, dtype=np.int32) % 2)
  unit = Normalisation('unit', (0.0,), (1.0,))
  return Dataset('f', 'F', split, split, None, 2, unit, 'none', None)
def bytes_():
  return data(255.0)
""")
  monkeypatch.syspath_prepend(tmp_path)
  np.testing.assert_array_equal(datasets.load('float_data:data').train.x, PIXELS)
  with pytest.raises(
    ValueError, match=r'ValueError in .*float_data.py:7: data set .f.: pixels of train'
  ):
    datasets.load('float_data:bytes_')


def test_constants_by_name():
  """Pixels 0..255 once each: mean 1/2, variance (256^2 - 1) / 12 of 255^2."""
  found = dataset(lambda x: np.float32(x / 255), **{'normalisation': 'auto'}).normalisation
  np.testing.assert_allclose([found.mean[0], found.std[0] ** 2], [0.5, 65535 / 12 / 255**2])
  for wrong in ('zscore', None, (0.5, 0.5)):
    with pytest.raises(ValueError, match="data set 'own': .*normalisation="):
      dataset(lambda x: x, **{'normalisation': wrong})
