"""Hunts for tracebacks, hangs and silent changes in damaged run folders, in this process.

  python -m tools.damage_folders [--count=200] [--share=1] [--seed=0]

  --count  copies of a finished and of a killed run, in turn
  --share  of the copies that are continued
  --seed   of the damages

Damages one file or folder of each copy. The report, `fs.load`, the export, the inspection and the
command that continues the run must refuse the copy in one line, or read what they read without the
damage. Exit status: 0 without any finding, else 1.
"""

import argparse
import collections
import contextlib
import io
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from safetensors.numpy import load_file

import fedjax_syn as fs
from fedjax_syn import report
from fedjax_syn.cli import export, inspect, jax_setup
from fedjax_syn.core import tree_encoding
from fedjax_syn.papers.dynafed import inspections
from fedjax_syn.runs import checkpoint, experiment, metrics, progress, stored_files
from tests.run_helpers import Killed, config_of
from tools import _damages
from tools._outcomes import Outcome, outcome

GOOD = {'accepted', 'refused'}
LARGEST = 6 << 30  # bytes of this process
SECONDS = 60.0  # of a reader
ROUNDS = 4
SETTINGS = {
  'rounds': ROUNDS,
  'checkpoint_every': 1,
  'client.participation': 1.0,
  'dynafed.length': 2,
  'dynafed.segment': 1,
  'dynafed.iterations': 2,
  'dynafed.inner_steps': 1,
  'dynafed.images_per_class': 1,
}
OF_CLOCK = ('seconds', 'peak_memory_bytes', 'metrics_sha256', 'files')

digest = stored_files.digest_of_arrays


class Messages(progress.Reporter):
  """Keeps the lines of a run."""

  def __init__(self):
    self.lines: list[str] = []

  def say(self, text: str) -> None:
    """Keeps one line."""
    self.lines.append(text)


class KillsSecondSeed(progress.Reporter):
  """Ends a run before the last round of its second seed, as SIGKILL would."""

  def __init__(self):
    self.rounds_done: list[int] = []

  def rounds(self, done: int, report: Mapping[str, float]) -> None:
    """Raises Killed at the moment."""
    if ROUNDS in self.rounds_done and done == ROUNDS - 1:
      raise Killed
    self.rounds_done.append(done)


def another_file(path: Path, rng: random.Random, root: Path) -> None:
  """Writes the content of another file with the same suffix."""
  others = sorted(p for p in root.rglob(f'*{path.suffix}') if p.is_file() and p != path)
  if others:
    path.write_bytes(rng.choice(others).read_bytes())
  else:
    path.unlink()


def damage(root: Path, rng: random.Random) -> str:
  """Damages one file or folder of a run; half of the damages are of files at the top.

  Returns:
    The file and the name of the damage.
  """
  files = sorted(p for p in root.rglob('*') if p.is_file() and p.name != '.lock')
  top = [p for p in files if p.parent == root]
  path = rng.choice(top if rng.random() < 0.5 else files)
  damages = {
    **_damages.OF_FILES,
    **(_damages.OF_FOLDERS if path.parent != root else {}),
    'another file': lambda path, rng: another_file(path, rng, root),
  }
  name = rng.choice(sorted(damages))
  damages[name](path, rng)
  return f'{path.relative_to(root)}: {name}'


def read_report(folder: Path) -> dict[str, Any]:
  """Returns all numbers that a report shows of a run.

  Lines of an unfinished run count up to the last checkpoint: no digest covers the later ones.
  """
  (run,) = [r for r in report.open_runs([folder]) if r.folder == folder]
  arrays = {f'clients {s}': a for s, a in run.clients.items()}
  arrays |= {f'set {s}': a for s, a in run.synthetic.items()}
  arrays |= {} if run.counts is None else {'counts': {'counts': run.counts}}
  saved = checkpoint.list_sorted(folder / 'checkpoints') if run.summary is None else []
  size = checkpoint.note_of(saved[-1]).get('metrics_bytes', 0) if saved else None
  lines = metrics.read(folder / 'metrics.jsonl', size)
  timeless = {k: v for k, v in (run.summary or {}).items() if k not in OF_CLOCK}
  return {
    'settings': run.settings,
    'lines': [{k: v for k, v in line.items() if k != 'seconds'} for line in lines],
    **({'summary': timeless} if run.summary else {}),
    **{name: digest(array) for name, array in arrays.items()},
  }


def read_model(folder: Path) -> dict[str, str]:
  """Returns digests of the model and of the set that `fs.load` reads."""
  loaded = fs.load(folder)
  leaves = jax.tree_util.tree_leaves_with_path(loaded.variables)
  model = {'model': digest({jax.tree_util.keystr(k): v for k, v in leaves})}
  return model | ({'set': digest(loaded.synthetic)} if loaded.synthetic else {})


def read_export(folder: Path) -> dict[str, str]:
  """Returns digests of the pixels and of the model of an export."""
  target = folder.with_name('export')
  shutil.rmtree(target, ignore_errors=True)
  export.export(folder, target, ['npz', 'png', 'safetensors'], None)
  arrays = stored_files.read_arrays(target / 'synthetic.npz')
  return {'set': digest(arrays), 'model': digest(load_file(target / 'model.safetensors'))}


def read_results(folder: Path) -> dict[str, Any]:
  """Returns the results of a finished run: those of the report, and the last states."""
  last = {checkpoint.seed_of(path): path for path in checkpoint.list_sorted(folder / 'checkpoints')}
  states = {
    str(s): digest(tree_encoding.encode(checkpoint.read(p).tree)[0]) for s, p in last.items()
  }
  return read_report(folder) | {'states': states}


