"""Unknown names get the known names that they may mean."""

import pytest

from fedjax_syn.config import parsing
from fedjax_syn.core import suggestions

FIELDS = (
  ('fedavg.learning_rate', ['client.lr']),
  ('fedopt.learning_rate', ['fedopt.lr', 'client.lr']),  # the section's own comes first
  ('client.lrr', ['client.lr']),
  ('dynafed.lr', ['dynafed.inner_lr', 'dynafed.inner_lr_lr', 'dynafed.image_lr']),
  ('lr', ['client.lr']),  # what all methods have, and not the rates of some
  ('scaffold.lr', ['client.lr']),
  ('optimizer.lr', ['client.lr']),  # no such section
  ('optimzer', ['client.optimizer', 'fedopt.optimizer', 'feddualmatch.server_optimizer']),
  ('batchSize', ['client.batch_size']),
  ('E', ['client.epochs']),
  ('num_clients', ['data.clients']),
  ('fraction_fit', ['client.participation']),
  ('seed', ['seeds', 'data.seed']),
  ('mu', ['fedprox.mu', 'moon.mu']),
  ('model', ['model.name', 'model.width', 'model.depth']),
  ('workdir', ['--workdir']),
  ('client.nesterov', []),
  ('', []),
)
NAMES = (
  ('datasets', 'CIFAR10', ['cifar10']),
  ('datasets', 'cifar-100', ['cifar100']),
  ('datasets', 'fashionmnist', ['fashion_mnist']),
  ('datasets', 'FMNIST', ['fashion_mnist']),
  ('datasets', 'ImageFolder', ['folder']),
  ('datasets', 'SVHN', ['tfds:svhn_cropped']),
  ('datasets', 'digit', ['digits', 'digit_five']),
  ('models', 'CNN', ['convnet']),
  ('models', 'ResNet-50', ['resnet18']),
  ('models', 'vit', []),
  ('partitions', 'dirichlet_balanced', ['balanced_dirichlet']),
  ('partitions', 'non-iid', ['dirichlet', 'labels_per_client', 'balanced_dirichlet']),
  ('partitions', 'shards', ['labels_per_client']),
  ('algorithms', 'FedAvg', ['fedavg']),
  ('algorithms', 'FedAdam', ['fedopt']),
)


@pytest.mark.parametrize(('word', 'near'), FIELDS)
def test_fields(word, near):
  assert suggestions.nearest(word, parsing.leaves()) == near


@pytest.mark.parametrize(('kind', 'word', 'near'), NAMES)
def test_names(kind, word, near):
  assert suggestions.nearest(word, parsing.names(kind)) == near


@pytest.mark.parametrize('word', ['x' * 10**6, '\u0661', '.', 'a.', '.a', 'a\0b'])
def test_odd_words_have_an_answer(word):
  assert suggestions.nearest(word, ['client.lr']) == []


def test_synonyms_are_of_names_that_exist():
  known = {
    *parsing.leaves(),
    *(name for kind in parsing.REGISTRIES for name in parsing.names(kind)),
  }
  outside = {name for name in suggestions.SYNONYMS if name.startswith(('tfds:', '--'))}
  assert outside == {'tfds:emnist', 'tfds:svhn_cropped', '--workdir'}
  assert {*suggestions.SYNONYMS} - outside <= known
