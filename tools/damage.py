"""Damages copies of run folders, at random, and sees what every reader makes of them.

  python -m tools.damage [--count=300] [--seed=0] [--limit=30] [--workdir=W] [--inspect=20] [--mains=N]

  --count    damaged copies: half of a finished run of DynaFed, half of one that was killed in its second seed
  --seed     of the damages
  --limit    seconds that a reader may take; a run that goes on may take four times as many
  --workdir  where the runs go; a temporary folder without it
  --mains    how many copies are gone on with, which takes most of the time; all by default
  --inspect  of how many copies launch/inspect_run.py measures everything; it only opens the others

Each copy is opened by the report, by fs.load, by an export, by an inspection and, last, by the command that goes on with
it. A refusal is one line. What is not refused must be what it is without the damage: the numbers that a report shows, the
model that is loaded, the result that the run comes to. Prints a line for each fault and the counts: tracebacks, hangs,
silent changes. Exit status: 0 without any, else 1.
"""

import collections
import contextlib
import io
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import flags

from tools._folder_damages import damage
from tools._outcomes import Hang, limited
from tools._tiny_runs import killed_run, run

FLAGS = flags.FlagValues()
flags.DEFINE_integer('count', 300, 'damaged copies', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer('seed', 0, 'of the damages', flag_values=FLAGS)
flags.DEFINE_float('limit', 30, 'seconds of a reader', lower_bound=1, flag_values=FLAGS)
flags.DEFINE_string('workdir', None, 'where the runs go', flag_values=FLAGS)
flags.DEFINE_integer('inspect', 20, 'inspections in full', lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer(
  'mains', 10**6, 'copies that are gone on with', lower_bound=0, flag_values=FLAGS
)

OF_CLOCK = ('seconds', 'peak_memory_bytes', 'metrics_sha256')


class Result(NamedTuple):
  """What a reader made of a folder."""

  kind: str  # 'fine', 'said', 'traceback', 'hang' or 'silent'
  text: str = ''


def judge(read: Callable[[], Any], expected: Callable[[Any], str], seconds: float) -> Result:
  """Calls a reader.

  Args:
    read: returns what it found; a refusal is a ValueError or an OSError of one line, or exit status 2 and one line.
    expected: says in what a finding is not what it should be; '' if in nothing.
    seconds: that it may take.
  """
  said = io.StringIO()
  try:
    with (
      limited(seconds),
      contextlib.redirect_stderr(said),
      contextlib.redirect_stdout(io.StringIO()),
    ):
      found = read()
  except Hang:
    return Result('hang')
  except (ValueError, OSError) as error:
    return Result('said' if len(str(error).splitlines()) == 1 else 'traceback', repr(error)[:300])
  except SystemExit as end:
    lines = said.getvalue().splitlines()
    return Result('said' if end.code == 2 and len(lines) == 1 else 'traceback', str(lines)[:300])
  except BaseException as error:
    import traceback

    where = traceback.extract_tb(error.__traceback__)[-1]
    return Result('traceback', f'{error!r} in {where.filename}:{where.lineno}'[:400])
  wrong = expected(found)
  return Result('silent', wrong) if wrong else Result('fine')


def shown(folder: pathlib.Path) -> dict[str, Any]:
  """All numbers that a report shows of a run; of one that is not finished without the lines that no checkpoint knows."""
  from fedjax_syn import report
  from fedjax_syn.runs import checkpoint, metrics, stored_files

  (run,) = [r for r in report.open_runs([folder]) if r.folder == folder]
  timeless = {k: v for k, v in (run.summary or {}).items() if k not in (*OF_CLOCK, 'files')}
  arrays = {f'clients {s}': a for s, a in run.clients.items()}
  arrays |= {f'set {s}': a for s, a in run.synthetic.items()}
  arrays |= {} if run.counts is None else {'counts': {'counts': run.counts}}
  saved = checkpoint.found(folder / 'checkpoints') if run.summary is None else []
  size = checkpoint.note_of(saved[-1]).get('metrics_bytes', 0) if saved else None
  lines = metrics.read(folder / 'metrics.jsonl', size)
  return {
    'settings': run.settings,
    'lines': [{k: v for k, v in line.items() if k != 'seconds'} for line in lines],
    **({'summary': timeless} if run.summary else {}),  # without one the page says: not finished
    **{name: stored_files.digest_of_arrays(a) for name, a in arrays.items()},
  }


def loaded(folder: pathlib.Path) -> dict[str, str]:
  """The model and the set that fs.load gives."""
  import jax

  import fedjax_syn as fs
  from fedjax_syn.runs import stored_files

  found = fs.load(folder)
  leaves = {
    jax.tree_util.keystr(k): v for k, v in jax.tree_util.tree_leaves_with_path(found.variables)
  }
  of = stored_files.digest_of_arrays
  return {'model': of(leaves), 'set': of(found.synthetic) if found.synthetic else ''}


def exported(folder: pathlib.Path, target: pathlib.Path) -> str:
  """The pixels and the model of an export, as a digest."""
  from safetensors.numpy import load_file

  from fedjax_syn.cli import export
  from fedjax_syn.runs import stored_files

  export.export(folder, target, ['npz', 'png', 'safetensors'], None)
  made = [
    stored_files.read_arrays(target / 'synthetic.npz'),
    load_file(target / 'model.safetensors'),
  ]
  return ' '.join(map(stored_files.digest_of_arrays, made))


def outcome(folder: pathlib.Path) -> dict[str, Any]:
  """All of a finished run that no interruption and no damage may change."""
  from fedjax_syn.core import trees
  from fedjax_syn.runs import checkpoint, stored_files

  last = {checkpoint.seed_of(path): path for path in checkpoint.found(folder / 'checkpoints')}
  encoded = {str(s): trees.encode(checkpoint.read(p).tree)[0] for s, p in last.items()}
  states = {seed: stored_files.digest_of_arrays(arrays) for seed, arrays in encoded.items()}
  return {**shown(folder), 'states': states}


def differing(expected: Mapping[str, Any], lost: tuple[str, ...] = ()) -> Callable[[Any], str]:
  """Returns a function that names the parts in which a finding is not what is expected.

  Args:
    expected: the parts.
    lost: beginnings of parts that may be absent, and of which the end may be: nothing says that they were there.
  """

  def compare(found):
    def same(k):
      if k not in found:
        return k.startswith(lost) if lost else False
      part = expected.get(k)
      return found[k] == (part[: len(found[k])] if isinstance(part, list) and k in lost else part)

    wrong = [k for k in {**expected, **found} if not same(k)]
    return f'other {", ".join(wrong)}' if wrong else ''

  return compare


def hunt(
  work: pathlib.Path, count: int, seed: int, limit: float, inspections: int, mains: int = 10**6
) -> dict[str, int]:
  """Makes the runs, damages copies, and prints what is wrong.

  Args:
    work: an empty folder.
    count: copies.
    seed: of the damages.
    limit: seconds of a reader.
    inspections: in full.
    mains: how many copies are gone on with.

  Returns:
    How often each kind of `Result` came, by reader: 'report fine', ...
  """
  import jax

  from fedjax_syn.cli import inspect, jax_setup
  from fedjax_syn.papers.dynafed import finished_run

  jax_setup.prepare_jax(1)
  jax_setup.prepare_jax = lambda *_: None  # once for a process

  jax.config.update('jax_compilation_cache_dir', str(work / 'compiled'))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  runs = {'finished': work / 'finished', 'killed': work / 'killed'}
  with contextlib.redirect_stdout(io.StringIO()):
    if run(runs['finished'])[0] != 0:
      raise RuntimeError('the undisturbed run did not end')
    if not runs['killed'].exists():  # of an earlier call
      killed_run(runs['killed'])
  whole, rng = outcome(runs['finished']), random.Random(seed)
  shows = {name: shown(folder) for name, folder in runs.items()}
  loads = {name: loaded(folder) for name, folder in runs.items()}
  exports = {name: exported(folder, work / f'export-{name}') for name, folder in runs.items()}
  counts: collections.Counter = collections.Counter()
  for number in range(count):
    name = ('finished', 'killed')[number % 2]
    copy = work / 'copies' / f'copy{number}'
    shutil.copytree(runs[name], copy, symlinks=True)
    what = damage(copy, rng)
    # Of a run that is not finished nothing says what it had, and its last checkpoint is whichever is there.
    lost = ('clients', 'set', 'counts', 'lines') if name == 'killed' else ('summary',)
    older = name == 'killed' and what.startswith('checkpoints')
    out = copy.with_suffix('.out')
    readers = {
      'report': (lambda: shown(copy), differing(shows[name], lost)),
      'load': (lambda: loaded(copy), lambda f: '' if older else differing(loads[name], lost)(f)),
      'export': (
        lambda: exported(copy, out),
        lambda f: '' if older or f == exports[name] else 'other files',
      ),
      'inspect': (lambda: finished_run.read_run(copy, None), lambda _: ''),
      'main': (
        lambda: finished(copy),
        lambda f: differing(whole, ('states',) if 'states' not in f else ())(f),
      ),
    }
    if name == 'finished' and number < 2 * inspections:
      whole_inspection = lambda: inspect.main(['x', str(copy), '--steps=2'])
      readers['inspect'] = (whole_inspection, lambda _: '')
    if number >= mains:
      del readers['main']
    for reader, (read, expected) in readers.items():
      result = judge(read, expected, limit * (4 if reader in ('main', 'inspect') else 1))
      counts[f'{reader} {result.kind}'] += 1
      if result.kind in ('traceback', 'hang', 'silent'):
        print(f'{number} {name}, {what}: {reader}: {result.kind} {result.text}', flush=True)
    for left in (copy, out):
      shutil.rmtree(left, ignore_errors=True)
  return dict(counts)


def finished(folder: pathlib.Path) -> dict[str, Any] | None:
  """Goes on with a run to its end; None if it is refused in one line."""
  said = io.StringIO()
  with contextlib.redirect_stderr(said):
    status, notes = run(folder)
  if status == 2:
    if said.getvalue().count('\n') != 1:
      raise RuntimeError(f'refused in other than one line: {said.getvalue()!r}')
    raise ValueError(said.getvalue().strip())
  if status != 0:
    raise RuntimeError(f'exit status {status}')
  there = outcome(folder)
  if any('its model is lost' in note for note in notes):
    del there['states']  # and the numbers are what they were
  return there


def main(argv: list[str]) -> int:
  """Hunts; returns the exit status."""
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(__doc__)
    return 0
  FLAGS(argv)
  import jax

  from fedjax_syn.cli import jax_setup

  jax_setup.prepare_jax(1)
  jax_setup.prepare_jax = lambda *_: None  # once for a process
  with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(FLAGS.workdir or temporary)
    work.mkdir(parents=True, exist_ok=True)
    jax.config.update('jax_compilation_cache_dir', str(work / 'compiled'))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    counts = hunt(work, FLAGS.count, FLAGS.seed, FLAGS.limit, FLAGS.inspect, FLAGS.mains)
  print(json.dumps(dict(sorted(counts.items())), indent=1))
  bad = {
    kind: sum(n for k, n in counts.items() if k.endswith(kind))
    for kind in ('traceback', 'hang', 'silent')
  }
  print(
    f'{FLAGS.count} copies: {bad["traceback"]} tracebacks, {bad["hang"]} hangs, {bad["silent"]} silent changes'
  )
  return 1 if any(bad.values()) else 0


if __name__ == '__main__':
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  # Programs are compiled for their outcome, not for their speed.
  os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
  sys.exit(main(sys.argv))
