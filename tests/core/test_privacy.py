"""Differential privacy: the clip bound, the noise's scale, who is refused, targets in configs."""

import sys

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.core import privacy
from fedjax_syn.core.privacy import Mechanism, Sampling
from fedjax_syn.runs import experiment
from tests import tiny
from tests.run_helpers import config_of


def sgd():
  return fs.FedAvg(lr=0.1, optimizer='sgd')


def test_noise_that_float32_rounds_to_nothing_is_refused():
  """Updates as short as C = 1e-38 with z = 0.01 get no noise: it is below all normal numbers.

  The field refuses such a C.
  """
  with pytest.raises(ValueError, match='dp.clip=1e-38: numbers from 1e-30'):
    fs.DP(clip=1e-38)
  for clip in (1e-28, 1e-29):
    with pytest.raises(ValueError, match=f'dp.clip={clip:g}: noise of deviation'):
      fs.chain(fs.DP(clip=clip, noise_multiplier=1e-3))
  fs.chain(fs.DP(clip=1e-29, noise_multiplier=0.0))
  fs.chain(fs.DP(clip=1e-20, noise_multiplier=1e-3))
  config = config_of(algorithm='feddualmatch', compare='')
  config.feddualmatch.clip, config.feddualmatch.sigma_s = 1e-29, 1e-2
  with pytest.raises(config_lib.ConfigError, match='feddualmatch.clip=1e-29: noise of deviation'):
    config_lib.check(config)


@pytest.mark.parametrize('noise', [1e-200, 1e-160, 1e-30, 9e-4, 2e4])
def test_noise_of_which_nothing_can_be_stated_is_refused_before_any_work(noise, tmp_path, capsys):
  """1e-160 was stated as epsilon 0.0, 1e-200 was a traceback after training."""
  changes = {'algorithm': 'dp', 'compare': '', 'dp.noise_multiplier': noise}
  assert experiment.run_experiment(config_of(**changes), tmp_path / 'run') == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1 and f'noise_multiplier={noise:g}' in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('compare', 'seeds'), [('', (0,)), ('', (0, 1, 2)), ('dp', (0, 1, 2)), ('dp,dp+scaffold', (0,))]
)
def test_a_target_in_the_config_is_kept_by_the_whole_run(compare, seeds):
  """All seeds, and what it is compared with: 40 % of 80 clients, 60 rounds."""
  config = config_lib.get_default()
  config.algorithm, config.compare, config.rounds, config.seeds = 'dp+dynafed', compare, 60, seeds
  config.client.sampler, config.dp.target_epsilon = 'poisson', 8.0
  noise = config_lib.check(config).dp.noise_multiplier
  runs = [(Mechanism(noise, 1e-5), Sampling('poisson', 80, 0.4, 60, len(seeds)))]
  assert 7.8 < privacy.composed(runs * (1 + len(compare.split(',')) if compare else 1)) <= 8.0
  config.dp.target_epsilon = 1e-4
  with pytest.raises(config_lib.ConfigError, match='epsilon=0.0001'):
    config_lib.check(config)


def quadratic(method, seed=0):
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  return engine.run(seed, engine.init(seed), 1)


def test_updates_are_clipped_by_hand():
  """A moves -0.5 and B 2.625. With C = 1 these become -0.5 and 1, so one of two was clipped.

  Their mean is 0.25.
  """
  base = lambda: fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1)
  state, report = quadratic(fs.chain(base(), fs.DP(clip=1.0, noise_multiplier=0.0)))
  np.testing.assert_allclose(state.params['w'], 1.25, rtol=1e-6)
  np.testing.assert_allclose(report['dp/clipped'], 0.5)
  np.testing.assert_allclose(report['dp/norm'], (0.5 + 2.625) / 2, rtol=1e-6)
  state, _ = quadratic(fs.chain(base(), fs.DP(clip=100.0, noise_multiplier=0.0)))
  np.testing.assert_allclose(state.params['w'], 2.0625, rtol=1e-6)  # FedAvg


