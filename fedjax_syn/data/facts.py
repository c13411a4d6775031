"""What methods and partitions must know of the named data sets before they are read."""

from typing import NamedTuple

from fedjax_syn.data.partition import PARTITIONERS

# Side of the images, in pixels; FLAIR's own are 256 x 256.
FLAIR = {'flair': 64, 'flair_128': 128, 'flair_256': 256}
FLAIR_ROWS = 345_879, 43_960  # training and test photographs
FLAIR_USERS = 41_131  # of the training photographs
FLAIR_LABELS = 17
# By data set, of `fedjax_syn.chains.TRAITS`.
LACKS: dict[str, tuple[str, ...]] = {
  **dict.fromkeys(FLAIR, ('one class',)),
  'fortunes': ('pixels', 'real values'),
  'inst_eval': ('pixels', 'real values'),
  'vietnam': ('pixels',),
  'watch': ('pixels',),
}
VOCABULARY = 4096  # tokens are 0 (padding) .. VOCABULARY - 1
CSV = 'csv'
# Formats of a user's folder (CSV: or file), which data.name=FORMAT:FOLDER names too.
IN_FOLDER = ('leaf', 'parquet', CSV)


class Choice(NamedTuple):
  """What is read of a data set that has more; '' means what its files say."""

  train_split: str = ''
  test_split: str = ''
  label_column: str = ''
  client_column: str = ''
  ignore_columns: tuple[str, ...] = ()
  missing: str = ''
  """What is done with rows that lack a value; see `fedjax_syn.data.missing`."""


def split_name(name: str, folder: str) -> tuple[str, str]:
  """Returns `data.name` and `data.dir` of their short form 'leaf:FOLDER'; others as they are.

  Args:
    name: `data.name`.
    folder: `data.dir`.

  Raises:
    ValueError: if both name a folder.
  """
  kind, _, path = name.partition(':')
  if kind not in IN_FOLDER or not path:
    return name, folder
  if folder not in ('', path):
    raise ValueError(f'data.name={name!r}: data.dir={folder!r} is another folder; name one of them')
  return kind, path


def check_partition(name: str, partition: str) -> None:
  """Refuses a partition by class of a data set with several labels per row.

  Args:
    name: the data set.
    partition: one of `PARTITIONERS`.

  Raises:
    ValueError: naming both, and what would work.
  """
  if 'one class' not in LACKS.get(name, ()):
    return
  if partition in PARTITIONERS and PARTITIONERS[partition].by_class:
    others = ', '.join(p for p, partitioner in PARTITIONERS.items() if not partitioner.by_class)
    raise ValueError(
      f'data.partition={partition!r}: needs one class per row, and data.name={name!r} has several '
      f'labels per row; {others} would work'
    )
