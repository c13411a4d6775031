"""Operations, bytes, collectives and host transfers of a compiled program, with trip counts.

XLA's own `cost_analysis` counts the body of a loop once and, on a GPU, nothing. Here a body counts
as often as it runs: the number is that of the program (`known_trip_count`, or a comparison with a
constant), else of the run, by the name of the loop's scope (`fedjax_syn.core.programs.loop`).

Operations are those of matrix products and convolutions, two for each multiplication. Bytes are
those that an instruction outside of fusions reads from and writes to main memory, with the padding
of layouts; a slice of an array counts, not the array.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping

from fedjax_syn.fits.hlo import Array, Computation, Instruction, Module

COLLECTIVES = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'ragged-all-to-all',
  'collective-permute',
  'collective-broadcast',
)
FREE = frozenset(
  (
    *('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'after-all'),
    *('partition-id', 'replica-id', 'opt-barrier', 'copy-done', 'async-done', 'async-update'),
    *('iota', 'domain', 'add-dependency'),
    *(f'{kind}-done' for kind in COLLECTIVES),
  )
)
CALLBACKS = re.compile(r'callback|HostExecute|SendToHost|RecvFromHost', re.IGNORECASE)


@dataclasses.dataclass
class Costs:
  """What a computation does."""

  operations: float = 0.0
  bytes: float = 0.0
  collectives: dict[str, float] = dataclasses.field(default_factory=dict)
  """Bytes of the results, by kind."""
  largest_collective: dict[str, float] = dataclasses.field(default_factory=dict)
  """Bytes of the largest result of a single instruction, by kind."""
  host_transfers: list[str] = dataclasses.field(default_factory=list)
  unknown_loops: list[str] = dataclasses.field(default_factory=list)
  """Scopes of loops that count once since nobody knows their trip count."""

  def add(self, other: 'Costs', times: float = 1.0) -> None:
    """Adds what another computation does, `times` times."""
    self.operations += times * other.operations
    self.bytes += times * other.bytes
    for kind, size in other.collectives.items():
      self.collectives[kind] = self.collectives.get(kind, 0.0) + times * size
    for kind, size in other.largest_collective.items():
      self.largest_collective[kind] = max(self.largest_collective.get(kind, 0.0), size)
    self.host_transfers += other.host_transfers
    self.unknown_loops += other.unknown_loops


def analyse(module: Module, trips: Mapping[str, float] | None = None) -> Costs:
  """Adds up what a program does.

  Args:
    module: the program.
    trips: counts of the loops that the program does not know, by the name of their scope; the
      scope 'X_by_N' runs ceil(trips['X'] / N) times.

  Returns:
    The costs of one call, of one device.
  """
  return _Analysis(module, trips or {}).of(module.entry)


class _Analysis:
  def __init__(self, module: Module, trips: Mapping[str, float]):
    self.module, self.trips = module, trips
    self.done: dict[str, Costs] = {}

  def of(self, name: str) -> Costs:
    """Returns the costs of a computation."""
    if name not in self.done:
      computation, total = self.module.computations[name], Costs()
      for instruction in computation.instructions.values():
        self._add(total, computation, instruction)
      self.done[name] = total
    return self.done[name]

  def _add(self, total: Costs, computation: Computation, i: Instruction) -> None:
    if i.opcode == 'while':
      count = self._trip_count(computation, i)
      total.add(self.of(i.called('body')[0]), 1.0 if count is None else count)
      if count is None and computation.name != self.module.entry:  # the outermost: of the unit
        total.unknown_loops.append(_scope(i) or i.op_name)
      return
    if i.opcode == 'conditional':
      named = ('branch_computations', 'true_computation', 'false_computation')
      branches = [self.of(name) for key in named for name in i.called(key)]
      longest = max(branches, key=lambda costs: (costs.operations, costs.bytes))
      for costs in branches:  # of the others only what must not be overlooked
        total.add(costs, float(costs is longest))
      return
    if i.opcode in ('call', 'async-start'):
      for name in (*i.called('to_apply'), *i.called('calls')):
        total.add(self.of(name))
      return
    kind = i.opcode.removesuffix('-start')
    if kind in COLLECTIVES:
      # The start of an asynchronous one returns its operand beside its result.
      results = i.outputs[len(i.outputs) // 2 :] if i.opcode != kind else i.outputs
      size = sum(array.bytes for array in results)
      total.add(Costs(collectives={kind: size}, largest_collective={kind: size}))
    if transfer := _host_transfer(i):
      total.host_transfers.append(transfer)
    total.operations += self._operations(computation, i)
    if i.opcode not in FREE:
      total.bytes += self._bytes(computation, i)

  def _operations(self, computation: Computation, i: Instruction) -> float:
    if i.opcode == 'fusion':
      inner = self.module.computations[i.called('calls')[0]]
      return sum(self._operations(inner, other) for other in inner.instructions.values())
    if i.opcode == 'dot':
      lhs = _operand(computation, i, 0)
      contracted = (lhs.shape[d] for d in i.numbers('lhs_contracting_dims'))
      return 2.0 * i.outputs[0].size * math.prod(contracted)
    if i.opcode == 'convolution':
      return convolution_operations(i, *(_operand(computation, i, k) for k in (0, 1)))
    if i.opcode == 'custom-call':
      return _library_operations(computation, i)
    return 0.0

  def _bytes(self, computation: Computation, i: Instruction) -> float:
    operands = [_operand(computation, i, k) for k in range(len(i.operands))]
    written = sum(array.padded_bytes for array in i.outputs)
    if i.opcode == 'fusion':
      return self._fusion_bytes(self.module.computations[i.called('calls')[0]], operands, i)
    if i.opcode in ('dynamic-slice', 'gather', 'slice'):
      return written + (written if operands[0].in_memory else 0.0)
    if i.opcode == 'dynamic-update-slice':
      return operands[1].padded_bytes + (operands[1].bytes if i.outputs[0].in_memory else 0.0)
    if i.opcode == 'copy-start':
      return i.outputs[0].padded_bytes + i.outputs[1].padded_bytes
    return written + sum(array.padded_bytes for array in operands)

  def _fusion_bytes(self, inner: Computation, operands: list[Array], i: Instruction) -> float:
    """Counts what a fusion reads and writes: parts of arrays where it takes or writes parts."""
    users: dict[str, list[Instruction]] = {}
    for other in inner.instructions.values():
      for name in other.operands:
        users.setdefault(name, []).append(other)
    total = 0.0
    for number, parameter in inner.parameters.items():
      if number < len(operands) and operands[number].in_memory:
        total += _read(inner, parameter, users, operands[number])
    root = inner.root
    parts = [inner.instructions[n] for n in root.operands] if root.opcode == 'tuple' else [root]
    for array, part in zip(i.outputs, parts, strict=False):
      part = _source(inner, part)
      updated = part.opcode == 'dynamic-update-slice'
      whole = array.padded_bytes
      total += min(_operand(inner, part, 1).bytes, whole) if updated else whole
    return total

  def _trip_count(self, computation: Computation, i: Instruction) -> float | None:
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', i.attributes):
      return float(known[1])
    scope = _scope(i)
    if scope in self.trips:
      return self.trips[scope]
    if (by := re.fullmatch(r'(.*)_by_(\d+)', scope)) and by[1] in self.trips:
      return math.ceil(self.trips[by[1]] / int(by[2]))
    return self._compared(computation, i)

  def _compared(self, computation: Computation, i: Instruction) -> float | None:
    """Returns the trips of a loop that counts up to a constant by one; None if it does not."""
    condition = self.module.computations[i.called('condition')[0]]
    root = condition.root
    if root.opcode == 'fusion':
      inner = self.module.computations[root.called('calls')[0]]
      compare, outer = inner.root, root
    else:
      inner, compare, outer = condition, root, None
    if compare.opcode != 'compare' or 'direction=LT' not in compare.attributes:
      return None

    def value(name: str) -> tuple[float | None, bool]:
      """The number that a side of the comparison has at first; whether it is carried."""
      at = _source(inner, inner.instructions[name])
      if outer is not None and at.opcode == 'parameter':
        at = _source(condition, condition.instructions[outer.operands[int(at.text)]])
      if at.opcode == 'constant':
        return _number(at), False
      index = re.search(r'index=(\d+)', at.attributes)
      start = computation.instructions.get(i.operands[0])
      if at.opcode != 'get-tuple-element' or not index or start is None:
        return None, False
      if start.opcode != 'tuple':
        return None, False
      first = _source(computation, computation.instructions[start.operands[int(index[1])]])
      return (_number(first) if first.opcode == 'constant' else None), True

    (first, carried), (last, _) = (value(name) for name in compare.operands)
    return last - first if carried and first is not None and last is not None else None


def _scope(i: Instruction) -> str:
  """Returns the name of a loop's scope, '' without one."""
  parts = i.op_name.split('/')
  last = parts[-2] if len(parts) > 1 and parts[-1] == 'while' else ''
  found = re.search(r'loop_(\w+)', last)
  return found[1] if found else ''


