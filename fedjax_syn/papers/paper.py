"""What the tables and figures of one paper have in common."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import AVERAGE, Column, Entry, Row, TableMeasure, reported

DEVIATION_NOTE = (
  '± is the standard deviation over seeds (ddof 1), and all seeds share one partition; the paper'
  ' does not define its ±'
)


def read_numbers(package: str) -> dict[str, str]:
  """Returns the numbers in the reported.toml of a paper's package, by entry."""
  return tomllib.loads(resources.files(package).joinpath('reported.toml').read_text('utf-8'))


class Paper(NamedTuple):
  """A paper."""

  name: str
  """Begins the names of its entries; the row of its own method too."""
  rows: tuple[Row, ...]
  """Of an entry that names no others."""
  notes: tuple[str, ...]
  numbers: Mapping[str, str]
  """The paper's numbers by entry, see `spec.reported`."""

  def entry(
    self,
    number: str,
    title: str,
    columns: tuple[Column, ...],
    rows: tuple[Row, ...] = (),
    measure: TableMeasure = measures.ACCURACY,
    notes: tuple[str, ...] = (),
    **more: Any,
  ) -> Entry:
    """Returns a table or figure.

    Args:
      number: as in 'table1'.
      title: of the table.
      columns: of the table.
      rows: of the table; () are the paper's.
      measure: what the cells show.
      notes: after those of the paper.
      **more: other fields of `Entry`.
    """
    known = (*columns, AVERAGE) if more.get('average') else columns
    numbers = reported(known, self.numbers.get(number, ''))
    given = {'reported': numbers, 'proposed': self.name, **more}
    name, rows, notes = f'{self.name}/{number}', rows or self.rows, (*self.notes, *notes)
    return Entry(name, title, rows, columns, measure, notes=notes, **given)
