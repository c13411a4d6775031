"""Chains of several layers: which are refused, and that a layer means the same in each chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.core.types import Variables
from tests import tiny


def sgd(**fields):
  return fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1, **fields)


@pytest.mark.parametrize(
  ('build', 'line'),
  [
    *(
      (lambda layer=layer: fs.chain(sgd(), layer(), fs.FedRep()), 'use fedrep.')
      for layer in (fs.Ditto, fs.DP, fs.FedExP)
    ),
    (lambda: fs.chain(sgd(), fs.FedRep(), fs.FedReg()), 'use fedreg.fedrep'),
    (
      lambda: fs.chain(fs.FedDM(), fs.FedDF()),
      "'feddf' looks at each client's model, but 'feddm' sends none",
    ),
    *(
      (build, 'keeps a part of the model on the clients')
      for layer in (fs.FedDF, fs.FedBE, fs.FedGen, fs.ABAVG)
      for build in (
        lambda l=layer: fs.chain(sgd(), fs.FedRep(), l()),
        lambda l=layer: fs.chain(sgd(), l(), fs.FedRep()),
      )
    ),
    (lambda: fs.chain(sgd(), fs.FedNova(), fs.FedExP()), 'both replace the aggregation'),
    (lambda: fs.chain(sgd(), fs.FedExP(), fs.FedNova()), 'both replace the aggregation'),
    (lambda: fs.chain(sgd(momentum=0.9, persistent=True), fs.FedNova()), 'client.persistent=False'),
    (
      lambda: fs.chain(sgd(), fs.FedReg(), fs.FedNova()),
      "'fednova' counts gradients at the model of each step",
    ),
    (
      lambda: fs.chain(sgd(), fs.FedNova(), fs.FedReg()),
      "'fednova' counts gradients at the model of each step",
    ),
    *(
      (build, "use scaffold.correction='gradient' or client.momentum=0")
      for build in (
        lambda: fs.chain(sgd(momentum=0.9), fs.SCAFFOLD(correction='step'), fs.FedNova()),
        lambda: fs.chain(sgd(momentum=0.9), fs.FedNova(), fs.SCAFFOLD(correction='step')),
      )
    ),
    (lambda: fs.chain(sgd(momentum=0.9), fs.FedRep(), fs.FedNova()), 'use client.momentum=0'),
    (lambda: fs.chain(sgd(), fs.FedNova(), fs.FedRep(), fs.FedProx()), 'without fedprox'),
    (
      lambda: fs.chain(sgd(), fs.FedProx(), fs.FedCOG(start=1), fs.FedNova()),
      "use fedcog.weights='fixed', or fedcog.fedprox",
    ),
  ],
)
def test_what_has_no_meaning_is_refused(build, line):
  with pytest.raises(ValueError, match=line):
    build()


def test_fedreg_must_be_inside_of_whatever_keeps_parameters_on_the_client():
  """By the hook, not by FedRep's name."""

  class Own(fs.Layer):
    def private(self, model, path):
      return model.is_head(path)

  with pytest.raises(ValueError, match="'fedreg' cannot come after 'own', .*; use fedreg.own"):
    fs.chain(sgd(), Own(), fs.FedReg())
  assert fs.chain(sgd(), fs.FedReg(), Own()).name == 'fedreg+own'


def test_what_fednova_can_count_is_accepted():
  for method in (
    fs.chain(sgd(momentum=0.9), fs.SCAFFOLD(), fs.FedNova()),
    fs.chain(sgd(), fs.SCAFFOLD(correction='step'), fs.FedNova()),
    fs.chain(sgd(), fs.FedRep(), fs.FedNova()),
    fs.chain(sgd(), fs.FedProx(), fs.FedCOG(start=1, weights='fixed'), fs.FedNova()),
    fs.chain(sgd(), fs.FedCOG(start=1), fs.FedProx(), fs.FedNova()),
    fs.chain(sgd(momentum=0.9, weight_decay=1e-4), fs.FedSAM(), fs.Ditto(), fs.FedNova()),
  ):
    assert 'fednova' in method.name


