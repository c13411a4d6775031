"""The same rounds as a simulation of Flower, in a process of its own.

`launch/benchmark.py --peer=flower` starts it (extra `benchmark-flower`). It speaks as
`peer_torch.py` does. A round is what Flower's FedAvg does: the server sends the model to the chosen
clients, they train it (an actor of Ray on each core, with one thread of PyTorch), and the server
averages what comes back. The clock starts before the messages are made and stops after the mean.
Starting Ray, loading the data into its actors and the first round are not timed.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Iterable

os.environ.setdefault('RAY_DEDUP_LOGS', '0')
os.environ['FLWR_TELEMETRY_ENABLED'] = '0'
os.environ['RAY_USAGE_STATS_ENABLED'] = '0'

import flwr
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peer_torch import train
from benchmarks.torch_methods import client_shards
from benchmarks.torch_networks import make_model

client_app, server_app = ClientApp(), ServerApp()


@functools.cache
def loaded(work: str) -> tuple[dict, torch.nn.Module, list]:
  """Returns the work, a network and the clients' samples; once for each actor."""
  torch.set_num_threads(1)
  read = json.loads(work)
  data = dict(np.load(read['data'], allow_pickle=False))
  return read, make_model(read), client_shards(data)


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
  """Trains the client that the message names."""
  del context
  config = message.content['config']
  work, model, shards = loaded(config['work'])
  x, y = shards[config['client']]
  model.load_state_dict(message.content['arrays'].to_torch_state_dict())
  train(model, x, y, torch.arange(len(x)), work)
  counted = MetricRecord({'num-examples': max(len(x), 1)})
  content = {'arrays': ArrayRecord(model.state_dict()), 'metrics': counted}
  return Message(content=RecordDict(content), reply_to=message)


class TimedFedAvg(FedAvg):
  """FedAvg on the clients that a line of stdin names; a line of stdout says the seconds."""

  def __init__(self, work: str, answers):
    """Evaluates nothing; answers is the stream of the answers."""
    super().__init__(fraction_evaluate=0.0)
    self.work, self.answers, self.began = work, answers, 0.0

  def configure_train(
    self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
  ) -> Iterable[Message]:
    """Waits for the clients of the next round, and sends them the model."""
    del server_round, config
    line = sys.stdin.readline()
    clients = json.loads(line)['clients'] if line else []
    while len(nodes := list(grid.get_node_ids())) < len(clients):  # before the first round
      time.sleep(0.1)
    self.began = time.perf_counter()
    messages = []
    for node, client in zip(nodes, clients, strict=False):
      named = ConfigRecord({'work': self.work, 'client': client})
      content = RecordDict({'arrays': arrays, 'config': named})
      messages.append(Message(content=content, message_type='train', dst_node_id=node))
    return messages

  def aggregate_train(self, server_round: int, replies: Iterable[Message]):
    """Averages the models, and answers."""
    replies = list(replies)
    for reply in replies:
      if reply.has_error():
        raise RuntimeError(str(reply.error))
    if not replies:  # stdin has ended
      raise SystemExit
    after = super().aggregate_train(server_round, replies)
    answer = {'seconds': time.perf_counter() - self.began, 'peak_bytes': None}
    print(json.dumps(answer), file=self.answers, flush=True)
    return after


def main() -> None:
  """Answers lines until there are no more."""
  # What Flower and Ray print must not be among the answers.
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  work = sys.stdin.readline().strip()
  read = json.loads(work)
  if read['kind'] != 'Rounds':
    raise ValueError('Flower is only timed on rounds of FedAvg')
  cores = os.cpu_count() or 1
  version = f'Flower {flwr.__version__}, PyTorch {torch.__version__.partition("+")[0]}'
  print(json.dumps({'version': version, 'actors': cores}), file=answers, flush=True)

  @server_app.main()
  def serve(grid: Grid, context: Context) -> None:
    del context
    arrays = ArrayRecord(make_model(read).state_dict())
    TimedFedAvg(work, answers).start(grid, arrays, num_rounds=10**6)

  run_simulation(
    server_app,
    client_app,
    num_supernodes=read['sampled'],
    backend_config={
      'init_args': {'num_cpus': cores, 'include_dashboard': False, 'log_to_driver': False},
      'client_resources': {'num_cpus': 1, 'num_gpus': 0.0},
    },
  )


if __name__ == '__main__':
  from benchmarks import peer_flower  # Ray's actors find the client by this name

  peer_flower.main()
