"""The privacy of a run with noise: epsilon at a delta, by Renyi divergences, for its sampling."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from fedjax_syn.core.sampling import SAMPLERS

# In units of the bound. Less is below what float32 keeps of a sum of some clients' updates; more
# leaves nothing of it.
LEAST_NOISE, MOST_NOISE = 1e-3, 1e4
TOLERANCE = 1e-2  # of a noise multiplier that is looked for, relative
HINT = "needs the privacy extra: pip install -e '.[privacy]'"
# Orders near 1 decide where epsilon is large, high ones where it is small; 1.01 and less are of no
# use to the conversion.
BETWEEN = (1.02, 1.03, 1.04, 1.06, 1.08, *(1 + k / 20 for k in range(2, 20)), 2.25, 2.5, 3.5)
# Between 128 and 256 the library's bound for the fixed sampler is slow.
WHOLE = (*range(2, 17), *range(20, 41, 4), 48, 64, 96, 128, 260, 384, 512)
ORDERS = (*BETWEEN, *WHOLE)
LEAST_DEVIATION = 1e-30  # of the noise itself, z C: float32 takes less for nothing
# Of one release's divergence, added to it: what is stated is never below the truth.
ROUNDING = 1e-14
LEAST_INTEGRATED = 5e-3  # noise below which an integral would take too many points


class Mechanism(NamedTuple):
  """Gaussian noise on sums, and who is protected."""

  noise_multiplier: float
  """The noise's standard deviation over the bound on what one unit contributes."""
  delta: float
  unit: str = 'client'
  """'client': a client with all its samples; 'example': one sample of one client."""
  releases: int = 1
  """Noised sums of a unit in a round. 0: they, and the noise multiplier, depend on the data."""
  target_epsilon: float = 0.0
  """The largest epsilon of the whole run; 0: none is given."""
  layer: str = ''
  """Whose `postprocess_update` bounds what clients send; '': messages are no sums of updates."""


class Sampling(NamedTuple):
  """Who takes part, and how often noise is added."""

  sampler: str  # 'fixed' or 'poisson'
  clients: int
  participation: float
  rounds: int
  seeds: int = 1  # each trains on the same clients, with noise of its own


def sampling_of(config: Any) -> Sampling:
  """Reads from a checked config who takes part, and how often."""
  c = config.client
  return Sampling(c.sampler, config.data.clients, c.participation, config.rounds, len(config.seeds))


def promises(mechanism: Mechanism | None) -> TypeGuard[Mechanism]:
  """Returns whether a method adds noise, so that an epsilon is stated."""
  return mechanism is not None and mechanism.noise_multiplier != 0


def neighbours(mechanism: Mechanism, sampling: Sampling) -> str:
  """States by what the data sets differ that epsilon is about."""
  if mechanism.unit == 'example':
    return 'one example exchanged for another of its class at the same client'
  if sampling.sampler == 'poisson':
    return 'one client more or less'
  return 'one client exchanged for another'


def epsilon(mechanism: Mechanism | None, sampling: Sampling) -> float:
  """Returns epsilon of all seeds and rounds of a method, at the mechanism's delta, for its unit.

  Args:
    mechanism: the noise of a round; None adds none.
    sampling: who takes part. 'poisson': neighbours differ by one client more or less; 'fixed': by
      one client exchanged for another, so that the same noise counts for half. With examples as the
      unit one example is exchanged for another, and the sampler hides nothing.

  Returns:
    Epsilon by Renyi accounting; infinity without noise.

  Raises:
    ValueError: if dp-accounting is not installed.
  """
  return composed([(mechanism, sampling)]) if promises(mechanism) else math.inf


def composed(runs: Sequence[tuple[Mechanism, Sampling]]) -> float:
  """Returns epsilon of everything that several methods reveal of the same clients.

  Args:
    runs: noise and sampling of each; of one delta and one unit.

  Returns:
    Epsilon at their delta; infinity if one of them has no noise.

  Raises:
    ValueError: if dp-accounting is not installed, or units or deltas differ.
  """
  kinds = {(m.delta, neighbours(m, s)) for m, s in runs}
  if len(kinds) > 1:
    raise ValueError(f'one epsilon cannot cover both: {" and ".join(map(str, sorted(kinds)))}')
  if not all(m.noise_multiplier for m, _ in runs):
    return math.inf
  dp = _library()
  with np.errstate(all='ignore'):  # infinity and nan are errors of `check`
    total = sum(
      _divergences(*_one_release(m, s)) * float(s.rounds * s.seeds * m.releases) for m, s in runs
    )
  if not np.isfinite(total).any():
    return math.inf
  value, _ = dp.rdp.compute_epsilon(ORDERS, np.nan_to_num(total, nan=math.inf), runs[0][0].delta)
  return float(value)


def _one_release(mechanism: Mechanism, sampling: Sampling) -> tuple[Mechanism, Sampling]:
  """The same of one release at no delta: what differs in these only has one divergence."""
  one = Mechanism(mechanism.noise_multiplier, delta=0.0, unit=mechanism.unit)
  return one, sampling._replace(rounds=1, seeds=1)


