"""The rows and columns of FedDualMatch's tables, and their settings."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Row, Settings, shared, tuned

DATASETS = {'mnist': 'MNIST', 'cifar10': 'CIFAR10'}
ALPHAS = (0.05, 0.01, 0.005)
# All of MNIST; a core takes a quarter of an hour to an hour for a cell. FedDM's 1000 steps are 500 passes over two batches of
# 256; at alpha 0.01 ten clients send about 180 images.
CPU = {
  'model.width': 32,
  'client.epochs': 1,
  'dynafed.iterations': 250,
  'feddm.iterations': 200,
  'feddm.real_batch': 64,
  'feddm.server_steps': 500,
  'feddm.server_batch': 128,
  'feddualmatch.per_stage': False,
  'feddualmatch.server_batch': 128,
}
SMOKE = {
  'data.name': 'digits',
  'data.normalisation': '',
  'rounds': 4,
  'model.width': 4,
  'model.depth': 2,
  'client.batch_size': 32,
  'client.epochs': 1,
  'feddm.images_per_class': 2,
  'feddm.iterations': 3,
  'feddm.real_batch': 8,
  'feddm.least': 1,
  'feddm.server_steps': 3,
  'feddualmatch.images_per_class': 2,
  'feddualmatch.iterations': 3,
  'feddualmatch.matches': 2,
  'feddualmatch.match_steps': 2,
  'feddualmatch.server_steps': 4,
  'dynafed.length': 2,
  'dynafed.segment': 1,
  'dynafed.targets': 1,
  'dynafed.images_per_class': 2,
  'dynafed.inner_steps': 2,
  'dynafed.inner_batch': 0,
  'dynafed.iterations': 2,
  'dynafed.together': 1,
  'dynafed.augment': '',
  'dynafed.finetune_steps': 2,
  'dynafed.finetune_batch': 0,
  'dynafed.finetune_augment': '',
}

# By method and column group, chosen on held-out training rows; nothing was yet.
TUNED: dict[str, dict[str, dict]] = {}

SCAFFOLD_NOTE = (
  'scaffold.correction=step: the correction is a step of its own after the one with momentum 0.9, and variates are mean'
  " steps (option 2); the paper names neither, and inside momentum (option 1) it diverged within three rounds of FedCOG's"
  ' protocol'
)
FEDPROX_NOTE = 'fedprox.mu=0.01; the paper states no value'
DYNAFED_NOTE = 'L = 10 of the 20 rounds, 10 images per class; the paper states neither'
FEDDM_NOTE = 'constants of re-implementations, since its authors published no code'
PRIVACY_NOTE = (
  "'set': the paper's form, whose epsilon counts all iterations and that one example may move the gradient by 2 C;"
  " 'example': examples' features are bounded and class means noised once a round; epsilon at delta 1e-5, one example as the"
  ' unit; labels and class counts are not protected'
)
DP_NOTE = 'DP-FedAvg: one client, all its samples, is the unit'


def row(
  name: str,
  title: str,
  settings: Settings | None = None,
  *,
  word: str = '',
  note: str = '',
  smoke: Settings | None = None,
) -> Row:
  """Returns a row."""
  return Row(
    name, title, settings or {}, {'smoke': smoke or {}}, tuned(TUNED, word or name), note, word
  )


def variant(name: str, title: str, settings: Settings, note: str = '', **more) -> Row:
  """Returns FedDualMatch with some of its fields changed."""
  fields = {f'feddualmatch.{key}': value for key, value in settings.items()}
  return row(f'feddualmatch-{name}', title, fields, word='feddualmatch', note=note, **more)


FEDAVG = row('fedavg', 'FedAvg')
FEDDM = row('feddm', 'FedDM', note=FEDDM_NOTE)
FEDDUALMATCH = row('feddualmatch', 'FedDualMatch')
ROWS = (
  FEDAVG,
  row('fedprox', 'FedProx', {'fedprox.mu': 0.01}, note=FEDPROX_NOTE),
  row('fednova', 'FedNova'),
  row('scaffold', 'SCAFFOLD', {'scaffold.correction': 'step'}, note=SCAFFOLD_NOTE),
  row('dynafed', 'DynaFed', note=DYNAFED_NOTE),
  FEDDM,
  FEDDUALMATCH,
)


def column(
  dataset: str,
  alpha: float,
  settings: Settings | None = None,
  *,
  cpu: Settings | None = None,
  smoke: Settings | None = None,
  name: str = '',
  title: str = '',
) -> Column:
  """Returns a column of one data set and alpha; `cpu` and `smoke` add to the scales' own settings."""
  return Column(
    name or f'{dataset}-{alpha:g}',
    title or f'{DATASETS[dataset]}, α = {alpha:g}',
    'feddualmatch_mnist',
    {'data.name': dataset, 'data.alpha': alpha, **(settings or {})},
    {'cpu': {**CPU, **(cpu or {})}, 'smoke': {**SMOKE, **(smoke or {})}},
    group=dataset,
  )


TABLE1 = tuple(column(d, a) for d in DATASETS for a in ALPHAS)
ELSEWHERE = {c.name: shared(c, 'feddualmatch/table1') for c in TABLE1}
MNIST = ELSEWHERE['mnist-0.01']
BOTH = (MNIST, ELSEWHERE['cifar10-0.01'])
LEVELS = (
  *(ELSEWHERE[f'mnist-{a:g}']._replace(title=f'α = {a:g}') for a in (0.01, 0.05)),
  *(column('mnist', a, title=f'α = {a:g}') for a in (0.5, 1.0, 10.0)),
)

