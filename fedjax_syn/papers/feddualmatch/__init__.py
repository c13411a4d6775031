"""FedDualMatch (ICLR 2025 submission): Tables 1-2, Figures 1-8, and what is not in the paper."""

from fedjax_syn.papers import post_run
from fedjax_syn.papers.feddualmatch import cells, communication_cells
from fedjax_syn.papers.feddualmatch.cells import BOTH, FEDDM, FEDDUALMATCH, MNIST
from fedjax_syn.papers.paper import DEVIATION_NOTE, Paper, read_numbers
from fedjax_syn.tables import draw, measures

UNSTATED_NOTE = (
  'the paper states neither the network, nor local epochs, optimizer and rate of the methods that'
  ' train locally'
)
NOT_LEGIBLE = "the paper's numbers are not legible in the copy that was read"
DIGITS_NOTE = 'MNIST, USPS and scikit-learn digits as three domains are not in the paper'
SPREAD_NOTE = (
  'after the last round: root mean square distance of the gradients of the clients from their mean,'
  ' over the length of that mean; σ_d and σ_g as in Assumptions 3 and 4'
)
GGM_NOTE = 'the paper says that GGM adds 0.42 points on MNIST and 0.93 on CIFAR10'
BYTES_NOTE = (
  'bytes of a round, all clients together, from the real sizes of the messages; sets are counted by'
  ' the classes that each client has'
)
_entry = Paper(
  'feddualmatch', cells.ROWS, (DEVIATION_NOTE, UNSTATED_NOTE), read_numbers(__name__)
).entry
_SPREAD = tuple(
  MNIST._replace(name=name, title=title, measure=measures.of_client_sets(name, title))
  for name, title in (
    ('spread_data', 'gradients on D_k'),
    ('spread_before', 'gradients on S_k'),
    ('spread_after', "gradients on S'_k"),
    ('sigma_d', 'σ_d'),
    ('sigma_g', 'σ_g'),
  )
)

ENTRIES = (
  _entry('table1', 'Table 1: accuracy by data set and heterogeneity', cells.TABLE1),
  _entry(
    'table2',
    'Table 2: accuracy on data of several domains, by domain',
    cells.TABLE2,
    notes=(NOT_LEGIBLE, DIGITS_NOTE),
  ),
  _entry(
    'figure3',
    'Figures 1 and 3: spread of the gradients of clients, σ_d and σ_g (run of table1)',
    _SPREAD,
    (FEDDUALMATCH,),
    proposed='',
    post_run=post_run.CLIENT_SETS,
    notes=(SPREAD_NOTE,),
  ),
  _entry(
    'figure4',
    'Figure 4: accuracy against rounds (runs of table1)',
    tuple(cells.OF_TABLE1.values()),
    draw=draw.curves,
  ),
  _entry(
    'figure5-a',
    'Figure 5 (a): accuracy and epsilon by noise (first row: run of table1)',
    cells.PRIVACY,
    cells.NOISES,
    proposed='',
    notes=(NOT_LEGIBLE, 'the bound C is not stated: 5'),
  ),
  _entry(
    'figure5-b',
    'Figure 5 (b): layer-wise alignment and gradient matching (last row: runs of table1)',
    BOTH,
    cells.ABLATION,
    draw=draw.bars,
    notes=(NOT_LEGIBLE, GGM_NOTE),
  ),
  _entry(
    'figure5-c',
    'Figure 5 (c): accuracy by images per class (10: runs of table1)',
    BOTH,
    cells.IMAGES,
    proposed='',
    draw=draw.against('feddualmatch.images_per_class', 'images per class', log=True),
    notes=(NOT_LEGIBLE,),
  ),
  _entry(
    'figure6',
    'Figure 6: megabytes of a round, for every algorithm of the library',
    communication_cells.BYTES,
    communication_cells.ROWS,
    proposed='',
    without_metrics=frozenset(r.name for r in communication_cells.ROWS),  # one step logs nothing
    draw=draw.dots,
    notes=(BYTES_NOTE,),
  ),
  _entry(
    'figure7',
    'Figures 7 and 8: images of one client by FedDualMatch and by FedDM (runs of table1)',
    BOTH,
    (FEDDM, FEDDUALMATCH),
    proposed='',
    post_run=post_run.CLIENT_SETS,
    pictures='figures/client_set.png',
  ),
  _entry(
    'ambiguities',
    'What the paper leaves open, MNIST (not in the paper; first row: run of table1)',
    (MNIST,),
    cells.AMBIGUITIES,
  ),
  _entry(
    'beginnings',
    'Images that begin as noise or as real ones, MNIST (not in the paper; first and last row: runs'
    ' of table1)',
    (MNIST,),
    cells.BEGINNINGS,
  ),
  _entry(
    'heterogeneity',
    'Accuracy up to low heterogeneity, MNIST (not in the paper; 0.01 and 0.05: runs of table1)',
    cells.LEVELS,
    (cells.FEDAVG, FEDDM, FEDDUALMATCH),
    draw=draw.against('data.alpha', 'α', log=True),
  ),
)
