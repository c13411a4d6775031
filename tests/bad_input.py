"""Bad configs and command lines, each with the beginning of the one line that refuses it."""

import math

BAD = [
  ({'rounds': True}, 'rounds=True: must be an integer'),
  ({'rounds': 100.0}, 'rounds=100.0: must be an integer'),
  ({'rounds': None}, 'rounds=None: must be an integer'),
  ({'rounds': 0}, 'rounds=0: must be at least 1'),
  ({'rounds': -3}, 'rounds=-3: must be at least 1'),
  ({'seeds': '012'}, "seeds='012': must be a tuple, as in 0,1,2 (of one: 1,)"),
  ({'seeds': 3}, 'seeds=3: must be a tuple, as in 0,1,2 (of one: 1,)'),
  ({'seeds': (0, '1')}, "seeds='1': must be an integer"),
  ({'seeds': (0, -1)}, 'seeds=-1: must be at least 0'),
  ({'seeds': ()}, 'seeds=(): must be one or more distinct integers'),
  ({'seeds': (1, 2, 1)}, 'seeds=(1, 2, 1): must be one or more distinct integers'),
  ({'targets': (0.5, 70)}, 'targets=70.0: must be at most 1'),
  (
    {'precision': 'float16'},
    "precision='float16': unknown; known: 'float32', 'tensorfloat32', 'bfloat16'",
  ),
  ({'client.lr': False}, 'client.lr=False: must be a number'),
  ({'client.lr': '0.1'}, "client.lr='0.1': must be a number"),
  ({'client.lr': 0}, 'client.lr=0.0: must be greater than 0'),
  ({'client.lr': math.nan}, 'client.lr=nan: must be a finite number'),
  ({'client.persistent': 1}, 'client.persistent=1: must be True or False'),
  ({'client.sampler': 'fixd'}, "client.sampler='fixd': unknown; known: 'fixed', 'poisson'"),
  ({'client.participation': 1.5}, 'client.participation=1.5: must be at most 1'),
  (
    {'client.participation': 0.04, 'data.clients': 20},
    'client.participation=0.04: is less than one of data.clients=20; at least 0.05',
  ),
  (
    {'client.epochs': 0},
    'client.epochs=0: exactly one of client.epochs and client.steps must be non-zero, and client.steps=0',
  ),
  (
    {'client.steps': 10},
    'client.epochs=1: exactly one of client.epochs and client.steps must be non-zero, and client.steps=10',
  ),
  ({'personal_every': -1}, 'personal_every=-1: must be at least 0'),
  (
    {'personal_every': 5, 'eval_every': 2},
    'personal_every=5: must be a multiple of eval_every=2',
  ),
  ({'client.lrr': 0.1}, 'client.lrr=0.1: no such field; nearest: client.lr'),
  ({'option': 1}, 'option=1: no such field; nearest: scaffold.option'),
  ({'data': 3}, 'data=3: no such field'),
  ({'data.name': 'digit'}, "data.name='digit': unknown; nearest: digits"),
  ({'data.name': ''}, "data.name='': unknown"),
  (
    {'data.partition': 'balanced_dirichet'},
    "data.partition='balanced_dirichet': unknown; nearest: balanced",
  ),
  ({'data.normalisation': 'cifar'}, "data.normalisation='cifar': unknown; known: '', 'cifar10'"),
  ({'model.norm': 'grup'}, "model.norm='grup': unknown; known: "),
  ({'model.pooling': 'mean'}, "model.pooling='mean': unknown; known: "),
  ({'model.init': 'xavier'}, "model.init='xavier': unknown; known: "),
  ({'model.conv': 'fft'}, "model.conv='fft': unknown; known: 'auto', "),
  ({'data.validation': 0.9}, 'data.validation=0.9: must be at most 0.5'),
  ({'model.name': 'convet'}, "model.name='convet': unknown; nearest: convnet"),
  (
    {'data.name': 'no_such_module:load'},
    "data.name='no_such_module:load': cannot be imported (No module",
  ),
  ({'data.name': ':load'}, "data.name=':load': cannot be imported"),
  (
    {'model.name': 'json:nothing'},
    "model.name='json:nothing': module json has no function 'nothing'",
  ),
  (
    {'algorithm': 'feddf+dynafed'},
    "algorithm='feddf+dynafed': needs server data and data.proxy='' names none; try data.proxy='held_out'",
  ),
  (
    {'algorithm': 'abavg', 'data.proxy': 'mnist'},
    "algorithm='abavg': needs labels on the server's data; data.proxy='mnist' has other classes",
  ),
  ({'data.proxy': 'heldout'}, "data.proxy='heldout': unknown"),
  ({'data.proxy_share': 0.0}, 'data.proxy_share=0.0: must be greater than 0'),
  ({'algorithm': ''}, "algorithm='': unknown"),
  ({'algorithm': 'dynafde'}, "algorithm='dynafde': unknown; nearest: dynafed"),
  ({'algorithm': 'scaffold+'}, "algorithm='': unknown"),
  ({'algorithm': 3}, 'algorithm=3: must be a string'),
  (
    {'algorithm': 'scaffold+dynafed+scaffold'},
    "algorithm='scaffold+dynafed+scaffold': 'scaffold' is repeated; each method can be used once",
  ),
  (
    {'algorithm': 'scaffold+fedavg'},
    "algorithm='scaffold+fedavg': 'fedavg' wraps nothing; it can only come first",
  ),
  ({'compare': 'dynafed'}, "compare='dynafed': is the algorithm itself; name another, or none"),
  ({'compare': 'fedavgg'}, "compare='fedavgg': unknown; nearest: fedavg"),
  ({'client.optimizer': 'adm'}, "client.optimizer='adm'"),
  ({'client.momentum': 0.9}, 'client.momentum=0.9'),
  ({'client.schedule': 'cosin'}, "client.schedule='cosin'"),
  ({'dynafed.length': 200}, 'dynafed.length=200'),
  ({'dynafed.segment': 30}, 'dynafed.segment=30'),
  (
    {'scaffold.option': 3},
    'scaffold.option=3: unknown; known: 0, 1, 2',
  ),  # an unused block is checked too
]

BAD_OVERRIDES = [
  ('seeds', '1', 'seeds=1: must be a tuple, as in 0,1,2 (of one: 1,)'),
  ('rounds', '100.0', 'rounds=100.0: must be an integer'),
  ('rounds', 'many', "rounds='many': must be an integer"),
  ('rounds', '', "rounds='': must be an integer"),
  ('rounds', 'True', 'rounds=True: must be an integer'),
  ('client.persistent', 'no', "client.persistent='no': must be True or False"),
  ('client.persistent', '0', 'client.persistent=0: must be True or False'),
  ('client.lr', 'False', 'client.lr=False: must be a number'),
  ('client.lr', '1e999', 'client.lr=inf: must be a finite number'),
  ('client.lrate', '1', "client.lrate='1': no such field; nearest: client.lr"),
  ('client', '1', "client='1': no such field"),
  ('algorithm', 'scafold', "algorithm='scafold': unknown; nearest: scaffold"),
]