def test_the_clip_bound_holds_over_all_leaves_together():
  """Two clients train a net with three leaves.

  Twice the mean of the clipped updates is at most 2 C long.
  """
  method = fs.chain(
    fs.FedAvg(lr=5.0, optimizer='sgd', batch_size=4), fs.DP(clip=0.3, noise_multiplier=0.0)
  )
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([6, 0]))
  before = jax.tree.map(np.array, engine.init(0).params)
  after = engine.run(0, engine.init(0), 1)[0].params
  moved = [a - b for a, b in zip(*map(jax.tree.leaves, (after, before)), strict=True)]
  norm = np.sqrt(sum(float((m**2).sum()) for m in moved))
  np.testing.assert_allclose(
    norm, 0.3 / 2, rtol=1e-4
  )  # of the expected two clients one has samples


def test_the_noise_on_the_mean_has_its_scale():
  """Every parameter gets noise of scale z C / clients = 3 * 2 / 2; every seed draws its own.

  400 draws know the scale to 5 %, and three sigmas are 11 %.
  """
  base = fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1)
  method = fs.chain(base, fs.DP(clip=2.0, noise_multiplier=3.0))
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  w = [float(engine.run(seed, engine.init(seed), 1)[0].params['w']) for seed in range(400)]
  np.testing.assert_allclose(np.std(w), 3.0, rtol=0.11)
  np.testing.assert_allclose(np.mean(w), 1 + (-0.5 + 2.0) / 2, atol=0.5)


def test_clients_that_send_more_than_their_update_are_refused_in_one_line():
  """The refusal comes before any round.

  One method sends control variates with the update. The other sends averaged samples before
  round 1, without noise.
  """
  for method, line in (
    (fs.chain(fs.SCAFFOLD(), fs.DP()), "'dp' protects updates only, .* also send scaffold"),
    (fs.chain(fs.DP(), fs.SCAFFOLD()), "'dp' protects updates only, .* also send scaffold"),
    (
      fs.chain(fs.FedMix(), fs.DP()),
      "'dp' protects updates only, and 'fedmix' sends something of every client",
    ),
  ):
    with pytest.raises(ValueError, match=line):
      tiny.build(method, tiny.net(4, 3), tiny.federated([6, 3]))


@pytest.mark.parametrize('other', [fs.FedDF, fs.FedBE])
@pytest.mark.parametrize('layer', [fs.DP, fs.FedNova])
def test_servers_that_look_at_each_update_are_refused(layer, other):
  """Their teachers are single clients' models: without noise, or what FedNova made of them."""
  for layers in ((other(), layer()), (layer(), other())):
    with pytest.raises(ValueError, match="looks at each client's message by itself"):
      fs.chain(sgd(), *layers)


@pytest.mark.parametrize('layer', [fs.FedAvgM(), fs.FedOpt(optimizer='sgd', lr=1.0)])
@pytest.mark.parametrize('first', [True, False])
def test_an_empty_round_moves_the_model_too(layer, first):
  """With a hundredth of two clients a round is nearly always empty.

  A model that did not move would reveal that.
  """
  layers = (layer, fs.DP()) if first else (fs.DP(), layer)
  engine = tiny.build(
    fs.chain(sgd(), *layers),
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


def test_what_a_run_could_not_state_is_refused_before_it(monkeypatch):
  noised = Mechanism(1.0, 1e-5)
  config = config_lib.check(config_of(algorithm='dp', compare=''))
  branch = config_lib.check(config_of(algorithm='dp', compare='', start_from='W/checkpoints/5'))
  for mechanism in (None, noised._replace(noise_multiplier=0.0)):
    privacy.check_config(branch, {'dp': mechanism})
  privacy.check_config(config, {'dp': noised})
  with pytest.raises(ValueError, match="start_from='W/checkpoints/5'.*begin with noise in round 1"):
    privacy.check_config(branch, {'dp': noised})
  monkeypatch.setitem(sys.modules, 'dp_accounting', None)
  with pytest.raises(ValueError, match='privacy extra'):
    privacy.check_config(config, {'dp': noised})


def test_a_run_without_the_accounting_ends_before_it_begins(monkeypatch, tmp_path, capsys):
  monkeypatch.setitem(sys.modules, 'dp_accounting', None)
  config = config_of(algorithm='dp', seeds=(0,))
  assert experiment.run_experiment(config, tmp_path / 'run') == 2
  assert 'privacy extra' in capsys.readouterr().err and not (tmp_path / 'run').exists()
