"""FedDualMatch's differential privacy: bounds, noise, sensitivity, epsilon and its exact value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.core import privacy
from fedjax_syn.core.contexts import Run
from tests import tiny
from tests.algorithms.set_sharing.test_rounds import ONE, SMALL, SOME, data, net, updated
from tests.core.test_accountant import gaussian_epsilon
from tests.run_fixtures import put_stubs


def settings(**fields):
  config = config_lib.get_default()
  config.algorithm, config.compare, config.rounds = 'feddualmatch', '', 7
  for name, value in fields.items():
    config.feddualmatch[name] = value
  return config


def mechanism_of(**fields):
  engine = tiny.build(fs.FedDualMatch(**SMALL, **fields), net(), data())
  return engine.mechanism


def test_features_are_cut_to_the_bound_and_short_ones_stay():
  """(3, 4) with (12) has norm 13: C = 6.5 halves it. (0.3, 0.4) with (1.2) stays.

  Zeros have a finite gradient.
  """
  layers = lambda x: (x[:, :2, None], x[:, 2:])
  x = jnp.array([[3.0, 4.0, 12.0], [0.3, 0.4, 1.2], [0.0, 0.0, 0.0]])
  a, b = dm.bounded(layers, 6.5)(x)
  np.testing.assert_allclose(a[..., 0], [[1.5, 2], [0.3, 0.4], [0, 0]], rtol=1e-6)
  np.testing.assert_allclose(b, [[6], [1.2], [0]], rtol=1e-6)
  slope = jax.grad(lambda x: sum(z.sum() for z in dm.bounded(layers, 6.5)(x)))(x)
  assert np.isfinite(slope).all()
  np.testing.assert_allclose(slope[2], 1.0)


def test_one_sample_moves_a_class_s_sum_by_at_most_twice_the_bound():
  """Whatever the sample is exchanged for: the sensitivity that epsilon is computed from."""
  model, found = net(), data()
  variables = model.init(jax.random.key(0))
  from fedjax_syn.data import federated

  embed = dm.bounded(lambda x: dm.layers(model, variables, x, 'pooled'), 0.5)
  shard = federated.shard_of(found, jnp.int32(ONE))
  sums = lambda d: [np.asarray(z)[3] * 30 for z in dm.class_means(d, shard, embed)]
  before, moved = sums(found), []
  for value in (0, 255):
    after = sums(found._replace(x=found.x.at[310].set(value)))
    moved.append(np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))))
  assert 0.1 < max(moved) <= 2 * 0.5 + 1e-4


def test_noise_on_class_means_has_its_scale():
  """sigma 3, C = 2: the noise on the sum is 6. Absent classes have none.

  The mean of four samples gets 6 / 4, that of one sample 6.
  """
  counts = jnp.array([4, 0, 1])
  means = (jnp.zeros((3, 40, 100)), jnp.zeros((3, 3000)))
  for layer in dm.noised_means(jax.random.key(0), means, counts, dm.Noise(2.0, 3.0)):
    np.testing.assert_allclose(layer[0].std(), 1.5, rtol=0.05)
    np.testing.assert_allclose(layer[2].std(), 6.0, rtol=0.05)
    np.testing.assert_array_equal(layer[1], 0)


@pytest.mark.parametrize('sigma', [4.0, 20.0])
def test_epsilon_agrees_with_the_exact_one(sigma):
  """T = 7 releases of noise sigma C, which one exchange of a sample moves by 2 C.

  Together they are one Gaussian of sigma / (2 sqrt 7).
  """
  found = mechanism_of(clip=1.0, sigma_s=sigma)
  assert found == privacy.Mechanism(sigma, 1e-5, 'example', 1)
  exact = gaussian_epsilon(sigma / 2 / np.sqrt(7), 1e-5)
  for sampler, share in (('fixed', 1.0), ('fixed', 0.3), ('poisson', 0.3)):  # sampling hides nobody
    got = privacy.epsilon(found, privacy.Sampling(sampler, 10, share, 7))
    assert exact < got < 1.25 * exact


def test_the_paper_s_form_and_its_honest_epsilon():
  """Client ALL has 10 classes of 4 images and matches in 2 stages of 15 iterations.

  The noise is sigma / 40 on a gradient that moves by 2 C. Seven rounds are 210 releases. For
  sigma = 4000 they are one Gaussian of 4000 / 40 / 2 / sqrt(210) = 3.45.
  """
  found = mechanism_of(clip=1.0, sigma_s=4000.0, clipping='set')
  assert found == privacy.Mechanism(100.0, 1e-5, 'example', 30)
  exact = gaussian_epsilon(100 / 2 / np.sqrt(210), 1e-5)
  sampling = privacy.Sampling('fixed', 10, 1.0, 7)
  assert exact < privacy.epsilon(found, sampling) < 1.25 * exact
  # The same noise multiplier as in the other form costs orders of magnitude more.
  paper = privacy.epsilon(mechanism_of(clip=1.0, sigma_s=4.0, clipping='set'), sampling)
  assert paper > 1000 * privacy.epsilon(mechanism_of(clip=1.0, sigma_s=4.0), sampling)


def test_before_the_data_are_read_the_paper_s_form_only_has_noise():
  """The multiplier and the releases follow from the clients' classes, which are not known yet."""
  found = fs.FedDualMatch(clip=1.0, sigma_s=1e-20, clipping='set').privacy(None)
  assert found == privacy.Mechanism(1e-20, 1e-5, 'example', releases=0) and privacy.promises(found)
  config = config_lib.check(settings())
  privacy.check_config(config, {'feddualmatch': found})
  with pytest.raises(ValueError, match="'feddualmatch' adds noise and 'fedavg' none"):
    privacy.check_config(config, {'feddualmatch': found, 'fedavg': None})
  of_clients = privacy.Mechanism(1.0, 1e-5)
  privacy.check_config(config, {'feddualmatch': found, 'dp': of_clients})
  known = fs.FedDualMatch(clip=1.0, sigma_s=1e-20).privacy(None)  # of the other form all is known
  with pytest.raises(ValueError, match='one epsilon cannot cover both'):
    privacy.check_config(config, {'feddualmatch': known, 'dp': of_clients})