@functools.cache
def _divergences(mechanism: Mechanism, sampling: Sampling) -> np.ndarray:
  """Bounds on the Renyi divergences of one release between neighbours, one for each of `ORDERS`."""
  noise, share = _relative(mechanism, sampling)
  orders = np.array(ORDERS)
  exponent = orders * (orders - 1) / (2 * noise**2)  # of a sum that the unit is always in
  if share == 1:
    return exponent / (orders - 1)
  # Joint convexity: with probability 1 - share the sum is the same on both sides (van Erven and
  # Harremoes, 2014).
  bounds = [np.logaddexp(math.log1p(-share), math.log(share) + exponent) / (orders - 1)]
  dp = _library()
  event, relation = _event(mechanism, sampling)
  accountant = dp.rdp.RdpAccountant(orders=WHOLE, neighboring_relation=relation)
  known = dict(zip(WHOLE, accountant.compose(event).rdp, strict=True))
  if sampling.sampler == 'poisson' and noise >= LEAST_INTEGRATED:
    known |= {order: _integrated(share, noise, order) for order in BETWEEN}
  bounds.append(np.array([known.get(order, math.inf) for order in ORDERS]))
  return np.maximum(np.min(bounds, axis=0), 0) + ROUNDING / (orders - 1)


def _integrated(share: float, noise: float, order: float) -> float:
  """The Renyi divergence of (1 - q) N(0, z^2) + q N(1, z^2) from N(0, z^2).

  It is the larger one of the two directions.
  The trapezoidal rule converges faster than any power; the nearest singularity is pi z^2 beside the
  real line. Source: Mironov, Talwar and Zhang (2019), Theorems 4 and 5.
  """
  step = min(noise / 8, noise**2 / 3)
  x = np.arange(-14 * noise, order + 14 * noise, step)
  ratio = np.logaddexp(math.log1p(-share), math.log(share) + (2 * x - 1) / (2 * noise**2))
  density = order * ratio - x**2 / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi))
  peak = density.max()
  return (peak + math.log(np.exp(density - peak).sum() * step)) / (order - 1)


def _relative(mechanism: Mechanism, sampling: Sampling) -> tuple[float, float]:
  """The noise over what one unit can move the sum by, and the share of sums that the unit is in."""
  if mechanism.unit == 'example':
    # What a client sends is seen as its own: sampling clients hides nobody, and a sample is
    # exchanged for another.
    return mechanism.noise_multiplier / 2, 1.0
  if sampling.sampler == 'poisson':
    # The sampler compares with uniform numbers of float32, multiples of 2^-23: at times a little
    # more than what was asked for.
    share = math.ceil(float(np.float32(sampling.participation)) * 2**23) / 2**23
    return mechanism.noise_multiplier, min(max(share, sampling.participation), 1.0)
  # The number of clients is fixed, so that one is replaced by another: the sum moves by twice the
  # bound.
  return mechanism.noise_multiplier / 2, _drawn(sampling) / sampling.clients


def _drawn(sampling: Sampling) -> int:
  return SAMPLERS['fixed'](sampling.clients, sampling.participation)[0]


def _event(mechanism: Mechanism, sampling: Sampling) -> tuple[Any, Any]:
  """One release as an event of dp-accounting, and the neighbours that it is private for."""
  dp = _library()
  noise, share = _relative(mechanism, sampling)
  one = dp.GaussianDpEvent(noise)
  if sampling.sampler == 'poisson' and mechanism.unit == 'client':
    return dp.PoissonSampledDpEvent(share, one), dp.NeighboringRelation.ADD_OR_REMOVE_ONE
  if share < 1:
    one = dp.SampledWithoutReplacementDpEvent(sampling.clients, _drawn(sampling), one)
  return one, dp.NeighboringRelation.REPLACE_ONE


def noise_multiplier(
  target_epsilon: float, delta: float, sampling: Sampling, unit: str = 'client', methods: int = 1
) -> float:
  """Returns the least noise multiplier with which a run keeps a target epsilon, within 1 %.

  Args:
    target_epsilon: of all seeds, rounds and methods together.
    delta: at which it is stated.
    sampling: of one method.
    unit: of `Mechanism`.
    methods: how many with this noise see the same clients.

  Raises:
    ValueError: if dp-accounting is not installed or no noise up to `MOST_NOISE` is enough.
  """
  of = lambda noise: composed([(Mechanism(noise, delta, unit), sampling)] * methods)
  low, high = LEAST_NOISE, MOST_NOISE
  if not of(high) <= target_epsilon:
    raise ValueError(f'no noise keeps epsilon={target_epsilon} at delta={delta}: use a larger one')
  if of(low) <= target_epsilon:
    return low
  while high > low * (1 + TOLERANCE):
    middle = math.sqrt(low * high)
    low, high = (low, middle) if of(middle) <= target_epsilon else (middle, high)
  return high


