"""The rows and columns of FedCOG's tables, and their settings."""

from fedjax_syn.tables.spec import Column, Row, Settings, shared, tuned

DATASETS = {  # by column name: title, config
  'fmnist': ('Fashion-MNIST', 'fedcog_fashion_mnist'),
  'cifar10': ('CIFAR-10', 'fedcog_cifar10'),
  'cifar100': ('CIFAR-100', 'fedcog_cifar100'),
}
PARTITIONS = {
  'niid1': ('NIID-1', {'data.partition': 'dirichlet_min', 'data.alpha': 0.1}),
  'niid2': ('NIID-2', {'data.partition': 'labels_per_client'}),
}
# On two cores a cell of Fashion-MNIST is run as it stands in the paper; one of CIFAR takes a tenth of the steps.
CPU = {'rounds': 30, 'fedcog.start': 20, 'client.steps': 100}
SMOKE = {
  'data.name': 'digits',
  'data.normalisation': '',
  'client.steps': 6,
  'client.batch_size': 16,
  'client.lr': 0.05,
  'client.augment': 'none',
  'rounds': 6,
  'model.name': 'mlp',  # the CNNs' unpadded convolutions do not fit 8 x 8 pixels
  'model.width': 16,
  'model.depth': 2,
  'fedcog.start': 3,
  'fedcog.samples': 16,
  'fedcog.steps': 5,
  'fedcog.kd_batch': 8,
  'fedgen.steps': 3,
  'fedgen.hidden': 16,
  'dynafed.length': 3,
  'dynafed.segment': 2,
  'dynafed.inner_steps': 3,
  'dynafed.iterations': 5,
  'dynafed.finetune_steps': 3,
}

# By method and column group, chosen on held-out training rows; nothing was yet.
TUNED: dict[str, dict[str, dict]] = {}

SCAFFOLD_NOTE = (
  'scaffold.correction=step: the correction is a step of its own after the one with momentum 0.9, and variates are mean'
  ' steps (option 2); the paper names neither, and inside momentum (option 1) it diverged within three rounds here'
)
# The paper's (A.3.2).
STATED: dict[str, dict[str, float]] = {
  'fedavgm': {'fedavgm.momentum': 0.1},
  'fedprox': {'fedprox.mu': 0.01},
  'moon': {'moon.mu': 0.01},
  'fedsam': {'fedsam.rho': 0.5},
  'fedexp': {'fedexp.epsilon': 1e-3},
  'feddecorr': {'feddecorr.beta': 0.01},
  'vhl': {'vhl.lambda_noise': 1.0, 'vhl.align_epochs': 5},
}
STATED_NOTE = (
  ', '.join(f'{key}={value:g}' for block in STATED.values() for key, value in block.items())
  + ': the paper states these'
)
UNSTATED_NOTE = "the paper states no settings: those of the method's own code"


def row(
  name: str,
  title: str,
  settings: Settings | None = None,
  *,
  word: str = '',
  origin: str = '',
  note: str = '',
  cpu: Settings | None = None,
  smoke: Settings | None = None,
) -> Row:
  """Returns a row: what the paper states of each part of its word, then `settings`, then what was tuned."""
  parts = (word or name).split('+')
  stated = {key: value for part in parts for key, value in STATED.get(part, {}).items()}
  if 'scaffold' in parts:
    stated['scaffold.correction'] = 'step'
    note = note or SCAFFOLD_NOTE
  return Row(
    name,
    title,
    {**stated, **(settings or {})},
    {'cpu': cpu or {}, 'smoke': smoke or {}},
    tuned(TUNED, word or name),
    note or (STATED_NOTE if stated else ''),
    word,
    origin,
  )


FEDCOG = row('fedcog', 'FedCOG')
FEDAVG = row('fedavg', 'FedAvg', origin='fedcog')  # which is FedAvg until it generates
FEDPROX = row('fedprox', 'FedProx')
MOON = row('moon', 'MOON')
FEDAVGM = row('fedavgm', 'FedAvgM')
SCAFFOLD = row('scaffold', 'SCAFFOLD')
ROWS = (
  FEDAVG,
  FEDAVGM,
  FEDPROX,
  SCAFFOLD,
  MOON,
  row('fedsam', 'FedSAM'),
  row('vhl', 'VHL', smoke={'vhl.images_per_class': 4, 'vhl.noise_batch': 8}),
  row('fedexp', 'FedExP'),
  row('feddecorr', 'FedDecorr'),
  row('fedreg', 'FedReg', note=UNSTATED_NOTE, smoke={'fedreg.iterations': 2}),
  row('fedgen', 'FedGen', note=UNSTATED_NOTE),
  FEDCOG,
)
FEW = (FEDAVG, FEDPROX, MOON, FEDCOG)


def column(
  dataset: str,
  partition: str,
  settings: Settings | None = None,
  *,
  cpu: Settings | None = None,
  smoke: Settings | None = None,
  name: str = '',
  title: str = '',
) -> Column:
  """Returns a column of one data set and kind of heterogeneity; `cpu` and `smoke` add to the scales' own settings."""
  (label, config), (kind, dealt) = DATASETS[dataset], PARTITIONS[partition]
  reduced = CPU if dataset != 'fmnist' else {}
  # A tenth of the labels, as with a hundred classes.
  lone = {'data.labels': 1} if (dataset, partition) == ('cifar100', 'niid2') else {}
  return Column(
    name or f'{dataset}-{partition}',
    title or f'{label} {kind}',
    config,
    {**dealt, **(settings or {})},
    {'cpu': {**reduced, **(cpu or {})}, 'smoke': {**SMOKE, **lone, **(smoke or {})}},
    group=f'{dataset}-{partition}',
  )


