"""Checkpoints: exact, atomic, and distrusted when a byte differs."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedjax_syn.core import tree_encoding
from fedjax_syn.core.contexts import State
from fedjax_syn.runs import checkpoint


def a_state(value: float = 1.0) -> State:
  params = {
    'dense/0': {'w': jnp.full((3, 2), value), 'b': jnp.zeros(2, jnp.bfloat16)},
    'out': [jnp.ones(1), None],
  }
  server = {
    'opt': optax.adam(0.1).init(params['dense/0']),
    'key': jax.random.key(7),
    'empty': jnp.zeros((0, 4), jnp.int32),
    'options': ('a', 3, 0.1, True),
  }
  return State(jnp.int32(5), params, {}, server, {'c': jnp.arange(4, dtype=jnp.uint8)})


def note(serial: int, **more) -> dict:
  return {'serial': serial, 'keep': False, **more}


def save_many(root, count: int, seed: int = 0, **more) -> list:
  return [
    checkpoint.save(root, i, seed, {'w': np.full(100, i, np.float32)}, note(i, **more))
    for i in range(1, count + 1)
  ]


def test_state_comes_back_bit_for_bit_with_its_types(tmp_path):
  state = a_state()
  read = checkpoint.read(checkpoint.save(tmp_path, 5, 0, state, note(1, extra=[1, 2])))
  assert read.note == note(1, extra=[1, 2])
  assert jax.tree.structure(read.tree) == jax.tree.structure(
    state
  )  # State, Adam's NamedTuples, tuples, lists
  assert isinstance(read.tree.server['opt'][0], type(state.server['opt'][0]))
  assert read.tree.server['options'] == ('a', 3, 0.1, True)
  key = read.tree.server['key']
  np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(state.server['key']))
  assert jax.random.uniform(key) == jax.random.uniform(jax.random.key(7))  # usable
  drop = lambda s: s._replace(
    server={k: v for k, v in s.server.items() if k not in ('key', 'options')}
  )
  chex.assert_trees_all_equal_shapes_and_dtypes(drop(read.tree), drop(state))
  chex.assert_trees_all_equal(drop(read.tree), drop(state))


trees = st.recursive(
  st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.floats(width=32), max_size=4).map(lambda v: np.array(v, np.float32)),
  ),
  lambda inner: st.one_of(
    st.dictionaries(
      st.one_of(st.text(alphabet='a/%F2', max_size=4), st.integers(0, 9)), inner, max_size=3
    ),
    st.lists(inner, max_size=3), st.tuples(inner, inner),
  ),
)  # fmt: skip


@given(trees)
@example({'2': np.zeros(1, np.float32), 2: np.ones(1, np.float32)})
@settings(max_examples=40, deadline=None)
def test_encoding_loses_nothing(tree):
  arrays, described = tree_encoding.encode(tree)
  described = json.loads(json.dumps(described))
  assert sorted(tree_encoding.leaves(described)) == sorted(arrays)
  back = tree_encoding.decode(arrays, described)

  def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
      assert list(a) == list(b)
      return all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
      return len(a) == len(b) and all(map(same, a, b))
    return (
      a.tobytes() == b.tobytes() and a.dtype == b.dtype if isinstance(a, np.ndarray) else a == b
    )

  assert same(tree, back)


def test_unknown_content_is_refused_by_name():
  with pytest.raises(TypeError, match='set at server/x'):
    tree_encoding.encode({'server': {'x': {1, 2}}})


def test_named_tuple_that_changed_is_refused():
  _, described = tree_encoding.encode(a_state())
  described['fields'].pop('clients')
  with pytest.raises(ValueError, match='fedjax_syn.core.contexts:State'):
    tree_encoding.decode({}, described)


def test_same_round_gets_a_number_and_order_is_by_serial(tmp_path):
  for serial in (1, 2, 3):
    checkpoint.save(tmp_path, 50, 0, {}, note(serial))
  last = checkpoint.save(tmp_path, 9, 1, {}, note(4))
  names = [str(p.relative_to(tmp_path)) for p in checkpoint.list_sorted(tmp_path)]
  assert names == ['50/seed_0', '50/seed_0+1', '50/seed_0+2', '9/seed_1']
  assert checkpoint.latest(tmp_path, pytest.fail).path == last


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(bytes(data))


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
  'damage', [flip, cut, os.remove, lambda p: p.with_name('more').write_text('x')]
)
def test_any_damage_falls_back_loudly(tmp_path, damage):
  """Every file of a checkpoint in turn is changed, shortened, removed or joined by another."""
  one, two = save_many(tmp_path, 2)
  files = sorted(str(p.relative_to(two)) for p in two.rglob('*') if p.is_file())
  assert len(files) > 5
  pristine = {name: (two / name).read_bytes() for name in files}
  for name in files:
    said = []
    damage(two / name)
    assert checkpoint.latest(tmp_path, said.append).path == one, name
    two.with_name(f'damaged0_{two.name}').rename(two)
    assert len(said) == 1 and str(two) in said[0] and said[0].startswith('WARNING')
    for extra in two.rglob('more'):
      extra.unlink()
    for restored, content in pristine.items():
      (two / restored).write_bytes(content)
  assert checkpoint.latest(tmp_path, pytest.fail).path == two


def test_damaged_checkpoint_is_set_aside_and_its_name_can_be_written_again(tmp_path):
  one, two = save_many(tmp_path, 2)
  flip(two / 'note.json')
  assert checkpoint.latest(tmp_path, lambda _: None).path == one
  assert checkpoint.list_sorted(tmp_path) == [one]
  again = checkpoint.save(tmp_path, 2, 0, {'w': np.zeros(1, np.float32)}, note(2))
  assert again == two
  assert checkpoint.latest(tmp_path, pytest.fail).path == again


def test_all_damaged_is_none(tmp_path):
  for path in save_many(tmp_path, 2):
    cut(path / 'structure.json')
  said = []
  assert checkpoint.latest(tmp_path, said.append) is None
  assert len(said) == 2


def test_half_written_checkpoint_is_not_seen_and_is_swept_up(tmp_path):
  (one,) = save_many(tmp_path, 1)
  half = tmp_path / '.tmp-123' / 'arrays'
  half.mkdir(parents=True)
  (half / 'data').write_text('half')
  assert checkpoint.list_sorted(tmp_path) == [one]
  assert checkpoint.latest(tmp_path, pytest.fail).path == one
  assert sorted(os.listdir(tmp_path)) == ['1']


def names_in(root) -> list[str]:
  return sorted(str(p.relative_to(root)) for p in checkpoint.list_unsorted(root))


def test_prune_keeps_the_last_two_of_each_seed_and_ends_of_phases(tmp_path):
  checkpoint.save(tmp_path, 1, 0, {}, note(0, keep=False))
  checkpoint.save(tmp_path, 2, 0, {}, {'serial': 1, 'keep': True})
  for i in range(3, 7):
    checkpoint.save(tmp_path, i, 0, {}, note(i))
  checkpoint.save(tmp_path, 1, 7, {}, note(9))
  checkpoint.prune(tmp_path)
  assert names_in(tmp_path) == ['1/seed_7', '2/seed_0', '5/seed_0', '6/seed_0']
  assert sorted(os.listdir(tmp_path)) == ['1', '2', '5', '6']  # no empty folders, no rubbish


def test_prune_keeps_the_last_of_a_seed_that_is_over(tmp_path):
  """Of seed 0 nothing else, of seed 1 the one before too; seed 2 is still in training."""
  serial = itertools.count(1)
  for seed in (0, 1, 2):
    checkpoint.save(tmp_path, 1, seed, {}, {'serial': next(serial), 'keep': True})
    for round in (2, 3, 4):
      checkpoint.save(tmp_path, round, seed, {}, {'serial': next(serial), 'keep': False})
  odd = checkpoint.save(tmp_path, 5, 0, {}, {'serial': 99})
  (odd / 'note.json').write_text('?')  # it is no proof that another one is whole
  of_2 = ['1/seed_2', '3/seed_2', '4/seed_2']
  of_phases = ['1/seed_0', '1/seed_1']
  over = ['3/seed_1', '4/seed_0', '4/seed_1', '5/seed_0']
  checkpoint.prune(tmp_path, {0: 1, 1: 2})
  assert names_in(tmp_path) == sorted([*of_2, *of_phases, *over])
  checkpoint.prune(tmp_path, {0: 1, 1: 2}, phases=False)
  assert names_in(tmp_path) == sorted([*of_2, *over])


SAVER = """
  import sys
  from pathlib import Path
  import numpy as np
  from fedjax_syn.runs import checkpoint
  root = Path(sys.argv[1])
  serial = 0
  while True:
    serial += 1
    tree = {'w': np.full((200, 1000), serial, np.float32)}
    checkpoint.save(root, serial, 0, tree, {'serial': serial, 'keep': False})
    checkpoint.prune(root)
    print(serial, flush=True)
