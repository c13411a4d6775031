"""Which arguments of Python functions are fields of a config."""

# Arguments of `run` that are fields of a config.
FIELDS = {
  'rounds': 'rounds',
  'seeds': 'seeds',
  'clients': 'data.clients',
  'partition': 'data.partition',
  'alpha': 'data.alpha',
  'participation': 'client.participation',
  'eval_every': 'eval_every',
  'personal_every': 'personal_every',
  'data_dir': 'data.dir',
  'partition_seed': 'data.seed',
  'placement': 'data.placement',
  'unseen_clients': 'data.unseen_clients',
  'label_noise': 'data.label_noise',
  'validation': 'data.validation',
  'patience': 'patience',
  'sampler': 'client.sampler',
  'weights': 'model.weights',
  'metrics': 'metrics',
}