def check_config(config: Any, mechanisms: Mapping[str, Mechanism | None]) -> None:
  """Raises, before data are read, if the run's epsilon cannot be stated or would not hold.

  Args:
    config: a checked config.
    mechanisms: by method, as in `algorithm` and `compare`, what it promises. Releases of 0 are
      checked when the data are there, as is everything that depends on the number of examples.

  Raises:
    ValueError: if dp-accounting is not installed, one of two methods has no noise or another unit,
      or rounds of another run come before its own.
  """
  noised = [word for word, mechanism in mechanisms.items() if promises(mechanism)]
  if not noised:
    return
  bare = [word for word in mechanisms if word not in noised]
  if bare:
    raise ValueError(
      f'compare={config.compare!r}: {noised[0]!r} adds noise and {bare[0]!r} none, and both would'
      ' train on the same clients in one folder, whose epsilon would be wrong; compare= (none),'
      ' or a method with noise'
    )
  if config.start_from:
    raise ValueError(
      f'start_from={config.start_from!r}: the epsilon of this run would not count the rounds before'
      ' it; begin with noise in round 1'
    )
  _library()
  known = [
    mechanism for mechanism in mechanisms.values() if promises(mechanism) and mechanism.releases
  ]
  units = {'client': config.data.clients, 'example': 1}
  check(known, sampling_of(config), min((units[m.unit] for m in known), default=1))


def check(mechanisms: Sequence[Mechanism | None], sampling: Sampling, units: int) -> None:
  """Refuses noise of which no epsilon can be stated, or none that means anything.

  Args:
    mechanisms: of all methods that see the same clients.
    sampling: of each of them.
    units: clients, or examples, whichever are protected.

  Raises:
    ValueError: naming noise, delta or epsilon, and what would work.
  """
  noised = [m for m in mechanisms if promises(m)]
  if not noised:
    return
  for m in noised:
    if m.unit == 'client' and not LEAST_NOISE <= m.noise_multiplier <= MOST_NOISE:
      raise ValueError(
        f'noise_multiplier={m.noise_multiplier:g}: must be 0 (no noise, no epsilon) or lie in'
        f' {LEAST_NOISE:g}..{MOST_NOISE:g}'
      )
    if m.delta * units >= 1:
      raise ValueError(
        f'delta={m.delta:g}: must be smaller than 1 / {units}; otherwise a run that publishes all'
        f' data of one {m.unit} would satisfy it'
      )
  runs = [(m, sampling) for m in noised]
  more = [(m._replace(noise_multiplier=2 * m.noise_multiplier), sampling) for m in noised]
  stated, less = composed(runs), composed(more)
  if not (0 < stated < math.inf and less < stated):
    raise ValueError(
      f'noise_multiplier={noised[-1].noise_multiplier:g}: epsilon={stated:g} at'
      f' delta={noised[-1].delta:g} ({less:g} with twice the noise) is not reliable; noise of'
      ' about 1 would work'
    )
  target = max(m.target_epsilon for m in noised)
  if target and stated > target:
    least = noise_multiplier(target, noised[-1].delta, sampling, noised[-1].unit, len(noised))
    raise ValueError(
      f'target_epsilon={target:g}: noise_multiplier={noised[-1].noise_multiplier:g} gives'
      f' {stated:.4g} over all seeds and rounds; noise_multiplier={least:.4g} would work'
    )


def check_deviation(key: str, noise: float, clip: float) -> None:
  """Refuses noise that float32 rounds to nothing.

  Args:
    key: of the bound.
    noise: multiplier.
    clip: C.

  Raises:
    ValueError: naming the key and what would work.
  """
  if noise and 0 < clip < LEAST_DEVIATION / max(noise, LEAST_NOISE):
    raise ValueError(
      f'{key}={clip:g}: noise of deviation {noise * clip:g} is nothing in float32; a bound of'
      ' about 1 would work'
    )


def check_data(mechanism: Mechanism | None, normalisation: str, filled: bool = False) -> None:
  """Raises if rows are scaled or filled by statistics of the clients, which epsilon leaves out.

  Args:
    mechanism: of the run's method.
    normalisation: the name of the data's.
    filled: whether missing values were filled by statistics.

  Raises:
    ValueError: naming the key and what would work.
  """
  if promises(mechanism) and normalisation == 'auto':
    raise ValueError(
      "data.normalisation='auto': mean and deviation of the clients' rows would be published"
      " with the model, outside of epsilon; use known constants: 'half' (of images) or 'unit', or"
      ' those of a meta.json'
    )
  if promises(mechanism) and filled:
    raise ValueError(
      "data.missing='median': medians of the clients' rows would be published with the model,"
      " outside of epsilon; 'drop' would work"
    )


def _library() -> Any:
  try:
    import dp_accounting
    from dp_accounting import rdp  # noqa: F401 (makes dp_accounting.rdp)
  except ImportError as error:
    raise ValueError(f'dp-accounting {HINT}') from error
  return dp_accounting