def _number(constant: Instruction) -> float | None:
  try:
    return float(constant.text)
  except ValueError:
    return None


def _source(computation: Computation, i: Instruction) -> Instruction:
  """Follows instructions that only rename or copy a value."""
  while i.opcode in ('bitcast', 'copy', 'convert', 'reshape') and i.operands:
    i = computation.instructions[i.operands[0]]
  return i


def _operand(computation: Computation, i: Instruction, k: int) -> Array:
  outputs = computation.instructions[i.operands[k]].outputs
  return outputs[0] if outputs else Array('token', ())


def _read(
  inner: Computation,
  value: Instruction,
  users: Mapping[str, list[Instruction]],
  array: Array,
) -> float:
  """Counts what a fusion reads of a parameter."""
  total = 0.0
  for user in users.get(value.name, ()):
    first = user.operands[0] == value.name
    if user.opcode == 'bitcast':
      total += _read(inner, user, users, array)
    elif user.opcode in ('dynamic-slice', 'gather', 'slice') and first:
      total += user.outputs[0].bytes
    elif user.opcode != 'dynamic-update-slice' or not first:
      return array.padded_bytes
  return min(total, array.padded_bytes)


def _host_transfer(i: Instruction) -> str:
  """Names what moves data between device and host; '' if nothing does."""
  if i.opcode in ('infeed', 'outfeed') or 'is_host_transfer=true' in i.attributes:
    return i.opcode
  target = re.search(r'custom_call_target="([^"]*)"', i.attributes)
  if target and CALLBACKS.search(target[1]):
    return target[1]
  return f'{i.opcode} to host memory' if any(array.on_host for array in i.outputs) else ''


