"""FedRep in numpy (Collins et al., 2021, Algorithm 1).

Clients train their own head first, then the representation. The server averages representations.
"""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedrep',)
HEAD_EPOCHS, MOMENTUM, DECAY = 2, 0.5, 0.02


def only(part):
  """SGD that moves, and knows of, some of the coordinates."""
  sgd = tiny.Sgd(lib.RATE, MOMENTUM, DECAY)

  def step(w, g):
    w = w.copy()
    w[part] = sgd(w[part], g[part])
    return w

  return step


def test_two_rounds():
  path = lib.rounds(
    fs.chain(lib.base(momentum=MOMENTUM, weight_decay=DECAY), fs.FedRep(head=HEAD_EPOCHS)), 2
  )
  w = lib.W0
  heads = [lib.W0[tiny.HEAD]] * len(lib.SIZES)
  for number in (1, 2):
    bodies = []
    for k in lib.CLIENTS:
      drawn = lib.batches(
        lib.client_key(number, k), k, batch_size=lib.BATCH, epochs=HEAD_EPOCHS + 1
      )
      switch = HEAD_EPOCHS * -(-lib.SIZES[k] // lib.BATCH)
      own = np.concatenate([w[tiny.BODY], heads[k]])
      own = tiny.train(own, drawn[:switch], only(tiny.HEAD))
      # A body that rests collects only weight decay in its velocity, and keeps it when it moves.
      body = tiny.Sgd(lib.RATE, MOMENTUM, DECAY)
      for _ in range(switch):
        body(own[tiny.BODY], 0.0)
      for x, y in drawn[switch:]:
        own[tiny.BODY] = body(own[tiny.BODY], tiny.gradient(own, x, y)[tiny.BODY])
      heads[k] = own[tiny.HEAD]
      bodies.append(own[tiny.BODY])
    w = np.concatenate(
      [tiny.average(bodies), lib.W0[tiny.HEAD]]
    )  # the global head is never trained
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    own = state.clients['fedrep']
    for k in lib.CLIENTS:
      got = np.concatenate([own["['v']"][k].ravel(), own["['b']"][k]])
      lib.close(got, heads[k], f'head of {k} in round {number}')
