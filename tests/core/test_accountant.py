"""Epsilon against closed forms, sums worked out here and the distribution of the privacy loss."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from scipy import optimize, special, stats

from fedjax_syn.core import privacy
from fedjax_syn.core.privacy import Mechanism, Sampling
from fedjax_syn.core.sampling import SAMPLERS


def gaussian_epsilon(multiplier: float, delta: float) -> float:
  """Solves delta(eps) for the exact epsilon of one Gaussian mechanism.

  See Balle and Wang (2018), Theorem 8.
  """

  def excess(eps):
    a, b = 1 / (2 * multiplier), eps * multiplier
    return stats.norm.cdf(a - b) - math.exp(eps) * stats.norm.cdf(-a - b) - delta

  return optimize.brentq(excess, 1e-6, 200)


@pytest.mark.parametrize(('multiplier', 'rounds'), [(2.0, 1), (5.0, 1), (20.0, 100)])
def test_epsilon_without_sampling_is_just_above_the_exact_one(multiplier, rounds):
  """T rounds of noise z are one round of noise z / sqrt(T).

  A bound by Renyi divergences may lie above the exact epsilon, by a quarter at most.
  """
  exact = gaussian_epsilon(multiplier / math.sqrt(rounds), 1e-5)
  got = privacy.epsilon(Mechanism(multiplier, 1e-5), Sampling('poisson', 100, 1.0, rounds))
  assert exact < got < 1.25 * exact
  # Where one client is exchanged for another the sum moves by 2 C, and the noise counts for half.
  exact = gaussian_epsilon(multiplier / 2 / math.sqrt(rounds), 1e-5)
  got = privacy.epsilon(Mechanism(multiplier, 1e-5), Sampling('fixed', 100, 1.0, rounds))
  assert exact < got < 1.25 * exact


def test_more_noise_fewer_clients_and_fewer_rounds_give_a_smaller_epsilon():
  base = Sampling('poisson', 1000, 0.1, 100)
  of = lambda z, s: privacy.epsilon(Mechanism(z, 1e-5), s)
  values = [of(z, base) for z in (0.8, 1.0, 1.5, 3.0)]
  assert values == sorted(values, reverse=True) and values[0] > 2 * values[-1]
  assert of(1.0, base._replace(participation=0.05)) < values[1]
  assert of(1.0, base._replace(rounds=50)) < values[1]
  assert of(1.0, base._replace(sampler='fixed')) > values[1]
  assert of(0.0, base) == math.inf


def sampled_divergence(q: float, z: float, order: int) -> float:
  """Returns the divergence of one Poisson-sampled Gaussian at a whole order.

  It is the binomial sum of Mironov et al. (2019), worked out here.
  """
  k = np.arange(order + 1)
  comb = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
  terms = comb + k * math.log(q) + (order - k) * math.log1p(-q) + k * (k - 1) / (2 * z**2)
  return special.logsumexp(terms) / (order - 1)


def composed_by_hand(q: float, z: float, releases: int, delta: float) -> float:
  """Returns an epsilon over whole orders; it is no smaller than the stated one.

  It uses the conversion of Canonne et al. (2020), Proposition 12.
  """
  orders = np.arange(2, 200)
  total = releases * np.array([sampled_divergence(q, z, a) for a in orders])
  return np.min(total + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))


def exact_poisson(q: float, z: float, releases: int, delta: float) -> float:
  """By the privacy loss distribution: what no correct statement lies below (but for its grid)."""
  event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
  accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
  return accountant.compose(event, releases).get_epsilon(delta)


@pytest.mark.parametrize(('seeds', 'of_one_seed'), [(1, 24.70), (3, 24.70), (20, 24.70)])
def test_epsilon_is_the_total_over_all_seeds(seeds, of_one_seed):
  """The digits example: 60 rounds, z = 1, 40 % of the clients.

  Every seed releases 60 more sums of the same clients.
  """
  sampling = Sampling('poisson', 20, 0.4, 60, seeds)
  stated = privacy.epsilon(Mechanism(1.0, 1e-5), sampling)
  assert (
    exact_poisson(0.4, 1.0, 60 * seeds, 1e-5)
    < stated
    <= composed_by_hand(0.4, 1.0, 60 * seeds, 1e-5) + 1e-6
  )
  assert stated == pytest.approx({1: 24.697, 3: 48.605, 20: 191.504}[seeds], abs=0.01)
  one = privacy.epsilon(Mechanism(1.0, 1e-5), sampling._replace(seeds=1))
  assert one == pytest.approx(of_one_seed, abs=0.01)


@pytest.mark.parametrize('seeds', [3, 20])
def test_seeds_compose_with_the_fixed_sampler(seeds):
  """60 rounds sample 8 of 20 clients each.

  From above: with probability 0.4 a sum moves by 2 C, else it is the same. From below: all
  others send -C, and C is exchanged for -C.
  """
  orders = np.linspace(1.05, 40, 4000)
  moved = orders * (orders - 1) * 2  # exp((a - 1) D) of a Gaussian that moves by 2
  total = 60 * seeds * np.logaddexp(math.log(0.6), math.log(0.4) + moved) / (orders - 1)
  above = np.min(total + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1))
  stated = privacy.epsilon(Mechanism(1.0, 1e-5), Sampling('fixed', 20, 0.4, 60, seeds))
  assert exact_poisson(0.4, 0.5, 60 * seeds, 1e-5) < stated < 1.01 * above
  assert stated == pytest.approx(
    {3: 253.1, 20: 1231.5}[seeds], abs=0.1
  )  # 535.0 and 3509.6 by orders from 2 on


@pytest.mark.parametrize('seeds', [3, 20])
@pytest.mark.parametrize(('sampler', 'unit'), [('fixed', 'client'), ('poisson', 'example')])
def test_seeds_compose_without_sampling_like_one_gaussian(seeds, sampler, unit):
  """S seeds of T rounds with noise z, which an exchange moves by 2, are one Gaussian.

  Its noise is z / (2 sqrt(S T)).
  """
  exact = gaussian_epsilon(60.0 / 2 / math.sqrt(7 * seeds), 1e-5)
  mechanism = Mechanism(60.0, 1e-5, unit)
  stated = privacy.epsilon(mechanism, Sampling(sampler, 10, 1.0, 7, seeds))
  assert exact < stated < 1.25 * exact
  share = privacy.epsilon(mechanism, Sampling(sampler, 10, 1.0, 7))
  assert share < stated < seeds * share


@pytest.mark.parametrize('rounds', [300, 1000])
def test_large_epsilons_are_near_the_exact_one(rounds):
  """Orders from 2 on cannot state less than twice rho = T / (2 z^2).

  That is 1.9 times too much for a thousand rounds of z = 1.
  """
  exact = gaussian_epsilon_far(1 / math.sqrt(rounds), 1e-5)
  stated = privacy.epsilon(Mechanism(1.0, 1e-5), Sampling('poisson', 100, 1.0, rounds))
  assert exact < stated < 1.05 * exact


def gaussian_epsilon_far(multiplier: float, delta: float) -> float:
  """As `gaussian_epsilon`, in logarithms: for large epsilons."""

  def excess(eps):
    a, b = 1 / (2 * multiplier), eps * multiplier
    one, other = stats.norm.logcdf(a - b), eps + stats.norm.logcdf(-a - b)
    return one + math.log(-math.expm1(min(other - one, -1e-16))) - math.log(delta)

  return optimize.brentq(excess, 1e-6, 1e5)


@pytest.mark.parametrize(
  ('noise', 'share'),
  [
    *itertools.product([0.05, 0.3, 1.0, 30.0, 1e3], [0.001, 0.05, 0.4, 0.9, 0.999]),
    *itertools.product([privacy.LEAST_INTEGRATED], [0.001, 0.999]),  # of some million points
  ],
)
def test_divergences_are_never_below_the_truth(noise, share):
  """Integrals agree with the binomial sum at whole orders.

  'fixed': let all other clients send -C, and let the exchanged one send C or -C. Then the sums
  are those of Poisson sampling with half the noise. The stated epsilon must not be below theirs.
  """
  for order in (2, 3, 7):
    by_hand = sampled_divergence(share, noise, order)
    got = privacy._integrated(share, noise, order)
    assert got == pytest.approx(by_hand, rel=1e-8, abs=1e-13)
  true = [privacy._integrated(share, noise, order) for order in privacy.BETWEEN]
  true += [sampled_divergence(share, noise, order) for order in privacy.WHOLE]
  for sampler, multiplier in (('poisson', noise), ('fixed', 2 * noise)):
    sampling = Sampling(sampler, 1000, share, 1)
    stated = privacy._divergences(Mechanism(multiplier, 1e-5), sampling)
    assert np.isfinite(stated).all() and (stated >= np.array(true) * (1 - 1e-12)).all()
    # No more than without sampling, which is a bound as well.
    assert (stated <= np.array(privacy.ORDERS) / (2 * noise**2) * (1 + 1e-9) + 1e-11).all()


@pytest.mark.parametrize('share', [1e-6, 3e-5, 0.4])
def test_what_the_poisson_sampler_draws_is_accounted_for(share):
  """Uniform numbers of float32 are k / 2^23: nine of them are below 1e-6, which is 7 % more."""
  below = np.arange(2**23, dtype=np.float32) / np.float32(2**23) < np.float32(share)
  _, got = privacy._relative(Mechanism(1.0, 1e-5), Sampling('poisson', 10**7, share, 1))
  assert got == max(below.sum() / 2**23, share)
  assert (got > 1.07 * share) == (share == 1e-6)


@pytest.mark.parametrize(
  ('mechanism', 'line'),
  [
    (Mechanism(1e-170, 1e-5, 'example'), 'noise_multiplier=1e-170: epsilon=inf'),
    (Mechanism(1e-8, 1e-5, 'example', 10**290), 'epsilon=inf'),
    (Mechanism(1e4, 0.04), 'epsilon=0 at delta=0.04'),  # what rounds to nothing is not stated
    (Mechanism(1.0, 0.05), 'delta=0.05: .*smaller than 1 / 20'),
    (Mechanism(1.0, 0.05, 'example'), 'delta=0.05: .*smaller than 1 / 20.*one example'),
    (Mechanism(1.0, 1e-5, target_epsilon=8.0), 'target_epsilon=8: noise_multiplier=1 gives 48.6'),
  ],
)
def test_statements_are_checked(mechanism, line):
  with pytest.raises(ValueError, match=line) as error:
    privacy.check([mechanism], Sampling('poisson', 20, 0.4, 60, 3), 20)
  assert '\n' not in str(error.value)


def test_what_can_be_stated_is_not_refused():
  sampling = Sampling('poisson', 20, 0.4, 60)
  for noise in (1e-3, 1e-2, 1.0, 100.0, 1e3):
    privacy.check([Mechanism(noise, 1e-5)], sampling, 20)
  privacy.check([None, Mechanism(0.0, 0.5)], sampling, 2)  # promises nothing
  privacy.check([Mechanism(5.0, 1e-5, target_epsilon=8.0)], sampling, 20)


@pytest.mark.parametrize('sampler', ['fixed', 'poisson'])
@pytest.mark.parametrize(('seeds', 'methods'), [(1, 1), (3, 2)])
def test_the_noise_for_a_target_keeps_it_and_hardly_more(sampler, seeds, methods):
  sampling = Sampling(sampler, 100, 0.2, 60, seeds)
  noise = privacy.noise_multiplier(8.0, 1e-5, sampling, methods=methods)
  of = lambda z: privacy.composed([(Mechanism(z, 1e-5), sampling)] * methods)
  assert 7.8 < of(noise) <= 8.0 < of(noise * 0.98)


def test_a_target_that_the_least_noise_keeps_gets_it():
  sampling = Sampling('poisson', 100, 0.2, 60)
  assert privacy.noise_multiplier(1e12, 1e-5, sampling) == privacy.LEAST_NOISE
  with pytest.raises(ValueError, match='no noise keeps epsilon=0.0001'):
    privacy.noise_multiplier(1e-4, 1e-5, sampling)


def test_methods_of_other_units_or_deltas_have_no_common_epsilon():
  sampling = Sampling('fixed', 20, 0.4, 60)
  for other in (Mechanism(1.0, 1e-5, 'example'), Mechanism(1.0, 1e-6)):
    with pytest.raises(ValueError, match='one epsilon cannot cover both'):
      privacy.composed([(Mechanism(1.0, 1e-5), sampling), (other, sampling)])


@pytest.mark.parametrize(
  ('clients', 'participation', 'drawn'), [(15, 0.1, 1), (30, 0.25, 7), (100, 0.29, 29), (3, 0.1, 1)]
)
def test_as_many_clients_are_accounted_for_as_are_drawn(clients, participation, drawn):
  """15 * 0.1 is one client, not the two that rounding to even would make of 1.5."""
  cohort_size, _ = SAMPLERS['fixed'](clients, participation)
  event, _ = privacy._event(Mechanism(1.0, 1e-5), Sampling('fixed', clients, participation, 1))
  assert cohort_size == event.sample_size == drawn
