"""The PyTorch peers compute what the library computes: one step from the same start.

Needs PyTorch (extra `benchmark`).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from benchmarks import programs, workloads
from fedjax_syn.algorithms.dynafed import synthetic_set, unroll

torch = pytest.importorskip('torch')
pytest.importorskip('sklearn')

from benchmarks import peer_torch, torch_methods, torch_networks  # noqa: E402 (needs torch)

close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
NOTHING = 1e-30  # a rate with which images stay as they are


def images(x):
  """NHWC to NCHW, the last four axes."""
  return torch.from_numpy(np.moveaxis(np.asarray(x), -1, -3).copy())


def weights_of(params, network):
  """Returns the library's parameters as those of the peer's network, in the order of its layers.

  A dense layer on a flattened image has its rows in another order: channels come first in PyTorch.
  """
  state, body = {}, params['body']
  order = sorted(body, key=lambda name: (name.startswith('dense'), int(name[-1]), name[:4]))
  leaves = [body[name] for name in order] + [params['head']]
  modules = [m for m in network.named_modules() if hasattr(m[1], 'weight')]
  channels = None
  for (name, module), leaf in zip(modules, leaves, strict=True):
    if 'scale' in leaf:
      weight = leaf['scale']
    elif leaf['kernel'].ndim == 4:
      weight, channels = leaf['kernel'].transpose(3, 2, 0, 1), leaf['kernel'].shape[-1]
    else:
      weight = leaf['kernel']
      if channels:  # the first dense layer: rows (height, width, channel)
        rows = weight.reshape(-1, channels, weight.shape[-1])
        weight, channels = rows.transpose(1, 0, 2).reshape(weight.shape), None
      weight = weight.T
    assert module.weight.shape == weight.shape, name
    for key, value in (('weight', weight), ('bias', leaf['bias'])):
      state[f'{name}.{key}'] = torch.from_numpy(np.array(value))
  return state


def both(work, method):
  """Returns an engine with its first state, and the peer's work, network and clients."""
  data, _ = programs.make_data(work)
  engine = fs.Engine(method, programs.make_model(work, 'auto'), data)
  state = engine.init(0)
  asked = {k: getattr(work, k) for k in work.__dataclass_fields__}
  network = torch_networks.make_model(asked)
  network.load_state_dict(weights_of(jax.device_get(state.params), network))
  arrays = {k: np.array(v) for k, v in data._asdict().items() if v is not None}
  return engine, state, asked, network, torch_methods.client_shards(arrays)


def small(kind, **changes):
  sizes = {'shape': (16, 16, 1), 'model': 'convnet', 'width': 4, 'depth': 2} | changes
  return kind(**{'clients': 2, 'sampled': 2, 'rows': 40, 'batch': 20, 'lr': 0.05} | sizes)


@pytest.mark.parametrize('model', ['mlp', 'convnet', 'lenet'])
def test_a_round_of_fedavg(model):
  """One step on all of a client's samples, so that their order does not matter; then the mean."""
  work = small(workloads.Rounds, model=model, optimizer='sgd')
  engine, state, asked, network, shards = both(work, programs.make_method(work))
  begin = {name: value.clone() for name, value in network.state_dict().items()}
  after = []
  for x, y in shards:
    network.load_state_dict(begin)
    peer_torch.train(network, x, y, torch.arange(len(x)), asked)
    after.append({name: value.clone() for name, value in network.state_dict().items()})
  trained, _ = engine.run(0, state, 1)
  ours = weights_of(jax.device_get(trained.params), network)
  for name, value in ours.items():
    close(value, sum(w[name] for w in after) / len(after))
  assert max((ours[name] - begin[name]).abs().max() for name in ours) > 1e-3


def test_an_iteration_of_trajectory_matching():
  work = workloads.Unroll((6, 6, 1), 'mlp', 5, 2, images=10, steps=3)
  model = programs.make_model(work, 'auto')
  start, target = (model.init(jax.random.key(seed)) for seed in (0, 1))
  syn = synthetic_set.noise(jax.random.key(2), 10, work.shape, 10, 0.04)
  loss = unroll.inner_loss(model, start.stats, None)

  def distance(syn):
    end = unroll.unroll(loss, start.params, syn, jax.random.key(0), work.steps)
    return unroll.squared_distance(end, target.params, start.params)

  value, grads = jax.value_and_grad(distance)(syn)
  asked = {'shape': work.shape, 'model': 'mlp', 'width': 5, 'depth': 2}
  network = torch_networks.make_model(asked)
  w, goal = (weights_of(jax.device_get(v.params), network) for v in (start, target))
  learned = images(syn.x), torch.zeros(10, 10), torch.tensor(np.log(0.04), dtype=torch.float32)
  learned = tuple(leaf.requires_grad_() for leaf in learned)
  peer = peer_torch.unrolled_distance(network, w, goal, learned, work.steps)
  close(value, peer.item())
  for ours, theirs in zip(
    (images(grads.x), grads.y), torch.autograd.grad(peer, learned[:2]), strict=True
  ):
    scale = theirs.abs().max().item()
    close(np.asarray(ours) / scale, theirs / scale)
    assert scale > 1e-6


