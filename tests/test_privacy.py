"""Differential privacy: the clip bound, the noise's scale, and epsilon against an independent closed form."""

import math
import sys

import jax
import numpy as np
import pytest
from scipy import optimize, stats

from fedjax_syn import config as config_lib
from fedjax_syn import experiment, privacy
from fedjax_syn.algorithms.dp import dp
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.algorithms.fedavgm import fedavgm
from fedjax_syn.algorithms.fedbe import fedbe
from fedjax_syn.algorithms.feddf import feddf
from fedjax_syn.algorithms.fedmix import fedmix
from fedjax_syn.algorithms.fednova import fednova
from fedjax_syn.algorithms.fedopt import fedopt
from fedjax_syn.algorithms.scaffold import scaffold
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.privacy import Mechanism, Sampling
from tests import tiny
from tests.runs import config_of


def sgd():
  return fedavg(0.1, optimizer='sgd')


def gaussian_epsilon(multiplier: float, delta: float) -> float:
  """The exact epsilon of one Gaussian mechanism (Balle and Wang, 2018, Theorem 8): delta(eps) solved for eps."""

  def excess(eps):
    a, b = 1 / (2 * multiplier), eps * multiplier
    return stats.norm.cdf(a - b) - math.exp(eps) * stats.norm.cdf(-a - b) - delta

  return optimize.brentq(excess, 1e-6, 200)


@pytest.mark.parametrize(('multiplier', 'rounds'), [(2.0, 1), (5.0, 1), (20.0, 100)])
def test_epsilon_without_sampling_is_just_above_the_exact_one(multiplier, rounds):
  """T rounds of noise z are one of z / sqrt(T); a bound by Renyi divergences may lie above it, by a quarter at most."""
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


@pytest.mark.parametrize('sampler', [pytest.param('fixed', marks=pytest.mark.slow), 'poisson'])
def test_the_noise_for_a_target_keeps_it_and_hardly_more(sampler):
  sampling = Sampling(sampler, 100, 0.2, 60)
  noise = privacy.noise_multiplier(8.0, 1e-5, sampling)
  got = privacy.epsilon(Mechanism(noise, 1e-5), sampling)
  assert 7.8 < got <= 8.0
  assert privacy.epsilon(Mechanism(noise * 0.95, 1e-5), sampling) > 8.0


def test_a_target_in_the_config_becomes_a_noise_multiplier():
  config = config_lib.get_default()
  config.algorithm, config.rounds = 'dp+dynafed', 60
  config.dp.target_epsilon = 8.0
  resolved = config_lib.check(config)
  sampling = Sampling('fixed', 80, 0.4, 60)
  assert privacy.epsilon(Mechanism(resolved.dp.noise_multiplier, 1e-5), sampling) <= 8.0
  assert resolved.dp.noise_multiplier > 1.0
  config.dp.target_epsilon = 1e-4
  with pytest.raises(config_lib.ConfigError, match='epsilon=0.0001'):
    config_lib.check(config)


def quadratic(method, seed=0):
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  return engine.run(seed, engine.init(seed), 1)


def test_updates_are_clipped_by_hand():
  """A moves -0.5 and B 2.625: with C = 1 they are -0.5 and 1, their mean 0.25; one of two was clipped."""
  base = lambda: fedavg(0.5, optimizer='sgd', batch_size=1)
  state, report = quadratic(dp(base(), clip=1.0, noise_multiplier=0.0))
  np.testing.assert_allclose(state.params['w'], 1.25, rtol=1e-6)
  np.testing.assert_allclose(report['dp/clipped'], 0.5)
  np.testing.assert_allclose(report['dp/norm'], (0.5 + 2.625) / 2, rtol=1e-6)
  state, _ = quadratic(dp(base(), clip=100.0, noise_multiplier=0.0))
  np.testing.assert_allclose(state.params['w'], 2.0625, rtol=1e-6)  # FedAvg


def test_the_clip_bound_holds_over_all_leaves_together():
  """Two clients in a net with three leaves: twice the mean of the clipped updates is at most 2 C long."""
  method = dp(fedavg(5.0, optimizer='sgd', batch_size=4), clip=0.3, noise_multiplier=0.0)
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([6, 0]))
  before = jax.tree.map(np.array, engine.init(0).params)
  after = engine.run(0, engine.init(0), 1)[0].params
  moved = [a - b for a, b in zip(*map(jax.tree.leaves, (after, before)), strict=True)]
  norm = np.sqrt(sum(float((m**2).sum()) for m in moved))
  np.testing.assert_allclose(
    norm, 0.3 / 2, rtol=1e-4
  )  # of the expected two clients one has samples