def convolution_operations(i: Instruction, lhs: Array, rhs: Array) -> float:
  """Counts a convolution's operations: two for each product of an input and a weight.

  Args:
    i: the instruction, with `window` and `dim_labels`.
    lhs: the input.
    rhs: the weights.
  """
  labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', i.attributes)
  if not labels:
    return 0.0
  inputs, weights, outputs = labels[1], labels[2], labels[3]
  window = re.search(r'window=\{([^}]*)\}', i.attributes)
  fields = dict(part.split('=') for part in window[1].split()) if window else {}
  positions = 1
  for k in range(len(outputs) - 2):
    per = {key: value.split('x')[k] for key, value in fields.items()}
    one = lambda key, per=per: int(per.get(key, '1'))
    low = int(per.get('pad', '0_0').split('_')[0])
    side, out = lhs.shape[inputs.index(str(k))], i.outputs[0].shape[outputs.index(str(k))]
    base, stride = one('lhs_dilate'), one('stride')
    starts = (kernel * one('rhs_dilate') - low for kernel in range(one('size')))
    positions *= sum(
      0 <= at <= (side - 1) * base and at % base == 0
      for start in starts
      for at in range(start, start + out * stride, stride)
    )
  batch_groups = re.search(r'batch_group_count=(\d+)', i.attributes)
  batch = lhs.shape[inputs.index('b')] / (int(batch_groups[1]) if batch_groups else 1)
  # The weights' 'i' is the input's features divided by the groups.
  features = rhs.shape[weights.index('i')] * rhs.shape[weights.index('o')]
  return 2.0 * positions * batch * features


def _library_operations(computation: Computation, i: Instruction) -> float:
  """Counts the operations of a call of cuBLAS or cuDNN."""
  target = re.search(r'custom_call_target="([^"]*)"', i.attributes)
  name = target[1] if target else ''
  if name.startswith('__cublas'):
    config = re.search(r'backend_config=(\{.*\})', i.attributes)
    found = re.search(r'"lhs_contracting_dimensions":(\[[^\]]*\])', config[1] if config else '')
    contracted = [int(d) for d in json.loads(found[1])] if found else []
    lhs = _operand(computation, i, 0)
    return 2.0 * i.outputs[0].size * math.prod(lhs.shape[d] for d in contracted)
  if not name.startswith('__cudnn$conv'):
    return 0.0
  labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', i.attributes)
  result, lhs, rhs = i.outputs[0], *(_operand(computation, i, k) for k in (0, 1))
  if 'BackwardInput' in name:  # (gradient of the output, weights) -> gradient of the input
    output, weights = lhs, rhs
  elif 'BackwardFilter' in name:  # (input, gradient of the output) -> gradient of the weights
    output, weights = rhs, result
  else:
    output, weights = result, rhs
  if not labels:
    return 0.0
  return 2.0 * output.size * weights.size / weights.shape[labels[2].index('o')]
