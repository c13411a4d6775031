"""FedCOG against hand values, numpy and finite differences.

The tests cover labels, disagreement, generation and distillation.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedjax_syn as fs
from fedjax_syn.algorithms.fedcog import generation
from fedjax_syn.core.contexts import Messages, Round, Run
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Step, Variables
from fedjax_syn.engine.rounds import weighted_mean
from fedjax_syn.layer import SERVER_HOOKS
from tests import tiny


def test_complementary_labels_of_the_papers_example():
  """d = [500, 0, 400, 200, 400] lacks [0, 500, 100, 300, 100]; 20 samples: 0, 10, 2, 6, 2."""
  d = jnp.array([500, 0, 400, 200, 400])
  np.testing.assert_array_equal(generation.complement(d), [0, 500, 100, 300, 100])
  labels = np.asarray(generation.class_labels(generation.complement(d), 20))
  np.testing.assert_array_equal(np.bincount(labels, minlength=5), [0, 10, 2, 6, 2])
  full = np.asarray(generation.class_labels(generation.complement(d), 1000))
  np.testing.assert_array_equal(np.bincount(full, minlength=5), [0, 500, 100, 300, 100])


@settings(deadline=None, max_examples=50)
@given(
  # Few shapes, as each is compiled.
  st.sampled_from([2, 3, 12]).flatmap(
    lambda n: st.lists(st.integers(0, 1000), min_size=n, max_size=n)
  ),
  st.sampled_from([1, 7, 300]),
)
def test_the_budget_is_used_up_and_shares_are_within_one(counts, budget):
  labels = np.asarray(generation.class_labels(generation.complement(jnp.array(counts)), budget))
  dealt = np.bincount(labels, minlength=len(counts))
  assert len(labels) == budget and dealt.sum() == budget
  lacking = max(counts) - np.array(counts, float)
  lacking = lacking if lacking.sum() else np.ones(len(counts))
  assert np.abs(dealt - budget * lacking / lacking.sum()).max() < 1 + 1e-3


def test_a_client_that_lacks_nothing_gets_equal_shares():
  labels = np.asarray(generation.class_labels(jnp.zeros(3), 7))
  np.testing.assert_array_equal(np.bincount(labels, minlength=3), [3, 2, 2])


def test_divergences_by_hand():
  """(1, 0) and (0, 1) are ln 2 apart, (1/2, 1/2) and (1/4, 3/4): m = (3/8, 5/8).

  Clipped, P is (0.99, 0.01), Q is (0.01, 0.99) and m = (1/2, 1/2). KL(M||P) and KL(M||Q) are each
  1/2 ln(1/4 / 0.0099). The divergence is half their sum.
  """
  sure = jnp.log(jnp.array([[1 - 1e-7, 1e-7]]))
  np.testing.assert_allclose(generation.jensen_shannon(sure, sure[:, ::-1]), [np.log(2)], rtol=1e-5)
  p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
  m = (p + q) / 2
  want = 0.5 * (p * np.log(p / m) + q * np.log(q / m)).sum()
  np.testing.assert_allclose(generation.jensen_shannon(jnp.log(p), jnp.log(q)), want, rtol=1e-5)
  want = 0.5 * np.log(0.25 / 0.0099)
  np.testing.assert_allclose(
    generation.clipped_jensen_shannon(sure, sure[:, ::-1]), [min(want, 1)], rtol=1e-5
  )
  reverse = 0.5 * (m * (np.log(m / p) + np.log(m / q))).sum()
  np.testing.assert_allclose(
    generation.clipped_jensen_shannon(jnp.log(p), jnp.log(q)), reverse, rtol=1e-5
  )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-40, 40), min_size=6, max_size=6))
def test_disagreement_lies_between_0_and_1(logits):
  log_p, log_q = jax.nn.log_softmax(jnp.array(logits, jnp.float32).reshape(2, 3))
  for divergence in generation.DIVERGENCES.values():
    value = 1 - float(divergence(log_p, log_q))
    assert -1e-6 <= value <= 1 + 1e-6


def setup(**fields):
  """The layer, a client that lacks class 2 in round 2, and its previous model."""
  model = tiny.net(4, 3)
  method = fs.chain(
    fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4),
    fs.FedCOG(**{'start': 1, 'samples': 10, **fields}),
  )
  layer, previous, w = method[fs.FedCOG], *(model.init(jax.random.key(i)) for i in (7, 1))
  state = layer.client_init(None, previous, None)._replace(visited=jnp.ones((), bool))
  engine = tiny.build(method, model, tiny.federated([12, 5]))
  client = tiny.client_of(
    engine, fs.FedCOG, round=2, key=jax.random.key(3), params=w.params, state=state
  )
  shard = client.shard._replace(class_counts=jnp.array([8, 4, 0]))
  return layer, client._replace(shard=shard), previous


def generated(client, **fields):
  """What a client generates with other settings."""
  return setup(**fields)[0].prepare(client).generated


def objective(model, w, previous, x, y, weight=0.1):
  """Eq. 1 in numpy, summed over samples."""
  log_softmax = lambda z: z - np.log(np.exp(z).sum(-1, keepdims=True))
  a, b = (log_softmax(np.asarray(model.apply(m, x).logits)) for m in (w, previous))
  p, q = np.exp(a), np.exp(b)
  m = (p + q) / 2
  js = 0.5 * (p * np.log(p / m) + q * np.log(q / m)).sum(-1)
  return -a[np.arange(len(y)), y] + weight * (1 - js)


def test_generation_lowers_its_objective_and_recognises_its_targets():
  layer, client, previous = setup(steps=100, lr=0.05)
  end, start = layer.prepare(client).generated, generated(client, steps=0)
  of = lambda g: objective(
    client.task.model, Variables(client.params, {}), previous, g.x, np.asarray(g.y)
  )
  assert of(end).mean() < 0.5 * of(start).mean()
  np.testing.assert_array_equal(np.bincount(end.y, minlength=3), [0, 3, 7])  # lacks 0, 4, 8
  assert (np.argmax(end.log_p, -1) == end.y).mean() > 0.9


@pytest.mark.parametrize('batch', [1, 3, 10])
def test_the_batch_of_generation_changes_no_result(batch, monkeypatch):
  client, parts = setup()[1], []
  for size in (0, batch):
    monkeypatch.setitem(generation.AT_A_TIME, jax.default_backend(), size)
    parts.append(generated(client, steps=5))
  a, b = parts
  np.testing.assert_allclose(a.x, b.x, rtol=0, atol=1e-5)
  assert np.abs(a.x - generated(client, steps=0).x).max() > 1e-2


def test_more_samples_than_a_cache_holds_are_generated_in_parts_on_a_cpu(monkeypatch):
  """70 samples, 32 at a time: the last part is filled up with samples that are dropped."""

  def text_and_images(steps, size):
    monkeypatch.setitem(generation.AT_A_TIME, jax.default_backend(), size)
    layer, client, _ = setup(samples=70, steps=steps)
    text = str(jax.make_jaxpr(lambda key: layer.prepare(client._replace(key=key)))(client.key))
    return '32,2,2,1' in text, layer.prepare(client).generated.x

  (cut, by_parts), (uncut, x) = text_and_images(5, 32), text_and_images(5, 0)
  noise = text_and_images(0, 0)[1]
  assert cut and not uncut
  np.testing.assert_allclose(x, by_parts, rtol=0, atol=1e-5)
  assert x.shape == (70, 2, 2, 1) and np.abs(x - noise).max() > 1e-2


def test_sources_of_table_5():
  """Noise is not moved. Without a trained local model nothing disagrees with the global one."""
  client = setup()[1]
  sources = ('noise', 'global', 'global+local')
  x = {source: generated(client, source=source, steps=20).x for source in sources}
  np.testing.assert_array_equal(x['noise'], generated(client, steps=0).x)
  assert np.abs(x['global'] - x['global+local']).max() > 1e-4
  new = client.state._replace(visited=jnp.zeros((), bool))
  fresh = generated(client._replace(state=new), steps=20).x
  np.testing.assert_allclose(fresh, x['global'], rtol=0, atol=1e-6)


def test_weights_and_loss_by_hand():
  """Counts 8, 4, 0 are 12 samples and lack 0 + 4 + 8 = 12: both weights are 1/2.

  At the start of a round the model is its own teacher. So only half of the cross-entropy is left
  (Lemma A.5). Elsewhere the loss adds KL(teacher || model).
  """
  layer, client, _ = setup(steps=10, kd_batch=10)
  prepared, model = layer.prepare(client), client.task.model
  np.testing.assert_allclose((prepared.real_weight, prepared.kd_weight), (0.5, 0.5), rtol=1e-6)
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(4, 2, 2, 1)), jnp.float32)
  step = Step(jax.random.key(0), 0, x, jnp.array([0, 1, 0, 1]), jnp.array([1.0, 1, 1, 0]), {})

  def plain(params, step):
    out = model.apply(Variables(params, {}), step.x)
    return cross_entropy(out.logits, step.y, step.mask), out

  loss = functools.partial(layer.loss, client._replace(prepared=prepared), plain)
  value, out = loss(client.params, step)
  np.testing.assert_allclose(value, 0.5 * plain(client.params, step)[0], rtol=1e-5)
  assert out.logits.shape == (4, 3) and out.features.shape[0] == 4
  other, own = model.init(jax.random.key(11)).params, prepared.generated
  log_q = jax.nn.log_softmax(model.apply(Variables(other, {}), own.x).logits)
  kl = (np.exp(own.log_p) * (own.log_p - log_q)).sum(-1).mean()
  want = 0.5 * plain(other, step)[0] + 0.5 * kl
  np.testing.assert_allclose(loss(other, step)[0], want, rtol=1e-5)
  assert kl > 0.01


def run(method, rounds=3, sizes=(12, 0, 5), seed=0):
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated(sizes))
  state = engine.init(seed)
  while int(state.round) < rounds:
    stop = min(engine.next_stop(int(state.round)) or rounds, rounds)
    state, report = engine.run(seed, state, stop - int(state.round))
  return engine, state, report


def small(**fields):
  base = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4)
  return fs.chain(
    base, fs.FedCOG(**{'start': 1, 'samples': 6, 'steps': 20, 'lr': 0.1, 'kd_batch': 3, **fields})
  )


@functools.cache
def plainly():
  return run(small())


@functools.cache
def fedavg_params(rounds=3):
  return run(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4), rounds)[1].params


def test_before_t0_it_is_fedavg_and_keeps_local_models():
  plain = fedavg_params(1)
  engine, state, _ = run(small(start=2), 1)
  for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-7)
  kept = state.clients['fedcog']
  np.testing.assert_array_equal(kept.visited, [True, False, True])
  mean = jax.tree.map(lambda leaf: (leaf[0] + leaf[2]) / 2, kept.model.params)
  for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  assert engine.next_stop(0) == 2


@pytest.mark.slow  # tests/float64 would fail as well
def test_without_distillation_it_is_fedavg_and_with_it_not():
  plain = fedavg_params()
  off = run(small(weights='fixed', lambda_kd=0.0))[1].params
  on = plainly()[1].params
  far = lambda a, b: max(
    float(np.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  )
  assert far(plain, off) < 1e-6 < 1e-4 < far(plain, on)


def test_the_message_has_fedavgs_form_so_that_masked_sums_give_the_same_model():
  """Each pair of clients adds and subtracts a random mask; the server sees sums alone.

  The sums still give the engine's model.
  """
  data, model, method = tiny.federated((12, 3, 5)), tiny.net(4, 3), small()
  plain = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4)
  engine = tiny.build(method, model, data)
  state, _ = engine.run(0, engine.init(0), 1)
  task = engine.task(2)
  assert not any(engine.chain.having(hook, task) for hook in ('aggregate', *SERVER_HOOKS))
  assert 'individual updates' not in engine.chain.requires
  sent = [engine.message(0, state, client) for client in range(3)]
  fedavg = tiny.build(plain, model, data).message(0, state._replace(clients={}), 0)
  form = lambda message: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), message)
  assert form(sent[0]) == form(fedavg)
  masked = [message.payload for message in sent]
  for i, j in ((0, 1), (0, 2), (1, 2)):
    key = jax.random.fold_in(jax.random.key(5), 3 * i + j)
    mask = jax.tree.map(lambda leaf, key=key: jax.random.normal(key, leaf.shape), masked[0])
    masked[i] = jax.tree.map(jnp.add, masked[i], mask)
    masked[j] = jax.tree.map(jnp.subtract, masked[j], mask)
  total = jax.tree.map(lambda *leaves: sum(leaves), *masked)
  weight = jnp.array([message.weight for message in sent])
  messages = Messages(weight, total, total, None)
  round = Round(task, jax.random.key(0), jnp.int32(2), state.params, {}, messages)
  got, _ = weighted_mean(round)
  assert np.abs(masked[0]['params']['w1'] - sent[0].payload['params']['w1']).max() > 0.5
  want, report = engine.run(0, state, 1)
  assert report['fedcog/recognised'] >= 0  # it generated
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want.params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
  'fields',
  [
    pytest.param({'generator': True, 'steps': 2}, marks=pytest.mark.slow),  # many convolutions
    {'divergence': 'code'},
    pytest.param({'supervision': 'hard'}, marks=pytest.mark.slow),
    {'weights': 'fixed', 'lambda_kd': 1.0},
  ],
)
def test_options_run_and_change_the_result(fields):
  base, changed = plainly(), run(small(**fields))
  assert all(np.isfinite(value) for value in changed[2].values())
  leaves = [jax.tree.leaves(result[1].params) for result in (base, changed)]
  difference = max(float(np.abs(a - b).max()) for a, b in zip(*leaves, strict=True))
  assert difference > 0


@pytest.mark.slow
def test_under_dynafed_both_phases_pass():
  method = fs.chain(
    small(start=2), fs.DynaFed(length=3, segment=2, iterations=2, inner_steps=2, images_per_class=1)
  )
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated((12, 5)))
  assert [engine.next_stop(r) for r in (0, 2, 3)] == [2, 3, None]
  state, _ = engine.run(0, engine.init(0), 2)
  state, report = engine.run(0, state, 1)
  assert report['fedcog/recognised'] > 0
  state, done, _ = engine.server_work(0, state, 60.0)
  state, report = engine.run(0, state, 1)
  assert done and report['dynafed/iterations'] == 2 and report['fedcog/recognised'] > 0


@pytest.mark.parametrize(
  ('fields', 'line'),
  [
    ({'start': 70}, 'fedcog.start=70 must be smaller than rounds=70'),
  ],
)
def test_what_cannot_work_is_refused_in_one_line(fields, line):
  with pytest.raises(ValueError, match=line):
    fs.chain(fs.FedCOG(**fields)).resolve(Run(70, None, ('fedcog',)))
