"""Personal models in FedCOG's Table 6 and Figure 2: rows and columns."""

from fedjax_syn.papers.fedcog.cells import FEDAVG, FEDCOG, FEDPROX, column, from_table, row
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Row

FEDREP_NOTE = (
  'as many steps on the head as on the rest; the paper does not state them (those of the method are'
  ' 10 epochs and 1)'
)
DITTO_NOTE = (
  'λ = 1, and as many steps for the personal model as for the other; the paper states neither'
)


def _with_steps(title: str, key: str, note: str) -> Row:
  by_scale = {'cpu': {key: 100}, 'smoke': {key: 3}}
  return row(title.lower(), title, {key: 400}, note=note, by_scale=by_scale)


# FT: trained once more on each client.
FEDAVG_FT, FEDPROX_FT, FEDCOG_FT = (
  r._replace(title=f'{r.title} + FT') for r in (FEDAVG, FEDPROX, FEDCOG)
)
# FedAvg and FedCOG continue from table1's FedCOG; the others run all rounds themselves.
ROWS = (
  *from_table('table1', FEDAVG_FT),
  FEDPROX_FT,
  _with_steps('FedRep', 'fedrep.head', FEDREP_NOTE),
  _with_steps('Ditto', 'ditto.steps', DITTO_NOTE),
  *from_table('table1', FEDCOG_FT),
)
EVERY = 'personal_every'
# The last round is always measured; one more measurement costs a round.
TABLE6 = (column('cifar10', settings={EVERY: 70}, cpu={EVERY: 30}, smoke={EVERY: 6}),)

# All three continue from the same round T0; their local models of the next round are measured.
LOCAL_ROWS = from_table('table1', FEDAVG, FEDPROX, FEDCOG)
ACCURACY = 'accuracy on the test split, per cent'
OWN_ACCURACY = "accuracy on test rows in the proportions of the client's labels, per cent"
_of = measures.of_local_models
LOCAL = tuple(
  column(
    'cifar10',
    settings={'rounds': 51, EVERY: 50},
    cpu={'rounds': 21, EVERY: 20},
    smoke={'rounds': 4, EVERY: 3},
    name=name,
    title=measure.axis,
  )._replace(shares_runs_with=('fedcog/figure2', 'cifar10-niid1'), measure=measure)
  for name, measure in (
    ('difference', _of('difference', 'L2 distance to the global model', 'distance', 1.0)),
    ('generalisation', _of('generalisation', ACCURACY, 'generalisation, %')),
    ('personalisation', _of('test/accuracy', OWN_ACCURACY, 'personalisation, %')),
  )
)