# ---- Table 2: domains

DOMAINS = {  # by data set: title, config, domains
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


def _stand_in(names: Sequence[str]) -> Any:
  """Digits dealt to as many made-up domains, each brighter than the one before it, under the names of real ones."""
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


def digit_five() -> Any:
  """Returns a small `Dataset` with the domains of Digit-Five."""
  return _stand_in(DOMAINS['digit_five'][2])


def office_home() -> Any:
  """Returns a small `Dataset` with the domains of Office-Home."""
  return _stand_in(DOMAINS['office_home'][2])


def digits_domains() -> Any:
  """Returns a small `Dataset` with the domains of `digits_domains`."""
  return _stand_in(DOMAINS['digits_domains'][2])


def domain_columns(name: str) -> tuple[Column, ...]:
  """Returns a column per domain, and one of all of them: one run, several measures."""
  title, config, domains = DOMAINS[name]
  clients = {} if name != 'digits_domains' else {'data.name': name, 'data.clients': len(domains)}
  small = {**SMOKE, 'data.name': f'{__name__}:{name}'}
  whole = Column(
    name,
    f'{title}: all',
    config,
    clients,
    {'cpu': CPU, 'smoke': small},
    group=name,
    home=('feddualmatch/table2', name),
    measure=measures.ACCURACY,
  )
  parts = (
    whole._replace(name=f'{name}-{d}', title=f'{title}: {d}', measure=measures.of_domain(d))
    for d in domains
  )
  return (*parts, whole)


TABLE2 = tuple(c for name in DOMAINS for c in domain_columns(name))

# ---- Figures 5 and 6

NO_GGM = {'matches': 0}


def one_stage(name: str, title: str, settings: Settings) -> Row:
  """A variant of one stage takes as many iterations as layer-wise does in three, 200 for each (in all at `cpu`)."""
  made = variant(name, title, settings)
  return made._replace(by_scale={**made.by_scale, 'paper': {'feddualmatch.iterations': 600}})


ABLATION = (
  one_stage('last-no-ggm', 'last layer, no GGM', {'alignment': 'last', **NO_GGM}),
  one_stage('all-no-ggm', 'all layers at once, no GGM', {'alignment': 'all', **NO_GGM}),
  variant('no-ggm', 'layer-wise, no GGM', NO_GGM),
  one_stage('last', 'last layer, GGM', {'alignment': 'last'}),
  one_stage('all', 'all layers at once, GGM', {'alignment': 'all'}),
  FEDDUALMATCH._replace(title='layer-wise, GGM (FedDualMatch)'),
)
AMBIGUITIES = (
  FEDDUALMATCH,
  variant('norm', 'norms not squared', {'squared': False}),
  variant('resample', 'w^k drawn in every iteration', {'resample': True}),
  variant(
    'in-all', '200 iterations in all', {'per_stage': False}
  ),  # at `cpu` those of the first row
  variant('each-stage', '200 iterations for each stage', {'per_stage': True}),  # elsewhere
  variant('logits', 'from the logit layer on', {'layers': 'pooled+logits'}),
  variant('image-rate', "R_t by the images' rate", {'radius_lr': 1.0}),
  variant('accumulate', "S' accumulates over the M models", {'restart': False}),
  variant('alternate', 'fine-tuning in turn with GGM', {'alternate': True}),
  variant('sgd', 'SGD on the server', {'server_optimizer': 'sgd'}),
)

# FedDM's own images begin as real ones, FedDualMatch's as noise: is it the method or the beginning?
BEGINNINGS = (
  FEDDUALMATCH._replace(title='FedDualMatch, from noise'),
  variant('real', 'FedDualMatch, from real images', {'init': 'real'}),
  row('feddm-noise', 'FedDM, from noise', {'feddm.init': 'noise'}, word='feddm', note=FEDDM_NOTE),
  FEDDM._replace(title='FedDM, from real images'),
)


def images() -> tuple[Row, ...]:
  """Figure 5 (c); ten images are FedDualMatch's own row."""
  return tuple(
    row(
      'feddualmatch' if n == 10 else f'feddualmatch-ipc{n}',
      f'{n} images per class',
      {'feddualmatch.images_per_class': n},
      word='feddualmatch',
      smoke={'feddualmatch.images_per_class': max(n // 5, 1)},
    )
    for n in (1, 5, 10, 20, 50)
  )


def noises() -> tuple[Row, ...]:
  """Figure 5 (a): the paper's form and the sound one, and DP-FedAvg beside them."""
  form = lambda clipping, sigma, bound, radius=0.0: {
    'clip': bound,
    'clipping': clipping,
    'sigma_s': sigma,
    'sigma_r': radius,
  }
  paper = [
    variant(
      f'set{s:g}-r{r:g}', f'set, σ_s = {s:g}, σ_r = {r:g}', form('set', s, 5.0, r), PRIVACY_NOTE
    )
    for s in (1.0, 5.0)
    for r in (0.0, 1.0)
  ]
  sound = [
    variant(f'example{s:g}', f'example, σ_s = {s:g}', form('example', s, 5.0), PRIVACY_NOTE)
    for s in (5.0, 20.0)
  ]
  budget = {'dp.clip': 1.0, 'dp.noise_multiplier': 1.0}
  return (FEDDUALMATCH, *paper, *sound, row('dp', 'DP-FedAvg', budget, note=DP_NOTE))


PRIVACY = tuple(
  MNIST._replace(name=name, title=f'{MNIST.title}: {name}', measure=measure)
  for name, measure in (('accuracy', measures.ACCURACY), ('epsilon', measures.EPSILON))
)
