"""FedDualMatch (ICLR 2025 submission): Tables 1-2 and Figures 1-8, and what the paper does not have."""

from fedjax_syn.papers import post_run
from fedjax_syn.papers.feddualmatch import cells as made
from fedjax_syn.papers.feddualmatch import communication as traffic
from fedjax_syn.papers.feddualmatch import reported as paper
from fedjax_syn.papers.feddualmatch.cells import BOTH, ELSEWHERE, FEDAVG, FEDDM, FEDDUALMATCH, MNIST
from fedjax_syn.tables import draw, measures
from fedjax_syn.tables.spec import Column, Entry, Row, reported

NOTES = (
  '± is the standard deviation over seeds (ddof 1), and all seeds share one partition; the paper does not'
  ' define its ±',
  'the paper states neither the network, nor local epochs, optimizer and rate of the methods that train locally',
)
NOT_LEGIBLE = "the paper's numbers are not legible in the copy that was read"
SIZES = (
  'bytes of a round, all clients together, from the real sizes of the messages; sets are counted by the classes that'
  ' each client has'
)


def _entry(
  number: str,
  title: str,
  columns: tuple[Column, ...],
  rows: tuple[Row, ...] = made.ROWS,
  measure=measures.ACCURACY,
  text: str = '',
  notes: tuple[str, ...] = (),
  **more,
) -> Entry:
  more = {
    'subject': 'feddualmatch',
    'reported': reported(columns, text),
    'without_phase': frozenset({'fedavg'}),
    **more,
  }
  return Entry(
    f'feddualmatch/{number}', title, rows, columns, measure, notes=(*NOTES, *notes), **more
  )


_SPREAD = tuple(
  MNIST._replace(name=name, title=title, measure=measures.of_sets(name, title))
  for name, title in (
    ('spread_data', 'gradients on D_k'),
    ('spread_before', 'gradients on S_k'),
    ('spread_after', "gradients on S'_k"),
    ('sigma_d', 'σ_d'),
    ('sigma_g', 'σ_g'),
  )
)

ENTRIES = (
  _entry(
    'table1',
    'Table 1: accuracy by data set and heterogeneity',
    made.TABLE1,
    text=paper.TABLE1,
  ),
  _entry(
    'table2',
    'Table 2: accuracy on data of several domains, by domain',
    made.TABLE2,
    notes=(
      NOT_LEGIBLE,
      'MNIST, USPS and scikit-learn digits as three domains are not in the paper',
    ),
  ),
  _entry(
    'figure3',
    'Figures 1 and 3: spread of the gradients of clients, σ_d and σ_g (run of table1)',
    _SPREAD,
    (FEDDUALMATCH,),
    subject='',
    after=post_run.client_sets,
    notes=(
      'after the last round: root mean square distance of the gradients of the clients from their mean, over the length of that'
      ' mean; σ_d and σ_g as in Assumptions 3 and 4',
    ),
  ),
  _entry(
    'figure4',
    'Figure 4: accuracy against rounds (runs of table1)',
    tuple(ELSEWHERE.values()),
    draw=draw.curves,
  ),
  _entry(
    'figure5-a',
    'Figure 5 (a): accuracy and epsilon by noise (first row: run of table1)',
    made.PRIVACY,
    made.noises(),
    subject='',
    notes=(NOT_LEGIBLE, 'the bound C is not stated: 5'),
  ),
  _entry(
    'figure5-b',
    'Figure 5 (b): layer-wise alignment and gradient matching (last row: runs of table1)',
    BOTH,
    made.ABLATION,
    draw=draw.bars,
    notes=(NOT_LEGIBLE, 'the paper says that GGM adds 0.42 points on MNIST and 0.93 on CIFAR10'),
  ),
  _entry(
    'figure5-c',
    'Figure 5 (c): accuracy by images per class (10: runs of table1)',
    BOTH,
    made.images(),
    subject='',
    draw=draw.against('feddualmatch.images_per_class', 'images per class', log=True),
    notes=(NOT_LEGIBLE,),
  ),
  _entry(
    'figure6',
    'Figure 6: megabytes of a round, for every algorithm of the library',
    traffic.TRAFFIC,
    traffic.everything(),
    subject='',
    without_phase=frozenset(r.name for r in traffic.everything()),  # one step shows no trace
    draw=draw.dots,
    notes=(SIZES,),
  ),
  _entry(
    'figure7',
    'Figures 7 and 8: images of one client by FedDualMatch and by FedDM (runs of table1)',
    BOTH,
    (FEDDM, FEDDUALMATCH),
    subject='',
    after=post_run.client_sets,
    draw=draw.pictures('figures/client_set.png'),
  ),
  _entry(
    'ambiguities',
    'What the paper leaves open, MNIST (not in the paper; first row: run of table1)',
    (MNIST,),
    made.AMBIGUITIES,
  ),
  _entry(
    'beginnings',
    'Images that begin as noise or as real ones, MNIST (not in the paper; first and last row: runs of table1)',
    (MNIST,),
    made.BEGINNINGS,
  ),
  _entry(
    'heterogeneity',
    'Accuracy up to low heterogeneity, MNIST (not in the paper; 0.01 and 0.05: runs of table1)',
    made.LEVELS,
    (FEDAVG, FEDDM, FEDDUALMATCH),
    draw=draw.along('data.alpha', 'α', log=True),
  ),
)
