"""FedAvg in numpy (McMahan et al., 2017, Algorithm 1).

Clients make shuffled passes with partial batches; the server takes a weighted mean.
"""

import pytest

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedavg',)
CASES = {
  'sgd': ('sgd', {'momentum': 0.9, 'weight_decay': 0.01, 'epochs': 2, 'weighting': 'size'}),
  'adam': ('adam', {'weight_decay': 0.01, 'epochs': 0, 'steps': 3, 'persistent': True}),
}


@pytest.mark.parametrize('name', CASES)
def test_two_rounds(name):
  optimizer, options = CASES[name]
  lr, batch = 0.1, 3
  method = fs.FedAvg(
    lr=lr, optimizer=optimizer, batch_size=batch, schedule='exponential(0.5)', **options
  )
  path = lib.rounds(method, 2)

  w, decay = lib.W0, options['weight_decay']
  if name == 'sgd':
    new = lambda: tiny.Sgd(lr, options['momentum'], decay)
  else:
    new = lambda: tiny.Adam(lr, decay=decay)
  passes = {'epochs': options['epochs'], 'steps': options.get('steps', 0)}
  weights = lib.SIZES if options.get('weighting') == 'size' else None
  optimizers = [new() for _ in lib.CLIENTS]
  for number in (1, 2):
    trained = []
    for k in lib.CLIENTS:
      if not options.get('persistent'):
        optimizers[k] = new()
      optimizers[k].lr = lr * 0.5 ** (number - 1)
      drawn = lib.batches(lib.client_key(number, k), k, batch_size=batch, **passes)
      trained.append(tiny.train(w, drawn, optimizers[k]))
    w = tiny.average(trained, weights)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
