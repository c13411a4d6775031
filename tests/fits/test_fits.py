"""`fits`: targets are read or refused, data need no files, and devices that are there work."""

import json

import jax
import numpy as np
import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.cli import fits, jax_setup
from fedjax_syn.config import files
from fedjax_syn.fits import data_shapes, measure, targets, texts
from fedjax_syn.fits.measure import Need


@pytest.fixture(autouse=True)
def settings_of_jax():
  before = jax.config.jax_compilation_cache_include_metadata_in_key
  yield
  jax.config.update('jax_compilation_cache_include_metadata_in_key', before)


def resolved_of(name='dynafed_digits', **changes):
  settings = [f'--config.{key.replace("__", ".")}={value}' for key, value in changes.items()]
  return config_lib.check(files.load_config(name, settings))


def test_targets_are_read():
  read = targets.parse('v5e:4x8,v5p:2x2x1,h200,h100:8,cpu:2')
  assert [(t.chip.name, t.layout) for t in read] == [
    ('v5e', '4x8'),
    ('v5p', '2x2x1'),
    ('h200', '1'),
    ('h100', '8'),
    ('cpu', '2'),
  ]


@pytest.mark.parametrize(
  ('text', 'line'),
  [
    ('', '--target=: name devices, as v5e:2x2,h200'),
    ('h20', "--target=h20: no such device (did you mean 'h200'?)"),
    ('v5e', '--target=v5e: write v5e:2x2'),
    ('v5e:0x2', '--target=v5e:0x2: write v5e:2x2'),
    ('h200:2x2', '--target=h200:2x2: write h200:8'),
    ('cpu:1000', '--target=cpu:1000: there are 4 CPU devices'),
  ],
)
def test_wrong_targets_are_refused_in_one_line(text, line, capsys, monkeypatch):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  with pytest.raises(SystemExit, match='2'):
    fits.main(['fits.py', f'--target={text}'])
  error = capsys.readouterr().err
  assert error.startswith(line) and error.count('\n') == 1


def test_a_missing_compiler_is_one_line(capsys, monkeypatch):
  monkeypatch.setattr(targets.importlib.util, 'find_spec', lambda _: None)
  with pytest.raises(SystemExit, match='2'):
    fits.main(['fits.py', '--target=v5e:2x2'])
  assert capsys.readouterr().err == (
    "--target=v5e:2x2: its compiler is not installed; pip install 'fedjax-syn[fits-tpu]'\n"
  )


def test_known_data_need_no_files():
  cifar = data_shapes.problem_of(resolved_of('dynafed_cifar10'), None)
  assert cifar.problem.data.x.shape == (50000, 32, 32, 3)
  assert cifar.problem.data.x.dtype == np.uint8
  assert cifar.size.tolist() == [625] * 80 and cifar.splits == {'test': 10000}
  domains = data_shapes.problem_of(resolved_of('feddualmatch_digit_five'), None)
  assert sorted(domains.size.tolist()) == [7438, 25000, 25000, 25000, 25000]
  assert domains.splits['test'] == 37860 and domains.splits['domain/4'] == 1860


@pytest.mark.parametrize(
  'name, shape, columns',
  [
    ('watch', (2765, 100, 6), 6),  # of ten people, two are unseen
    ('vietnam', (17807, 20), 20),  # of 194 communes, 39
    ('inst_eval', (46991, 5), 1),
  ],
)
def test_federations_need_no_files(name, shape, columns):
  data = data_shapes.problem_of(resolved_of(name), None).problem.data
  assert data.x.dtype == (np.int32 if name == 'inst_eval' else np.float32)
  assert data.x.shape[0] == pytest.approx(shape[0], abs=100) and data.x.shape[1:] == shape[1:]
  assert data.mean.shape == data.std.shape == (columns,)


def test_held_out_and_server_rows_are_taken_from_the_clients():
  changes = {'data__validation': 0.1, 'data__proxy': 'held_out', 'data__proxy_share': 0.1}
  digits = data_shapes.problem_of(
    resolved_of(**changes), data_shapes.Facts((1000, 200), (8, 8, 1), 10)
  )
  assert digits.problem.data.x.shape == (810, 8, 8, 1)
  assert digits.problem.data.proxy.x.shape == (90, 8, 8, 1)
  assert digits.splits == {'test': 200, 'validation': 100}


def test_rows_in_host_memory_are_not_on_the_devices():
  changes = {'data__placement': 'host', 'client__participation': 0.1}
  resolved, (target,) = resolved_of('dynafed_cifar10', **changes), targets.parse('cpu:1')
  engine, _ = measure.engine_of(resolved, target, None)
  assert engine.programs({}, np.full(80, 625))[1].lower().in_avals[0][3].x.shape[0] == 8 * 625


def test_facts_of_unknown_data_are_stated_all_three():
  stated = data_shapes.of_flags('700,100', '16,16,3', 5)
  assert stated == data_shapes.Facts((700, 100), (16, 16, 3), 5)
  assert data_shapes.of_flags('', '', 0) is None
  with pytest.raises(ValueError, match='say all three'):
    data_shapes.of_flags('700,100', '', 5)


