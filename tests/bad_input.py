"""Bad configs and command lines, each with the beginning of the one line that refuses it."""

import math

BAD = [
  ({'rounds': True}, 'rounds=True: must be an integer'),
  ({'rounds': 100.0}, 'rounds=100.0: must be an integer'),
  ({'rounds': None}, 'rounds=None: must be an integer'),
  ({'rounds': 0}, 'rounds=0: must be at least 1'),
  ({'rounds': -3}, 'rounds=-3: must be at least 1'),
  ({'seeds': '012'}, "seeds='012': must be a tuple, as in 0,1,2 (of one: 1,)"),
  ({'seeds': 3}, 'seeds=3: must be a tuple, as in 0,1,2 (of one: 3,)'),
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
    'client.epochs=0: exactly one of client.epochs and client.steps must be non-zero, '
    'and client.steps=0',
  ),
  (
    {'client.steps': 10},
    'client.epochs=1: exactly one of client.epochs and client.steps must be non-zero, '
    'and client.steps=10',
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
  ({'model.activations': 'half'}, "model.activations='half': unknown; known: 'float32', "),
  (
    {'model.activations': 'bfloat16', 'precision': 'tensorfloat32'},
    "model.activations='bfloat16': needs precision=bfloat16, and it is tensorfloat32; ",
  ),
  ({'data.validation': 0.9}, 'data.validation=0.9: must be at most 0.5'),
  ({'model.name': 'convet'}, "model.name='convet': unknown; nearest: convnet"),
  (
    {'data.name': 'no_such_module:load'},
    "data.name='no_such_module:load': cannot be imported (No module",
  ),
  ({'data.name': ':load'}, "data.name=':load': cannot be imported"),
  ({'algorithm': '.:x'}, "algorithm='.:x': cannot be imported"),
  (
    {'algorithm': 'clipped.py:clipped'},
    "algorithm='clipped.py:clipped': cannot be imported (there is no file /",
  ),
  (
    {'model.name': 'json:nothing'},
    "model.name='json:nothing': module json has no function 'nothing'",
  ),
  (
    {'algorithm': 'feddf+dynafed'},
    "algorithm='feddf+dynafed': needs server data and data.proxy='' names none; "
    "try data.proxy='held_out'",
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
  (
    {'algorithm': 'feddm+scaffold'},
    "algorithm='feddm+scaffold': 'scaffold' changes local training, "
    "but 'feddm' does not train locally",
  ),
  (
    {'compare': 'feddm+fedprox'},
    "algorithm='feddm+fedprox': 'fedprox' changes local training, "
    "but 'feddm' does not train locally",
  ),
  (
    {'algorithm': 'dynafed+feddm'},
    "algorithm='dynafed+feddm': 'feddm' cannot come after 'dynafed': its clients send data",
  ),
  (
    {'algorithm': 'abavg+fednova', 'data.proxy': 'held_out', 'client.optimizer': 'sgd'},
    "algorithm='abavg+fednova': 'fednova' cannot come after 'abavg': both replace the aggregation",
  ),
  (
    {'algorithm': 'fednova'},
    "algorithm='fednova': 'fednova' needs SGD with momentum below 1 (client.optimizer=sgd)",
  ),
  (
    {'algorithm': 'json:loads'},
    "algorithm='json:loads': is a function, and a method is a class since version 0.2: "
    'write class Loads(',
  ),
  (
    {'algorithm': 'builtins:repr'},
    "algorithm='builtins:repr': is no subclass of fedjax_syn.Layer",
  ),
  (
    {'algorithm': 'dp', 'dp.target_epsilon': 1e-9},
    'no noise keeps epsilon=1e-09 at delta=1e-05: use a larger one',
  ),
  (
    {'algorithm': 'fedcog', 'fedcog.start': 200},
    'fedcog.start=200 must be smaller than rounds=200',
  ),
  (
    {'algorithm': 'fedcog', 'fedcog.shared': True},
    'fedcog.shared=True: is False in this version (CHANGELOG.md)',
  ),
  (
    {'algorithm': 'feddualmatch', 'feddualmatch.sigma_s': 1.0},
    'feddualmatch.sigma_s=1.0 needs a bound: set feddualmatch.clip above 0',
  ),
  (
    {'algorithm': 'feddualmatch', 'feddualmatch.init': 'real', 'feddualmatch.clip': 1.0},
    "feddualmatch.init='real' with feddualmatch.clip: images that begin as real ones "
    "are not private; use 'noise'",
  ),
  (
    {'algorithm': 'feddualmatch', 'feddualmatch.target_epsilon': 1.0},
    'feddualmatch.target_epsilon=1.0: needs feddualmatch.clip above 0',
  ),
  (
    {'data.name': 'flair', 'algorithm': 'fedavg'},
    "data.partition='balanced_dirichlet': needs one class per row, "
    "and data.name='flair' has several",
  ),
  (
    {'data.name': 'flair', 'algorithm': 'feddm', 'data.partition': 'iid'},
    "algorithm='feddm': needs one class per sample, and these data have several labels per sample",
  ),
  (
    {'data.name': 'flair', 'algorithm': 'fedavg', 'data.partition': 'iid', 'personal_every': 1},
    'personal_every: needs one class per sample',
  ),
  (
    {'data.name': 'fortunes', 'algorithm': 'fedavg'},
    "model.name='convnet': takes images, and data.name='fortunes' has tokens; use text",
  ),
  (
    {'data.name': 'watch', 'model.name': 'convnet1d', 'algorithm': 'vhl'},
    "algorithm='vhl': needs images, and these data are a table or sequences (data.name='watch')",
  ),
  ({'rounds': 10**30}, f'rounds={10**30}: must be at most 2147483647'),
  ({'seeds': (2**31,)}, 'seeds=2147483648: must be at most 2147483647'),
  ({'data.clients': 10**9}, 'data.clients=1000000000: must be at most 10000000'),
  ({'data.clients': 0}, 'data.clients=0: must be at least 1'),
  ({'data.alpha': 0}, 'data.alpha=0.0: must be greater than 0'),
  ({'data.name': None}, 'data.name=None: must be a string'),
  ({'data.dir': 5}, 'data.dir=5: must be a string'),
  ({'eval_every': 0}, 'eval_every=0: must be at least 1'),
  ({'client.batch_size': -1}, 'client.batch_size=-1: must be at least 0'),
  ({'client.epochs': 1.5}, 'client.epochs=1.5: must be an integer'),
  ({'client.augment': 'flipp'}, "client.augment='flipp': unknown; known: 'none', 'crop_flip'"),
  ({'layout.form': 'ring'}, "layout.form='ring': unknown; known: '', 'blocks', 'loop'"),
  ({'server.weighting': 'sizes'}, "server.weighting='sizes': unknown; known: 'uniform', 'size'"),
  ({'dynafed.augment': 'rotat'}, "dynafed.augment: augmentation 'rotat': use each of colour"),
  (
    {'fedopt.optimizer': 'lamb'},
    "fedopt.optimizer='lamb': unknown; known: 'sgd', 'adam'",
  ),
  ({'client.optimizer': 'adm'}, "client.optimizer='adm'"),
  ({'client.momentum': 0.9}, 'client.momentum=0.9'),
  ({'client.schedule': 'cosin'}, "client.schedule='cosin'"),
  ({'dynafed.length': 200}, 'dynafed.length=200'),
  (  # what else would be refused is said at once
    {'dynafed.length': 200, 'data.name': 'digit', 'seeds': (1, 1)},
    'dynafed.length=200 must be smaller than rounds=200: no round would be fine-tuned;'
    " try --config.dynafed.length=100; data.name='digit': unknown; nearest: digits, digit_five;"
    ' seeds=(1, 1): must be one or more distinct integers',
  ),
  ({'dynafed.segment': 30}, 'dynafed.segment=30'),
  (
    {'scaffold.option': 3},
    'scaffold.option=3: unknown; known: 0, 1, 2',
  ),  # an unused block is checked too
]

LONG = 'x' * 10**6
BAD_OVERRIDES = [
  ('client.lr', '9' * 400, f'client.lr={"9" * 150}[... 200 characters ...]'),
  ('client.lr', '1' * 5000, "client.lr='111"),
  ('seeds', '0x' + 'f' * 5000, 'seeds=int of 20000 bits: must be a tuple'),
  ('rounds', '{[]:1}', "rounds='{[]:1}': must be an integer"),
  ('rounds', '{[], 1}', "rounds='{[], 1}': must be an integer"),
  ('rounds', '-' * 5000, "rounds='---"),
  ('rounds', '-' * 5000 + '1', "rounds='---"),
  ('rounds', '[' * 5000, "rounds='[[["),
  ('rounds', '1+' * 5000 + '1', "rounds='1+1+"),
  ('rounds', '9' * 10**7, "rounds='999"),
  ('rounds', '\u0661\u0662', "rounds='\u0661\u0662': must be an integer"),  # Arabic digits
  ('rounds', '\u22121', "rounds='\u22121': must be an integer"),  # a minus that is none
  ('rounds', '1e3', 'rounds=1000.0: must be an integer'),
  ('rounds', '5\0', r"rounds='5\x00': must be an integer"),
  ('rounds', '\x1b[31m5', r"rounds='\x1b[31m5': must be an integer"),
  ('rounds', r'"\d"', r"rounds='\\d': must be an integer"),  # Python would warn of it
  ('seeds', '((0,1),2)', 'seeds=(0, 1): must be an integer'),
  ('seeds', '{1: 2}', 'seeds={1: 2}: must be a tuple'),
  ('client.lr', 'nan', "client.lr='nan': must be a number"),
  ('client.lr', '1+2j', 'client.lr=(1+2j): must be a number'),
  ('client.lr\x1b[31m', '1', r"client.lr\x1b[31m='1': no such field; --list=fields"),
  (LONG, '1', 'xxx'),
  ('data.dir', 'a\0b', r"data.dir='a\x00b': must not contain a null character"),
  ('data.name', LONG, "data.name='xxx"),
  ('algorithm', 'fedprox+' * 10**5, "algorithm='fedprox+fedprox"),
  ('model.name', LONG, "model.name='xxx"),
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
  (
    'algorithm',
    'dynafed(scaffold)',
    "algorithm='dynafed(scaffold)': unknown; nearest: scaffold+dynafed",
  ),
  (
    'algorithm',
    'Scaffold>DynaFed',
    "algorithm='Scaffold>DynaFed': unknown; nearest: scaffold+dynafed",
  ),
  (
    'algorithm',
    'scaffold(client.lr=0.1)',
    "algorithm='scaffold(client.lr=0.1)': settings in parentheses are those of compare;"
    ' of the algorithm they are written'
    ' --config.algorithm=scaffold --config.client.lr=0.1',
  ),
  ('algorithm', 'DP-FedAvg', "algorithm='DP-FedAvg': unknown; nearest: dp"),
  ('client.nesterov', '1', "client.nesterov='1': no such field; --list=fields names all"),
]
