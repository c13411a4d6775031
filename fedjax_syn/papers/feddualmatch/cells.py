"""The rows and columns of FedDualMatch's tables, and their settings."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Row, Settings, block, shared

if TYPE_CHECKING:
  from fedjax_syn.data.dataset import Dataset

DATASETS = {'mnist': 'MNIST', 'cifar10': 'CIFAR10'}
ALPHAS = (0.05, 0.01, 0.005)
# All of MNIST; a core takes a quarter of an hour to an hour for a cell. FedDM's 1000 steps are 500
# passes over two batches of 256; at alpha 0.01 ten clients send about 180 images.
CPU = {
  'model.width': 32,
  'client.epochs': 1,
  'dynafed.iterations': 250,
  **block('feddm', iterations=200, real_batch=64, server_steps=500, server_batch=128),
  **block('feddualmatch', per_stage=False, server_batch=128),
}
SMOKE = {
  'rounds': 4,
  **block('data', name='digits', normalisation=''),
  **block('model', width=4, depth=2),
  **block('client', batch_size=32, epochs=1),
  **block('feddm', images_per_class=2, iterations=3, real_batch=8, least=1, server_steps=3),
  **block('feddualmatch', images_per_class=2, iterations=3),
  **block('feddualmatch', matches=2, match_steps=2, server_steps=4),
  **block('dynafed', length=2, segment=1, targets=1, images_per_class=2, iterations=2, together=1),
  **block('dynafed', inner_steps=2, inner_batch=0, augment='', finetune_augment=''),
  **block('dynafed', finetune_steps=2, finetune_batch=0),
}

SCAFFOLD_NOTE = (
  'scaffold.correction=step: the correction is a step of its own after the one with momentum 0.9,'
  ' and variates are mean steps (option 2); the paper names neither, and inside momentum (option 1)'
  " it diverged within three rounds of FedCOG's protocol"
)
FEDPROX_NOTE = 'fedprox.mu=0.01; the paper states no value'
DYNAFED_NOTE = 'L = 10 of the 20 rounds, 10 images per class; the paper states neither'
FEDDM_NOTE = 'constants of re-implementations, since its authors published no code'
PRIVACY_NOTE = (
  "'set': the paper's form, whose epsilon counts all iterations and that one example may move the"
  " gradient by 2 C; 'example': examples' features are bounded and class means noised once a round;"
  ' epsilon at delta 1e-5, one example as the unit; labels and class counts are not protected'
)
DP_NOTE = 'DP-FedAvg: one client, all its samples, is the unit'


def variant(name: str, title: str, settings: Settings, note: str = '', **more: Any) -> Row:
  """Returns FedDualMatch with other fields."""
  name, fields = f'feddualmatch-{name}', block('feddualmatch', **settings)
  return Row(name, title, fields, note=note, algorithm='feddualmatch', **more)


FEDAVG = Row('fedavg', 'FedAvg')
FEDDM = Row('feddm', 'FedDM', note=FEDDM_NOTE)
FEDDUALMATCH = Row('feddualmatch', 'FedDualMatch')
ROWS = (
  FEDAVG,
  Row('fedprox', 'FedProx', {'fedprox.mu': 0.01}, note=FEDPROX_NOTE),
  Row('fednova', 'FedNova'),
  Row('scaffold', 'SCAFFOLD', {'scaffold.correction': 'step'}, note=SCAFFOLD_NOTE),
  Row('dynafed', 'DynaFed', note=DYNAFED_NOTE),
  FEDDM,
  FEDDUALMATCH,
)


def column(dataset: str, alpha: float, title: str = '') -> Column:
  """Returns a column of one data set and alpha."""
  return Column(
    f'{dataset}-{alpha:g}',
    title or f'{DATASETS[dataset]}, α = {alpha:g}',
    'feddualmatch_mnist',
    block('data', name=dataset, alpha=alpha),
    {'cpu': CPU, 'smoke': SMOKE},
    group=dataset,
  )


TABLE1 = tuple(column(d, a) for d in DATASETS for a in ALPHAS)
OF_TABLE1 = {c.name: shared(c, 'feddualmatch/table1') for c in TABLE1}
"""The same runs in another table."""
MNIST = OF_TABLE1['mnist-0.01']
BOTH = (MNIST, OF_TABLE1['cifar10-0.01'])
LEVELS = (
  *(OF_TABLE1[f'mnist-{a:g}']._replace(title=f'α = {a:g}') for a in (0.01, 0.05)),
  *(column('mnist', a, title=f'α = {a:g}') for a in (0.5, 1.0, 10.0)),
)

# ---- Table 2: domains

DOMAINS = {
  'digit_five': (
    'Digit-Five',
    'feddualmatch_digit_five',
    ('mnist', 'mnist_m', 'svhn', 'synth_digits', 'usps'),
  ),
  'office_home': (
    'Office-Home',
    'feddualmatch_office_home',
    ('art', 'clipart', 'product', 'real_world'),
  ),
  'digits_domains': ('three origins', 'feddualmatch_digit_five', ('mnist', 'usps', 'digits')),
}
"""Title, config and domains by data set."""


def _brighter_digits(names: Sequence[str]) -> 'Dataset':
  """Returns digits in as many domains as names, each brighter than the one before it."""
  from fedjax_syn.data import datasets, domains  # slow to import, and only runs need it
  from fedjax_syn.data.builders import digits
  from fedjax_syn.data.split import check_split

  splits = digits.read()
  brighter = lambda x, i: x // 2 + 20 * i
  parts = [
    domains.Domain(
      name,
      *(check_split(brighter(x[i :: len(names)], i), y[i :: len(names)], name) for x, y in splits),
    )
    for i, name in enumerate(names)
  ]
  joined = domains.join('digits', '', 10, parts, 8, 1)
  return dataclasses.replace(
    datasets.load('digits'),
    name='brightness',
    title='digits by brightness',
    train=joined.train,
    test=joined.test,
    clients=joined.clients,
    domains=joined.domains,
    test_domains=joined.test_domains,
  )


def digit_five() -> 'Dataset':
  """Returns a small data set with the domains of Digit-Five."""
  return _brighter_digits(DOMAINS['digit_five'][2])


def office_home() -> 'Dataset':
  """Returns a small data set with the domains of Office-Home."""
  return _brighter_digits(DOMAINS['office_home'][2])


def digits_domains() -> 'Dataset':
  """Returns a small data set with the domains of `digits_domains`."""
  return _brighter_digits(DOMAINS['digits_domains'][2])


def domain_columns(name: str) -> tuple[Column, ...]:
  """Returns a column per domain, and one of all of them: one run, several measures."""
  title, config, domains = DOMAINS[name]
  clients = block('data', name=name, clients=len(domains)) if name == 'digits_domains' else {}
  smoke = {**SMOKE, 'data.name': f'{__name__}:{name}'}
  whole = Column(
    name,
    f'{title}: all',
    config,
    clients,
    {'cpu': CPU, 'smoke': smoke},
    name,
    ('feddualmatch/table2', name),
    measures.ACCURACY,
  )
  parts = (
    whole._replace(name=f'{name}-{d}', title=f'{title}: {d}', measure=measures.of_domain(d))
    for d in domains
  )
  return (*parts, whole)


TABLE2 = tuple(c for name in DOMAINS for c in domain_columns(name))

# ---- Figures 5 and 6

NO_GGM = {'matches': 0}


def _one_stage(name: str, title: str, settings: Settings) -> Row:
  # As many iterations as layer-wise takes in three stages, 200 for each (in all at `cpu`).
  return variant(name, title, settings, by_scale={'paper': {'feddualmatch.iterations': 600}})


ABLATION = (
  _one_stage('last-no-ggm', 'last layer, no GGM', {'alignment': 'last', **NO_GGM}),
  _one_stage('all-no-ggm', 'all layers at once, no GGM', {'alignment': 'all', **NO_GGM}),
  variant('no-ggm', 'layer-wise, no GGM', NO_GGM),
  _one_stage('last', 'last layer, GGM', {'alignment': 'last'}),
  _one_stage('all', 'all layers at once, GGM', {'alignment': 'all'}),
  FEDDUALMATCH._replace(title='layer-wise, GGM (FedDualMatch)'),
)
AMBIGUITIES = (
  FEDDUALMATCH,
  variant('norm', 'norms not squared', {'squared': False}),
  variant('resample', 'w^k drawn in every iteration', {'resample': True}),
  variant('real-batch', 'batches of 256 real images', {'real_batch': 256}),
  # At `cpu` these are the iterations of the first row, and elsewhere those of the next one.
  variant('in-all', '200 iterations in all', {'per_stage': False}),
  variant('each-stage', '200 iterations for each stage', {'per_stage': True}),
  variant('logits', 'from the logit layer on', {'layers': 'pooled+logits'}),
  variant('image-rate', "R_t by the images' rate", {'radius_lr': 1.0}),
  variant('match-rate', 'R_t by the rate of GGM', {'radius_lr': 0.1}),
  variant('accumulate', "S' accumulates over the M models", {'restart': False}),
  variant('alternate', 'fine-tuning in turn with GGM', {'alternate': True}),
  variant('sgd', 'SGD on the server', {'server_optimizer': 'sgd'}),
)

# FedDM's own images begin as real ones, FedDualMatch's as noise: is it the method or the beginning?
BEGINNINGS = (
  FEDDUALMATCH._replace(title='FedDualMatch, from noise'),
  variant('real', 'FedDualMatch, from real images', {'init': 'real'}),
  Row(
    'feddm-noise', 'FedDM, from noise', {'feddm.init': 'noise'}, note=FEDDM_NOTE, algorithm='feddm'
  ),
  FEDDM._replace(title='FedDM, from real images'),
)
# Figure 5 (c); ten images are FedDualMatch's own row.
IMAGES = tuple(
  variant(
    f'ipc{n}',
    f'{n} images per class',
    {'images_per_class': n},
    by_scale={'smoke': {'feddualmatch.images_per_class': max(n // 5, 1)}},
  )._replace(name='feddualmatch' if n == 10 else f'feddualmatch-ipc{n}')
  for n in (1, 5, 10, 20, 50)
)
# Figure 5 (a): the paper's form and the sound one, and DP-FedAvg beside them.
NOISES = (
  FEDDUALMATCH,
  *(
    variant(
      f'set{s:g}-r{r:g}',
      f'set, σ_s = {s:g}, σ_r = {r:g}',
      {'clip': 5.0, 'clipping': 'set', 'sigma_s': s, 'sigma_r': r},
      PRIVACY_NOTE,
    )
    for s in (1.0, 5.0)
    for r in (0.0, 1.0)
  ),
  *(
    variant(
      f'example{s:g}',
      f'example, σ_s = {s:g}',
      {'clip': 5.0, 'clipping': 'example', 'sigma_s': s, 'sigma_r': 0.0},
      PRIVACY_NOTE,
    )
    for s in (5.0, 20.0)
  ),
  Row('dp', 'DP-FedAvg', block('dp', clip=1.0, noise_multiplier=1.0), note=DP_NOTE),
)
PRIVACY = tuple(
  MNIST._replace(name=name, title=f'{MNIST.title}: {name}', measure=measure)
  for name, measure in (('accuracy', measures.ACCURACY), ('epsilon', measures.EPSILON))
)