def test_the_roofline_is_the_slowest_part():
  chip = targets.CHIPS['v5e']
  need = Need(
    program='r', unit='a round', operations=197e12, bytes=819e9, collectives={'all-reduce': 2e11}
  )
  seconds = measure.roofline(need, chip, 'bfloat16', 2)
  # 2e11 bytes, half of them sent twice, over links of 1600 Gbit/s.
  assert seconds == pytest.approx({'operations': 1.0, 'memory': 1.0, 'links': 1.0})
  assert measure.roofline(need, chip, 'float32', 1) == pytest.approx(
    {'operations': 6.0, 'memory': 1.0}
  )
  # A GPU rounds float32 arrays to tensorfloat32 at most.
  gpu = targets.CHIPS['a100-80']
  slow, fast = (
    measure.roofline(need, gpu, 'bfloat16', 1, kind)['operations']
    for kind in ('float32', 'bfloat16')
  )
  assert (slow, fast) == pytest.approx((197 / 156, 197 / 312))
  assert measure.roofline(need, targets.CHIPS['cpu'], 'float32', 1) == {}


def test_what_does_not_fit_is_said_with_what_would_help():
  target, resolved = targets.parse('a100')[0], resolved_of(dynafed__adjoint='stored')
  synthesis = Need(program='synthesis', unit='an iteration', temporaries=50e9)
  rounds = Need(
    program='rounds 1 to 20', unit='a round', compiles=False, reason='needs 25.0 GiB of 15.7'
  )

  class engine:
    layout = measure.Layout(lanes=32, devices=1)
    client_state_bytes, client_state_place = 0, 'device'

  assert not measure.fits(synthesis, target.chip) and not measure.fits(rounds, target.chip)
  lines = texts.report(target, engine, resolved, [rounds, synthesis])
  text = '\n'.join(lines)
  assert 'does not compile: needs 25.0 GiB of 15.7' in text
  assert (
    'DOES NOT FIT: synthesis: needs 46.6 GiB. What would help: --config.dynafed.adjoint=jvp' in text
  )


@pytest.mark.parametrize(
  'message',
  [
    'Ran out of memory in memory space hbm. Used 25.01G of 15.75G hbm. Exceeded',
    'Ran out of memory on HBM, the total memory required for HLO temporaries (25.01G) exceeds'
    ' available HBM (15.75G).',
  ],
)
def test_a_compiler_that_runs_out_of_memory_says_how_much(message):
  need = Need(program='rounds', unit='a round')
  measure._failed(need, f'RESOURCE_EXHAUSTED: {message}')
  assert not need.compiles and need.reason == 'needs 25.0 GiB of 15.8'
  assert need.temporaries == pytest.approx(25.01 * 2**30)


def test_data_that_nobody_knows_are_stated_or_read(tmp_path):
  own = resolved_of('own_images', data__dir=tmp_path / 'none', data__clients=4)
  with pytest.raises(ValueError, match=r'or say --rows=TRAIN,TEST --shape'):
    data_shapes.problem_of(own, None)
  stated = data_shapes.problem_of(own, data_shapes.Facts((100, 20), (32, 32, 3), 5))
  assert stated.size.sum() == 100 and stated.problem.data.x.shape == (100, 32, 32, 3)


@pytest.mark.parametrize(
  ('value', 'text'),
  [(512, '512 B'), (1536, '1.50 KiB'), (1.18 * 2**30, '1.18 GiB'), (125 * 2**20, '125 MiB')],
)
def test_sizes(value, text):
  assert texts.size(value) == text


def test_a_target_that_is_there(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  monkeypatch.chdir(tmp_path)
  words = [
    *('--config=dynafed_digits', '--target=cpu:2', '--json=out.json', '--config.rounds=4'),
    *('--config.algorithm=fedavg', '--config.compare=', '--config.data.clients=4'),
    *('--config.model.width=8', '--config.client.participation=1'),
  ]
  assert fits.main(['fits.py', *words]) == 0
  out = capsys.readouterr().out
  (record,) = json.loads((tmp_path / 'out.json').read_text())['targets']
  names = ['initial state', 'rounds 1 to 4', 'evaluation: test']
  assert [p['program'] for p in record['programs']] == names and all(n in out for n in names)
  rounds, evaluation = record['programs'][1:]
  # 1198 rows of 64 pixels; two of the four clients on each device, one after the other.
  assert rounds['arguments'] > 1198 * 64
  assert rounds['trips']['queue'] == 2
  # 64-8-8-10: three products a layer, without the gradient of the images, for each row of a batch.
  steps = round(rounds['trips']['local_steps'] * 2)
  layers = [2 * 64 * 8, 2 * 8 * 8, 2 * 8 * 10]
  assert rounds['operations'] == pytest.approx(steps * 16 * (3 * sum(layers) - layers[0]))
  # Half of the 599 rows on each device; counting what is right is a small product too.
  assert evaluation['operations'] == pytest.approx(300 * sum(layers), rel=0.02)
  assert not rounds['host_transfers'] and not rounds['unknown_loops']
