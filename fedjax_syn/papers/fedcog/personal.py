"""Personal models in FedCOG's Table 6 and Figure 2: rows and columns."""

from fedjax_syn.papers.fedcog.cells import FEDAVG, FEDCOG, FEDPROX, column, row
from fedjax_syn.tables import measures

FEDREP_NOTE = 'as many steps on the head as on the rest; the paper does not state them (those of the method are 10 epochs and 1)'
DITTO_NOTE = (
  'λ = 1, and as many steps for the personal model as for the other; the paper states neither'
)


def _tuned(base):  # what is trained once more on each client
  return base._replace(title=f'{base.title} + FT')


# FedAvg and FedCOG go on from table1's FedCOG; the others are themselves from the first round on.
ROWS = (
  _tuned(FEDAVG)._replace(origin='fedcog/table1:fedcog'),
  _tuned(FEDPROX),
  row(
    'fedrep',
    'FedRep',
    {'fedrep.head': 400},
    note=FEDREP_NOTE,
    cpu={'fedrep.head': 100},
    smoke={'fedrep.head': 3},
  ),
  row(
    'ditto',
    'Ditto',
    {'ditto.steps': 400},
    note=DITTO_NOTE,
    cpu={'ditto.steps': 100},
    smoke={'ditto.steps': 3},
  ),
  _tuned(FEDCOG)._replace(origin='fedcog/table1:fedcog'),
)
# The last round is always measured; one more measurement costs a round.
TABLE6 = (
  column(
    'cifar10',
    'niid1',
    {'personal_every': 70},
    cpu={'personal_every': 30},
    smoke={'personal_every': 6},
  ),
)

# All three go on from the same round T0, in which their local models of the next round are measured.
LOCAL_ROWS = tuple(r._replace(origin='fedcog/table1:fedcog') for r in (FEDAVG, FEDPROX, FEDCOG))
LOCAL = tuple(
  column(
    'cifar10',
    'niid1',
    {'rounds': 51, 'personal_every': 50},
    cpu={'rounds': 21, 'personal_every': 20},
    smoke={'rounds': 4, 'personal_every': 3},
    name=name,
    title=measure.axis,
  )._replace(home=('fedcog/figure2', 'cifar10-niid1'), measure=measure)
  for name, measure in (
    (
      'difference',
      measures.of_local_models('difference', 'L2 distance to the global model', 'distance', 1.0),
    ),
    (
      'generalisation',
      measures.of_local_models(
        'generalisation', 'accuracy on the test split, per cent', 'generalisation, %'
      ),
    ),
    (
      'personalisation',
      measures.of_local_models(
        'test/accuracy',
        "accuracy on test rows in the proportions of the client's labels, per cent",
        'personalisation, %',
      ),
    ),
  )
)
