"""What a pipe hears of the cells of a table."""

import io
import types

from rich.console import Console

from fedjax_syn.runs import display
from fedjax_syn.tables import progress


def test_a_pipe_hears_of_a_cell_that_takes_long(monkeypatch):
  """A line after 20 s of one thing, and one when the cell is done; none of it after that."""
  now = [0.0]
  monkeypatch.setattr(display.time, 'monotonic', lambda: now[0])
  monkeypatch.setattr(display.threading, 'Thread', lambda **_: types.SimpleNamespace(start=int))
  file = io.StringIO()
  with progress.Watch(2, Console(file=file, width=110)) as watch:
    watch.start('alpha 0.1', 10)
    watch.compiling('the rounds up to 10')
    for second in (10, 20, 30):
      now[0] = float(second)
      watch.heartbeat.beat()
    watch.doing('evaluating')
    watch.done('alpha 0.1', '90.1 %')
    assert watch.heartbeat.ended is None
  assert file.getvalue().splitlines() == [
    'alpha 0.1: compiling the rounds up to 10, 20 s so far',
    '[1/2] alpha 0.1: 90.1 %',
  ]
