"""Figures: the numbers that are drawn, and that pictures with something in them are written."""

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from fedjax_syn.data.datasets import Normalisation
from fedjax_syn.plotting import figures


def lines_of(seed, accuracies):
  return [{'round': r, 'seed': seed, 'test/accuracy': a} for r, a in accuracies.items()]


def assert_picture(path, colours=10):
  """A picture with many colours, i.e. not an empty sheet."""
  image = imread(path)
  assert min(image.shape[:2]) > 50
  assert len(np.unique(image[..., :3].sum(axis=-1))) > colours


def test_curve_is_mean_and_std_over_seeds():
  """0.2 and 0.6: mean 0.4, std (ddof 1) 0.4 / sqrt(2); the second seed stops after round 1."""
  curve = figures.curve(lines_of(0, {0: 0.1, 1: 0.2, 2: 0.3}) + lines_of(1, {0: 0.1, 1: 0.6}))
  np.testing.assert_array_equal(curve.rounds, [0, 1, 2])
  np.testing.assert_allclose(curve.mean, [0.1, 0.4, 0.3])
  np.testing.assert_allclose(curve.std, [0, 0.4 / np.sqrt(2), 0], atol=1e-12)


def test_accuracy_curve(tmp_path):
  path = tmp_path / 'figures' / 'accuracy.png'
  runs = {
    'dynafed': lines_of(0, {0: 0.1, 1: 0.5}) + lines_of(1, {0: 0.2, 1: 0.7}),
    'fedavg': lines_of(0, {0: 0.1, 1: 0.3}),
  }
  figure = figures.accuracy_curve(runs, path, mark_round=1, title='digits')
  assert_picture(path)
  assert ElementTree.parse(path.with_suffix('.svg')).getroot().tag.endswith('svg')
  axes = figure.axes[0]
  ours, others, _ = axes.lines
  np.testing.assert_allclose(ours.get_ydata(), [15, 60])  # per cent, means over seeds
  assert axes.get_ylabel() == 'test accuracy (%)'
  assert ours.get_zorder() > others.get_zorder()  # where they are the same, the first is seen
  labels = [text.get_text() for text in axes.get_legend().texts]
  assert labels == ['DynaFed', 'FedAvg', 'synthesis after round 1']
  for file in path.parent.iterdir():
    file.unlink()
  figures.accuracy_curve(runs, title='digits')  # returned, not written
  assert not list(path.parent.iterdir())


@pytest.mark.parametrize('lines', [[], lines_of(0, {0: 0.1})])
def test_accuracy_curve_of_a_run_that_hardly_began(tmp_path, lines):
  figures.accuracy_curve({'fedavg': lines}, tmp_path / 'a.png')
  assert_picture(tmp_path / 'a.png', colours=3)


@pytest.mark.parametrize('shape', [(1, 1), (20, 10), (500, 100)])
def test_partition_bubbles(tmp_path, shape):
  counts = np.random.default_rng(0).integers(0, 50, shape)
  counts[0, 0] = 50
  figures.partition_bubbles(counts, tmp_path / 'p.png', 'digits')
  assert_picture(tmp_path / 'p.png', colours=3)


@pytest.mark.parametrize('shape', [(6, 4), (4, 10), (60, 2)])
def test_bubbles_do_not_touch(shape):
  """The largest bubbles of neighbours are apart, in points of the drawn figure."""
  figure = figures.partition_bubbles(
    np.full(shape, 7), client_names=['quite a long name'] * shape[0]
  )
  FigureCanvasAgg(figure).draw()
  axes = figure.axes[0]
  (x0, y0), (x1, y1) = axes.transData.transform([(0, 0), (1, 1)])
  apart = 72 / figure.dpi * min(x1 - x0, abs(y1 - y0))
  assert np.sqrt(axes.collections[0].get_sizes().max()) < apart