def continue_run(folder: Path) -> dict[str, Any]:
  """Continues a run to its end.

  Returns:
    Its results; without the states if the run says that a model is lost.

  Raises:
    ValueError: the run is refused, with what it printed.
    RuntimeError: the run ended with another status.
  """
  show, err = Messages(), io.StringIO()
  with contextlib.redirect_stderr(err):
    status = experiment.run_experiment(config_of(**SETTINGS), folder, show=show)
  if status == 2:
    raise ValueError(err.getvalue())
  if status != 0:
    raise RuntimeError(f'exit status {status}')
  results = read_results(folder)
  if any('its model is lost' in line for line in show.lines):
    del results['states']
  return results


def differences(
  results: Mapping[str, Any], expected: Mapping[str, Any], optional: tuple[str, ...]
) -> list[str]:
  """Names the parts that differ.

  Args:
    results: parts by name.
    expected: parts by name.
    optional: first words of parts that may be absent. A list among them may be shorter.
  """

  def same(name: str) -> bool:
    if name not in results:
      return name.startswith(optional)
    part = expected.get(name)
    if isinstance(part, list) and name in optional:
      part = part[: len(results[name])]
    return results[name] == part

  return [name for name in {**expected, **results} if not same(name)]


def judged(
  result: Outcome, expected: Mapping[str, Any] | None, optional: tuple[str, ...]
) -> Outcome:
  """Turns an accepted reading into a finding if it differs from what is expected."""
  if result.kind != 'accepted' or expected is None:
    return result
  names = differences(result.value, expected, optional)
  return result._replace(kind='silent', text=f'other {", ".join(names)}') if names else result


def train(folder: Path, show: progress.Reporter) -> None:
  """Trains the run that is damaged, to its end or until it is killed.

  Raises:
    RuntimeError: the run ended otherwise.
  """
  with contextlib.suppress(Killed), contextlib.redirect_stdout(io.StringIO()):
    experiment.run_experiment(config_of(**SETTINGS), folder, show=show)
  if (folder / 'summary.json').exists() == isinstance(show, KillsSecondSeed):
    raise RuntimeError(f'{folder.name}: the run did not end as planned')


def hunt(count: int, share: float, seed: int, scratch: Path) -> dict[str, collections.Counter[str]]:
  """Damages copies of a finished and of a killed run, reads them, and prints each finding at once.

  Args:
    count: copies.
    share: of them that are continued.
    seed: of the damages.
    scratch: an empty folder.

  Returns:
    How many outcomes of each kind each reader had.
  """
  jax_setup.prepare_jax(1)
  jax_setup.prepare_jax = lambda *_: None  # once in a process
  jax.config.update('jax_compilation_cache_dir', str(scratch / 'programs'))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  whole = {'finished': scratch / 'finished', 'killed': scratch / 'killed'}
  train(whole['finished'], progress.Reporter())
  train(whole['killed'], KillsSecondSeed())
  results = read_results(whole['finished'])
  expected = {
    name: {
      'report': read_report(folder),
      'load': read_model(folder),
      'export': read_export(folder),
      'continue': results,
    }
    for name, folder in whole.items()
  }
  copy = scratch / 'copy'
  readers: dict[str, Callable[[Path], Any]] = {
    'report': read_report,
    'load': read_model,
    'export': read_export,
    'open': lambda folder: inspections.open_run(folder, None),
    'inspect': lambda folder: inspect.main(['x', str(folder), '--steps=2']),
    'continue': continue_run,
  }
  kinds = {reader: collections.Counter[str]() for reader in readers}
  rng = random.Random(seed)
  for number in range(count):
    name = ('finished', 'killed')[number % 2]
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole[name], copy, symlinks=True)
    what = damage(copy, rng)
    skipped = 'open' if number % 10 == 0 else 'inspect'  # which trains new networks
    for reader, read in readers.items():
      if reader == skipped or (reader == 'continue' and number >= share * count):
        continue
      result = outcome(lambda read=read: read(copy), SECONDS)
      goal, optional = expected[name].get(reader), ('summary',)
      if name == 'killed':  # nothing says which files an unfinished run had
        optional = ('clients', 'set', 'counts', 'lines')
        if what.startswith('checkpoints') and reader in ('load', 'export'):
          goal = None  # an older checkpoint is read
      if reader == 'continue':
        optional = ('states',) if result.value and 'states' not in result.value else ()
      result = judged(result, goal, optional)
      kinds[reader][result.kind] += 1
      if result.kind not in GOOD:
        print(f'{reader}: {result.kind}: {number} {name}: {what}: {result.text[:400]}', flush=True)
  return kinds


def main(argv: Sequence[str] | None = None) -> int:
  """Hunts; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--count', type=int, default=200, help='copies')
  parser.add_argument('--share', type=float, default=1.0, help='of the copies that are continued')
  parser.add_argument('--seed', type=int, default=0, help='of the damages')
  options = parser.parse_args(argv)
  with tempfile.TemporaryDirectory() as scratch:
    kinds = hunt(options.count, options.share, options.seed, Path(scratch))
  for reader, counts in kinds.items():
    print(f'{reader}: {", ".join(f"{n} {kind}" for kind, n in counts.most_common())}', flush=True)
  return int(any(counts.keys() - GOOD for counts in kinds.values()))


if __name__ == '__main__':
  # The results of programs count here, not their speed.
  os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
  # A bomb ends in MemoryError here and ends no other process of the machine.
  resource.setrlimit(resource.RLIMIT_DATA, (LARGEST, resource.getrlimit(resource.RLIMIT_DATA)[1]))
  status = main()
  sys.stdout.flush()
  os._exit(status)  # the interpreter would wait for a thread that reads from a pipe