def test_generation_of_fedcog_and_a_local_step_on_it():
  """Two steps of generation with a local model; then one local step on all samples."""
  work = small(workloads.Generation, model='lenet', alpha=0.5, samples=20, steps=2, local_steps=1)
  local = {'epochs': 0, 'steps': 1, 'batch_size': 40, 'optimizer': 'sgd', 'lr': work.lr}
  chain = lambda lr: fs.chain(
    fs.FedAvg(**local), fs.FedCOG(start=0, samples=20, steps=2, lr=lr, kd_batch=20)
  )
  engine, state, asked, network, shards = both(work, chain(0.01))
  state, _ = engine.run(0, state, 1)  # now every client has a local model
  state = jax.device_get(state)
  client = int(np.argmax([len(x) for x, _ in shards]))
  x, y = shards[client]
  prepared = []
  for lr in (NOTHING, 0.01):
    context = engine.client_context(0, state, client, fs.FedCOG)
    prepared.append(chain(lr)[fs.FedCOG].prepare(context))
  start, moved = prepared
  network.load_state_dict(weights_of(state.params, network))
  previous = torch_networks.make_model(asked)
  kept = jax.tree.map(lambda leaf: leaf[client], state.clients['fedcog'].model.params)
  previous.load_state_dict(weights_of(kept, previous))
  counts = torch.bincount(y, minlength=10)
  targets = torch_methods.complementary_labels(counts, work.samples)
  np.testing.assert_array_equal(targets, moved.generated.y)
  frozen = [torch_methods.frozen(model) for model in (network, previous)]
  peer = torch_methods.generate(*frozen, images(start.generated.x), targets, steps=2)
  close(images(moved.generated.x), peer, atol=1e-4)
  log_p = torch.log_softmax(network(peer), 1)
  close(moved.generated.log_p, log_p, atol=1e-4)
  lacking = (counts.max() - counts).sum().item()
  share = lacking / (lacking + len(x))
  close(moved.kd_weight, share)
  # The local step: its message is -lr times the gradient of Eq. 3.
  message = engine.message(0, state, client).payload['params']
  network.requires_grad_()
  loss = torch_methods.distilled_loss(network, (x, y), (peer, log_p.detach()), share)
  ours = weights_of(jax.device_get(message), network)
  gradients = torch.autograd.grad(loss, tuple(network.parameters()))
  for (name, _), gradient in zip(network.named_parameters(), gradients, strict=True):
    close(ours[name], -work.lr * gradient, atol=1e-6)


@pytest.mark.parametrize('method', ['feddualmatch', 'feddm'])
def test_an_iteration_of_distribution_matching(method):
  """One step at the global model. All images of a class are equal, so every draw is the same."""
  work = small(workloads.ClientMatching, images=2, iterations=1, radius=0.0, method=method)
  built = programs.make_method(work)
  engine, state, _, network, shards = both(work, built)
  layer = built.layers[-1]
  once = {'least': 1, 'init': 'noise'} if method == 'feddm' else {'alignment': 'all'}
  changed = lambda lr: fs.chain(type(layer)(**fields_of(layer) | once | {'lr': lr}))
  data, _ = programs.make_data(work)
  equal = np.asarray(data.x).copy()
  for c in range(10):
    equal[np.asarray(data.y) == c] = equal[np.flatnonzero(np.asarray(data.y) == c)[0]]
  data = data._replace(x=jnp.asarray(equal))
  sent = []
  for lr in (NOTHING, 0.3):
    engine = fs.Engine(changed(lr), engine.model, data)
    sent.append(engine.message(0, state, 0).payload[layer.name])
  present = np.flatnonzero(sent[0]['present'])
  arrays = {k: np.array(v) for k, v in data._asdict().items() if v is not None}
  x, y = torch_methods.client_shards(arrays)[0]
  layers = network.stages
  if method == 'feddm':
    layers = lambda x: [(z := network.stages(x)[-1]), network.head(z)]
  goal = [z[present] for z in torch_methods.class_means(layers, x, y)]
  start = images(sent[0]['x'])[present].requires_grad_()
  loss = torch_methods.matching_loss(layers, goal, start, len(goal))
  (gradient,) = torch.autograd.grad(loss, start)
  close(images(sent[1]['x'])[present], start.detach() - 0.3 * gradient)
  assert gradient.abs().max() > 1e-3


def fields_of(layer):
  return {name: getattr(layer, name) for name in layer.__dataclass_fields__}


def test_gradient_matching_on_the_server():
  """Without a radius the server matches at the global model: its distance after one step."""
  work = small(workloads.ServerMatching, images=2, steps=2)
  layer = programs.make_method(work).layers[-1]
  method = type(layer)(**fields_of(layer) | {'radius_lr': 0.0})
  engine, state, _, network, _ = both(work, fs.chain(method))
  start = jax.device_get(state.params)
  state, report = engine.run(0, state, 1)
  sets = jax.device_get(state.server['feddualmatch'].sets)
  network.load_state_dict(weights_of(start, network))
  w = dict(network.named_parameters())
  chosen = []
  for x, present in zip(sets.x, sets.present, strict=True):
    classes = np.flatnonzero(present)
    labels = torch.from_numpy(classes).repeat_interleave(work.images)
    chosen.append((images(x)[classes].flatten(0, 1), labels))
  gradients = [torch_methods.set_gradient(network, w, x, y) for x, y in chosen]
  target = torch_methods.mean_gradient(gradients, [len(x) for x, _ in chosen])
  match = functools.partial(torch_methods.match_gradients, network, w, target, steps=2)
  distances = [match(x, y)[1].item() for x, y in chosen]
  close(report['feddualmatch/distance'], np.mean(distances))
  before = [torch_methods.gradient_distance(g, target).item() for g in gradients]
  assert abs(np.mean(before) - np.mean(distances)) > 1e-3


def test_complementary_labels_are_the_largest_remainders():
  """Lacking 0, 3 and 4 of 7: 20 labels are 0, 8.57 and 11.43, so 0, 9 and 11."""
  labels = torch_methods.complementary_labels(torch.tensor([5, 2, 1]), 20)
  assert torch.bincount(labels, minlength=3).tolist() == [0, 9, 11]
