"""What the tables and figures of one paper have in common."""

from typing import Any, NamedTuple

from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column, Entry, Row, TableMeasure, reported

DEVIATION_NOTE = (
  '± is the standard deviation over seeds (ddof 1), and all seeds share one partition; the paper'
  ' does not define its ±'
)


class Paper(NamedTuple):
  """A paper."""

  name: str
  """Begins the names of its entries; the row of its own method too."""
  rows: tuple[Row, ...]
  """Of an entry that names no others."""
  notes: tuple[str, ...]

  def entry(
    self,
    number: str,
    title: str,
    columns: tuple[Column, ...],
    rows: tuple[Row, ...] = (),
    measure: TableMeasure = measures.ACCURACY,
    text: str = '',
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
      text: the paper's numbers, see `reported`.
      notes: after those of the paper.
      **more: other fields of `Entry`.
    """
    given = {'reported': reported(columns, text), 'proposed': self.name, **more}
    name, rows, notes = f'{self.name}/{number}', rows or self.rows, (*self.notes, *notes)
    return Entry(name, title, rows, columns, measure, notes=notes, **given)
