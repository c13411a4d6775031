"""The rows and columns of FedCOG's tables, and their settings."""

from typing import Any

from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Row, Settings, block, shared

DATASETS = {
  'fmnist': ('Fashion-MNIST', 'fedcog_fashion_mnist'),
  'cifar10': ('CIFAR-10', 'fedcog_cifar10'),
  'cifar100': ('CIFAR-100', 'fedcog_cifar100'),
}
"""Title and config by the name in columns."""
PARTITIONS = {
  'niid1': ('NIID-1', block('data', partition='dirichlet_min', alpha=0.1)),
  'niid2': ('NIID-2', block('data', partition='labels_per_client')),
}
# Two cores run a cell of Fashion-MNIST as in the paper; one of CIFAR has a tenth of the steps.
CPU = {'rounds': 30, 'fedcog.start': 20, 'client.steps': 100}
SMOKE = {
  'rounds': 6,
  **block('data', name='digits', normalisation=''),
  **block('client', steps=6, batch_size=16, lr=0.05, augment='none'),
  **block('model', name='mlp', width=16, depth=2),  # convolutions of the CNNs need larger images
  **block('fedcog', start=3, samples=16, steps=5, kd_batch=8),
  **block('fedgen', steps=3, hidden=16),
  **block('dynafed', length=3, segment=2, inner_steps=3, iterations=5, finetune_steps=3),
}

SCAFFOLD_NOTE = (
  'scaffold.correction=step: the correction is a step of its own after the one with momentum 0.9,'
  ' and variates are mean steps (option 2); the paper names neither, and inside momentum (option 1)'
  ' it diverged within three rounds here'
)
STATED: dict[str, Settings] = {
  'fedavgm': {'fedavgm.momentum': 0.1},
  'fedprox': {'fedprox.mu': 0.01},
  'moon': {'moon.mu': 0.01},
  'fedsam': {'fedsam.rho': 0.5},
  'fedexp': {'fedexp.epsilon': 1e-3},
  'feddecorr': {'feddecorr.beta': 0.01},
  'vhl': block('vhl', lambda_noise=1.0, align_epochs=5),
}
"""The paper's (A.3.2)."""
STATED_NOTE = (
  ', '.join(f'{key}={value:g}' for stated in STATED.values() for key, value in stated.items())
  + ': the paper states these'
)
UNSTATED_NOTE = "the paper states no settings: those of the method's own code"


def row(
  name: str,
  title: str,
  settings: Settings | None = None,
  *,
  algorithm: str = '',
  note: str = '',
  **more: Any,
) -> Row:
  """Returns a row: what the paper states of each part of its algorithm, then `settings`."""
  parts = (algorithm or name).split('+')
  stated = {key: value for part in parts for key, value in STATED.get(part, {}).items()}
  if 'scaffold' in parts:
    stated['scaffold.correction'] = 'step'
    note = note or SCAFFOLD_NOTE
  note = note or (STATED_NOTE if stated else '')
  settings = {**stated, **(settings or {})}
  return Row(name, title, settings, note=note, algorithm=algorithm, **more)


def variant(
  name: str, title: str, settings: Settings, warm_start_from: str = 'fedcog', **more: Any
) -> Row:
  """Returns FedCOG with other fields; it is FedAvg until it generates."""
  settings = block('fedcog', **settings)
  more['warm_start_from'] = warm_start_from
  return row(name, title, settings, algorithm='fedcog', **more)


FEDCOG = row('fedcog', 'FedCOG')
FEDAVG = row('fedavg', 'FedAvg', warm_start_from='fedcog')
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
  row('vhl', 'VHL', by_scale={'smoke': block('vhl', images_per_class=4, noise_batch=8)}),
  row('fedexp', 'FedExP'),
  row('feddecorr', 'FedDecorr'),
  row('fedreg', 'FedReg', note=UNSTATED_NOTE, by_scale={'smoke': {'fedreg.iterations': 2}}),
  row('fedgen', 'FedGen', note=UNSTATED_NOTE),
  FEDCOG,
)
FEW = (FEDAVG, FEDPROX, MOON, FEDCOG)


def from_table(table: str, *rows: Row) -> tuple[Row, ...]:
  """Returns rows that begin in the runs of another table's FedCOG."""
  return tuple(r._replace(warm_start_from=f'fedcog/{table}:fedcog') for r in rows)


def plugged(table: str) -> tuple[Row, ...]:
  """Returns methods without and with FedCOG, of which FedAvg's begin in another table's runs."""
  fedavg = from_table(table, FEDAVG, FEDCOG._replace(title='FedAvg + FedCOG'))
  others = (
    (
      base._replace(warm_start_from=f'{base.name}+fedcog'),
      row(f'{base.name}+fedcog', f'{base.title} + FedCOG'),
    )
    for base in (FEDAVGM, FEDPROX, SCAFFOLD, MOON)
  )
  return (*fedavg, *(r for pair in others for r in pair))


