"""What figures need of finished runs besides their metrics; see `fedjax_syn.tables.post_run`.

Programs that measure are slow to import, so each function imports its own.
"""

import os
import pathlib
import platform
from collections.abc import Mapping

import jax

from fedjax_syn.runs import stored_files
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Key, PostRun, Result, Scale

SAMPLES = (16, 32, 64, 128, 256, 512, 1024)
"""Of FedCOG's Table 8."""
GENERATION = {True: (0, 50, 100, 500, 1000), False: (0, 2, 5)}
"""Steps of FedCOG's Figure 5, by whether the scale's numbers mean something."""


def _from_scratch(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Trains a new network on the synthetic set alone."""
  from fedjax_syn.papers.dynafed import inspections

  run = inspections.open_run(folder, seed, trusted=True)
  run = run._replace(sets={'synthetic': run.sets['synthetic']})
  steps = 1000 if scale.comparable else 20
  numbers, _ = inspections.from_scratch(run, folder / 'figures', steps)
  curve = numbers['sets']['synthetic']
  values = {name: curve[name].tolist() for name in ('steps', 'accuracy')}
  stored_files.write_json(folder / 'from_scratch.json', values)


def _client_losses(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Draws the losses of as many clients as in the paper through the first fine-tuned round."""
  from fedjax_syn.papers.dynafed import inspections

  run = inspections.open_run(folder, seed, trusted=True)
  inspections.client_losses(run, folder / 'figures', shown=3)


def _generation_times(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Times FedCOG's generation beside local training, on this machine."""
  from fedjax_syn.papers.fedcog import generation

  device = jax.devices()[0]
  names = f'{device.platform} {device.device_kind}', platform.machine(), f'{os.cpu_count()} cores'
  seconds = generation.seconds(generation.open_run(folder, seed, trusted=True), SAMPLES)
  measured = {'seconds': seconds, 'machine': ', '.join(names)}
  stored_files.write_json(folder / 'generation.json', measured)


def timed_on(results: Mapping[Key, Result]) -> list[str]:
  """States on which machines `GENERATION_TIMES` was computed."""
  files = [measures.left(r.folder / 'generation.json', {'machine': str}) for r in results.values()]
  return [f'timed on: {machine}' for machine in sorted({f['machine'] for f in files if f})]


def _generated_images(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Draws what FedCOG generates for one client after several numbers of steps."""
  from fedjax_syn.papers.fedcog import generation

  run = generation.open_run(folder, seed, trusted=True)
  generation.draw(run, GENERATION[scale.comparable], folder / 'figures' / 'generated.png')


def _client_sets(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Measures and draws the sets that clients of FedDM or FedDualMatch send."""
  from fedjax_syn.papers.feddualmatch import client_sets

  measured = client_sets.inspect(client_sets.open_run(folder, seed, trusted=True), folder)
  stored_files.write_json(folder / 'client_sets.json', measured)


# The command names whatever code the runs of its tables name, so that they are trusted.
FROM_SCRATCH = PostRun('from_scratch.json', _from_scratch)
CLIENT_LOSSES = PostRun('figures/client_losses.png', _client_losses)
GENERATION_TIMES = PostRun('generation.json', _generation_times)
GENERATED_IMAGES = PostRun('figures/generated.png', _generated_images)
CLIENT_SETS = PostRun('client_sets.json', _client_sets)
