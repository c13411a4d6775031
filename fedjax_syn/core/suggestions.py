"""What an unknown name may mean: names spelt otherwise, other words for them, and similar ones."""

import difflib
import re
from collections.abc import Iterable

LONGEST = 100  # characters of a name that is compared with others: difflib is slow
SYNONYMS = {
  # Fields, by the last part of what others call them.
  'algorithm': 'method strategy aggregator aggregation alg algo',
  'rounds': 'numrounds nrounds commrounds communicationrounds globalepochs globalrounds T',
  'seeds': 'seed numseeds nseeds randomseed randomstate',
  'eval_every': 'evalinterval evalfrequency testevery testinterval',
  'checkpoint_every': 'saveevery saveinterval savefrequency',
  'data.name': 'data dataset datasetname trainset',
  'data.dir': 'datadir datapath dataroot root path folder',
  'data.size': 'imagesize imgsize resolution imsize',
  'data.clients': 'numclients nclients numusers nusers users nodes numpartitions numsupernodes',
  'data.alpha': 'beta concentration dirichletalpha diralpha',
  'data.partition': 'partitioner split iid noniid heterogeneity',
  'data.labels': 'classesperclient labelsperclient nclasses shardsperclient',
  'data.validation': 'valsplit validationsplit valratio heldout',
  'client.epochs': 'numepochs nepochs localepochs localep E',
  'client.steps': 'localsteps localiterations numsteps',
  'client.batch_size': 'batch bs localbs localbatchsize trainbatchsize minibatchsize B',
  'client.lr': 'learningrate lrate rate eta locallr clientlr stepsize',
  'client.optimizer': 'optimiser opt optim clientoptimizer localoptimizer',
  'client.schedule': 'scheduler lrscheduler lrschedule decay lrdecay',
  'client.momentum': 'mom beta1',
  'client.weight_decay': 'wd l2 l2reg',
  'client.participation': 'fraction frac fractionfit fractiontrain clientfraction samplerate'
  ' participationrate joinratio clientsperround numselected C',
  'server.weighting': 'weights weighted',
  'model.name': 'model modelname net network arch architecture backbone',
  'model.width': 'channels hidden hiddensize hiddendim units',
  'model.depth': 'layers numlayers nlayers blocks',
  'layout.devices': 'numdevices numgpus ngpus',
  '--workdir': 'workdir logdir outdir outputdir output savedir',
  # Methods.
  'fedavg': 'fedsgd localsgd average avg',
  'fedopt': 'fedadam fedyogi fedadagrad',
  'fedavgm': 'slowmo servermomentum',
  'dp': 'dpfedavg dpsgd differentialprivacy',
  # Data sets.
  'fashion_mnist': 'fmnist fashion',
  'cinic10': 'cinic',
  'digit_five': 'digit5 digits5',
  'folder': 'imagefolder images photos custom own',
  'arrays': 'npz npy numpy',
  'leaf': 'femnist shakespeare json',
  'tfds:emnist': 'emnist femnist',
  'tfds:svhn_cropped': 'svhn',
  # Networks.
  'convnet': 'cnn simplecnn conv vgg vgg11 vgg16',
  'lenet': 'lenet5',
  'resnet18': 'resnet mobilenet efficientnet wideresnet',
  'mlp': 'fc fcn dnn 2nn linear logistic logisticregression',
  'text': 'lstm rnn textcnn transformer',
  # Partitions.
  'dirichlet': 'dir lda noniid niid heterogeneous skewed',
  'labels_per_client': 'pathological shard shards labelskew quantity noniid niid heterogeneous',
  'balanced_dirichlet': 'noniid niid heterogeneous',
  'iid': 'homogeneous homo uniform random even',
  'natural': 'user users writer federated byclient',
}
"""Other words for a known name, in lower case and without separators (one letter: as it is)."""

SHARED = ('', 'data', 'client', 'server', 'model', 'layout')
"""Sections of fields that all methods have."""
HARDWARE = ('device', 'devices', 'gpu', 'gpus', 'cuda', 'cpu', 'tpu', 'rocm', 'platform', 'backend')
HARDWARE_HINT = (
  'JAX selects the hardware: JAX_PLATFORMS=cuda python ... (or cpu, tpu; docs/install.md says what'
  ' to install), and layout.devices is how many devices are used'
)

_MEANT: dict[str, list[str]] = {}
for _name, _words in SYNONYMS.items():
  for _word in _words.split():
    _MEANT.setdefault(_word, []).append(_name)


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
  """Returns the known names that a word may mean, the likeliest first.

  Args:
    word: a name, or a dotted key of fields.
    known: names, or dotted keys in the order in which equal ones are suggested.
    most: how many are returned at most.
  """
  known = list(known)
  if len(word) > LONGEST:
    return []
  section, _, last = word.rpartition('.')
  if alike := [name for name in known if _alike(name, word)]:
    return alike[:most]
  words = set(_parts(last))
  elsewhere = ('tfds:', '--')  # any data set of TFDS, flags
  meant = [n for n in _MEANT.get(_plain(last), ()) if n in known or n.startswith(elsewhere)]
  of_section = {_last(name): name for name in known if section and name.startswith(f'{section}.')}
  close = lambda names: difflib.get_close_matches(last.casefold(), names, n=most)
  found = [
    *(of_section[_last(name)] for name in meant if _last(name) in of_section),
    *meant,
    *(name for name in known if name.startswith(f'{word}.')),
    *(of_section[name] for name in close(of_section)),
    *(key for name, key in of_section.items() if words and words <= {*_parts(name)}),
    *_same(last, known),
  ]
  if not found:
    similar = close(dict.fromkeys(map(_last, known)))  # of `close`, the likeliest first
    found = sorted((n for n in known if _last(n) in similar), key=lambda n: similar.index(_last(n)))
  return list(dict.fromkeys(found))[:most]


def hint(word: str) -> str:
  """Returns a line on a name that no setting could have, 'device' say; '' where there is none."""
  return HARDWARE_HINT if _plain(_last(word)) in HARDWARE else ''


def _same(last: str, known: Iterable[str]) -> list[str]:
  """Returns the keys whose last part is this; those that all methods have, if there are any."""
  same = [name for name in known if _alike(_last(name), last)]
  return [name for name in same if name.rpartition('.')[0] in SHARED] or same


def _last(key: str) -> str:
  return key.rpartition('.')[2]


def _parts(name: str) -> list[str]:
  """The letters and the digits of a name in pieces, in lower case and without separators."""
  return re.findall('[a-z]+|[0-9]+', name.casefold())


def _plain(name: str) -> str:
  return name if len(name) == 1 else ''.join(_parts(name))


def _alike(one: str, other: str) -> bool:
  """Returns whether two names differ only in case, separators or the order of their words."""
  return _plain(one) == _plain(other) != '' or sorted(_parts(one)) == sorted(_parts(other)) != []
