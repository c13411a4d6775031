"""Returns whether a run fits devices that are not there: its programs are compiled, nothing is run.

  python launch/fits.py --config=configs/X.py --target=v5e:2x2,h200 [--config.key=value ...]

  --config      as in launch/main.py
  --target      devices, separated by commas: a TPU with its layout (v5e:2x2, v5e:4x8, v5p:2x2x1,
                v6e:2x2, v4:2x2x1), a GPU with how many (h200, h100:8, a100, a100-80), or the CPU
                devices of this machine (cpu:2), for which nothing has to be installed
  --json        a file for all figures
  --rows, --shape, --classes
                of data that nobody knows without their files, which are then not read:
                --rows=50000,10000 --shape=32,32,3 --classes=10

For every program of the method (the initial state, the rounds of each phase, DynaFed's synthesis,
the evaluation) it prints the bytes of each device: arguments, temporary arrays, outputs, code, and
what else the run keeps there; the operations of matrix products and convolutions and the bytes
between memory and chip of a round, or an iteration; the least time that these allow; collectives,
and transfers to the host. Known data sets need no files: labels are taken as equally frequent.
Compilers: pip install 'fedjax-syn[fits-tpu]', 'fedjax-syn[fits-gpu]'. docs/clusters.md explains
the columns.

Exit status: 0 everything fits, 1 something does not (what would help is named), 2 refused, 130
interrupted.
"""

import sys
from collections.abc import Sequence

from absl import flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import exit_status, paths

FLAGS = cli.own_flags()
flags.DEFINE_string('config', str(paths.DEFAULT_CONFIG), 'as in train', flag_values=FLAGS)
flags.DEFINE_string('target', '', 'devices, as v5e:2x2,h200', flag_values=FLAGS)
flags.DEFINE_string('json', '', 'a file for all figures', flag_values=FLAGS)
flags.DEFINE_string('rows', '', 'training and test rows', flag_values=FLAGS)
flags.DEFINE_string('shape', '', 'of a row', flag_values=FLAGS)
flags.DEFINE_integer('classes', 0, 'how many', lower_bound=0, flag_values=FLAGS)


def main(argv: Sequence[str]) -> int:
  """Compiles a run's programs for each target; returns the exit status."""
  with cli.refusals():
    settings = cli.read_settings(FLAGS, argv, __doc__)
    from fedjax_syn.fits import targets

    wanted = targets.parse(FLAGS.target)
    targets.check_installed(wanted)
    targets.prepare_environment()
    from fedjax_syn import config as config_lib
    from fedjax_syn.cli import jax_setup
    from fedjax_syn.config import files
    from fedjax_syn.fits import data_shapes, measure, texts
    from fedjax_syn.runs import stored_files

    resolved = config_lib.check(files.load_config(FLAGS.config, settings))
    stated = data_shapes.of_flags(FLAGS.rows, FLAGS.shape, FLAGS.classes)
    out = FLAGS.json and paths.given(FLAGS.json, '--json')
    local = [int(target.layout) for target in wanted if target.chip.kind == 'cpu']
    jax_setup.prepare_jax(max(local, default=1))
    results, status = [], exit_status.FINISHED
    tell = lambda line: print(f'compiling {line}', file=sys.stderr, flush=True)
    for target in wanted:
      engine, needs = measure.needs(resolved, target, stated, tell)
      print('\n'.join(texts.report(target, engine, resolved, needs)), flush=True)
      results.append(measure.record(target, engine, resolved, needs))
      if not results[-1]['fits']:
        status = exit_status.FAILED
    if out:
      stored_files.write_json(
        out, {'config': FLAGS.config, 'settings': settings, 'targets': results}
      )
  return status
