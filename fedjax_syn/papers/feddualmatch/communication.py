"""The rows and columns of FedDualMatch's Figure 6: bytes of a round, for every method of the library."""

from fedjax_syn import algorithms
from fedjax_syn.papers.feddualmatch import cells as made
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Row

# What is sent depends on shapes and on who has which class, not on how long anything is trained.
ONE_STEP = {
  'rounds': 3,
  'client.epochs': 0,
  'client.steps': 1,
  'client.batch_size': 32,
  'data.proxy': 'held_out',
  'feddm.iterations': 1,
  'feddm.real_batch': 1,
  'feddm.server_steps': 1,
  'feddualmatch.iterations': 1,
  'feddualmatch.matches': 1,
  'feddualmatch.match_steps': 1,
  'feddualmatch.server_steps': 1,
  'dynafed.length': 2,
  'dynafed.segment': 1,
  'dynafed.targets': 1,
  'dynafed.inner_steps': 1,
  'dynafed.inner_batch': 10,
  'dynafed.iterations': 1,
  'dynafed.together': 1,
  'dynafed.finetune_steps': 1,
  'dynafed.finetune_batch': 10,
  'fedcog.start': 2,
  'fedcog.samples': 8,
  'fedcog.steps': 1,
  'fedcog.kd_batch': 8,
  'fedgen.steps': 1,
  'feddf.steps': 1,
  'fedbe.steps': 1,
  'fedbe.samples': 1,
  'fedreg.iterations': 1,
  'vhl.images_per_class': 1,
  'vhl.noise_batch': 1,
}
TRAFFIC = tuple(
  Column(
    name,
    title,
    'feddualmatch_mnist',
    {'data.alpha': 0.05, **ONE_STEP},
    {
      'cpu': {'model.width': made.CPU['model.width']},
      'smoke': {k: v for k, v in made.SMOKE.items() if k.startswith(('data.', 'model.'))},
    },
    home=('feddualmatch/figure6', 'mnist-0.05'),
    measure=measure,
  )
  for name, title, measure in (
    ('up', 'up, MB', measures.traffic('bytes_up')),
    ('down', 'down, MB', measures.traffic('bytes_down')),
  )
)


def everything() -> tuple[Row, ...]:
  """Every algorithm of the library, by its word."""
  known = {r.name: r for r in made.ROWS}
  return tuple(known.get(name, made.row(name, name)) for name in algorithms.names())
