"""Settings of the data: the fields of a config's block `data`."""

import dataclasses

from fedjax_syn.core.fields import field
from fedjax_syn.data.missing import RULES


@dataclasses.dataclass(frozen=True)
class Data:
  """A data set, the division of its rows among clients, and what is held out."""

  name: str = field('digits', 'data set (--list=datasets), or module:function, FILE.py:function')
  dir: str = field(
    '', "folder of the data sets; '': $TFDS_DATA_DIR, else ~/tensorflow_datasets", identity=False
  )
  size: int = field(
    0,
    'side in pixels to which images of folder, parquet and tfds:NAME are resized; 0: as they are',
    low=0,
    high=10_000,
  )
  trusted: bool = field(
    False,
    'whether modules that the prepared folder of tfds:NAME names may be imported',
    identity=False,
  )
  train_split: str = field(
    '',
    "the split that is trained on, of tfds:NAME (slices too: 'train[:80%]') and parquet; '': train",
    added=True,
  )
  test_split: str = field(
    '', "the split that is tested on; '': test, or else validation", added=True
  )
  label_column: str = field(
    '',
    "the column of classes of parquet and csv; '': the only one that can be, or called label, y,"
    ' target or class',
    added=True,
  )
  client_column: str = field(
    '',
    "the column that names the client of a row of parquet and csv; '': none, or in csv the one"
    ' called client',
    added=True,
  )
  ignore_columns: tuple[str, ...] = field(
    (), 'columns of csv and parquet that are no features, as in id,name,', added=True
  )
  partition: str = field(
    'balanced_dirichlet', 'division of the rows among clients (--list=partitions), or file:PATH'
  )
  alpha: float = field(0.01, 'Dirichlet concentration: smaller is more heterogeneous', above=0)
  clients: int = field(80, 'registered clients', low=1, high=10**7)
  seed: int = field(0, 'seed of the partition, shared by all seeds of a run', low=0, high=2**31 - 1)
  unseen_clients: float = field(
    0.0,
    "share of the data set's own clients that never train, by data.seed; see unseen/test/accuracy",
    low=0,
    high=0.9,
    added=True,
  )
  label_noise: float = field(
    0.0,
    'share of the training rows whose label is replaced by another class, by data.seed',
    low=0,
    high=1,
    added=True,
  )
  validation: float = field(0.0, 'share of the training rows held out for tuning', low=0, high=0.5)
  proxy: str = field(
    '',
    "the server's own data, for methods that need it: 'held_out' (training rows that no client "
    'gets) or a data set',
  )
  proxy_share: float = field(
    0.1,
    "share of the training rows that proxy='held_out' takes from the clients",
    above=0,
    high=0.5,
  )
  normalisation: str = field('', "constants for pixels or columns; '': the data set's own")
  missing: str = field(
    '',
    "rows of arrays and CSV files that lack a value: '' (refused), 'median' (of the column in"
    " training rows) or 'drop'",
    choices=RULES,
    added=True,
  )
  min_size: int = field(
    10, 'smallest size of a client, for partitions that draw until it holds', low=0, high=10**9
  )
  placement: str = field(
    'device',
    "place of the training rows: every 'device', or memory of the 'host', from which a round gets"
    " its clients' rows",
    choices=('device', 'host'),
    identity=False,
  )
  labels: int = field(2, 'labels per client, for partitions by label', low=1, high=10**6)
