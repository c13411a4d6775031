"""Layers around layers: what may stand around what, and that each means the same there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedjax_syn.method import ServerTransform

from fedjax_syn.algorithms.abavg import abavg
from fedjax_syn.algorithms.ditto import ditto
from fedjax_syn.algorithms.dp import dp
from fedjax_syn.algorithms.dynafed import dynafed
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.algorithms.fedavgm import fedavgm
from fedjax_syn.algorithms.fedbe import fedbe
from fedjax_syn.algorithms.fedcog import fedcog
from fedjax_syn.algorithms.feddf import feddf
from fedjax_syn.algorithms.feddm import feddm
from fedjax_syn.algorithms.fedexp import fedexp
from fedjax_syn.algorithms.fedgen import fedgen
from fedjax_syn.algorithms.fednova import fednova
from fedjax_syn.algorithms.fedopt import fedopt
from fedjax_syn.algorithms.fedprox import fedprox
from fedjax_syn.algorithms.fedreg import fedreg
from fedjax_syn.algorithms.fedrep import fedrep
from fedjax_syn.algorithms.fedsam import fedsam
from fedjax_syn.algorithms.scaffold import scaffold
from fedjax_syn.typing import Variables
from tests import tiny


def sgd(**fields):
  return fedavg(0.5, optimizer='sgd', batch_size=1, **fields)


@pytest.mark.parametrize(
  ('build', 'line'),
  [
    *((lambda layer=layer: fedrep(layer(sgd())), 'use fedrep.') for layer in (ditto, dp, fedexp)),
    (lambda: fedreg(fedrep(sgd())), 'use fedreg.fedrep'),
    (lambda: feddf(feddm()), "'feddf' looks at each client's model, but 'feddm' sends none"),
    *(
      (build, 'keeps a part on the client')
      for layer in (feddf, fedbe, fedgen, abavg)
      for build in (lambda l=layer: l(fedrep(sgd())), lambda l=layer: fedrep(l(sgd())))
    ),
    (lambda: fedexp(fednova(sgd())), 'both replace the aggregation'),
    (lambda: fednova(fedexp(sgd())), 'both replace the aggregation'),
    (lambda: fednova(sgd(momentum=0.9, persistent=True)), 'client.persistent=False'),
    (lambda: fednova(fedreg(sgd())), "'fednova' counts gradients at the model of each step"),
    (lambda: fedreg(fednova(sgd())), "'fednova' counts gradients at the model of each step"),
    *(
      (build, "use scaffold.correction='gradient' or client.momentum=0")
      for build in (
        lambda: fednova(scaffold(sgd(momentum=0.9), correction='step')),
        lambda: scaffold(fednova(sgd(momentum=0.9)), correction='step'),
      )
    ),
    (lambda: fednova(fedrep(sgd(momentum=0.9))), 'use client.momentum=0'),
    (lambda: fedprox(fedrep(fednova(sgd()))), 'without fedprox'),
    (
      lambda: fednova(fedcog(fedprox(sgd()), start=1)),
      "use fedcog.weights='fixed', or put fedprox around",
    ),
  ],
)
def test_what_has_no_meaning_is_refused(build, line):
  with pytest.raises(ValueError, match=line):
    build()


def test_what_fednova_can_count_is_accepted():
  for method in (
    fednova(scaffold(sgd(momentum=0.9))),
    fednova(scaffold(sgd(), correction='step')),
    fednova(fedrep(sgd())),
    fednova(fedcog(fedprox(sgd()), start=1, weights='fixed')),
    fednova(fedprox(fedcog(sgd(), start=1))),
    fednova(ditto(fedsam(sgd(momentum=0.9, weight_decay=1e-4)))),
  ):
    assert 'fednova' in method.name


def test_fedexp_extrapolates_the_clients_mean_whatever_the_server_does_with_it():
  """Both clients hold the same point, so that they agree, eta_g is 1 and FedOpt's step of 0.1 is a tenth of the mean's:
  w = 1, x = 0, one step of 1/2 to 0.5: 1 - 0.1 * 0.5 = 0.95, in either order."""
  x = np.zeros((2, 1, 1, 1), np.uint8)
  data = tiny.clients_of(x, np.zeros(2, int), [1, 1], 1)
  opt = lambda base: fedopt(base, optimizer='sgd', lr=0.1)
  for method in (opt(fedexp(sgd())), fedexp(opt(sgd()))):
    engine = tiny.build(method, tiny.quadratic(1.0), data, loss=tiny.half_square)
    state, report = engine.run(0, engine.init(0), 1)
    np.testing.assert_allclose(report['fedexp/server_step'], 1.0)
    np.testing.assert_allclose(state.params['w'], 0.95, rtol=1e-6)


def test_dynafed_records_the_models_that_go_down():
  """With momentum around it, too: the trajectory is that of the global model, not of the clients' means."""
  method = fedavgm(dynafed(sgd(), length=4, segment=2, iterations=1), momentum=0.9)
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 3]))
  state, path = engine.init(0), []
  for _ in range(4):
    path.append(np.asarray(state.params['w0']))
    state, _ = engine.run(0, state, 1)
  path.append(np.asarray(state.params['w0']))
  state, done, _ = engine.between(0, state, 60.0)
  assert done
  np.testing.assert_array_equal(state.server['dynafed'].trajectory['w0'], path)


def test_the_outermost_learned_set_is_the_method_s():
  def layer(number):
    return lambda task: ServerTransform(
      f'set{number}',
      init=lambda key, params, enrolled: jnp.zeros(()),
      synthetic=lambda state: {'number': number} if number < 3 else None,
    )

  method = sgd()
  for number in (1, 2, 3):
    method = method.extend(f'set{number}', server=layer(number))
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([3, 3]))
  assert engine.synthetic(engine.init(0)) == {'number': 2}


def test_a_branch_begins_with_the_old_model_everywhere():
  """FedRep's heads and Ditto's models are those of the model that the run begins at, not of a new one."""
  model, data = tiny.net(4, 3), tiny.federated([3, 3])
  old = jax.tree.map(lambda leaf: leaf + 1.0, model.init(jax.random.key(3)))
  for method in (fedrep(sgd()), ditto(sgd())):
    engine = tiny.build(method, model, data)
    state = engine.init(0, Variables(*old))
    own = jax.tree.leaves(state.clients[method.name])
    wanted = jax.tree.leaves(old.params)
    for leaf in own:
      assert any(np.array_equal(leaf[1], w) for w in wanted)