def test_the_noise_on_the_mean_has_its_scale():
  """z C / clients = 3 * 2 / 2 on every parameter, drawn anew by every seed: 400 draws know it to 5 %, three sigmas are 11 %."""
  base = fedavg(0.5, optimizer='sgd', batch_size=1)
  method = dp(base, clip=2.0, noise_multiplier=3.0)
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  w = [float(engine.run(seed, engine.init(seed), 1)[0].params['w']) for seed in range(400)]
  np.testing.assert_allclose(np.std(w), 3.0, rtol=0.11)
  np.testing.assert_allclose(np.mean(w), 1 + (-0.5 + 2.0) / 2, atol=0.5)


def test_clients_that_send_more_than_their_update_are_refused_in_one_line():
  """Before any round: control variates with the update, or averaged samples before round 1 (without noise)."""
  for method, line in (
    (dp(scaffold()), "'dp' protects updates only, .* also send scaffold"),
    (scaffold(dp()), "'dp' protects updates only, .* also send scaffold"),
    (dp(fedmix()), "'dp' protects updates only, and 'fedmix' sends something of every client"),
  ):
    with pytest.raises(ValueError, match=line):
      tiny.build(method, tiny.net(4, 3), tiny.federated([6, 3]))


@pytest.mark.parametrize('other', [feddf, fedbe])
@pytest.mark.parametrize('layer', [dp, lambda base=None: fednova(base or sgd())])
def test_servers_that_look_at_each_update_are_refused(layer, other):
  """Their teachers are single clients' models: without noise, or what FedNova made of them."""
  for build in (lambda: layer(other(sgd())), lambda: other(layer())):
    with pytest.raises(ValueError, match="looks at each client's model by itself"):
      build()


@pytest.mark.parametrize('layer', [fedavgm, lambda base: fedopt(base, optimizer='sgd', lr=1.0)])
@pytest.mark.parametrize('order', [lambda layer: layer(dp(sgd())), lambda layer: dp(layer(sgd()))])
def test_an_empty_round_moves_the_model_too(layer, order):
  """With a hundredth of two clients a round is nearly always empty: a model that stood still would tell so."""
  engine = tiny.build(
    order(layer),
    tiny.quadratic(1.0),
    tiny.two_points(),
    loss=tiny.half_square,
    participation=0.01,
    sampler='poisson',
  )
  state = engine.init(0)
  for _ in range(3):
    before = float(state.params['w'])
    state, report = engine.run(0, state, 1)
    assert float(state.params['w']) != before


@pytest.mark.parametrize(
  ('clients', 'participation', 'drawn'), [(15, 0.1, 1), (30, 0.25, 7), (100, 0.29, 29), (3, 0.1, 1)]
)
def test_as_many_clients_are_accounted_for_as_are_drawn(clients, participation, drawn):
  """15 * 0.1 is one client, not the two that rounding to even would make of 1.5."""
  slots, _ = SAMPLERS['fixed'](clients, participation)
  event, _ = privacy._event(Mechanism(1.0, 1e-5), Sampling('fixed', clients, participation, 1))
  assert slots == event.event.sample_size == drawn


def test_what_a_run_could_not_state_is_refused_before_it(monkeypatch):
  noised = Mechanism(1.0, 1e-5)
  for mechanism in (None, noised._replace(noise_multiplier=0.0)):
    privacy.check(mechanism, 'W/checkpoints/5')
  privacy.check(noised, '')
  with pytest.raises(ValueError, match="start_from='W/checkpoints/5'.*leave out"):
    privacy.check(noised, 'W/checkpoints/5')
  monkeypatch.setitem(sys.modules, 'dp_accounting', None)
  with pytest.raises(ValueError, match='privacy extra'):
    privacy.check(noised, '')


def test_a_run_without_the_accounting_ends_before_it_begins(monkeypatch, tmp_path, capsys):
  monkeypatch.setitem(sys.modules, 'dp_accounting', None)
  config = config_of(algorithm='dp', seeds=(0,))
  assert experiment.run_experiment(config, tmp_path / 'run') == 2
  assert 'privacy extra' in capsys.readouterr().err and not (tmp_path / 'run').exists()
