"""Any text for any field is refused in one line, or gives a config that runs."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.config import ConfigError, files, get_default, identity, override, to_dict
from fedjax_syn.core import paths
from fedjax_syn.runs import experiment
from tools import interrupt_runs

ODD = (
  *('0', '-0.0', '1e-160', '5e-324', '1e-45', '0.9999999', '1e9', '1e39', '1e308', '1e309', 'nan'),
  *('-inf', 'Infinity', '1_000', '0x10', '007', '1.', '2147483648', '9223372036854775808'),
  *('9' * 400, '0.' + '3' * 5000, '~1', 'TRUE', 'None', '...', '()', '{}', '1,', '1,2', '(0, 0)'),
  *('((1,),)', '{1, 2}', "b'a'", "'a', 1", 'f"{1}"', "'''", '1+2j', '1/0', '2**99', 'lambda: 0'),
  *('__import__("os")', '1 is 1', '1if 1else 2', '\u00b2', '\u200b1', 'a\0b', '\x1b[31m5'),
  *('caf\udce9', '[red]', '%s%n', '{0}', '$HOME', '~no_such_user', '../..', 'a' * 5000, '++', ':'),
  *('adam', 'cosine', 'exponential(nan)', 'exponential(1e999)', 'exponential()', 'digits', 'iid'),
  *('colour,crop', 'flip', 'fedavg+fedavg', 'json:loads', 'no.such:thing', 'builtins:print'),
  *('tfds:', 'tfds:no_such', 'held_out'),
)
NUMBERS = st.one_of(st.integers().map(str), st.floats().map(repr))
TEXTS = st.one_of(st.sampled_from(ODD), NUMBERS, st.text(max_size=12))
KEYS = sorted(config_lib.leaves())
QUICK = ('--config.rounds=5', '--config.dynafed.iterations=2')


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KEYS), TEXTS)
def test_a_text_is_refused_in_one_line_or_comes_back_from_json(key, text):
  config = get_default()
  try:
    override(config, key, text)
    checked = config_lib.check(config)
  except ConfigError as error:
    line = str(error)
    assert line.isprintable() and len(line) < 5000
    assert key.rpartition('.')[2] in line or repr(text)[1:21] in line
  else:
    again = config_lib.check(json.loads(json.dumps(to_dict(checked))))
    assert identity.hash8(again) == identity.hash8(checked)


@settings(max_examples=40, deadline=None)
@given(TEXTS.filter(bool))
def test_no_text_is_a_field(text):
  assume(text not in KEYS)
  with pytest.raises(ConfigError) as refused:
    override(get_default(), text, '1')
  assert str(refused.value).isprintable()


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.sampled_from(KEYS), TEXTS)
def test_an_accepted_text_runs_or_is_refused_in_one_line(key, text):
  block = key.partition('.')[0]
  algorithm = block if block in algorithms.names() else 'fedavg'
  words = [*interrupt_runs.small_run(algorithm).words[1:], *QUICK]
  config = files.load_config(str(paths.DEFAULT_CONFIG), words)
  try:
    override(config, key, text)
    config_lib.check(config)
  except ConfigError:
    assume(False)
  with tempfile.TemporaryDirectory() as folder:
    assert experiment.run_experiment(config, Path(folder) / 'W') in (0, 2, 3)
