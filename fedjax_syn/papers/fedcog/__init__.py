"""FedCOG (Ye et al., ICLR 2024): Tables 1-11 and Figures 2-6, and what the paper does not have."""

from fedjax_syn.papers import post_run
from fedjax_syn.papers.fedcog import cells as made
from fedjax_syn.papers.fedcog import flair, personal
from fedjax_syn.papers.fedcog import reported as paper
from fedjax_syn.papers.fedcog.cells import BOTH, CIFAR10, ELSEWHERE, FEDAVG, FEDCOG, FEDPROX, FEW
from fedjax_syn.tables import draw, measures
from fedjax_syn.tables.spec import AVERAGE, Column, Entry, Row, reported

NOTES = (
  '± is the standard deviation over seeds (ddof 1), and all seeds share one partition; the paper does not'
  ' define its ±',
  'the rounds before FedCOG generates are run once, as FedCOG: FedAvg and variants of FedCOG go on from there',
)
OTHER_FIGURES = 'the paper has other figures for the same setting in its other tables; these runs are those of table1'
STATED_KD = "the weights of the losses are fixed here, 1 and λ_kd; FedCOG's own row in the tables weighs by what a client lacks"


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
  more = {'subject': 'fedcog', 'reported': reported(columns, text), **more}
  return Entry(
    f'fedcog/{number}',
    title,
    rows,
    columns,
    measure,
    without_phase=frozenset({'fedavg'}),
    notes=(*NOTES, *notes),
    **more,
  )


_TABLE4 = tuple(
  column._replace(measure=measure)
  for column, measure in zip(made.TABLE4, (measures.LOCAL_SECONDS, measures.LAST), strict=True)
)
_TABLE8 = tuple(
  ELSEWHERE['fmnist-niid1']._replace(
    name=name, title=title, measure=measures.generation_seconds(name)
  )
  for name, title in (
    *((str(n), f'{n} samples') for n in post_run.SAMPLES),
    ('training', 'local training'),
  )
)

PERSONAL = (
  _entry(
    'table6',
    "Table 6: accuracy of the clients' own models",
    personal.TABLE6,
    personal.ROWS,
    measures.PERSONAL,
    text=paper.TABLE6,
    notes=(
      'FT: the local model after one more visit; FedRep and Ditto have personal models of their own',
    ),
  ),
  _entry(
    'figure2',
    'Figure 2: local models of the round after T0: difference, generalisation, personalisation',
    personal.LOCAL,
    personal.LOCAL_ROWS,
    subject='',
    draw=draw.panels,
  ),
)
FLAIR = (
  _entry(
    'table2',
    'Table 2: FLAIR, several labels per image',
    flair.TABLE2,
    flair.TABLE2_ROWS,
    text=paper.TABLE2,
  ),
  _entry(
    'table3-flair',
    'Table 3, FLAIR: methods without and with three rounds of FedCOG',
    flair.TABLE3,
    flair.TABLE3_ROWS,
    text=paper.TABLE3_FLAIR,
    subject='',
  ),
)

ENTRIES = (
  _entry(
    'table1',
    'Table 1: accuracy by data set and heterogeneity',
    made.TABLE1,
    reported={
      **reported(made.TABLE1, paper.TABLE1),
      **reported((AVERAGE,), paper.AVERAGE1),
    },
    average=True,
  ),
  _entry(
    'table3',
    'Table 3: methods without and with one round of FedCOG',
    made.TABLE3,
    made.PLUGGED,
    measures.LAST,
    reported=reported(made.TABLE3[2:], paper.TABLE3),
    subject='',
    notes=(
      'both rows of a pair go on from the same round 50; the paper has no Fashion-MNIST here',
    ),
  ),
  _entry(
    'table4',
    'Table 4: local time and accuracy after one round of FedCOG',
    _TABLE4,
    (FEDAVG._replace(origin=''), *FEW[1:]),
    text=paper.TABLE4,
    notes=(
      'all clients train side by side on one machine: their time is divided by their number, compilation excluded',
    ),
  ),
  _entry(
    'table5',
    'Table 5: where the data come from and how they supervise (last row: run of table1)',
    BOTH,
    made.ABLATION,
    text=paper.TABLE5,
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'table7',
    'Table 7: accuracy by generation steps (100: run of table1)',
    (CIFAR10,),
    made.steps(),
    text=paper.TABLE7,
    subject='',
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'table8',
    'Table 8: time of generation by number of samples (run of table1)',
    _TABLE8,
    (FEDCOG,),
    text=paper.TABLE8,
    subject='',
    after=post_run.generation_times,
    remarks=post_run.timed_on,
    notes=('the paper does not name the data set of its times',),
  ),
  _entry(
    'table9',
    'Table 9: accuracy by local steps τ (400: runs of table1)',
    made.TABLE9,
    FEW,
    text=paper.TABLE9,
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'table10',
    'Table 10: accuracy by share of 50 clients in a round',
    made.TABLE10,
    FEW,
    text=paper.TABLE10,
  ),
  _entry(
    'table11',
    'Table 11: accuracy by number of clients K (10: runs of table1)',
    made.TABLE11,
    FEW,
    text=paper.TABLE11,
    notes=(OTHER_FIGURES,),
  ),
  _entry(
    'composed',
    'FedCOG and DynaFed around each other (not in the paper; FedAvg and FedCOG: runs of table1)',
    (ELSEWHERE['fmnist-niid1'], ELSEWHERE['fmnist-niid2']),
    made.COMPOSED,
    subject='fedcog+dynafed',
    reported={
      cell: pair
      for cell, pair in reported(made.TABLE1, paper.TABLE1).items()
      if cell[0] in ('fedavg', 'fedcog') and cell[1].startswith('fmnist')
    },
  ),
  _entry(
    'figure3-a',
    'Figure 3 (a): accuracy by heterogeneity β (0.1: runs of table1)',
    made.LEVELS,
    (FEDAVG, FEDPROX, FEDCOG),
    draw=draw.along('data.alpha', 'β', log=True),
    notes=('the paper does not name the two methods that it compares with in this figure',),
  ),
  _entry(
    'figure3-b',
    'Figure 3 (b): accuracy by λ_dis (0.1: runs of table1)',
    BOTH,
    made.disagreements(),
    subject='',
    draw=draw.against('fedcog.lambda_dis', 'λ_dis', log=True),
  ),
  _entry(
    'figure3-c',
    'Figure 3 (c): accuracy by λ_kd',
    BOTH,
    made.distillations(),
    subject='',
    draw=draw.against('fedcog.lambda_kd', 'λ_kd', log=True),
    notes=(STATED_KD,),
  ),
  _entry(
    'figure4',
    'Figure 4: who holds what, NIID-1 (runs of table1)',
    tuple(ELSEWHERE[f'{d}-niid1'] for d in made.DATASETS),
    (FEDCOG,),
    draw=draw.pictures('figures/partition.png'),
  ),
  _entry(
    'figure5',
    'Figure 5: images of one client after 0 to 1000 generation steps (run of table1)',
    (CIFAR10, ELSEWHERE['fmnist-niid1']),
    (FEDCOG,),
    after=post_run.generated_images,
    draw=draw.pictures('figures/generated.png'),
  ),
  _entry(
    'figure6',
    'Figure 6: accuracy against rounds (runs of table1)',
    tuple(ELSEWHERE.values()),
    draw=draw.curves,
  ),
  *PERSONAL,
  *FLAIR,
)
