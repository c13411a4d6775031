"""Every field of a config with hostile values, through the entry of the command line, in process."""

import ast
import contextlib
import functools
import json
import math
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from absl.testing import flagsaver

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import train as launcher
from fedjax_syn.config import files, identity
from fedjax_syn.core import paths, texts
from fedjax_syn.runs import assemble, experiment, progress
from tools import _outcomes
from tools._outcomes import Outcome, Tally

TEXTS = (
  *('', ' ', '0', '1', '-1', '2', '3', '7', '0.5', '-0.0', '0.0', '1.0', '1e-9', '1e-160', '1e-300'),
  *('5e-324', '1e-45', '0.9999999', '1.0000001', '1e3', '1e9', '1e38', '1e39', '1e308', '1e309', '-1e309'),
  *('nan', 'inf', '-inf', 'NaN', 'Infinity', '1_000', '0x10', '0b1', '0o7', '007', '1e', '1.', '.5', '+5'),
  *('2147483647', '2147483648', '4294967296', '9223372036854775807', '9223372036854775808', '-2147483649'),
  *('9' * 20, '9' * 400, '9' * 5000, '0x' + 'f' * 5000, '0.' + '3' * 5000, '1' + '0' * 10**6),
  *('-' * 5000, '-' * 5000 + '1', '+' * 3000 + '1', '[' * 5000, '(' * 90 + ')' * 90, '1+' * 5000 + '1', '~1'),
  *('True', 'False', 'true', 'false', 'TRUE', 'yes', 'no', 'None', 'none', 'null', '...', 'Ellipsis'),
  *('()', '[]', '{}', '(1,)', '1,', '1,2', '[1, 2]', '(0, 0)', '((1,),)', '{1: 2}', '{[]: 1}', '{1, 2}', '{[]}'),
  *("'a'", '"a"', "b'a'", "'a',", "'a', 1", 'f"{1}"', 'r"\\d"', '"\\d"', "'''", '1j', '1+2j', '1/0', '2**99'),
  *('lambda: 0', '__import__("os")', 'os.system("true")', '1 is 1', '1if 1else 2', '0or 1', 'x=1', '1;2', '#'),
  *('\u0661\u0662', '\uff11\uff12', '\u22121', '\u00b2', '\u00bd', '1\u00a0000', '\u200b1', '\ufeff1', '\U0001f600'),
  *('a\0b', '5\0', '\0', 'a\nb', '\n', '\r\n1', '\x1b[31m5', '\x07', '\u202e1', 'caf\udce9', '\ud800'),
  *('$x_1$', '[red]', '%s%n', '{}', '{0}', '{x', '\\', '|', ';', '`id`', '$HOME', '~', '~no_such_user', '../..', '.'),
  *('a' * 300, 'a' * 5000, 'a' * 10**6, 'a b', '-', '--', '=', 'a=b', ',', '+', '++', ':', 'a:', ':a', '/'),
  *('adam', 'sgd', 'cosine', 'exponential(0.5)', 'exponential(nan)', 'exponential(1e999)', 'exponential()'),
  *('digits', 'mlp', 'iid', 'natural', 'noise', 'colour,crop', 'colour_crop', 'flip', 'fedavg', 'fedavg+fedavg'),
  *('json:loads', 'math:pi', 'no.such:thing', 'os:getcwd', 'builtins:print', 'tfds:', 'tfds:no_such', 'held_out'),
)  # fmt: skip


RUN = 300.0  # seconds of three rounds, most of them to compile them


class Odd:
  """An object that no field takes and that cannot be written."""

  def __repr__(self):
    raise RuntimeError('no text')


VALUES = (
  *(None, True, False, 0, 1, -1, 0.5, math.nan, math.inf, -math.inf, 1e308, 2**31, 2**63, 10**400, 16**5000),
  *('', 'a', 'a\0b', 'a' * 5000, b'a', (), [], (1,), [1.5], ((1,),), [None], {}, {'a': 1}, {1, 2}, 1j, ..., Odd()),
  *(int, len, range(3), object, [[]] * 3, ('a', 1), [True]),
)  # fmt: skip

# What a method needs from the rest of a config; the first that is accepted is taken.
SMALL = {
  'rounds': '3', 'compare': '', 'data.partition': 'iid', 'data.clients': '4', 'model.name': 'mlp', 'model.width': '8',
  'model.depth': '1', 'client.participation': '1', 'layout.devices': '1', 'dynafed.length': '2', 'dynafed.segment': '1',
  'dynafed.iterations': '2', 'fedcog.start': '1', 'vhl.warmup': '1',
}  # fmt: skip
NEEDS = (
  {},
  {'client.optimizer': 'sgd', 'client.lr': '0.1'},
  {'data.proxy': 'held_out'},
  {'data.proxy': 'held_out', 'client.optimizer': 'sgd'},
)


@functools.cache
def base_of(algorithm: str) -> tuple[str, ...]:
  """Returns settings of the command line with which a method is accepted, small enough to be run."""
  known = config_lib.leaves()
  for needs in NEEDS:
    wanted = {**SMALL, **needs, 'algorithm': algorithm}
    settings = tuple(f'--config.{k}={v}' for k, v in wanted.items() if k in known)
    try:
      config_lib.check(files.load_config(str(paths.DEFAULT_CONFIG), settings))
    except ValueError as error:
      refused = error
    else:
      return settings
  raise ValueError(f'{algorithm}: no settings of NEEDS are accepted ({refused})')


