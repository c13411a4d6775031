"""The rows and columns of FedDualMatch's Figure 6: bytes of a round, for every method."""

from fedjax_syn import algorithms
from fedjax_syn.papers.feddualmatch import cells
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Row, block

# What is sent depends on shapes and on who has which class, not on how long anything is trained.
ONE_STEP = {
  'rounds': 3,
  **block('client', epochs=0, steps=1, batch_size=32),
  **block('data', alpha=0.05, proxy='held_out'),
  **block('feddm', iterations=1, real_batch=1, server_steps=1),
  **block('feddualmatch', iterations=1, matches=1, match_steps=1, server_steps=1),
  **block('dynafed', length=2, segment=1, targets=1, inner_steps=1, inner_batch=10),
  **block('dynafed', iterations=1, together=1, finetune_steps=1, finetune_batch=10),
  **block('fedcog', start=2, samples=8, steps=1, kd_batch=8),
  **block('fedgen', steps=1),
  **block('feddf', steps=1),
  **block('fedbe', steps=1, samples=1),
  **block('fedreg', iterations=1),
  **block('vhl', images_per_class=1, noise_batch=1),
}
SCALES = {
  'cpu': {'model.width': cells.CPU['model.width']},
  'smoke': {k: v for k, v in cells.SMOKE.items() if k.startswith(('data.', 'model.'))},
}
BYTES = tuple(
  Column(
    name,
    f'{name}, MB',
    'feddualmatch_mnist',
    ONE_STEP,
    SCALES,
    shares_runs_with=('feddualmatch/figure6', 'mnist-0.05'),
    measure=measures.communication(f'bytes_{name}'),
  )
  for name in ('up', 'down')
)
_KNOWN = {row.name: row for row in cells.ROWS}
ROWS = tuple(_KNOWN.get(name, Row(name, name)) for name in algorithms.names())
"""Every algorithm of the library."""
