"""Writes the model and the synthetic images of a run into files for other programs.

  python launch/export.py W [--format=npz,png,safetensors] [--output=DIR] [--seed=S] [--best]
                             [--clients] [--trusted]

  W         the run's folder
  --format  one or more of npz, png (of images), safetensors; all by default
  --output  the folder of the files; W/export by default
  --seed    which seed; by default the first one that did not diverge
  --best    the model with the best accuracy on held-out rows instead of the last one; the run must
            have kept it (--config.keep_best=True or --config.patience)
  --clients also the model of each client, clients/client_NUMBER.safetensors: the personal model of
            a personalised method, or the last global model after local training at the client
  --trusted if the folder names code (my_module:MyNet), imports and calls it; only for folders that
            you trust

npz and safetensors hold the synthetic set: x, y, pixels, labels, mean, std, and the class names if
the data set has them. png are its images, synthetic/CLASS_INDEX.png. safetensors also holds the
final model, model.safetensors; it needs an extra: pip install -e '.[export]'. Exit status: 0
written, 2 refused (one line gives the reason), 74 the disk is full.
"""

import functools
import pathlib
from collections.abc import Sequence

from absl import app, flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import failures, paths

KINDS = ('npz', 'png', 'safetensors')
FLAGS = cli.own_flags('seed', 'trusted')
flags.DEFINE_list('format', list(KINDS), 'what to write', flag_values=FLAGS)
flags.DEFINE_boolean('clients', False, "every client's model", flag_values=FLAGS)
flags.DEFINE_boolean('best', False, 'the best model by held-out rows', flag_values=FLAGS)
flags.DEFINE_string('output', None, 'the folder of the files', flag_values=FLAGS)


def main(argv: Sequence[str]) -> int:
  """Exports one run; returns the exit status."""
  with cli.refusals():
    folder = cli.one_folder(cli.read(FLAGS, argv, __doc__))
    unknown = [kind for kind in FLAGS.format if kind not in KINDS]
    if unknown or not FLAGS.format:
      raise app.UsageError(f'--format={",".join(FLAGS.format)}: known are {", ".join(KINDS)}')
    target = paths.given(FLAGS.output or folder / 'export', '--output')
    try:
      options = FLAGS.seed, FLAGS.trusted, FLAGS.best, FLAGS.clients
      written = export(folder, target, FLAGS.format, *options)
    except OSError as error:
      failures.pass_on(error, target)
      raise ValueError(
        f'{error.filename}: {error.strerror}' if error.filename else error
      ) from error
  for path in written:
    print(path)
  return 0


def export(
  folder: pathlib.Path,
  target: pathlib.Path,
  kinds: list[str],
  seed: int | None,
  trusted: bool = False,
  best: bool = False,
  clients: bool = False,
) -> list[str]:
  """Writes the files; returns a line for each kind of them.

  Args:
    folder: of a run.
    target: of the files; it is created.
    kinds: of `KINDS`.
    seed: which one; None is the first that did not diverge.
    trusted: whether code that the folder names may be imported and called.
    best: the best model by held-out rows instead of the last one.
    clients: the clients' own models, too.

  Raises:
    ValueError: if there is nothing to write of this kind.
    OSError: if something cannot be read or written.
  """
  import fedjax_syn as fs
  from fedjax_syn.runs import export as export_lib
  from fedjax_syn.runs import lock, restore, work_folder

  loaded = fs.load(folder, seed, best=best, trusted=trusted)
  if loaded.synthetic is None and 'safetensors' not in kinds:
    raise ValueError(f'{folder}: holds no synthetic set; --format=safetensors writes its model')
  stored = work_folder.config(folder) or {}
  note = export_lib.note(stored)  # refuses before anything is written
  if loaded.synthetic is not None:
    names = stored['dataset'].get('class_names', ())  # an older run says none
    last = export_lib.last_set(loaded.synthetic, names)
    if 'pixels' not in last and kinds == [*KINDS]:  # all by default
      kinds = [kind for kind in KINDS if kind != 'png']
    export_lib.check_shown(last, kinds)
  with lock.hold(target):  # two exports at the same time would write each other's files
    lines: list[str] = []
    images = 'images' if loaded.synthetic is None or 'pixels' in last else 'rows'
    if loaded.synthetic is not None:
      for kind in kinds:
        paths = export_lib.FORMATS[kind](last, target)
        what = str(paths[0]) if len(paths) == 1 else f'{paths[0].parent}/*.png'
        lines.append(f'{what}: {len(last["x"])} synthetic {images}')
    elif kinds != ['safetensors']:
      finished = (folder / 'summary.json').exists()
      why = 'this run learned none' if finished else 'this run is not finished'
      lines.append(f'no synthetic set: {why}')
    if 'safetensors' in kinds:
      path = export_lib.save_model(loaded.variables, stored, target / 'model.safetensors')
      lines.append(f'{path}: the model')
    if clients:
      run = restore.restore(folder, seed, trusted=trusted)
      of = functools.partial(run.engine.client_model, run.seed, run.state)
      everyone = range(run.config.data.clients)
      written = export_lib.save_client_models(map(of, everyone), stored, target)
      lines.append(f'{written[0].parent}/: the models of {len(written)} clients')
  return [*lines, note] if note else lines
