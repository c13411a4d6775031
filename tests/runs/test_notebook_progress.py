"""What a notebook shows while a run continues."""

import io
import sys
import threading
import types

from rich.console import Console

import fedjax_syn
from fedjax_syn.runs import display, progress


def test_a_notebook_shows_text_and_ends_with_the_bar(monkeypatch):
  """The last picture replaces the others; no widgets are imported."""
  pictures = {}

  def show(data, raw, display_id, update):
    assert raw and update == (display_id in pictures)
    pictures.setdefault(display_id, []).append(data['text/plain'])

  monkeypatch.setitem(sys.modules, 'IPython', types.ModuleType('IPython'))
  monkeypatch.setitem(sys.modules, 'IPython.display', types.SimpleNamespace(display=show))
  monkeypatch.setattr(display, 'SHOWN_AFTER', 0.0)
  monkeypatch.setattr(display, 'NOTEBOOK_SECONDS', 1e9)  # nothing between the first and the last
  bar = progress.Bar(Console(file=io.StringIO(), force_jupyter=True))
  bar.doing('reading the data')
  bar.begin('fedavg, seed 0', 2, 0)
  bar.rounds(2, {'test/accuracy': 0.5})
  bar.end()
  ((first, last),) = pictures.values()
  assert first == 'reading the data, 0 s'
  assert 'fedavg, seed 0' in last and '2/2' in last and 'test accuracy 0.5000' in last
  assert 'reading' not in last and '\x1b' not in last


def test_a_notebook_hears_of_imports_that_take_long(monkeypatch):
  """The first use of `fs.run` imports JAX; what is imported quickly leaves no empty line."""
  pictures = []
  show = lambda data, raw, display_id, update: pictures.append(data['text/plain'])
  monkeypatch.setitem(sys.modules, 'IPython', types.ModuleType('IPython'))
  monkeypatch.setitem(sys.modules, 'IPython.display', types.SimpleNamespace(display=show))
  monkeypatch.setitem(sys.modules, 'ipykernel', types.ModuleType('ipykernel'))
  in_notebook = lambda **given: Console(**{'file': io.StringIO(), 'force_jupyter': True, **given})
  monkeypatch.setattr(display, 'Console', in_notebook)
  now = [0.0]
  monkeypatch.setattr(display.time, 'monotonic', lambda: now[0])
  monkeypatch.setattr(display, 'NOTEBOOK_SECONDS', 0.01)

  def slow(module):
    now[0] = 3.0
    while not pictures:
      threading.Event().wait(0.01)
    return types.SimpleNamespace(run=module)

  monkeypatch.setattr(
    fedjax_syn.importlib, 'import_module', lambda module: types.SimpleNamespace(run=0)
  )
  monkeypatch.setitem(fedjax_syn._MODULES, 'run', 'not_imported_yet')
  assert fedjax_syn.__getattr__('run') == 0 and not pictures
  monkeypatch.setattr(fedjax_syn.importlib, 'import_module', slow)
  assert fedjax_syn.__getattr__('run') == 'not_imported_yet'
  assert pictures[0] == 'loading JAX, 3 s' and pictures[-1] == ' '
