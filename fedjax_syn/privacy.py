"""What a noised run guarantees: epsilon at a delta, by dp-accounting, for the sampling that is really used."""

from typing import Any, NamedTuple

TOLERANCE = (
  1e-2  # of a noise multiplier that is looked for; it is added, so that the target is kept
)
HINT = "needs the privacy extra: pip install -e '.[privacy]'"


class Mechanism(NamedTuple):
  """Gaussian noise on sums, and who is protected."""

  # The noise's standard deviation over the bound on what one unit contributes.
  noise_multiplier: float
  delta: float
  unit: str = (
    'client'  # 'client': a client with all its samples; 'example': one sample of one client
  )
  releases: int = 1  # noised sums of a unit in a round


class Sampling(NamedTuple):
  """Who takes part, and how often noise is added."""

  sampler: str  # 'fixed' or 'poisson'
  clients: int
  participation: float
  rounds: int


def _event(mechanism: Mechanism, sampling: Sampling) -> tuple[Any, Any]:
  """The run as an event of dp-accounting, and the neighbours that it is private for."""
  from fedjax_syn.engine.sampling import (
    SAMPLERS,
  )  # the engine's package needs methods, and they this

  dp = _library()
  multiplier = mechanism.noise_multiplier
  if mechanism.unit == 'example':
    # What a client sends is seen as its own: sampling clients hides nobody, and a sample is exchanged for another.
    relation = dp.NeighboringRelation.REPLACE_ONE
    one = dp.GaussianDpEvent(multiplier / 2)
  elif sampling.sampler == 'poisson':
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    one = dp.PoissonSampledDpEvent(sampling.participation, dp.GaussianDpEvent(multiplier))
  else:
    # The number of clients is fixed, so that one is replaced by another: the sum moves by twice the bound.
    relation = dp.NeighboringRelation.REPLACE_ONE
    one = dp.GaussianDpEvent(multiplier / 2)
    drawn, _ = SAMPLERS['fixed'](sampling.clients, sampling.participation)
    if drawn < sampling.clients:
      one = dp.SampledWithoutReplacementDpEvent(sampling.clients, drawn, one)
  return dp.SelfComposedDpEvent(one, sampling.rounds * mechanism.releases), relation


def epsilon(mechanism: Mechanism, sampling: Sampling) -> float:
  """Returns epsilon of a whole run, at the mechanism's delta, for its unit.

  Args:
    mechanism: the noise of a round.
    sampling: who takes part. 'poisson': neighbours differ by one client more or less; 'fixed': by one client
      exchanged for another, so that the same noise counts for half. With examples as the unit one example is
      exchanged for another, and the sampler hides nothing.

  Returns:
    Epsilon by Renyi accounting; infinity without noise.

  Raises:
    ValueError: if dp-accounting is not installed.
  """
  if not mechanism.noise_multiplier:
    return float('inf')
  dp = _library()
  event, relation = _event(mechanism, sampling)
  accountant = dp.rdp.RdpAccountant(orders=_orders(), neighboring_relation=relation)
  return float(accountant.compose(event).get_epsilon(mechanism.delta))


def check(mechanism: Mechanism | None, start_from: str) -> None:
  """Refuses, before any work, a run whose epsilon could not be stated at its end, or would not hold.

  Args:
    mechanism: of the run's method; None, or without noise, promises nothing.
    start_from: the checkpoint of another run that it begins at, '' for none.

  Raises:
    ValueError: if dp-accounting is not installed, or rounds of another run come before its own.
  """
  if mechanism is None or not mechanism.noise_multiplier:
    return
  _library()
  if start_from:
    raise ValueError(
      f'start_from={start_from!r}: the epsilon of this run would leave out what the rounds before it gave away;'
      ' begin with noise in round 1'
    )


def noise_multiplier(
  target_epsilon: float, delta: float, sampling: Sampling, unit: str = 'client'
) -> float:
  """Returns a noise multiplier, within 0.02 of the least one, with which a run keeps a target epsilon at a delta.

  Raises:
    ValueError: if dp-accounting is not installed or no noise up to 10,000 is enough.
  """
  dp = _library()
  of = lambda multiplier: Mechanism(multiplier, delta, unit)
  relation = _event(of(1.0), sampling)[1]
  try:
    return TOLERANCE + float(
      dp.calibrate_dp_mechanism(
        lambda: dp.rdp.RdpAccountant(orders=_orders(), neighboring_relation=relation),
        lambda multiplier: _event(of(multiplier), sampling)[0],
        target_epsilon,
        delta,
        dp.ExplicitBracketInterval(0.01, 1e4),
        tol=TOLERANCE,
      )
    )
  except (ValueError, RuntimeError) as error:
    raise ValueError(
      f'no noise keeps epsilon={target_epsilon} at delta={delta}: use a larger one'
    ) from error


def _orders() -> list[float]:
  # Whole orders: fractional ones do not converge at high sampling rates, and change the third digit.
  return [*range(2, 17), *range(20, 41, 4), *(16 * k for k in (3, 4, 6, 8, 12, 16, 24, 32))]


def _library() -> Any:
  try:
    import dp_accounting
    from dp_accounting import rdp  # noqa: F401 (makes dp_accounting.rdp)
  except ImportError as error:
    raise ValueError(f'dp-accounting {HINT}') from error
  return dp_accounting
