"""Hostile values of each field of a config, on the command line and in config files."""

import argparse
import ast
import contextlib
import functools
import json
import math
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from absl.testing import flagsaver

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.cli import jax_setup, train
from fedjax_syn.config import files, identity
from fedjax_syn.core import paths, texts
from fedjax_syn.runs import assemble, experiment, progress
from tools import _outcomes, _small_runs
from tools._outcomes import Outcome, Tally

TEXTS = (
  *('', ' ', '0', '1', '-1', '2', '3', '7', '0.5', '-0.0', '0.0', '1.0', '1e-9', '1e-160'),
  *('1e-300', '5e-324', '1e-45', '0.9999999', '1.0000001', '1e3', '1e9', '1e38', '1e39', '1e308'),
  *('1e309', '-1e309', 'nan', 'inf', '-inf', 'NaN', 'Infinity', '1_000', '0x10', '0b1', '0o7'),
  *('007', '1e', '1.', '.5', '+5', '2147483647', '2147483648', '4294967296'),
  *('9223372036854775807', '9223372036854775808', '-2147483649', '9' * 20, '9' * 400, '9' * 5000),
  *('0x' + 'f' * 5000, '0.' + '3' * 5000, '1' + '0' * 10**6, '-' * 5000, '-' * 5000 + '1'),
  *('+' * 3000 + '1', '[' * 5000, '(' * 90 + ')' * 90, '1+' * 5000 + '1', '~1', 'True', 'False'),
  *('true', 'false', 'TRUE', 'yes', 'no', 'None', 'none', 'null', '...', 'Ellipsis', '()', '[]'),
  *('{}', '(1,)', '1,', '1,2', '[1, 2]', '(0, 0)', '((1,),)', '{1: 2}', '{[]: 1}', '{1, 2}'),
  *('{[]}', "'a'", '"a"', "b'a'", "'a',", "'a', 1", 'f"{1}"', 'r"\\d"', '"\\d"', "'''", '1j'),
  *('1+2j', '1/0', '2**99', 'lambda: 0', '__import__("os")', 'os.system("true")', '1 is 1'),
  *('1if 1else 2', '0or 1', 'x=1', '1;2', '#', '\u0661\u0662', '\uff11\uff12', '\u22121'),
  *('\u00b2', '\u00bd', '1\u00a0000', '\u200b1', '\ufeff1', '\U0001f600', 'a\0b', '5\0', '\0'),
  *('a\nb', '\n', '\r\n1', '\x1b[31m5', '\x07', '\u202e1', 'caf\udce9', '\ud800', '$x_1$'),
  *('[red]', '%s%n', '{}', '{0}', '{x', '\\', '|', ';', '`id`', '$HOME', '~', '~no_such_user'),
  *('../..', '.', 'a' * 300, 'a' * 5000, 'a' * 10**6, 'a b', '-', '--', '=', 'a=b', ',', '+'),
  *('++', ':', 'a:', ':a', '/', 'adam', 'sgd', 'cosine', 'exponential(0.5)', 'exponential(nan)'),
  *('exponential(1e999)', 'exponential()', 'digits', 'mlp', 'iid', 'natural', 'noise'),
  *('colour,crop', 'colour_crop', 'flip', 'fedavg', 'fedavg+fedavg', 'json:loads', 'math:pi'),
  *('no.such:thing', 'os:getcwd', 'builtins:print', 'tfds:', 'tfds:no_such', 'held_out'),
)  # fmt: skip


RUN = 300.0  # seconds of three rounds; most of them are compilation


class Odd:
  """No field accepts this object, and it has no text."""

  def __repr__(self):
    raise RuntimeError('no text')


VALUES = (
  *(None, True, False, 0, 1, -1, 0.5, math.nan, math.inf, -math.inf, 1e308, 2**31, 2**63, 10**400),
  *(16**5000, '', 'a', 'a\0b', 'a' * 5000, b'a', (), [], (1,), [1.5], ((1,),), [None], {}),
  *({'a': 1}, {1, 2}, 1j, ..., Odd(), int, len, range(3), object, [[]] * 3, ('a', 1), [True]),
)  # fmt: skip

SMALL = {
  'rounds': '3', 'compare': '', 'data.partition': 'iid', 'data.clients': '4', 'model.name': 'mlp',
  'model.width': '8', 'model.depth': '1', 'client.participation': '1', 'layout.devices': '1',
  'dynafed.length': '2', 'dynafed.segment': '1', 'dynafed.iterations': '2', 'fedcog.start': '1',
  'vhl.warmup': '1',
}  # fmt: skip
base_of = functools.cache(lambda algorithm: _small_runs.settings_of(algorithm, SMALL))


def cases(rng: random.Random) -> list[tuple[str, str]]:
  """Returns pairs of field and text: every field with every text, and texts as fields."""
  keys = sorted(config_lib.leaves())
  pairs = [(key, text) for key in keys for text in TEXTS]
  pairs += [(text, '1') for text in TEXTS if text != '']
  rng.shuffle(pairs)
  return pairs


