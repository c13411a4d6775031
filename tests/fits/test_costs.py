"""Trip counts, operations, bytes and collectives of programs that were worked out by hand."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_syn.core.programs import loop
from fedjax_syn.fits import costs, hlo

# A loop from 2 to 5: y = x W three times. Then the sum over devices.
PROGRAM = """
HloModule jit_f, is_scheduled=true

%add (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %s = f32[] add(%l, %r)
}

%body (p: (s32[], f32[8,16], f32[16,16])) -> (s32[], f32[8,16], f32[16,16]) {
  %p = (s32[]{:T(128)}, f32[8,16]{1,0:T(8,128)}, /*index=2*/f32[16,16]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)S(6)} get-tuple-element(%p), index=0
  %x = f32[8,16]{1,0:T(8,128)} get-tuple-element(%p), index=1
  %w = f32[16,16]{1,0:T(8,128)} get-tuple-element(%p), index=2
  %y = f32[8,16]{1,0:T(8,128)} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %one = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)S(6)} add(%i, %one)
  ROOT %t = (s32[], f32[8,16]{1,0:T(8,128)}, f32[16,16]{1,0:T(8,128)}) tuple(%next, %y, %w)
}

%condition (q: (s32[], f32[8,16], f32[16,16])) -> pred[] {
  %q = (s32[]{:T(128)}, f32[8,16]{1,0:T(8,128)}, f32[16,16]{1,0:T(8,128)}) parameter(0)
  %j = s32[]{:T(128)} get-tuple-element(%q), index=0
  %five = s32[]{:T(128)} constant(5)
  ROOT %less = pred[] compare(%j, %five), direction=LT
}

ENTRY %main (a: f32[8,16], b: f32[16,16]) -> f32[8,16] {
  %a = f32[8,16]{1,0:T(8,128)} parameter(0)
  %b = f32[16,16]{1,0:T(8,128)} parameter(1)
  %two = s32[]{:T(128)} constant(2)
  %start = (s32[], f32[8,16], f32[16,16]) tuple(%two, %a, %b)
  %while.1 = (s32[], f32[8,16], f32[16,16]) while(%start), condition=%condition, body=%body
  %out = f32[8,16]{1,0:T(8,128)} get-tuple-element(%while.1), index=1
  ROOT %sum = f32[8,16]{1,0:T(8,128)} all-reduce(%out), replica_groups={{0,1}}, to_apply=%add
}
"""


def analysed(text, **trips):
  return costs.analyse(hlo.parse(text), trips)


def test_a_body_counts_as_often_as_it_runs():
  found = analysed(PROGRAM)
  assert found.operations == 3 * 2 * 8 * 16 * 16
  # Rows of 16 floats take the 128 of a tile: x, y and W 4096, 4096, 8192 bytes; four of the
  # constant 1, the counter is not in main memory. The sum reads and writes 4096.
  assert found.bytes == 3 * (4096 + 4096 + 8192 + 4) + 2 * 4096
  assert found.collectives == found.largest_collective == {'all-reduce': 8 * 16 * 4}
  assert not found.host_transfers and not found.unknown_loops


def test_a_trip_count_of_the_program_is_taken():
  config = ', backend_config={"known_trip_count":{"n":"7"}}'
  known = PROGRAM.replace('body=%body\n', f'body=%body{config}\n')
  assert analysed(known).operations == 7 * 2 * 8 * 16 * 16


@pytest.mark.parametrize(
  ('scope', 'trips', 'count'),
  [('queue', {'queue': 2.5}, 2.5), ('rows_by_4', {'rows': 9}, 3), ('queue', {}, 1)],
)
def test_a_trip_count_of_the_run_is_looked_up_by_the_scope(scope, trips, count):
  name = f', metadata={{op_name="jit(f)/while/body/vmap(loop_{scope})/while" stack_frame_id=3}}'
  unknown = PROGRAM.replace('%five = s32[]{:T(128)} constant(5)', '%five = s32[] negate(%j)')
  found = analysed(unknown.replace('body=%body\n', f'body=%body{name}\n'), **trips)
  assert found.operations == count * 2 * 8 * 16 * 16


def test_a_loop_inside_another_that_nobody_knows_is_named():
  unknown = PROGRAM.replace('%five = s32[]{:T(128)} constant(5)', '%five = s32[] negate(%j)')
  assert not analysed(unknown).unknown_loops  # the outermost one is the unit
  name = 'metadata={op_name="f/a/while"}'
  inner = unknown.replace('ENTRY %main', '%main').replace('body=%body\n', f'body=%body, {name}\n')
  outer = """
ENTRY %e (c: f32[8,16], d: f32[16,16]) -> f32[8,16] {
  %c = f32[8,16] parameter(0)
  %d = f32[16,16] parameter(1)
  ROOT %r = f32[8,16] call(%c, %d), to_apply=%main
}
"""
  assert analysed(inner + outer).unknown_loops == ['f/a/while']


FUSED = """
HloModule jit_g