TABLE1 = tuple(column(d, p) for d in DATASETS for p in PARTITIONS)
ELSEWHERE = {c.name: shared(c, 'fedcog/table1') for c in TABLE1}  # the same runs in another table
CIFAR10 = ELSEWHERE['cifar10-niid1']
BOTH = (CIFAR10, ELSEWHERE['cifar10-niid2'])


# One round after T0.
TABLE3 = tuple(
  column(d, p, {'rounds': 51}, cpu=None if d == 'fmnist' else {'rounds': 21}, smoke={'rounds': 4})
  for d in ('fmnist', 'cifar10')
  for p in PARTITIONS
)
PLUGGED = tuple(
  r
  for base in (FEDAVG, FEDAVGM, FEDPROX, SCAFFOLD, MOON)
  for r in (
    base._replace(origin='fedcog/table1:fedcog' if base is FEDAVG else f'{base.name}+fedcog'),
    FEDCOG._replace(origin='fedcog/table1:fedcog', title='FedAvg + FedCOG')
    if base is FEDAVG
    else row(f'{base.name}+fedcog', f'{base.title} + FedCOG'),
  )
)
TABLE4 = tuple(
  column(
    'cifar10', 'niid1', {'rounds': 51}, cpu={'rounds': 21}, smoke={'rounds': 4}, name=n, title=t
  )._replace(home=('fedcog/table4', 'time'))
  for n, t in (('time', 'local time, s'), ('accuracy', 'accuracy, %'))
)
ABLATION = (
  row('fedcog-noise', 'noise, soft', {'fedcog.source': 'noise'}, word='fedcog', origin='fedcog'),
  row('fedcog-global', 'global, soft', {'fedcog.source': 'global'}, word='fedcog', origin='fedcog'),
  row(
    'fedcog-hard',
    'global and local, hard',
    {'fedcog.supervision': 'hard'},
    word='fedcog',
    origin='fedcog',
  ),
  FEDCOG._replace(title='global and local, soft (FedCOG)'),
)


def steps() -> tuple[Row, ...]:
  """Table 7; 100 steps are FedCOG's own row."""
  rows = [
    row(
      f'fedcog-steps{n}',
      f'{n} steps',
      {'fedcog.steps': n},
      word='fedcog',
      origin='fedcog',
      smoke={'fedcog.steps': few},
    )
    for n, few in ((0, 0), (50, 2), (500, 8), (1000, 12))
  ]
  return (*rows[:2], FEDCOG._replace(title='100 steps (FedCOG)'), *rows[2:])


TABLE9 = tuple(
  ELSEWHERE['cifar10-niid1']._replace(name='tau400', title='τ = 400')
  if tau == 400
  else column(
    'cifar10',
    'niid1',
    {'client.steps': tau},
    cpu={'client.steps': tau // 4},
    smoke={'client.steps': tau // 66},
    name=f'tau{tau}',
    title=f'τ = {tau}',
  )
  for tau in (200, 400, 600, 800)
)
TABLE10 = tuple(
  column(
    'cifar10',
    'niid1',
    {'data.clients': 50, 'client.participation': share},
    name=f'share{share:g}',
    title=f'{share:g}',
  )
  for share in (0.1, 0.2, 0.3, 0.4)
)
TABLE11 = tuple(
  ELSEWHERE['cifar10-niid1']._replace(name='clients10', title='K = 10')
  if k == 10
  else column('cifar10', 'niid1', {'data.clients': k}, name=f'clients{k}', title=f'K = {k}')
  for k in (5, 10, 20, 30)
)
LEVELS = tuple(
  ELSEWHERE['cifar10-niid1']._replace(title='β = 0.1')
  if beta == 0.1
  else column(
    'cifar10', 'niid1', {'data.alpha': beta}, name=f'cifar10-{beta:g}', title=f'β = {beta:g}'
  )
  for beta in (0.1, 0.5, 1.0, 5.0)
)


def disagreements() -> tuple[Row, ...]:
  """Figure 3 (b); 0.1 is FedCOG's own row."""
  return tuple(
    row(
      'fedcog' if weight == 0.1 else f'fedcog-dis{weight:g}',
      f'λ_dis = {weight:g}',
      {'fedcog.lambda_dis': weight},
      word='fedcog',
      origin='' if weight == 0.1 else 'fedcog',
    )
    for weight in (0.01, 0.1, 1.0, 10.0)
  )


def distillations() -> tuple[Row, ...]:
  """Figure 3 (c): with weights that are fixed, as FedCOG's own row weighs by what a client lacks."""
  return tuple(
    row(
      f'fedcog-kd{weight:g}',
      f'λ_kd = {weight:g}',
      {'fedcog.weights': 'fixed', 'fedcog.lambda_kd': weight},
      word='fedcog',
      origin='fedcog',
    )
    for weight in (0.001, 0.01, 0.1, 1.0)
  )


# Chosen with the MLP, as in configs/dynafed_fashion_mnist.py.
FINETUNING = {'dynafed.finetune_steps': 60, 'dynafed.finetune_lr': 3e-4}
DYNAFED_NOTE = (
  'DynaFed with L = 20, so that it fine-tunes from round 21 on, and the fine-tuning that was chosen for the MLP'
  ' (configs/dynafed_fashion_mnist.py)'
)
COMPOSED = (
  FEDAVG,
  FEDCOG,
  *(
    # DynaFed around FedCOG is DynaFed until it generates.
    row(word, title, FINETUNING, origin=o, note=DYNAFED_NOTE, smoke={'dynafed.finetune_steps': 3})
    for word, title, o in (
      ('dynafed', 'DynaFed', 'fedcog+dynafed'),
      ('fedcog+dynafed', 'FedCOG + DynaFed', ''),
    )
  ),
)