"""


def test_kill_while_saving_leaves_a_whole_checkpoint(tmp_path):
  """A process that only saves is killed at several moments; its newest checkpoint is whole."""
  command = [sys.executable, '-c', textwrap.dedent(SAVER), str(tmp_path)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    for _ in range(2):
      done = int(process.stdout.readline())
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    done = max([done, *map(int, process.stdout.read().split())])
  last = checkpoint.latest(tmp_path, pytest.fail)
  assert last.note['serial'] >= done
  np.testing.assert_array_equal(last.tree['w'], last.note['serial'])
  assert not [name for name in os.listdir(tmp_path) if name.startswith('.')]


@pytest.mark.parametrize(
  'name', ['a[b]', 'a\\b', 'a:b*?', b'caf\xe9'.decode('utf-8', 'surrogateescape')]
)
def test_a_checkpoint_is_whole_whatever_its_folder_is_called(name, tmp_path):
  """Orbax reads brackets as a pattern, and without a message it wrote unreadable checkpoints."""
  (tmp_path / name).mkdir()
  checkpoint.write_arrays(tmp_path / name / 'arrays', {'x': np.arange(4.0)})
  read = checkpoint.read_arrays(tmp_path / name / 'arrays', ['x'])
  np.testing.assert_array_equal(read['x'], np.arange(4.0))