%fused (p0: f32[100,8], p1: s32[], p2: f32[100,8]) -> f32[100,8] {
  %p0 = f32[100,8]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[100,8]{1,0} parameter(2)
  %zero = s32[] constant(0)
  %slice = f32[4,8]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={4,8}
  ROOT %put = f32[100,8]{1,0} dynamic-update-slice(%p2, %slice, %p1, %zero)
}

ENTRY %main (a: f32[100,8], i: s32[], b: f32[100,8]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %b = f32[100,8]{1,0} parameter(2)
  %big = f32[100,8]{1,0:S(5)} custom-call(%a), custom_call_target="xla_python_cpu_callback"
  ROOT %f = f32[100,8]{1,0} fusion(%a, %i, %b), kind=kLoop, calls=%fused
}
"""


def test_slices_count_and_not_their_arrays():
  # Four rows of 32 bytes are read, four are written; the index has four bytes. The call reads `a`.
  found = analysed(FUSED)
  assert found.bytes == 128 + 4 + 128 + 3200
  assert found.host_transfers == ['xla_python_cpu_callback']


SAME = 'window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f'
# Of 3 x 3 taps at 5 x 5 positions, (4 + 5 + 4)^2 lie in the image.
TAPS = 13**2


@pytest.mark.parametrize(
  ('lhs', 'rhs', 'out', 'attributes', 'products'),
  [
    ('1,5,5,2', '3,3,2,4', '1,5,5,4', SAME, TAPS * 2 * 4),
    # Two groups: each output has one input.
    ('1,5,5,2', '3,3,1,4', '1,5,5,4', f'{SAME}, feature_group_count=2', TAPS * 4),
    # A TPU's form of two products [16, 8] x [8, 4]: the zeros between them cost nothing.
    (
      *('2,16,8', '2,8,4', '2,16,4'),
      'window={size=2 lhs_dilate=2}, dim_labels=0bf_0io->0bf',
      2 * 16 * 8 * 4,
    ),
  ],
)
def test_convolutions_count_the_taps_inside_the_image(lhs, rhs, out, attributes, products):
  found = analysed(
    f'ENTRY %m (a: f32[{lhs}], b: f32[{rhs}]) -> f32[{out}] {{\n'
    f'  %a = f32[{lhs}] parameter(0)\n  %b = f32[{rhs}] parameter(1)\n'
    f'  ROOT %c = f32[{out}] convolution(%a, %b), {attributes}\n}}\n'
  )
  assert found.operations == 2 * products


@pytest.mark.parametrize(
  ('target', 'outputs', 'operands', 'operations'),
  [
    ('__cudnn$convForward', '8,5,5,4', ('8,5,5,2', '4,3,3,2'), 2 * 8 * 25 * 4 * 9 * 2),
    ('__cudnn$convBackwardInput', '8,5,5,2', ('8,5,5,4', '4,3,3,2'), 2 * 8 * 25 * 4 * 9 * 2),
    ('__cudnn$convBackwardFilter', '4,3,3,2', ('8,5,5,2', '8,5,5,4'), 2 * 8 * 25 * 4 * 9 * 2),
    ('__cublas$gemm', '16,4', ('16,8', '8,4'), 2 * 16 * 8 * 4),
  ],
)
def test_calls_of_gpu_libraries_count_too(target, outputs, operands, operations):
  config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
  a, b = operands
  found = analysed(
    f'ENTRY %m (a: f32[{a}], b: f32[{b}]) -> f32[{outputs}] {{\n'
    f'  %a = f32[{a}] parameter(0)\n  %b = f32[{b}] parameter(1)\n'
    f'  %c = (f32[{outputs}], s8[64]) custom-call(%a, %b), window={{size=3x3 pad=1_1x1_1}},'
    f' dim_labels=b01f_o01i->b01f, custom_call_target="{target}", backend_config={config}\n'
    '  ROOT %d = f32[] get-tuple-element(%c), index=0\n}\n'
  )
  assert found.operations == operations


def test_a_program_of_jax_is_read():
  def f(w, x, n):
    four = lambda _, x: jax.lax.scan(lambda x, _: (x @ w, None), x, length=4)[0]
    with loop('steps'):
      return jax.lax.fori_loop(0, n, four, x)

  shape = lambda *n, dtype=jnp.float32: jax.ShapeDtypeStruct(n, dtype)
  compiled = jax.jit(f).lower(shape(8, 8), shape(4, 8), shape(dtype=jnp.int32)).compile()
  found = analysed(compiled.as_text(), steps=6)
  assert found.operations == 6 * 4 * 2 * 4 * 8 * 8
