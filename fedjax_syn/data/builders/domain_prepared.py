"""The data sets of several domains: from records that were prepared before, else from their published layout."""

from pathlib import Path
from types import ModuleType

from fedjax_syn.data.builders import domain_sources
from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.domain_sources import DomainSource
from fedjax_syn.data.domains import Joined


def read(source: DomainSource, data_dir: Path) -> Joined:
  """Reads a data set from records that were prepared before, else from its published layout.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.

  Returns:
    All domains.

  Raises:
    FileNotFoundError: if it is not there; the line says what to fetch.
    ValueError: if what is there is damaged or another data set.
  """
  if any((data_dir / source.name).glob('*/dataset_info.json')):
    return domain_sources.check(
      source, _records().read(source, data_dir), str(data_dir / source.name)
    )
  return domain_sources.parse(source, data_dir)


def prepare(source: DomainSource, data_dir: Path) -> None:
  """Writes a data set's records, `data_dir/NAME/VERSION`, unless they are there; reading them is faster."""
  if not any((data_dir / source.name).glob('*/dataset_info.json')):
    _records().prepare(source, data_dir)


def _records() -> ModuleType:
  # Imported where it is needed: layouts are read where tensorflow-datasets is absent.
  try:
    from fedjax_syn.data.builders import domain_records
  except ImportError as error:
    raise ValueError(
      f'records need tensorflow-datasets, importlib_resources and array_record ({first_line(error)}); the '
      'published layout needs none of them'
    ) from error
  return domain_records