def cases(rng: random.Random) -> list[tuple[str, str]]:
  """Returns every field with every text, and texts as fields, in a random order."""
  keys = sorted(config_lib.leaves())
  pairs = [(key, text) for key in keys for text in TEXTS]
  pairs += [(text, '1') for text in TEXTS if text != '']
  rng.shuffle(pairs)
  return pairs


def base_for(key: str) -> tuple[str, ...]:
  """Returns the settings beside a field: of the method whose block it is in, else of the simplest."""
  block = key.partition('.')[0]
  return base_of(block if block in algorithms.names() else 'fedavg')


def on_command_line(key: str, text: str, workdir: Path) -> Outcome:
  """Gives a value as `launch/main.py --config.key=text` does; everything but the run itself."""
  settings = [*base_for(key), f'--config.{key}={text}']
  runs: list[Any] = []

  def run(config, folder, *, config_name):
    runs.append((config_lib.check(config), folder, config_name))
    return 0

  def call():
    with flagsaver.flagsaver():
      status = launcher.main(cli.parse(['main.py', f'--workdir={workdir}', *settings]))
    return runs[0][0] if status == 0 else status

  with (
    mock.patch.object(experiment, 'run_experiment', run),
    mock.patch.object(launcher, 'prepare_jax', lambda *_: None),
  ):
    done = _outcomes.outcome(call)
  if done.kind == 'accepted':
    return _stored(done)
  return _named(done, key, text)


def in_a_file(key: str, value: Any) -> Outcome:
  """Gives a value of any type as a config file would."""
  settings = base_for(key)
  tree = config_lib.to_dict(files.load_config(str(paths.DEFAULT_CONFIG), settings))
  section, _, name = key.rpartition('.')
  (tree[section] if section else tree)[name] = value
  done = _outcomes.outcome(lambda: config_lib.check(tree))
  return _stored(done) if done.kind == 'accepted' else _named(done, key, value)


def _stored(done: Outcome) -> Outcome:
  """An accepted config can be written, read back and hashed."""
  resolved = done.value

  def call():
    text = config_lib.to_json(resolved)
    text.encode()
    again = config_lib.check(json.loads(text))
    if identity.hash8(again) != identity.hash8(resolved):
      raise AssertionError('another config comes back from JSON')
    return resolved

  return _outcomes.outcome(call, refusals=())


def _named(done: Outcome, key: str, value: Any) -> Outcome:
  """A refusal names the key or the value."""
  if done.kind != 'refused':
    return done
  words = [key.rpartition('.')[2], texts.printable(key)]
  if isinstance(value, str):
    words += [value, repr(value)[1:-1]]
    with contextlib.suppress(Exception), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      words.append(repr(ast.literal_eval(value)))
  return done if _outcomes.names(done.text, words) else done._replace(kind='unnamed')


def built(resolved: Any, folder: Path) -> Outcome:
  """Loads the data of an accepted config, deals them out and builds its engine."""

  def call():
    problem = assemble.load(resolved)
    assemble.job(resolved, folder, problem, progress.Reporter())

  return _outcomes.outcome(call)


def trained(resolved: Any, folder: Path) -> Outcome:
  """Runs an accepted config to its end."""
  done = _outcomes.outcome(
    lambda: experiment.run_experiment(resolved, folder, show=progress.Reporter()), hang=RUN
  )
  if done.kind == 'accepted' and done.value not in (0, 3):  # finished, or all seeds diverged
    return done._replace(kind='traceback', text=f'accepted, and ended with status {done.value}')
  return done


def hunt(seed: int, seconds: float, share: float, scratch: Path) -> Iterator[list[str]]:
  """Gives values until the time is up.

  Args:
    seed: of the order.
    seconds: in all.
    share: of the values that are given at all.
    scratch: an empty folder.

  Yields:
    The lines of a report on each part.
  """
  rng, began = random.Random(seed), time.monotonic()
  over = lambda part: time.monotonic() > began + part * seconds
  pairs = cases(rng)
  pairs = pairs[: math.ceil(share * len(pairs))]
  accepted: list[tuple[str, Any]] = []
  tally = Tally()
  for key, text in pairs:
    if over(0.7):
      break
    done = on_command_line(key, text, scratch / 'W')
    what = f'--config.{key}={text}'
    tally.add(what, done)
    if done.kind == 'accepted':
      accepted.append((what, done.value))
  yield tally.report('values of the command line')
  tally = Tally()
  typed = [(key, i) for key in sorted(config_lib.leaves()) for i in range(len(VALUES))]
  rng.shuffle(typed)
  for key, i in typed[: math.ceil(share * len(typed))]:
    if over(0.8):
      break
    done = in_a_file(key, VALUES[i])
    what = f'{key}={texts.shown(VALUES[i], 60)}'
    tally.add(what, done)
    if done.kind == 'accepted':
      accepted.append((what, done.value))
  yield tally.report('values of a config file')
  rng.shuffle(accepted)
  accepted = accepted[: math.ceil(share * len(accepted))]
  for title, act, until in (
    ('accepted values, built', built, 0.9),
    ('accepted values, trained', trained, 1),
  ):
    tally = Tally()
    for i, (what, resolved) in enumerate(accepted):
      if over(until):
        break
      tally.add(what, act(resolved, scratch / f'{act.__name__}_{i}'))
    yield tally.report(title)
