"""Clients that never train: the global model's accuracy on them, and what is said of it."""

from collections.abc import Mapping

from fedjax_syn.chains import Chain, traits
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.settings import Data
from fedjax_syn.engine import Engine
from fedjax_syn.engine.measures import END, Measure
from fedjax_syn.engine.personal import spread


def measures(engine: Engine, dataset: Dataset) -> tuple[Measure, ...]:
  """Returns the measure of the global model on clients that never train; none without such clients.

  Its numbers are 'unseen/test/accuracy', the mean over these clients, its standard deviation and
  the mean of the worst tenth. Methods that keep a part of the model at each client have none.
  """
  rows, owners = dataset.unseen, dataset.unseen_owners
  if rows is None or owners is None or _keeps_private(engine.chain):
    return ()
  evaluate, clients = engine.evaluator(*rows), int(owners.max()) + 1

  def of(seed, state):
    accuracy = evaluate.by_owner(state.params, state.stats, owners, clients)
    return {f'unseen/{name}': value for name, value in spread(accuracy).items()}

  return (Measure('unseen', lambda moment: moment < END, of),)


def line(dataset: Dataset, methods: Mapping[str, Chain]) -> str:
  """States which methods, by label, have no accuracy on clients that never train; '' for none."""
  without = [label for label, chain in methods.items() if _keeps_private(chain)]
  if dataset.unseen is None or not without:
    return ''
  return (
    f'unseen/test/accuracy is not measured for {", ".join(without)}: each client trains a part of'
    ' the model for itself, and unseen clients train none'
  )


def check_clients(dataset: Dataset, data: Data) -> None:
  """Refuses another number of clients than that of the clients that train."""
  left = dataset.num_clients()
  if data.partition == 'natural' and data.unseen_clients and data.clients != left:
    raise ValueError(
      f'data.clients={data.clients}: with data.unseen_clients={data.unseen_clients}, {left} clients'
      f' of {dataset.name} train: use {left}'
    )


def _keeps_private(chain: Chain) -> bool:
  return any('private parameters' in traits(layer) for layer in chain.layers)
