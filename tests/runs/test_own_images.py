"""The command for a user's own images, but its training: configs/own_images.py and a folder."""

import numpy as np
import pytest
from PIL import Image

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.runs import assemble, descriptions

CLIENTS = {'ann': ('circle', 'square'), 'bob': ('square',), 'eve': ('circle', 'cross', 'square')}
IMAGES = 5  # of each class of a client; a fifth is held out


@pytest.fixture
def photos(tmp_path):
  """Noise of various sizes, grey in every second file; a hidden file in two folders."""
  rng = np.random.default_rng(0)
  for client, classes in CLIENTS.items():
    for name in classes:
      folder = tmp_path / 'photos' / client / name
      folder.mkdir(parents=True)
      for i in range(IMAGES):
        height, width = rng.integers(40, 90, 2)
        shape = (height, width) if i % 2 else (height, width, 3)
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(folder / f'{i}.png')
  (tmp_path / 'photos' / '.DS_Store').write_bytes(b'\0\1')
  (tmp_path / 'photos' / 'ann' / '.hidden.jpg').write_bytes(b'no image')
  return tmp_path / 'photos'


def config_of(photos, clients=3):
  given = [f'--config.data.dir={photos}', f'--config.data.clients={clients}']
  return config_lib.check(files.load_config('own_images', given))


def test_every_folder_is_a_client_and_three_methods_are_trained(photos, tmp_path):
  resolved = config_of(photos)
  problem = assemble.load(resolved)
  assert problem.client_names == ('ann', 'bob', 'eve')
  assert problem.dataset.class_names == ('circle', 'cross', 'square')
  assert problem.dataset.shape == (32, 32, 3)
  assert problem.counts.tolist() == [[4, 0, 4], [0, 0, 4], [4, 4, 4]]
  assert len(problem.dataset.test.y) == 6
  jobs = assemble.jobs(resolved, tmp_path / 'run', problem, None)
  assert [job.config.algorithm for job in jobs] == ['fedavg', 'scaffold', 'dynafed']
  # Convolutions of 3 x 3 and width 16 with biases, two numbers per channel of a norm, and the last
  # layer from 4 x 4 x 16 features.
  parameters = (27 * 16 + 2 * 144 * 16 + 3 * 16) + 3 * 2 * 16 + (256 * 3 + 3)
  assert descriptions.training(resolved, jobs[-1].engine) == (
    f'convnet with {parameters:,} parameters, trained by sgd: rate 0.2 (cosine), batches of 16,'
    ' 2 epochs a round; 80 rounds, seed 0'
  )


def test_another_number_of_clients_is_refused_with_the_right_one(photos):
  with pytest.raises(ValueError, match=r'data.clients = 5, .* 3 clients: use 3'):
    assemble.load(config_of(photos, 5))
