"""FedCOG (Ye et al., ICLR 2024): Tables 1-11 and Figures 2-6, and what the paper does not have."""

from fedjax_syn.papers import post_run
from fedjax_syn.papers.fedcog import cells, flair, personal_cells
from fedjax_syn.papers.fedcog.cells import BOTH, CIFAR10, FEDAVG, FEDCOG, FEW, FMNIST, OF_TABLE1
from fedjax_syn.papers.paper import DEVIATION_NOTE, Paper, read_numbers
from fedjax_syn.tables import draw, measures

SHARED_NOTE = (
  'the rounds before FedCOG generates are run once, as FedCOG: FedAvg and variants of FedCOG'
  ' continue from there'
)
OTHER_FIGURES = (
  'the paper has other figures for the same setting in its other tables; these runs are those of'
  ' table1'
)
FIXED_NOTE = (
  "the weights of the losses are fixed here, 1 and λ_kd; FedCOG's own row in the tables weighs by"
  ' what a client lacks'
)
TIME_NOTE = (
  'all clients train side by side on one machine: their time is divided by their number,'
  ' compilation excluded'
)
PAIRS_NOTE = (
  'both rows of a pair continue from the same round 50; the paper has no Fashion-MNIST here'
)
PERSONAL_NOTE = (
  'FT: the local model after one more local training; FedRep and Ditto have personal models of'
  ' their own'
)
_entry = Paper('fedcog', cells.ROWS, (DEVIATION_NOTE, SHARED_NOTE), read_numbers(__name__)).entry
_GENERATION = tuple(
  FMNIST[0]._replace(name=name, title=title, measure=measures.generation_seconds(name))
  for name, title in (
    *((str(n), f'{n} samples') for n in post_run.SAMPLES),
    ('training', 'local training'),
  )
)

ENTRIES = (
  _entry('table1', 'Table 1: accuracy by data set and heterogeneity', cells.TABLE1, average=True),
  _entry(
    'table3',
    'Table 3: methods without and with one round of FedCOG',
    cells.TABLE3,
    cells.plugged('table1'),
    measures.LAST,
    proposed='',
    notes=(PAIRS_NOTE,),
  ),
  _entry(
    'table4',
    'Table 4: local time and accuracy after one round of FedCOG',
    cells.TABLE4,
    (FEDAVG._replace(warm_start_from=''), *FEW[1:]),
    notes=(TIME_NOTE,),
  ),
  _entry(
    'table5',
    'Table 5: where the data come from and how they supervise (last row: run of table1)',
    BOTH,
    cells.ABLATION,
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'table7',
    'Table 7: accuracy by generation steps (100: run of table1)',
    (CIFAR10,),
    cells.STEPS,
    proposed='',
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'table8',
    'Table 8: time of generation by number of samples (run of table1)',
    _GENERATION,
    (FEDCOG,),
    proposed='',
    post_run=post_run.GENERATION_TIMES,
    remarks=post_run.timed_on,
    notes=('the paper does not name the data set of its times',),
  ),
  _entry(
    'table9',
    'Table 9: accuracy by local steps τ (400: runs of table1)',
    cells.TABLE9,
    FEW,
    notes=(OTHER_FIGURES,),
  ),
  _entry('table10', 'Table 10: accuracy by share of 50 clients in a round', cells.TABLE10, FEW),
  _entry(
    'table11',
    'Table 11: accuracy by number of clients K (10: runs of table1)',
    cells.TABLE11,
    FEW,
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'composed',
    'FedCOG and DynaFed composed (not in the paper; FedAvg and FedCOG: runs of table1)',
    FMNIST,
    cells.COMPOSED,
    proposed='fedcog+dynafed',
  ),
  _entry(
    'figure3-a',
    'Figure 3 (a): accuracy by heterogeneity β (0.1: runs of table1)',
    cells.LEVELS,
    (FEDAVG, cells.FEDPROX, FEDCOG),
    draw=draw.against('data.alpha', 'β', log=True),
    notes=('the paper does not name the two methods that it compares with in this figure',),
  ),
  _entry(
    'figure3-b',
    'Figure 3 (b): accuracy by λ_dis (0.1: runs of table1)',
    BOTH,
    cells.DISAGREEMENTS,
    proposed='',
    draw=draw.against('fedcog.lambda_dis', 'λ_dis', log=True),
  ),
  _entry(
    'figure3-c',
    'Figure 3 (c): accuracy by λ_kd',
    BOTH,
    cells.DISTILLATIONS,
    proposed='',
    draw=draw.against('fedcog.lambda_kd', 'λ_kd', log=True),
    notes=(FIXED_NOTE,),
  ),
  _entry(
    'figure4',
    'Figure 4: who holds what, NIID-1 (runs of table1)',
    tuple(OF_TABLE1[f'{d}-niid1'] for d in cells.DATASETS),
    (FEDCOG,),
    pictures='figures/partition.png',
  ),
  _entry(
    'figure5',
    'Figure 5: images of one client after 0 to 1000 generation steps (run of table1)',
    (CIFAR10, FMNIST[0]),
    (FEDCOG,),
    post_run=post_run.GENERATED_IMAGES,
    pictures='figures/generated.png',
  ),
  _entry(
    'figure6',
    'Figure 6: accuracy against rounds (runs of table1)',
    tuple(OF_TABLE1.values()),
    draw=draw.curves,
  ),
  _entry(
    'table6',
    "Table 6: accuracy of the clients' own models",
    personal_cells.TABLE6,
    personal_cells.ROWS,
    measures.PERSONAL,
    notes=(PERSONAL_NOTE,),
  ),
  _entry(
    'figure2',
    'Figure 2: local models of the round after T0: difference, generalisation, personalisation',
    personal_cells.LOCAL,
    personal_cells.LOCAL_ROWS,
    proposed='',
    draw=draw.panels,
  ),
  _entry('table2', 'Table 2: FLAIR, several labels per image', flair.TABLE2, flair.TABLE2_ROWS),
  _entry(
    'table3-flair',
    'Table 3, FLAIR: methods without and with three rounds of FedCOG',
    flair.TABLE3,
    flair.TABLE3_ROWS,
    proposed='',
  ),
)