def base_for(key: str) -> list[str]:
  """Returns the settings beside a field: those of the algorithm that has it, else of FedAvg."""
  block = key.partition('.')[0]
  return base_of(block if block in algorithms.names() else 'fedavg')


def on_command_line(key: str, text: str, workdir: Path) -> Outcome:
  """Does what `launch/main.py --config.key=text` does, without the run itself."""
  configs: list[Any] = []

  def run(config, folder, *, config_name):
    configs.append(config_lib.check(config))
    return 0

  def call():
    words = ['main.py', f'--workdir={workdir}', *base_for(key), f'--config.{key}={text}']
    with flagsaver.flagsaver():
      status = train.main(words)
    return configs[0] if status == 0 else status

  with (
    mock.patch.object(experiment, 'run_experiment', run),
    mock.patch.object(jax_setup, 'prepare_jax', lambda *_: None),
  ):
    return _checked(_outcomes.outcome(call), key, text)


def in_a_file(key: str, value: Any) -> Outcome:
  """Does what a config file does that sets a field to a value of any type."""
  tree = config_lib.to_dict(files.load_config(str(paths.DEFAULT_CONFIG), base_for(key)))
  section, _, name = key.rpartition('.')
  (tree[section] if section else tree)[name] = value
  return _checked(_outcomes.outcome(lambda: config_lib.check(tree)), key, value)


def _checked(result: Outcome, key: str, value: Any) -> Outcome:
  """Requires that a refusal names the key or the value, and that an accepted config is stored."""
  if result.kind == 'accepted':
    return _outcomes.outcome(lambda: _stored(result.value), refusals=())
  words = [key.rpartition('.')[2], texts.printable(key)]
  if isinstance(value, str):
    words += [value, repr(value)[1:-1]]
    with contextlib.suppress(Exception), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      words.append(repr(ast.literal_eval(value)))
  unnamed = result.kind == 'refused' and not _outcomes.names(result.text, words)
  return result._replace(kind='unnamed') if unnamed else result


def _stored(resolved: Any) -> Any:
  """Writes a config to JSON, reads it back and compares the hashes; returns the config."""
  text = json.dumps(config_lib.to_dict(resolved))
  text.encode()
  if identity.hash8(config_lib.check(json.loads(text))) != identity.hash8(resolved):
    raise AssertionError('another config comes back from JSON')
  return resolved


def built(resolved: Any, folder: Path) -> Outcome:
  """Loads and partitions the data of a config, and builds its engine."""

  def call():
    problem = assemble.load(resolved)
    assemble.job(resolved, folder, problem, progress.Reporter())

  return _outcomes.outcome(call)


def trained(resolved: Any, folder: Path) -> Outcome:
  """Runs a config to its end."""
  run = lambda: experiment.run_experiment(resolved, folder, show=progress.Reporter())
  result = _outcomes.outcome(run, hang=RUN)
  if result.kind == 'accepted' and result.value not in (0, 3):  # finished, or all seeds diverged
    return result._replace(kind='traceback', text=f'accepted, then exit status {result.value}')
  return result


def hunt(options: argparse.Namespace, scratch: Path) -> Iterator[Tally]:
  """Gives values until the time is up.

  Args:
    options: `minutes` in all, the `share` of the values that are given, and the `seed`.
    scratch: an empty folder.

  Yields:
    The outcomes of each part.
  """
  rng, began = random.Random(options.seed), time.monotonic()
  accepted: list[tuple[str, Any]] = []
  typed = [(key, value) for key in sorted(config_lib.leaves()) for value in VALUES]
  rng.shuffle(typed)
  give = lambda case: on_command_line(*case, scratch / 'W')
  parts: tuple[tuple[str, Sequence[Any], Callable[[Any], Outcome], float], ...] = (
    ('values of the command line', cases(rng), give, 0.7),
    ('values of a config file', typed, lambda case: in_a_file(*case), 0.8),
    ('accepted values, built', accepted, lambda case: built(case[1], scratch / 'built'), 0.9),
    ('accepted values, trained', accepted, lambda case: trained(case[1], _new(scratch)), 1.0),
  )
  for title, values, act, until in parts:
    tally = Tally(title)
    if values is accepted:
      rng.shuffle(accepted)
    for case in list(values[: math.ceil(options.share * len(values))]):
      if time.monotonic() > began + until * 60 * options.minutes:
        break
      what = case[0] if values is accepted else f'{case[0]}={texts.shown(case[1], 60)}'
      result = act(case)
      tally.add(what, result)
      if values is not accepted and result.kind == 'accepted':
        accepted.append((what, result.value))
    yield tally


def _new(scratch: Path) -> Path:
  return Path(tempfile.mkdtemp(dir=scratch)) / 'W'