def test_fedexp_extrapolates_the_clients_mean_whatever_the_server_does_with_it():
  """Both clients hold the same point. So they agree, and eta_g is 1.

  FedOpt's step of 0.1 moves a tenth of the mean difference. w = 1, x = 0, one step of 1/2 to 0.5:
  1 - 0.1 * 0.5 = 0.95, in either order.
  """
  x = np.zeros((2, 1, 1, 1), np.uint8)
  data = tiny.clients_of(x, np.zeros(2, int), [1, 1], 1)
  opt, exp = fs.FedOpt(optimizer='sgd', lr=0.1), fs.FedExP()
  for layers in ((exp, opt), (opt, exp)):
    engine = tiny.build(fs.chain(sgd(), *layers), tiny.quadratic(1.0), data, loss=tiny.half_square)
    state, report = engine.run(0, engine.init(0), 1)
    np.testing.assert_allclose(report['fedexp/server_step'], 1.0)
    np.testing.assert_allclose(state.params['w'], 0.95, rtol=1e-6)


def test_dynafed_records_the_models_that_are_sent():
  """The trajectory holds global models, not the clients' means, with momentum after it too."""
  method = fs.chain(sgd(), fs.DynaFed(length=4, segment=2, iterations=1), fs.FedAvgM(momentum=0.9))
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 3]))
  state, path = engine.init(0), []
  for _ in range(4):
    path.append(np.asarray(state.params['w0']))
    state, _ = engine.run(0, state, 1)
  path.append(np.asarray(state.params['w0']))
  state, done, _ = engine.server_work(0, state, 60.0)
  assert done
  np.testing.assert_array_equal(state.server['dynafed'].trajectory['w0'], path)


def test_the_outermost_learned_set_is_the_method_s():
  class Set1(fs.Layer):
    number: int = 1

    def server_init(self, task, key, params, messages):
      return jnp.zeros(())

    def artifacts(self, task, state):
      return {'number': self.number} if self.number < 3 else None

  class Set2(Set1):
    pass

  class Set3(Set1):
    pass

  method = fs.chain(sgd(), Set1(), Set2(number=2), Set3(number=3))
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 3]))
  assert engine.artifacts(engine.init(0)) == {'number': 2}


def test_a_branch_begins_with_the_old_model_everywhere():
  """FedRep's heads and Ditto's models start from the run's old model, not from a new one."""
  model, data = tiny.net(4, 3), tiny.federated([3, 3])
  old = jax.tree.map(lambda leaf: leaf + 1.0, model.init(jax.random.key(3)))
  for method in (fs.chain(sgd(), fs.FedRep()), fs.chain(sgd(), fs.Ditto())):
    engine = tiny.build(method, model, data)
    state = engine.init(0, Variables(*old))
    own = jax.tree.leaves(state.clients[method.name])
    wanted = jax.tree.leaves(old.params)
    for leaf in own:
      assert any(np.array_equal(leaf[1], w) for w in wanted)


def test_every_method_is_known_with_a_line_and_by_its_name():
  names = algorithms.names()
  assert {'fedavg', 'scaffold', 'fedmix', 'fedopt', 'dynafed'} <= set(names)
  assert all(line and len(line) < 130 for line in names.values())
  assert algorithms.layer_class('scaffold') is fs.SCAFFOLD
  assert fs.chain(fs.FedAvg(), fs.SCAFFOLD()).name == 'scaffold'
  assert fs.chain(fs.SCAFFOLD(), fs.FedMix()).name == 'scaffold+fedmix'


def test_compositions_are_refused_in_one_line():
  with pytest.raises(ValueError, match=r"'scaffold\+fedmix\+scaffold': 'scaffold' is given twice"):
    fs.chain(fs.SCAFFOLD(), fs.FedMix(), fs.SCAFFOLD())

  class Keeps(fs.Layer):
    def aggregate(self, round):
      return round.params, {}

  class AlsoKeeps(Keeps):
    pass

  with pytest.raises(ValueError, match='both replace the aggregation'):
    fs.chain(Keeps(), AlsoKeeps())