def test_few_bubbles_have_numbers():
  axes = figures.partition_bubbles(np.array([[3, 0], [1, 12]])).axes[0]
  texts = {text.get_position(): text.get_text() for text in axes.texts}
  assert texts == {(0, 0): '3', (1, 0): '1', (1, 1): '12'}
  assert not figures.partition_bubbles(np.ones((100, 30), int)).axes[0].texts


def test_a_title_is_whole_and_has_no_checksum(tmp_path):
  """A long title is wrapped into lines that fit the figure."""
  words = 'a data set of many words, '
  figure = figures.partition_bubbles(np.ones((2, 2), int), title=f'{5 * words}shapes (1a2b3c4d): 6')
  FigureCanvasAgg(figure).draw()
  title = figure._suptitle
  assert title.get_text().replace('\n', ' ') == f'{5 * words}shapes: 6'
  box = title.get_window_extent()
  assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_the_first_class_is_on_top_as_in_learned_sets():
  axes = figures.partition_bubbles(np.ones((3, 4), int)).axes[0]
  bottom, top = axes.get_ylim()
  assert bottom > 3 and top < 0


def test_names_of_classes_are_no_formulas(tmp_path):
  counts = np.ones((3, 2), int)
  figures.partition_bubbles(counts, tmp_path / 'p.png', 'digits', [r'$\nothing$', 'b'])
  assert_picture(tmp_path / 'p.png', colours=3)


def test_clients_have_their_names_if_they_can_be_read():
  labels = lambda n: [
    text.get_text()
    for text in figures.partition_bubbles(
      np.ones((n, 2), int), client_names=[f'$c_{i}$' for i in range(n)]
    )
    .axes[0]
    .get_xticklabels()
  ]
  assert [label.replace('\\', '') for label in labels(3)] == ['$c_0$', '$c_1$', '$c_2$']
  assert not any('c_' in label for label in labels(41))


def test_partition_without_any_sample(tmp_path):
  figures.partition_bubbles(np.zeros((3, 2), int), tmp_path / 'p.png')
  assert_picture(tmp_path / 'p.png', colours=3)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('snapshots', [1, 3])
def test_synthetic_sets(tmp_path, channels, snapshots):
  x = np.random.default_rng(0).normal(size=(snapshots, 20, 8, 8, channels))
  y = np.tile(np.eye(10)[np.arange(20) % 10], (snapshots, 1, 1))
  normalisation = Normalisation('n', (0.5,) * channels, (0.25,) * channels)
  figures.synthetic_sets(
    x, y, np.arange(snapshots) * 100, normalisation, tmp_path / 's.png', 'digits'
  )
  assert_picture(tmp_path / 's.png')


@pytest.mark.parametrize('shape', [(6,), (12, 3)])
def test_sets_of_a_table_and_of_sequences(tmp_path, shape):
  x = np.random.default_rng(0).normal(size=(2, 20, *shape))
  y = np.tile(np.eye(4)[np.arange(20) % 4], (2, 1, 1))
  normalisation = Normalisation('auto', (7.0,) * shape[-1], (3.0,) * shape[-1])
  figures.synthetic_sets(x, y, [0, 9], normalisation, tmp_path / 's.png', 'a table')
  assert_picture(tmp_path / 's.png')


def test_pixels_undo_the_normalisation():
  """x = 2 with mean 0.5 and std 0.25 is 1.0; x = 9 is cut off there; x = -2 is 0."""
  normalisation = Normalisation('n', (0.5,), (0.25,))
  np.testing.assert_allclose(
    figures.pixels(np.array([[2.0], [9.0], [-2.0]]), normalisation), [[1], [1], [0]]
  )


def test_rows_of_synthetic_images_have_the_names_of_their_classes():
  x, y = np.zeros((1, 2, 8, 8, 1)), np.eye(3)[[2, 0]][None]
  normalisation, names = Normalisation('n', (0.5,), (1.0,)), ('ant', 'bee', 'cat')
  axes = figures.synthetic_sets(x, y, [0], normalisation, class_names=names).axes[0]
  assert [text.get_text() for text in axes.get_yticklabels()] == ['ant', 'cat']


