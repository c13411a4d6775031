"""Compiles the programs of a run for a target and says what each needs."""

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from fedjax_syn import algorithms, models
from fedjax_syn.config import Resolved
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.engine.ahead_of_time import Program
from fedjax_syn.fits import costs, data_shapes, hlo, targets
from fedjax_syn.fits.targets import Chip, Target

# Two forms of libtpu's message: bytes of all arrays, or of the temporary ones alone.
_OUT_OF_MEMORY = re.compile(
  r'Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm'
  r'|\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)'
)
_UNITS = {'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}


@dataclasses.dataclass(kw_only=True)
class Need(costs.Costs):
  """What one program needs of each device; bytes, operations and seconds are of one unit."""

  program: str
  unit: str
  compiles: bool = True
  reason: str = ''
  """Why it does not compile, in one line."""
  compile_seconds: float = 0.0
  compile_processor_seconds: float = 0.0
  arguments: float = 0.0
  temporaries: float = 0.0
  outputs: float = 0.0
  """Without those that take the place of an argument."""
  code: float = 0.0
  beside: float = 0.0
  """What else the run has on the device meanwhile."""
  trips: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def total(self) -> float:
    """Returns the bytes that must be there at once."""
    return self.arguments + self.temporaries + self.outputs + self.code + self.beside


def engine_of(
  resolved: Resolved, target: Target, stated: data_shapes.Facts | None
) -> tuple[Engine, data_shapes.AbstractProblem]:
  """Returns a config's engine for a target, from shapes; nothing is placed on a device.

  Args:
    resolved: a checked config.
    target: the devices.
    stated: facts of the data that the command line states.

  Raises:
    ValueError: if data, model, method and layout do not fit together, or there are no such devices.
  """
  devices = targets.devices_of(target)
  if resolved.model.conv == 'auto':  # the form of the target, not of this machine
    form = models.FASTEST.get(target.chip.kind, 'xla')
    model = dataclasses.replace(resolved.model, conv=form)
    resolved = dataclasses.replace(resolved, model=model)
  abstract = data_shapes.problem_of(resolved, stated)
  engine = Engine(
    algorithms.create(resolved.algorithm, resolved),
    abstract.problem.model,
    abstract.problem.data,
    participation=resolved.client.participation,
    sampler=resolved.client.sampler,
    layout=Layout(**dataclasses.asdict(resolved.layout)),
    rounds=resolved.rounds,
    devices=devices,
  )
  return engine, abstract


def needs(
  resolved: Resolved,
  target: Target,
  stated: data_shapes.Facts | None = None,
  tell: Callable[[str], None] = lambda line: None,
  cached: Callable[[str, Callable[[], Need]], Need | None] = lambda name, work: work(),
) -> tuple[Engine, list[Need]]:
  """Compiles all programs of a config's method for a target.

  Args:
    resolved: a checked config.
    target: the devices.
    stated: facts of the data that the command line states.
    tell: told which program is compiled.
    cached: (program, what compiles it) -> what it needs, may be from before; None leaves it out.

  Returns:
    The engine, and what each program needs.

  Raises:
    ValueError: as `engine_of`.
  """
  with jax.default_matmul_precision(resolved.precision):
    engine, abstract = engine_of(resolved, target, stated)
    found = []
    for program in engine.programs(abstract.splits, abstract.size):

      def work(program: Program = program) -> Need:
        tell(f'{target.text}: {program.name}')
        return compile_one(program)

      need = cached(program.name, work)
      found += [] if need is None else [need]
  resident = sum(n.arguments for n in found if n.program.startswith('evaluation'))
  resident += max((n.arguments for n in found if n.program.startswith('rounds')), default=0.0)
  for need in found:
    own = need.arguments + (need.outputs if need.program == 'initial state' else 0.0)
    need.beside = max(resident - own, 0.0)
  return engine, found


def compile_one(program: Program) -> Need:
  """Compiles one program; a failure of the compiler is part of the result."""
  need = Need(program=program.name, unit=program.unit, trips=dict(program.trips))
  began = time.perf_counter(), time.process_time()
  try:
    compiled = program.lower().compile()
  except jax.errors.JaxRuntimeError as error:
    _failed(need, str(error))
    return need
  need.compile_seconds = time.perf_counter() - began[0]
  need.compile_processor_seconds = time.process_time() - began[1]
  memory: Any = compiled.memory_analysis()
  need.arguments = memory.argument_size_in_bytes
  need.temporaries = memory.temp_size_in_bytes
  need.outputs = max(memory.output_size_in_bytes - memory.alias_size_in_bytes, 0)
  need.code = memory.generated_code_size_in_bytes
  need.add(costs.analyse(hlo.parse(compiled.as_text() or ''), program.trips))
  return need


def _failed(need: Need, message: str) -> None:
  need.compiles = False
  if found := _OUT_OF_MEMORY.search(message):
    numbers = [part for part in found.groups() if part]
    used, available = (float(numbers[k]) * _UNITS[numbers[k + 1]] for k in (0, 2))
    need.temporaries = used
    need.reason = f'needs {used / 2**30:.1f} GiB of {available / 2**30:.1f}'
  else:
    need.reason = message.splitlines()[0] if message else 'the compiler gives no reason'


def roofline(
  need: Need, chip: Chip, precision: str, devices: int, activations: str = 'float32'
) -> dict[str, float]:
  """Returns the seconds that operations, memory and links take at least, each alone.

  Args:
    need: of one unit.
    chip: its peaks; without them the result is empty.
    precision: of the run.
    devices: that take part in collectives.
    activations: of the run's network.

  Returns:
    'operations', 'memory' and 'links'; no unit is faster than the largest of them.
  """
  if not chip.bandwidth:
    return {}
  seconds = {
    'operations': need.operations / chip.peak(precision, activations),
    'memory': need.bytes / chip.bandwidth,
  }
  if devices > 1:
    # An all-reduce sends and receives a result twice, in (n - 1) / n parts; the others once.
    share = (devices - 1) / devices
    moved = sum(
      size * share * (2 if kind == 'all-reduce' else 1) for kind, size in need.collectives.items()
    )
    seconds['links'] = moved / chip.link
  return seconds


def fits(need: Need, chip: Chip) -> bool:
  """Returns whether a program compiles and fits into the memory of its device."""
  return need.compiles and need.total <= chip.usable


def help_for(need: Need, engine: Engine, resolved: Resolved, chip: Chip) -> Iterator[str]:
  """Yields settings that would lower what a program needs, the largest part first.

  Args:
    need: of a program that does not fit.
    engine: the run's.
    resolved: its config.
    chip: what it does not fit.
  """
  blocks: Mapping[str, Any] = resolved.blocks
  dynafed = blocks.get('dynafed')
  if need.program == 'synthesis' and dynafed is not None:
    if dynafed.adjoint == 'stored':
      yield '--config.dynafed.adjoint=jvp, which stores no activations'
    yield '--config.dynafed.inner_batch, images of an inner step'
  elif need.temporaries > 0.3 * chip.usable and need.program.startswith('rounds'):
    if engine.layout.lanes > 1:
      yield f'--config.layout.lanes={max(engine.layout.lanes // 2, 1)} (now {engine.layout.lanes})'
    else:
      yield '--config.client.batch_size'
  if engine.client_state_bytes > 0.3 * chip.usable and engine.client_state_place == 'device':
    yield f"--config.layout.client_state_bytes={int(chip.usable / 4)}: clients' state on the host"
  if need.arguments + need.beside > 0.3 * chip.usable and resolved.data.placement == 'device':
    yield '--config.data.placement=host: training rows in host memory'
  yield 'devices with more memory'


def record(target: Target, engine: Engine, resolved: Resolved, found: list[Need]) -> dict[str, Any]:
  """Returns all figures of a target as JSON would have them."""
  chip, layout = target.chip, engine.layout
  of_run = resolved.precision, layout.devices, resolved.model.activations
  programs = [
    {
      **dataclasses.asdict(need),
      'total': need.total,
      'fits': fits(need, chip),
      'least_seconds': roofline(need, chip, *of_run),
    }
    for need in found
  ]
  return {
    'target': target.text,
    'usable': chip.usable if math.isfinite(chip.usable) else None,
    'algorithm': resolved.algorithm,
    'precision': resolved.precision,
    'layout': layout._asdict(),
    'jax': jax.__version__,
    'fits': all(program['fits'] for program in programs),
    'programs': programs,
  }