ABLATION = (
  variant('fedcog-noise', 'noise, soft', {'source': 'noise'}),
  variant('fedcog-global', 'global, soft', {'source': 'global'}),
  variant('fedcog-hard', 'global and local, hard', {'supervision': 'hard'}),
  FEDCOG._replace(title='global and local, soft (FedCOG)'),
)
# 100 steps are FedCOG's own row.
STEPS = tuple(
  FEDCOG._replace(title='100 steps (FedCOG)')
  if n == 100
  else variant(
    f'fedcog-steps{n}', f'{n} steps', {'steps': n}, by_scale={'smoke': {'fedcog.steps': few}}
  )
  for n, few in ((0, 0), (50, 2), (100, 5), (500, 8), (1000, 12))
)
# 0.1 is FedCOG's own row.
DISAGREEMENTS = tuple(
  variant(
    'fedcog' if weight == 0.1 else f'fedcog-dis{weight:g}',
    f'λ_dis = {weight:g}',
    {'lambda_dis': weight},
    '' if weight == 0.1 else 'fedcog',
  )
  for weight in (0.01, 0.1, 1.0, 10.0)
)
# The weights are fixed, as FedCOG's own row weighs by what a client lacks.
DISTILLATIONS = tuple(
  variant(f'fedcog-kd{weight:g}', f'λ_kd = {weight:g}', {'weights': 'fixed', 'lambda_kd': weight})
  for weight in (0.001, 0.01, 0.1, 1.0)
)
# Chosen with the MLP, as in configs/dynafed_fashion_mnist.py.
FINETUNING = block('dynafed', finetune_steps=60, finetune_lr=3e-4)
DYNAFED_NOTE = (
  'DynaFed with L = 20, so that it fine-tunes from round 21 on, and the fine-tuning that was chosen'
  ' for the MLP (configs/dynafed_fashion_mnist.py)'
)
_DYNAFED: dict[str, Any] = {
  'settings': FINETUNING,
  'note': DYNAFED_NOTE,
  'by_scale': {'smoke': {'dynafed.finetune_steps': 3}},
}
COMPOSED = (
  FEDAVG,
  FEDCOG,
  # The composition is DynaFed until it generates.
  row('dynafed', 'DynaFed', warm_start_from='fedcog+dynafed', **_DYNAFED),
  row('fedcog+dynafed', 'FedCOG + DynaFed', **_DYNAFED),
)


def column(
  dataset: str,
  partition: str = 'niid1',
  settings: Settings | None = None,
  *,
  cpu: Settings | None = None,
  smoke: Settings | None = None,
  name: str = '',
  title: str = '',
) -> Column:
  """Returns a column of one data set and kind of heterogeneity.

  Args:
    dataset: of `DATASETS`.
    partition: of `PARTITIONS`.
    settings: more of them.
    cpu: more of them at the scale 'cpu'.
    smoke: more of them at the scale 'smoke'.
    name: of the column; by default both names.
    title: of the column; by default both titles.
  """
  (label, config), (kind, heterogeneity) = DATASETS[dataset], PARTITIONS[partition]
  reduced = CPU if dataset != 'fmnist' else {}
  # A tenth of the labels, as with a hundred classes.
  tenth = {'data.labels': 1} if (dataset, partition) == ('cifar100', 'niid2') else {}
  return Column(
    name or f'{dataset}-{partition}',
    title or f'{label} {kind}',
    config,
    {**heterogeneity, **(settings or {})},
    {'cpu': {**reduced, **(cpu or {})}, 'smoke': {**SMOKE, **tenth, **(smoke or {})}},
    group=f'{dataset}-{partition}',
  )


def one_round_more(dataset: str, partition: str = 'niid1', **more: Any) -> Column:
  """Returns a column of one round after T0."""
  cpu = None if dataset == 'fmnist' else {'rounds': 21}
  return column(dataset, partition, {'rounds': 51}, cpu=cpu, smoke={'rounds': 4}, **more)


TABLE1 = tuple(column(d, p) for d in DATASETS for p in PARTITIONS)
OF_TABLE1 = {c.name: shared(c, 'fedcog/table1') for c in TABLE1}
"""The same runs in another table."""
CIFAR10 = OF_TABLE1['cifar10-niid1']
BOTH = (CIFAR10, OF_TABLE1['cifar10-niid2'])
FMNIST = (OF_TABLE1['fmnist-niid1'], OF_TABLE1['fmnist-niid2'])
TABLE3 = tuple(one_round_more(d, p) for d in ('fmnist', 'cifar10') for p in PARTITIONS)
TABLE4 = tuple(
  one_round_more('cifar10', name=name, title=title)._replace(
    shares_runs_with=('fedcog/table4', 'time'), measure=measure
  )
  for name, title, measure in (
    ('time', 'local time, s', measures.LOCAL_SECONDS),
    ('accuracy', 'accuracy, %', measures.LAST),
  )
)


def steps(tau: int) -> Column:
  """Returns a column of τ local steps."""
  cpu, smoke = {'client.steps': tau // 4}, {'client.steps': tau // 66}
  name, title, settings = f'tau{tau}', f'τ = {tau}', {'client.steps': tau}
  return column('cifar10', settings=settings, cpu=cpu, smoke=smoke, name=name, title=title)


def clients(k: int) -> Column:
  """Returns a column of K clients."""
  return column('cifar10', settings={'data.clients': k}, name=f'clients{k}', title=f'K = {k}')


def share(p: float) -> Column:
  """Returns a column of 50 clients, of which a share takes part in a round."""
  settings = {'data.clients': 50, 'client.participation': p}
  return column('cifar10', settings=settings, name=f'share{p:g}', title=f'{p:g}')


def heterogeneity(beta: float) -> Column:
  """Returns a column of one β."""
  name, title = f'cifar10-{beta:g}', f'β = {beta:g}'
  return column('cifar10', settings={'data.alpha': beta}, name=name, title=title)


TABLE9 = (steps(200), CIFAR10._replace(name='tau400', title='τ = 400'), steps(600), steps(800))
TABLE10 = tuple(share(p) for p in (0.1, 0.2, 0.3, 0.4))
TABLE11 = (clients(5), CIFAR10._replace(name='clients10', title='K = 10'), clients(20), clients(30))
LEVELS = (CIFAR10._replace(title='β = 0.1'), *(heterogeneity(b) for b in (0.5, 1.0, 5.0)))