def test_synthetic_images_stand_in_the_row_of_the_class_that_they_end_in():
  """Labels are uniform before learning; later two images have class 0 and one has class 2."""
  x = np.zeros((2, 3, 8, 8, 1))
  y = np.stack([np.full((3, 3), 1 / 3), [[0, 0, 1], [0.6, 0.2, 0.2], [1, 0, 0]]])
  axes = figures.synthetic_sets(x, y, [0, 9], Normalisation('n', (0.5,), (1.0,))).axes
  assert [t.get_text() for t in axes[0].get_yticklabels()] == ['0', '2']
  for panel in axes:  # grey images on white: two in the upper row, one in the lower one
    image = panel.images[0].get_array()
    assert image.shape == (18, 18)
    assert (image[4, 4], image[4, 13], image[13, 4], image[13, 13]) == (0.5, 0.5, 0.5, 1.0)


def test_cosine_distances(tmp_path):
  figures.cosine_distances(
    {'iid': np.random.default_rng(0).random(50), 'one': [0.5, 0.6]}, tmp_path / 'c.png', 'x'
  )
  assert_picture(tmp_path / 'c.png')


NAMES = {
  'formula': '$x_1$ and $\\frac{$',
  'one $': 'costs 5 $ \\alpha',
  'escaped $': r'a\$b$',
  'LaTeX': r'50 %_#{^~&\\',
  'legend': '_hidden',
  'control': 'a\x00\x1b[0m\nb',
  'not UTF-8': b'caf\xe9'.decode('utf-8', 'surrogateescape'),
  'scripts': '\U0001f600 \u0634\u0645\u0633 \u4e2d \u202eabc',
  'long': 'very ' * 2000,
  'empty': '',
}


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('name', NAMES.values(), ids=NAMES)
def test_any_name_is_shown_as_it_is_written(name, tmp_path):
  """Three kinds of name need care.

  matplotlib reads a formula between $ signs, `_` hides a line from a legend, and half a surrogate
  is no text to it.
  """
  runs = {name: lines_of(0, {0: 0.1, 1: 0.5})}
  axes = figures.accuracy_curve(runs, tmp_path / 'a.png', title=name).axes[0]
  assert len(axes.get_legend().texts) == 1
  counts = np.ones((2, 2), int)
  figures.partition_bubbles(counts, tmp_path / 'p.png', name, (name, 'dog'))
  figures.cosine_distances({name: [0.1, 0.2]}, tmp_path / 'd.png', name)
  image = np.zeros((1, 2, 2, 1), np.uint8)
  figures.image_rows({name: image}, [name], None, tmp_path / 'i.png', name)
  for file in tmp_path.glob('*.svg'):
    ElementTree.parse(file)
  assert len(list(tmp_path.iterdir())) == 7  # images have no SVG


def test_a_path_says_the_kind_of_file(tmp_path):
  lines = {'fedavg': lines_of(0, {0: 0.1, 1: 0.2})}
  figures.accuracy_curve(lines, tmp_path / 'a.pdf')
  assert (tmp_path / 'a.pdf').read_bytes().startswith(b'%PDF')
  first, again = (figures.accuracy_curve(lines, tmp_path / name) for name in ('b.svg', 'c.svg'))
  assert (tmp_path / 'b.svg').read_bytes() == (tmp_path / 'c.svg').read_bytes()
  assert first.get_layout_engine() is not None and len([*tmp_path.iterdir()]) == 3


def test_a_dollar_is_drawn_as_a_dollar(tmp_path):
  """The pixels of a title with $ are those of the same title that is never read as a formula."""
  figure = figures.partition_bubbles(np.ones((2, 2), int), tmp_path / 'a.png', 'a $x^2$ b')
  figure.suptitle('a $x^2$ b', fontsize=10, parse_math=False)
  figures.save(figure, tmp_path / 'b.png')
  assert (imread(tmp_path / 'a.png') == imread(tmp_path / 'b.png')).all()
