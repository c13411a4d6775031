"""What an engine's programs are compiled for: all that is neither data nor a traced field."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_syn.chains import Chain
from fedjax_syn.client.local import bind
from fedjax_syn.core.clients import Group
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import backend_of, mesh_of
from fedjax_syn.core.objectives import Objective, objective_of
from fedjax_syn.core.privacy import Mechanism, promises
from fedjax_syn.core.sampling import drawer
from fedjax_syn.core.schedules import ends
from fedjax_syn.core.types import Array, Model, PRNGKey, PyTree, Variables
from fedjax_syn.data import federated
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine.client_state import STORES, Store, outgrows, total_bytes
from fedjax_syn.engine.layout import Layout, resolve, with_groups

GROUP = 'group'  # the axis of the devices that run the same block of clients


@dataclasses.dataclass(frozen=True)
class Setting:
  """The static argument of programs: engines with equal settings share what is compiled."""

  model: Model  # as the chain's layers adapted it
  objective: Objective
  num_clients: int
  num_classes: int
  participation: float
  sampler: str
  layout: Layout  # resolved
  store: str = 'device'  # where per-client state lives between rounds
  rounds: int = 0  # of the run, where a schedule ends with it
  dropouts: float = 0.0  # probability that a sampled client sends nothing
  noise_number: int = 0  # of the method among those that see the same clients and add noise
  noised: bool = False  # a layer can add noise for privacy
  promises: bool = False  # and does: an epsilon is stated
  noisy_layer: str = ''  # which adds it to the sum of the updates; '': messages are no such sums
  devices: tuple[jax.Device, ...] = ()  # that there are; (): JAX's
  group_size: int = 1  # devices that run the same block of clients; `layout` has one of them

  @functools.cached_property
  def mesh(self) -> jax.sharding.Mesh:
    """The devices."""
    return mesh_of(self.layout.devices * self.group_size, self.devices)

  @functools.cached_property
  def clients_mesh(self) -> jax.sharding.Mesh:
    """The devices by queue of clients, and by place in their group where there are groups."""
    if self.group_size == 1:
      return self.mesh
    shape = self.layout.devices, self.group_size
    return jax.sharding.Mesh(self.mesh.devices.reshape(shape), ('lanes', GROUP))

  @property
  def cohort_size(self) -> int:
    """The most sampled clients of a round; with the sampler 'poisson' there may be fewer."""
    return drawer(self.sampler, self.num_clients, self.participation)[0]

  @property
  def clients(self) -> Store:
    """How a round reads and writes per-client state."""
    return STORES[self.store](self.num_clients, self.cohort_size)

  def task(self, chain: Chain, data: FederatedData, first_round: int) -> Task:
    """Returns the experiment as layers see it.

    Args:
      chain: the method; traced inside a program.
      data: the partitioned training set.
      first_round: of the static phase.
    """
    cohort = self.cohort_size
    expected = self.participation * self.num_clients if self.sampler == 'poisson' else cohort
    return Task(
      chain,
      self.model,
      self.objective,
      data,
      self.num_clients,
      self.num_classes,
      first_round,
      cohort,
      expected,
      self.rounds,
      noised=self.noised,
      platform=backend_of(self.mesh),
    )

  def clients_task(self, chain: Chain, data: FederatedData, first_round: int) -> Task:
    """Returns the same as `task`, for clients in the queues of `clients_mesh`."""
    group = Group(GROUP, self.group_size) if self.group_size > 1 else None
    return self.task(chain, data, first_round)._replace(group=group)

  def initial_rows(
    self,
    chain: Chain,
    data: FederatedData,
    initial: Variables | None = None,
    clients: Array | None = None,
  ) -> dict[str, PyTree]:
    """Returns per-client state at round 0.

    Args:
      chain: the method.
      data: the partitioned training set.
      initial: w^0; None draws some model, for shapes.
      clients: numbers [n]; None is the first client.

    Returns:
      By layer, leaves [n, ...].
    """
    client = bind(self.task(chain, data, 1))
    initial = self.model.init(jax.random.key(0)) if initial is None else initial
    clients = jnp.zeros(1, jnp.int32) if clients is None else clients
    shards = jax.vmap(lambda c: federated.shard_of(data, c))(clients)
    return jax.vmap(lambda shard: client.init(initial, shard))(shards)

  def cohort(self, seed: Array, number: Array, data: FederatedData) -> Array:
    """Returns the clients of a round, [cohort]; where data are those of a round, theirs."""
    return self.sample(seed, number) if data.clients is None else data.clients

  def sample(self, seed: Array, number: Array) -> Array:
    """Draws the clients of a round: numbers, [cohort]; `num_clients` is nobody."""
    draw = drawer(self.sampler, self.num_clients, self.participation)[1]
    key = self.stream(seed, Purpose.SAMPLE, number)
    drawn = draw(key, number)
    if not self.dropouts:
      return drawn
    lost = jax.random.uniform(fold(key, 0, 1), drawn.shape) < self.dropouts
    return jnp.where(lost, self.num_clients, drawn)

  def sizes(self, data: FederatedData, sampled: Array) -> Array:
    """Returns the samples of each sampled client, [cohort]; 0 for nobody."""
    return jax.vmap(lambda client: federated.shard_of(data, client).size)(sampled)

  def stream(self, seed: ArrayLike, purpose: Purpose, number: Array) -> PRNGKey:
    """Returns the key of noise and of sampling: each method with noise has its own."""
    key = stream(seed, purpose, number)
    return fold(key, self.noise_number) if self.noise_number and self.noised else key


def make_setting(
  chain: Chain,
  model: Model,
  data: FederatedData,
  participation: float,
  sampler: str,
  layout: Layout,
  loss: Callable[[Array, Array, Array], Array] | None,
  rounds: int,
  noise_number: int,
  devices: Sequence[jax.Device] = (),
) -> tuple[Setting, Mechanism | None, int]:
  """Derives what programs are compiled for; see `Engine`.

  Returns:
    The setting, the noise that epsilon accounts for, and the bytes of all clients' state.

  Raises:
    ValueError: if the layout cannot be had.
  """
  objective = objective_of(data.y)
  num_clients = data.start.shape[0]
  cohort_size = drawer(sampler, num_clients, participation)[0]
  needs_rounds = any(map(ends, chain.schedules.values()))
  resolved = resolve(layout, cohort_size, devices)
  resolved, group_size = with_groups(resolved, layout.devices, cohort_size, chain, devices)
  setting = Setting(
    chain.adapt(model, data.x.shape[1:]),
    objective if loss is None else objective._replace(loss=loss),
    num_clients,
    data.class_counts.shape[1],
    participation,
    sampler,
    resolved._replace(client_state_bytes=0),
    rounds=rounds if needs_rounds else 0,
    noise_number=noise_number,
    devices=tuple(devices),
    group_size=group_size,
    dropouts=chain.layers[0].dropouts,  # type: ignore[attr-defined]
  )
  mechanism = chain.mechanism(setting.task(chain, data, 1))
  if promises(mechanism) and (setting.dropouts or ':' in sampler):
    key = 'client.dropouts' if setting.dropouts else 'client.sampler'
    raise ValueError(
      f'{key}={setting.dropouts or sampler!r}: no epsilon could be stated; the samplers fixed and'
      ' poisson would work, without dropouts'
    )
  if mechanism is not None:
    setting = dataclasses.replace(
      setting, noised=True, promises=promises(mechanism), noisy_layer=mechanism.layer
    )
  state_bytes = total_bytes(jax.eval_shape(setting.initial_rows, chain.traced(), data), num_clients)
  on_host = federated.placement_of(data) == 'host'
  if on_host and layout.seeds > 1:
    raise ValueError(
      f"layout.seeds={layout.seeds}, data.placement='host': each seed samples other clients, and a"
      " round gets the rows of one seed's; layout.seeds=1 or data.placement='device' would work"
    )
  if on_host or outgrows(layout, state_bytes):
    setting = dataclasses.replace(setting, store='host')
  return setting, mechanism, state_bytes
