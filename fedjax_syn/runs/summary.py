"""The content of summary.json."""

from typing import Any

import jax
import numpy as np

from fedjax_syn.core import privacy
from fedjax_syn.engine import Engine
from fedjax_syn.runs import metrics
from fedjax_syn.runs.assemble import Job
from fedjax_syn.runs.clock import Clock, peak_memory_bytes
from fedjax_syn.runs.recorder import Recorder


def summarise(job: Job, recorder: Recorder, clock: Clock) -> dict[str, Any]:
  """Makes the content of summary.json.

  Args:
    job: the run.
    recorder: holds the metrics lines and the seeds' status.
    clock: holds the seconds.

  Returns:
    JSON values. `empty_rounds`: by seed, the rounds in which nobody with a sample took part.
    `bytes_up`, `bytes_down`: per seed over all rounds, with `bytes_before` round 1 in those up.
    `client_state_bytes`: of all clients at any time, on every device or in host memory. `epsilon`:
    of all seeds, finished or not, and of the methods beside this one; `epsilon_per_seed`: of one
    seed of this method alone; `privacy`: delta, what is protected by what noise, what neighbours
    differ in, what is counted; null without noise. `metrics_sha256`: the digest of metrics.jsonl.
    `files`: digests of the content of the npz files.
  """
  config, engine = job.config, job.engine
  shapes = jax.eval_shape(engine.model.init, jax.random.key(0)).params
  up, down = engine.bytes_per_round()
  return {
    'algorithm': config.algorithm,
    'dataset': job.problem.dataset.name,
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'parameters': sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes)),
    **metrics.summarise(recorder.lines, config, recorder.status),
    'empty_rounds': [_empty_rounds(engine, recorder, seed) for seed in config.seeds],
    'seconds': clock.seconds(),
    'bytes_up': engine.bytes_before + up * config.rounds,
    'bytes_before': engine.bytes_before,
    'bytes_down': down * config.rounds,
    'client_state_bytes': engine.client_state_bytes,
    'client_state_place': engine.client_state_place,
    **_privacy(job),
    'peak_memory_bytes': max(recorder.peak, peak_memory_bytes()),
    'metrics_sha256': recorder.digest.hexdigest(),
    'files': recorder.files,
  }


def _empty_rounds(engine: Engine, recorder: Recorder, seed: int) -> int:
  """Rounds of a seed, from where the run began, in which nobody with a sample took part."""
  begun = min((line['round'] for line in recorder.lines if line['seed'] == seed), default=0)
  return engine.empty_rounds(seed, begun, recorder.status[str(seed)]['round'])


def _privacy(job: Job) -> dict[str, Any]:
  """What is stated of noise: nulls without it."""
  mechanism, beside = job.engine.mechanism, job.beside
  if mechanism is None or not privacy.promises(mechanism):
    return dict.fromkeys(('epsilon', 'epsilon_per_seed', 'privacy'))
  sampling = privacy.sampling_of(job.config)
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
