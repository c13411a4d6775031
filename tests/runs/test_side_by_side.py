"""Runs side by side: what each of them comes to by itself, for fewer programs."""

import types

import chex
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.runs import progress
from fedjax_syn.runs.side_by_side import stack
from tests.tiny import build, federated, net

ARGUMENTS = {
  'rounds': 3,
  'clients': 4,
  'partition': 'dirichlet',
  'alpha': 0.3,
  'participation': 0.5,
  'layout': fs.Layout(devices=1),
}
BASE = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=64)


def test_every_combination_and_seed_is_what_it_is_alone():
  values = {'fedprox.mu': (0.0, 1.0), 'client.lr': (0.1, 0.02)}
  runs = fs.sweep(fs.chain(BASE, fs.FedProx()), values, 'digits', 'mlp', seeds=(0, 1), **ARGUMENTS)
  pairs = [(mu, lr) for mu in (0.0, 1.0) for lr in (0.1, 0.02)]
  wanted = [({'fedprox.mu': mu, 'client.lr': lr}, seed) for mu, lr in pairs for seed in (0, 1)]
  assert [(run.values, run.seed) for run in runs] == wanted
  for run in (runs[0], runs[-1]):
    base = fs.FedAvg(lr=run.values['client.lr'], optimizer='sgd', batch_size=64)
    method = fs.chain(base, fs.FedProx(mu=run.values['fedprox.mu']))
    alone = fs.run(method, 'digits', 'mlp', seeds=(run.seed,), **ARGUMENTS)
    assert [line['round'] for line in run.history] == [0, 1, 2, 3]
    for line, other in zip(run.history, alone.history, strict=True):
      assert line['seed'] == run.seed
      np.testing.assert_allclose(line['test/loss'], other['test/loss'], rtol=1e-5)
    chex.assert_trees_all_close(run.variables, alone.variables[run.seed], atol=1e-5)


def test_a_run_that_diverges_leaves_the_others_alone(monkeypatch):
  """The bar continues to the end."""
  shown = []
  show = types.SimpleNamespace(
    doing=lambda text: None,
    compiling=lambda program: None,
    begin=lambda *given: shown.append(given),
    rounds=lambda done, report: shown.append(done),
    end=lambda: shown.append('end'),
    close=lambda: shown.append('closed'),
  )
  monkeypatch.setattr(progress, 'of_python', lambda wanted: show)
  method = fs.chain(fs.FedAvg(optimizer='sgd', batch_size=64))
  runs = fs.sweep(method, {'client.lr': (0.1, 1e20)}, 'digits', 'mlp', **ARGUMENTS)
  fine, diverged = runs
  assert shown == [('fedavg, 2 runs side by side', 3, 0), 0, 1, 2, 3, 'end', 'closed']
  assert diverged.variables is None and diverged.history[-1]['round'] < 3
  alone = fs.run(BASE, 'digits', 'mlp', **ARGUMENTS)
  assert fine.history[-1]['round'] == 3
  np.testing.assert_allclose(
    fine.history[-1]['test/loss'], alone.history[-1]['test/loss'], rtol=1e-5
  )


def test_chains_are_stacked_where_they_differ():
  chains = [fs.chain(fs.FedAvg(lr=0.5), fs.FedProx(mu=mu)) for mu in (0.25, 0.5)]
  one = stack(chains)
  np.testing.assert_array_equal(one[fs.FedProx].mu, [0.25, 0.5])
  assert one[fs.FedAvg].lr == 0.5


@pytest.mark.parametrize(
  ('method', 'values', 'words'),
  [
    (fs.FedProx(), {'fedprox.nu': (1.0,)}, "'fedprox.nu' is no traced field.*fedprox.mu"),
    (fs.MOON(), {'moon.projection': (1,)}, "'moon.projection' is no traced field"),
    (fs.FedProx(), {'fedprox.mu': ()}, r'fedprox.mu=\(\) must be a sequence'),
    (fs.FedProx(), {'fedprox.mu': (0.1, -1.0)}, 'fedprox.mu=-1.0: must be at least'),
    (fs.DynaFed(), {'dynafed.image_lr': (0.1,)}, "'dynafed' works between rounds"),
    (fs.FedProx(), {'fedprox.mu': '12'}, "fedprox.mu='12' must be a sequence"),
    (fs.DP(), {'dp.clip': (0.1, 1.0)}, "'dp' adds noise, and no epsilon"),
    (fs.DP(noise_multiplier=0.0), {'dp.noise_multiplier': (0.0, 1.0)}, "'dp' adds noise, and no"),
    (fs.DP(noise_multiplier=0.0), {'dp.target_epsilon': (0.0, 2.0)}, "'dp' adds noise, and no"),
  ],
  ids=lambda value: str(value)[:20],
)
def test_refusals_are_one_line(method, values, words):
  with pytest.raises(ValueError, match=words) as caught:
    fs.sweep(method, values, 'digits', 'mlp', **ARGUMENTS)
  assert '\n' not in str(caught.value)


def test_values_come_as_an_array_too():
  method = fs.chain(BASE, fs.FedProx())
  runs = fs.sweep(method, {'fedprox.mu': np.array([0.0, 1.0])}, 'digits', 'mlp', **ARGUMENTS)
  assert [run.values for run in runs] == [{'fedprox.mu': 0.0}, {'fedprox.mu': 1.0}]


def test_another_value_does_not_turn_noise_on_or_off():
  engine = build(fs.chain(BASE, fs.DP(noise_multiplier=1.0)), net(4, 3), federated([3, 2]))
  other = engine.with_values(engine.chain.replace(dp={'noise_multiplier': 2.0}))
  assert (engine.mechanism.noise_multiplier, other.mechanism.noise_multiplier) == (1.0, 2.0)
  with pytest.raises(ValueError, match='only one of the two adds noise; make another Engine'):
    engine.with_values(engine.chain.replace(dp={'noise_multiplier': 0.0}))
  with pytest.raises(ValueError, match='a static field differs'):
    engine.with_values(engine.chain.replace(fedavg={'epochs': 2}))


def test_several_numbers_are_no_method_of_an_engine():
  method = fs.chain(BASE, fs.FedProx(mu=np.array([0.1, 0.2])))
  with pytest.raises(ValueError, match=r'fedprox.mu: an array of shape \(2,\); one number would'):
    build(method, net(4, 3), federated([3, 2]))