def test_from_python_a_target_becomes_a_sigma_too():
  """The run's rounds and seeds decide. The chain refuses a target without a bound."""
  layer = fs.FedDualMatch(clip=1.0, target_epsilon=8.0)
  sampling = privacy.Sampling('fixed', 10, 1.0, 7, 3)
  (_, resolved) = fs.chain(layer).resolve(Run(7, sampling, ('feddualmatch',)))
  of = lambda sigma: privacy.epsilon(privacy.Mechanism(sigma, 1e-5, 'example'), sampling)
  assert of(resolved.sigma_s) <= 8.0 < of(0.95 * resolved.sigma_s)
  with pytest.raises(ValueError, match='target_epsilon=8.0: needs feddualmatch.clip'):
    fs.chain(fs.FedDualMatch(target_epsilon=8.0))


def test_more_noise_gives_a_smaller_epsilon_in_the_paper_s_form():
  sampling = privacy.Sampling('fixed', 10, 1.0, 7)
  few, many = (
    privacy.epsilon(mechanism_of(clip=1.0, sigma_s=s, clipping='set'), sampling)
    for s in (1.0, 50.0)
  )
  assert few > 2 * many


def test_without_noise_there_is_no_mechanism_worth_its_name():
  assert mechanism_of() is None
  assert mechanism_of(sigma_r=1.0) is None  # the sets are sent in the clear
  assert mechanism_of(clip=1.0) is None
  assert privacy.epsilon(None, privacy.Sampling('fixed', 10, 1.0, 7)) == np.inf


@pytest.mark.parametrize('seeds', [1, 3, 20])
def test_a_target_in_the_config_becomes_a_sigma(seeds):
  config = settings(clip=1.0, target_epsilon=8.0)
  config.seeds = tuple(range(seeds))
  resolved = config_lib.check(config)
  sampling = privacy.Sampling('fixed', 20, 0.4, 7, seeds)
  of = lambda sigma: privacy.epsilon(privacy.Mechanism(sigma, 1e-5, 'example'), sampling)
  sigma = resolved.blocks['feddualmatch'].sigma_s
  assert of(sigma) <= 8.0 < of(0.95 * sigma)
  for fields in ({'target_epsilon': 8.0}, {'target_epsilon': 8.0, 'clip': 1.0, 'clipping': 'set'}):
    with pytest.raises(config_lib.ConfigError, match='target_epsilon=8.0: needs') as error:
      config_lib.check(settings(**fields))
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('clipping', ['example', pytest.param('set', marks=pytest.mark.slow)])
def test_a_wide_bound_changes_nothing_and_noise_changes_what_is_sent(clipping):
  """With sigma 1,000 and C = 1 the set of client SOME is noise, far from its set without noise."""

  def sent(**fields):
    method = fs.FedDualMatch(**SMALL, **fields)
    engine = tiny.build(method, net(8), data())
    return updated(engine, SOME)[0].payload['feddualmatch']['x']

  plain, wide = sent(), sent(clip=1e6, clipping=clipping)
  np.testing.assert_allclose(plain, wide, rtol=0, atol=1e-4)
  noised = sent(clip=1.0, sigma_s=1e3, clipping=clipping)
  assert np.abs(noised - plain)[:5].max() > 1 and not np.abs(noised[5:]).any()


def test_a_run_states_epsilon_and_what_it_is_of(tmp_path, monkeypatch):
  from fedjax_syn.runs import experiment, stored_files

  quick = {'iterations': 1, 'matches': 1, 'match_steps': 1, 'server_steps': 2, 'server_batch': 8}
  config = settings(**SMALL | quick, clip=1.0, sigma_s=30.0)
  config.rounds, config.data.clients, config.client.participation = 2, 3, 1.0
  config.model.name, config.model.width, config.model.depth = 'mlp', 4, 2
  config.layout.devices = 1
  put_stubs(monkeypatch)
  assert experiment.run_experiment(config, tmp_path) == 0
  with np.load(tmp_path / 'synthetic' / 'synthetic.npz') as file:
    assert file['iterations'].tolist() == [2]  # one in each of two stages
  summary = stored_files.read_json(tmp_path / 'summary.json')
  exact = gaussian_epsilon(15 / np.sqrt(2), 1e-5)
  assert exact < summary['epsilon'] < 1.25 * exact
  assert summary['epsilon_per_seed'] == summary['epsilon']
  assert summary['privacy'] == {
    'noise_multiplier': 30.0,
    'delta': 1e-5,
    'unit': 'example',
    'releases': 1,
    'neighbours': 'one example exchanged for another of its class at the same client',
    'seeds': 1,
    'methods': 1,
  }
