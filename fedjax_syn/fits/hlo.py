"""Reads the text of a compiled program (XLA's HLO) into computations and instructions."""

import functools
import math
import re
from typing import NamedTuple

BITS = {
  **dict.fromkeys(('pred', 's8', 'u8'), 8),
  **dict.fromkeys(('s4', 'u4'), 4),
  **dict.fromkeys(('s16', 'u16', 'f16', 'bf16'), 16),
  **dict.fromkeys(('s32', 'u32', 'f32'), 32),
  **dict.fromkeys(('s64', 'u64', 'f64', 'c64'), 64),
  'c128': 128,
}
_ARRAY = re.compile(r'(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?')
_HEADER = re.compile(r'(ENTRY )?%?([\w.\-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'(ROOT )?%?([\w.\-]+) = (.*)$')
_NAME = re.compile(r'%([\w.\-]+)')
_COMMENT = re.compile(r'/\*.*?\*/')


class Array(NamedTuple):
  """An array, or an element of a tuple."""

  dtype: str
  shape: tuple[int, ...]
  layout: str = ''

  @property
  def size(self) -> int:
    """Returns the number of elements."""
    return math.prod(self.shape)

  @property
  def bytes(self) -> float:
    """Returns the bytes of the elements alone."""
    bits = BITS.get(self.dtype, 8 if self.dtype.startswith('f8') else 0)
    return self.size * bits / 8

  @property
  def in_memory(self) -> bool:
    """Returns whether it is in the device's main memory, S(0), and not on the chip or the host."""
    return 'S(' not in self.layout

  @property
  def on_host(self) -> bool:
    """Returns whether it lies in host memory, S(5)."""
    return 'S(5)' in self.layout

  @property
  def padded_bytes(self) -> float:
    """Returns the bytes with the padding of the layout's tiles, 0 outside main memory."""
    if not self.in_memory or not self.size:
      return 0.0
    tile = re.search(r'T\(([\d,]+)\)', self.layout)
    if not tile or not self.shape:
      return self.bytes
    sides = [int(side) for side in tile[1].split(',')]
    minor_to_major = [int(d) for d in self.layout.split(':')[0].split(',') if d]
    physical = [self.shape[d] for d in reversed(minor_to_major)] or list(self.shape)
    physical = [1] * (len(sides) - len(physical)) + physical
    whole = physical[: len(physical) - len(sides)]
    ends = [-(-n // side) * side for n, side in zip(physical[-len(sides) :], sides, strict=True)]
    return self.bytes / self.size * math.prod(whole) * math.prod(ends)


class Instruction(NamedTuple):
  """One instruction of a computation."""

  name: str
  opcode: str
  outputs: tuple[Array, ...]
  """One array, or the elements of a tuple."""
  operands: tuple[str, ...]
  text: str
  """Of the operands, or a constant's value."""
  attributes: str
  root: bool

  def called(self, attribute: str) -> list[str]:
    """Returns the computations that an attribute names, as 'body', 'calls'."""
    found = re.search(rf'\b{attribute}=(\{{[^{{}}]*\}}|%[\w.\-]+)', self.attributes)
    return _NAME.findall(found[1]) if found else []

  def numbers(self, attribute: str) -> list[int]:
    """Returns the numbers of an attribute, as 'lhs_contracting_dims={1}'."""
    found = re.search(rf'\b{attribute}=\{{([\d,]*)\}}', self.attributes)
    return [int(n) for n in found[1].split(',') if n] if found else []

  @property
  def op_name(self) -> str:
    """Returns the path of JAX's name scopes."""
    found = re.search(r'op_name="([^"]*)"', self.attributes)
    return found[1] if found else ''


class Computation(NamedTuple):
  """The instructions of a computation, by name, in order."""

  name: str
  instructions: dict[str, Instruction]

  @property
  def root(self) -> Instruction:
    """Returns the instruction whose value is that of the computation."""
    every = list(self.instructions.values())
    return next((i for i in every if i.root), every[-1])

  @property
  def parameters(self) -> dict[int, Instruction]:
    """Returns the parameters by number."""
    every = self.instructions.values()
    return {int(i.text): i for i in every if i.opcode == 'parameter'}


class Module(NamedTuple):
  """A program."""

  computations: dict[str, Computation]
  entry: str


def parse(text: str) -> Module:
  """Reads the text of a module, as `compiled.as_text()` returns it.

  Raises:
    ValueError: if it has no entry computation.
  """
  computations: dict[str, Computation] = {}
  entry, current = '', None
  for line in text.splitlines():
    line = line.strip()
    if line == '}':
      current = None
    elif line.endswith('{') and ' = ' not in line.split('(', 1)[0]:
      if header := _HEADER.match(line):
        current = Computation(header[2], {})
        computations[header[2]] = current
        entry = header[2] if header[1] else entry
    elif current is not None and (found := _INSTRUCTION.match(_COMMENT.sub('', line))):
      instruction = _instruction(bool(found[1]), found[2], found[3])
      current.instructions[found[2]] = instruction
  if not entry:
    raise ValueError('the text of the program has no entry computation')
  return Module(computations, entry)


def _instruction(root: bool, name: str, rest: str) -> Instruction:
  end = _closing(rest, 0) + 1 if rest.startswith('(') else rest.index(' ')
  outputs, rest = arrays(rest[:end]), rest[end:].lstrip()
  opcode, _, _ = rest.partition('(')
  close = _closing(rest, len(opcode))
  inside = rest[len(opcode) + 1 : close]
  operands = tuple(_NAME.findall(inside))
  return Instruction(name, opcode, outputs, operands, inside, rest[close + 1 :], root)


@functools.lru_cache(maxsize=4096)
def arrays(text: str) -> tuple[Array, ...]:
  """Reads a type: one array, or a tuple's, nested ones flattened."""
  out = []
  for dtype, shape, layout in _ARRAY.findall(text):
    out.append(Array(dtype, tuple(int(n) for n in shape.split(',') if n), layout))
  return tuple(out)


def _closing(text: str, start: int) -> int:
  """Returns the position of the parenthesis that closes the one at `start`."""
  depth = 0
  for i in range(start, len(text)):
    depth += (text[i] == '(') - (text[i] == ')')
    if not depth:
      return i
  raise ValueError(f'a parenthesis is not closed: {text[:80]}')
