"""What is left when a run is over: its summary, the learned data set and the figures."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_syn import config as config_lib
from fedjax_syn.core import privacy, texts
from fedjax_syn.data.datasets import Dataset
from fedjax_syn.engine import Engine
from fedjax_syn.runs import metrics
from fedjax_syn.runs.clock import Clock
from fedjax_syn.runs.recorder import Recorder, peak_memory_bytes


def summarise(
  config: config_lib.Resolved,
  dataset: Dataset,
  engine: Engine,
  recorder: Recorder,
  clock: Clock,
  beside: Sequence[privacy.Mechanism] = (),
) -> dict[str, Any]:
  """Makes the content of summary.json.

  Args:
    config: the run's config.
    dataset: the data set.
    engine: the run's engine.
    recorder: holds the metrics lines and the seeds' status.
    clock: holds the seconds.
    beside: noise of the methods whose folders lie in this run's.

  Returns:
    JSON values; `empty_rounds` by seed, the rounds in which nobody with a sample took part; bytes up and down are per seed over all rounds, those up with `bytes_before` round 1, `client_state_bytes` are those of all clients at any
    time, on every device or in host memory; `epsilon` (of all seeds, whether or not they came
    to their end, and of the methods beside this one), `epsilon_per_seed` (of one seed of this method alone) and `privacy`
    (delta, what is protected by what noise, what neighbours differ by, what is counted) are null without noise;
    `metrics_sha256` is the digest of metrics.jsonl, and `files` has those of the npz files by what they hold.
  """
  shapes = jax.eval_shape(engine.model.init, jax.random.key(0)).params
  up, down = engine.bytes_per_round()
  measured = metrics.summarise(
    recorder.lines,
    seeds=config.seeds,
    rounds=config.rounds,
    targets=config.targets,
    eval_every=config.eval_every,
    status=recorder.status,
  )
  return {
    'algorithm': config.algorithm,
    'dataset': dataset.name,
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'parameters': sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes)),
    **measured,
    'empty_rounds': [_empty_rounds(engine, recorder, seed) for seed in config.seeds],
    'seconds': clock.seconds(),
    'bytes_up': engine.bytes_before + up * config.rounds,
    'bytes_before': engine.bytes_before,
    'bytes_down': down * config.rounds,
    'client_state_bytes': engine.client_state_bytes,
    'client_state_place': engine.client_state_place,
    **_privacy(config, engine.mechanism, beside),
    'peak_memory_bytes': max(recorder.peak, peak_memory_bytes()),
    'metrics_sha256': recorder.digest.hexdigest(),
    'files': recorder.files,
  }


def _empty_rounds(engine: Engine, recorder: Recorder, seed: int) -> int:
  """Rounds of a seed in which nobody with a sample took part, from where the run began to where it ended."""
  begun = min((line['round'] for line in recorder.lines if line['seed'] == seed), default=0)
  return engine.empty_rounds(seed, begun, recorder.status[str(seed)]['round'])


def _privacy(
  config: config_lib.Resolved,
  mechanism: privacy.Mechanism | None,
  beside: Sequence[privacy.Mechanism],
) -> dict[str, Any]:
  """What is stated of noise: nulls without it."""
  if not privacy.promises(mechanism):
    return dict.fromkeys(('epsilon', 'epsilon_per_seed', 'privacy'))
  sampling = privacy.sampling_of(config)
  return {
    'epsilon': privacy.composed([(m, sampling) for m in (mechanism, *beside)]),
    'epsilon_per_seed': privacy.epsilon(mechanism, sampling._replace(seeds=1)),
    'privacy': {
      **{key: getattr(mechanism, key) for key in ('noise_multiplier', 'delta', 'unit', 'releases')},
      'neighbours': privacy.neighbours(mechanism, sampling),
      'seeds': sampling.seeds,
      'methods': 1 + len(beside),
    },
  }


def save_partition(folder: Path, counts: np.ndarray) -> None:
  """Saves who holds what: `partition.npz` with 'counts', [clients, classes]."""
  _save_arrays(folder / 'partition.npz', {'counts': counts.astype(np.int32)})


def own_accuracy(counts: np.ndarray, by_class: np.ndarray) -> np.ndarray:
  """What one model is worth to each client: its accuracy on test rows weighted like the client's labels.

  Args:
    counts: samples, [clients, classes].
    by_class: the model's accuracy on each class's test rows, [classes]; nan for a class without rows.

  Returns:
    [clients], nan for a client without a sample of a class that the test split has. Source: FedCOG, A.4.
  """
  held = np.where(np.isnan(by_class), 0, counts)
  total = held.sum(axis=1)
  right = held @ np.nan_to_num(by_class)
  return np.divide(right, total, out=np.full(len(total), np.nan), where=total > 0)


def save_clients(
  folder: Path,
  seed: int,
  measured: Mapping[str, Any],
  names: Sequence[str] = (),
) -> None:
  """Saves what the clients have of a seed's last round: `clients/seed_<seed>.npz`.

  Args:
    folder: the run's folder.
    seed: the seed.
    measured: 'class_accuracy', the global model's test accuracy by class, [classes]; 'global_accuracy', its accuracy
      for each client, on its own test rows if the data say whose they are, else `own_accuracy`, [clients];
      'personal_accuracy', that of the personal models, [clients]; nan where it cannot be measured. What is not there
      is left out.
    names: what the data call the clients; () if they do not.
  """
  kept = ('class_accuracy', 'global_accuracy', 'personal_accuracy')
  if arrays := {key: measured[key] for key in kept if key in measured}:
    arrays |= {'client_names': np.array(names)} if names else {}
    _save_arrays(folder / 'clients' / f'seed_{seed}.npz', arrays)


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
  """Writes an npz file that is either complete or not there."""
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f'.{path.name}')
  with partial.open('wb') as file:
    np.savez(file, **arrays)
  partial.replace(path)


def attempt(say: Callable[[str], None], draw: Callable[..., None], *arguments: Any) -> None:
  """Draws; what cannot be drawn is said in one line, for a run is worth more than its figures.

  Args:
    say: told why there is no figure.
    draw: writes a figure; matplotlib and its fonts, settings and folders may fail in any way.
    *arguments: of `draw`.
  """
  try:
    import matplotlib  # slow to import

    with matplotlib.rc_context(
      {'text.usetex': False}
    ):  # a matplotlibrc in the current folder would start LaTeX
      draw(*arguments)
  except Exception as error:
    reason = texts.shorten(texts.one_line(error), 300)
    say(f'WARNING: a figure is left out ({type(error).__name__}: {reason})')


def draw_partition(
  folder: Path, dataset: Dataset, counts: np.ndarray, client_names: Sequence[str] = ()
) -> None:
  """Draws who holds what.

  Args:
    folder: the run's folder.
    dataset: gives the title and the names of the classes.
    counts: [clients, classes].
    client_names: labels of the clients; numbers by default.
  """
  from fedjax_syn.plotting import figures  # matplotlib is slow to import

  title = f'{dataset.title}: {len(counts)} clients'
  path = folder / 'figures' / 'partition.png'
  figures.partition_bubbles(counts, path, title, dataset.class_names or None, client_names or None)


def draw_curves(
  folder: Path, dataset: Dataset, runs: Mapping[str, Path], mark_round: int | None
) -> None:
  """Draws the accuracy of a run and of those that it is compared with.

  Args:
    folder: the run's folder.
    dataset: gives the title.
    runs: by label, the folders whose metrics.jsonl are drawn.
    mark_round: the round after which the data set was synthesised.
  """
  from fedjax_syn.plotting import figures

  histories = {label: metrics.read(run / 'metrics.jsonl') for label, run in runs.items()}
  figures.accuracy_curve(histories, folder / 'figures' / 'accuracy.png', mark_round, dataset.title)


def draw_dynamics(
  folder: Path, dataset: Dataset, seed: int, distances: Mapping[str, np.ndarray]
) -> None:
  """Draws how well the learned set, equally many real images and noise follow the trajectory.

  Args:
    folder: the run's folder.
    dataset: gives the title.
    seed: the seed that learned the set.
    distances: by label, cosine distances [draws]; without any, nothing is drawn.
  """
  if not distances:
    return
  from fedjax_syn.plotting import figures

  title = f'{dataset.title}, seed {seed}: distance to later rounds'
  figures.cosine_distances(distances, folder / 'figures' / 'dynamics.png', title)


def save_synthetic(
  folder: Path,
  dataset: Dataset,
  seed: int,
  first: bool,
  learned: Mapping[str, Any] | None,
  say: Callable[[str], None],
) -> None:
  """Saves a learned set as numbers, and as a picture if it can be drawn.

  Args:
    folder: the run's folder.
    dataset: its normalisation is stored beside the images and undone in the picture.
    seed: the seed that learned it.
    first: the run's first seed's set is `synthetic.npz`, those of others are `synthetic_seed<seed>.npz`.
    learned: the engine's `artifacts(state)`; None saves nothing.
    say: told why there is no picture.
  """
  if learned is None:
    return
  name = 'synthetic' if first else f'synthetic_seed{seed}'
  path = folder / 'synthetic' / f'{name}.npz'
  normalisation = dataset.normalisation
  mean, std = (np.asarray(v, np.float32) for v in (normalisation.mean, normalisation.std))
  _save_arrays(path, {**learned, 'mean': mean, 'std': std})
  attempt(say, _draw_synthetic, folder, dataset, seed, path.with_suffix('.png'), learned)


def _draw_synthetic(
  folder: Path, dataset: Dataset, seed: int, picture: Path, learned: Mapping[str, Any]
) -> None:
  from fedjax_syn.plotting import figures

  title = f'{dataset.title}, seed {seed}'
  figures.synthetic_sets(
    learned['x'], learned['y'], learned['iterations'], dataset.normalisation, picture, title
  )
  (folder / 'figures').mkdir(exist_ok=True)
  shutil.copyfile(picture, folder / 'figures' / picture.name)
