"""`check(config)`: everything that can be refused is refused here, before data are loaded."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import ml_collections

from fedjax_syn import algorithms
from fedjax_syn.algorithms.old_fields import without_constants
from fedjax_syn.chains import TRAITS, Chain
from fedjax_syn.config import blocks, compared, method_list
from fedjax_syn.config.parsing import check_algorithm, check_name, leaves, no_such
from fedjax_syn.config.schema import METHODS, SECTIONS, Resolved, flatten, to_dict
from fedjax_syn.core import own_code, own_metrics
from fedjax_syn.core.fields import ConfigError, check_range, coerce
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.texts import shown
from fedjax_syn.data import facts
from fedjax_syn.data.normalisation import NORMALISATIONS

HELD_OUT = 'held_out'  # also in the data sets, which are slow to import


def check(config: Any) -> Resolved:
  """Refuses what cannot work; reads no data.

  Args:
    config: a ConfigDict, a dict (nested, as in a `config.json`, or by dotted key) or a Resolved;
      missing fields are defaults.

  Returns:
    The config as frozen dataclasses.

  Raises:
    ConfigError: unknown fields and names, wrong types, values out of range, impossible
      combinations.
  """
  try:
    flat = without_constants(flatten(to_dict(config)))
  except RecursionError as error:
    raise ConfigError('config: holds itself') from error
  except ml_collections.config_dict.RequiredValueError as error:
    raise ConfigError(f'config: a required value is missing ({error})') from error
  where = [coerce(f'data.{key}', flat.get(f'data.{key}', ''), str) for key in ('name', 'dir')]
  if where[0]:
    flat |= dict(zip(('data.name', 'data.dir'), facts.split_name(*where), strict=True))
  texts = {key: coerce(key, flat.get(key, getattr(Resolved, key)), str) for key in METHODS}
  named = [(k, word) for k, text in texts.items() for word in method_list.words_of(k, text)]
  words = [word for _, word in named]
  for key, word in named:
    check_algorithm(key, word)
  outside = coerce('outside', flat.get('outside', ()), tuple[str, ...])
  for word in outside:
    check_name('outside', word, 'algorithms')
  if 'outside' in flat:  # it lists whose blocks these are; others are the package's
    new = {algorithms.block_name(word) for word in {*blocks.outside((), *words)} - {*outside}}
    flat = {k: v for k, v in flat.items() if k.partition('.')[0] not in new & {*algorithms.LAYERS}}
  outside = blocks.outside(outside, *words)
  blocks.check(named)
  known = leaves(*outside)
  for key, value in flat.items():
    if key not in known:
      raise ConfigError(f'{key}={shown(value)}: {no_such(key, known, outside)}')
  values: dict[str, dict[str, Any]] = {}
  for key, leaf in known.items():
    section, _, name = key.rpartition('.')
    value = leaf.default
    if key in flat:
      value = coerce(key, flat[key], leaf.kind)
      check_range(key, value, leaf.rules)
    values.setdefault(section, {})[name] = value
  values['']['compare'] = compared.canonical(values['']['compare'], known, outside)
  sections = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
  layers = blocks.build(outside, values, flat)
  given = Resolved(**values[''] | {'outside': outside}, **sections, blocks=layers)
  try:
    try:
      resolved = compared.resolve_blocks(given)
    except ValueError as error:  # too few rounds, say
      raise ConfigError('; '.join([str(error), *_other_refusals(given)])) from error
    _check_names(resolved)
    _check_combinations(resolved)
  except ConfigError:
    raise
  except ValueError as error:  # of layers, optimizers, schedules, compositions
    raise ConfigError(str(error)) from error
  return resolved


def _other_refusals(resolved: Resolved) -> list[str]:
  """Returns what would be refused next of a config whose methods do not fit its rounds."""
  errors = []
  for one in (_check_names, _check_seeds):
    try:
      one(resolved)
    except ValueError as error:
      errors.append(str(error))
  return errors


def _check_names(resolved: Resolved) -> None:
  from fedjax_syn import models  # Flax is slow to import, and most refusals come before

  data, model = resolved.data, resolved.model
  check_name('data.name', data.name, 'datasets')
  if data.proxy not in ('', HELD_OUT):
    check_name('data.proxy', data.proxy, 'datasets')
  check_name('data.partition', data.partition, 'partitions')
  check_name('model.name', model.name, 'models')
  takes_numbers = ':' not in model.name and model.name not in models.TEXT
  if takes_numbers and 'real values' in facts.LACKS.get(data.name, ()):
    raise ConfigError(
      f'model.name={model.name!r}: takes images, and data.name={data.name!r} has tokens; use'
      f' {", ".join(models.TEXT)}'
    )
  if ':' in resolved.client.sampler:
    own_code.load(resolved.client.sampler, 'client.sampler')
  else:
    check_range('client.sampler', resolved.client.sampler, {'choices': tuple(SAMPLERS)})
  for word in resolved.metrics:
    own_metrics.load(word)
  for key, value, known in (
    ('data.normalisation', data.normalisation, ('', *NORMALISATIONS)),
    ('model.norm', model.norm, models.NORMS),
    ('model.pooling', model.pooling, models.POOLINGS),
    ('model.init', model.init, models.INITS),
    ('model.conv', model.conv, ('auto', *models.FORMS)),
  ):
    check_range(key, value, {'choices': tuple(known)})


def _check_seeds(resolved: Resolved) -> None:
  check_together({**flatten(to_dict(resolved)), 'seeds': resolved.seeds})


def _check_combinations(resolved: Resolved) -> None:
  _check_seeds(resolved)
  for name in resolved.trackers:
    if importlib.util.find_spec(name) is None:
      raise ConfigError(f"trackers={name!r}: is not installed; pip install -e '.[{name}]'")
  if resolved.model.activations != 'float32' and resolved.precision != 'bfloat16':
    raise ConfigError(
      f'model.activations={resolved.model.activations!r}: needs precision=bfloat16, and it is'
      f' {resolved.precision}; model.activations=float32 would work too'
    )
  lacks = facts.LACKS.get(resolved.data.name, ())
  _check_methods(resolved)
  facts.check_partition(resolved.data.name, resolved.data.partition)
  if resolved.personal_every and 'one class' in lacks:
    raise ConfigError(f'personal_every: needs {TRAITS["one class"]}; 0 would work')


def _check_methods(resolved: Resolved) -> None:
  """Checks the layers of each method, the data that it needs, and that no two are the same."""
  seen = [algorithms.create(resolved.algorithm, resolved)]
  _check_data(resolved.algorithm, seen[0], resolved)
  methods = method_list.read(resolved.compare)
  for method in methods:
    where = f'compare={shown(str(method))}: '
    try:
      config = compared.config_of(resolved, method)
      chain = algorithms.create(method.word, config)
      _check_data(method.word, chain, config)
    except ValueError as error:
      raise ConfigError(f'{where if method.settings else ""}{error}') from error
    if chain == seen[0]:
      raise ConfigError(
        f'{where}is the algorithm itself; name another, or none (--config.compare=), or give it'
        f' other settings, as in {method.word}(client.lr=0.1)'
      )
    if chain in seen:
      raise ConfigError(
        f'{where}is named twice; name it once, or with other settings, as in'
        f' {method.word}(client.lr=0.1)'
      )
    seen.append(chain)


def check_together(values: Mapping[str, Any], name: Callable[[str], str] = str) -> None:
  """Checks seeds, shares and intervals against each other.

  Args:
    values: by dotted key.
    name: what the messages call a key.

  Raises:
    ConfigError: naming what would work.
  """
  seeds = values['seeds']
  if len(set(seeds)) != len(seeds) or not seeds:
    raise ConfigError(f'{name("seeds")}={shown(seeds)}: must be one or more distinct integers')
  share, clients = values['client.participation'], values['data.clients']
  if values.get('client.sampler', 'fixed') == 'fixed' and round(share * clients, 9) < 1:
    raise ConfigError(
      f'{name("client.participation")}={share}: is less than one of'
      f' {name("data.clients")}={clients}; at least {1 / clients:g}'
    )
  every, personal = values['eval_every'], values['personal_every']
  if values.get('model.weights') and values.get('start_from'):
    raise ConfigError(
      f'model.weights={shown(values["model.weights"])}: the model comes from start_from; one of the'
      ' two would work'
    )
  partition = str(values.get('data.partition', ''))
  held = values.get('data.validation') or values.get('data.proxy') == HELD_OUT
  if partition.startswith('file:') and held:
    raise ConfigError(
      f'data.partition={shown(partition)}: its rows are those of the whole training set;'
      " data.validation=0 and data.proxy='' would work"
    )
  unseen = values.get('data.unseen_clients', 0)
  if unseen and partition.startswith('file:'):
    raise ConfigError(
      f'{name("data.unseen_clients")}={unseen}: the rows of'
      f' {name("data.partition")}={shown(partition)} are those of the whole training set; natural'
      ' would work'
    )
  for key in ('patience', 'keep_best'):
    if values.get(key) and not values.get('data.validation'):
      raise ConfigError(
        f'{name(key)}={values[key]}: needs held-out training rows:'
        f' {name("data.validation")}=0.1 holds out a tenth'
      )
  if personal % every:
    raise ConfigError(
      f'{name("personal_every")}={personal}: must be a multiple of {name("eval_every")}={every}'
    )


def _check_data(word: str, method: Chain, resolved: Resolved) -> None:
  """Checks that a method gets the data that it needs."""
  data, needed = resolved.data, method.server_data
  if needed and not data.proxy:
    other = '' if needed == 'labels' else ', or another data set'
    raise ConfigError(
      f"algorithm={shown(word)}: needs server data and data.proxy='' names none; try"
      f' data.proxy={HELD_OUT!r} (a share of the training rows{other})'
    )
  if needed == 'labels' and data.proxy != HELD_OUT:
    raise ConfigError(
      f"algorithm={shown(word)}: needs labels on the server's data; data.proxy={data.proxy!r} has"
      f' other classes, try {HELD_OUT!r}'
    )
  for trait in sorted(method.requires):
    lacks = facts.LACKS.get(data.name, ())
    if trait in lacks:
      kind = 'tokens' if 'real values' in lacks else 'a table or sequences'
      has = '' if trait == 'one class' else f', and these data are {kind}'
      where = f'(data.name={data.name!r})'
      raise ConfigError(f'algorithm={shown(word)}: needs {TRAITS[trait]}{has} {where}')
