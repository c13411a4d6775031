"""Compares runs on one HTML page that needs no network.

  python launch/report.py W1 [W2 ...] [--output=report.html]

  W1 W2     folders of runs; the page also shows the compared runs (W1/compare)
  --output  the page, report.html by default

The page shows the protocol and the settings that differ, results, curves, accuracy by class with
confusion matrices, the synthetic images during the synthesis, partitions, the accuracy of each
client, the commands that train each run again, and the figures of `launch/inspect_run.py`. It needs
an extra: pip install -e '.[report]'. Exit status: 0 written, 2 refused (one line gives the reason),
74 the disk is full.
"""

from collections.abc import Sequence

from absl import app, flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.core import failures, paths, texts

FLAGS = cli.own_flags()
flags.DEFINE_string('output', 'report.html', 'the page', flag_values=FLAGS)


def main(argv: Sequence[str]) -> int:
  """Writes one page; returns the exit status."""
  with cli.refusals():
    words = cli.read(FLAGS, argv, __doc__)
    if not words:
      raise app.UsageError('no folder given: name the folders of one or more runs')
    output = paths.given(FLAGS.output, '--output')
    folders = [paths.given(folder, 'folder') for folder in words]
    from fedjax_syn import report

    try:
      shown = report.write(folders, output)
    except OSError as error:
      failures.pass_on(error, output)
      raise ValueError(f'--output={output}: cannot be written ({error.strerror})') from error
  print(texts.printable(f'{output.resolve()}: {shown} run{"s" if shown > 1 else ""}'))
  return 0
