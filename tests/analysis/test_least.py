"""The least bytes of a program: one kernel for all that is memory-intensive in each computation."""

from __future__ import annotations

import pytest

from jstitch.analysis.least import least
from jstitch.device_spec import find_spec
from jstitch.xla.hlo import parse_module
from jstitch.xla.launches import Program
from jstitch.xla.thunks import Thunk
from jstitch.xla.traffic import Traffic

NEGATE = """
%negated (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %n = f32[1024]{0} negate(%p)
}
"""
SIZE = 4096


def negated(operand: str) -> str:
    return f"f32[1024]{{0}} fusion(%{operand}), kind=kLoop, calls=%negated"


def program(entry: str, others: str = "", **thunks: str) -> Program:
    """A program from its entry's lines; thunks: instruction=kind."""
    module = parse_module(f"HloModule m\n{NEGATE}{others}\nENTRY %main () -> f32[] {{\n{entry}\n}}\n")
    found = {name.replace("_", "."): (Thunk(1, kind, "k"),) for name, kind in thunks.items()}
    return Program(module, found, find_spec("h200"))


def test_what_passes_from_kernel_to_kernel_is_free() -> None:
    entry = f"""
  %x = f32[1024]{{0}} parameter(0)
  %a = {negated("x")}
  %b = {negated("a")}
  ROOT %c = {negated("b")}"""
    assert least(program(entry, a="kKernel", b="kKernel", c="kKernel")) == Traffic(SIZE, SIZE)


def test_products_take_and_give_through_memory() -> None:
    """x -> a -> product b -> c, and a is used by c too: it is written for the product only."""
    entry = f"""
  %x = f32[1024]{{0}} parameter(0)
  %a = {negated("x")}
  %b = f32[1024]{{0}} custom-call(%a, %x), custom_call_target="__cublas$gemm"
  ROOT %c = f32[1024]{{0}} add(%a, %b)"""
    assert least(program(entry, a="kKernel", b="kGemm", c="kKernel")) == Traffic(2 * SIZE, 2 * SIZE)


def test_an_input_that_several_kernels_read_counts_once() -> None:
    entry = f"""
  %x = f32[1024]{{0}} parameter(0)
  %a = {negated("x")}
  %b = {negated("x")}
  ROOT %t = (f32[1024]{{0}}, f32[1024]{{0}}) tuple(%a, %b)"""
    assert least(program(entry, a="kKernel", b="kKernel")) == Traffic(SIZE, 2 * SIZE)


@pytest.mark.parametrize(("sizes", "bytes_read"), [((256, 256), 2048), ((1024, 512), 4096)])
def test_of_slices_their_sum_counts_at_most_the_whole(sizes: tuple[int, int], bytes_read: int) -> None:
    slices = "\n".join(f"  %s{k} = f32[{n}]{{0}} slice(%x), slice={{[0:{n}]}}" for k, n in enumerate(sizes))
    entry = f"""
  %x = f32[1024]{{0}} parameter(0)
{slices}
  ROOT %t = (f32[{sizes[0]}]{{0}}, f32[{sizes[1]}]{{0}}) tuple(%s0, %s1)"""
    found = least(program(entry, s0="kKernel", s1="kKernel"))
    assert found == Traffic(bytes_read, 4 * sum(sizes))


def test_plain_copies_are_free_and_turning_ones_are_not() -> None:
    entry = f"""
  %x = f32[1024]{{0}} parameter(0)
  %a = {negated("x")}
  ROOT %c = f32[1024]{{0}} copy(%a)"""
    assert least(program(entry, a="kKernel", c="kCopy")) == Traffic(SIZE, SIZE)
    turned = """
  %x = f32[32,32]{1,0} parameter(0)
  ROOT %c = f32[32,32]{0,1} copy(%x)"""
    assert least(program(turned, c="kKernel")) == Traffic(SIZE, SIZE)
    assert least(program(turned, c="kCopy")) == Traffic()


def test_loop_bodies_count_as_often_as_they_turn() -> None:
    """The body reads a row of a stack, and replaces a row of another one in place."""
    body = """
%update (p: f32[64,1024], u: f32[1,1024], i: s32[]) -> f32[64,1024] {
  %p = f32[64,1024]{1,0} parameter(0)
  %u = f32[1,1024]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %d = f32[64,1024]{1,0} dynamic-update-slice(%p, %u, %i, %z)
}

%body (t: (s32[], f32[64,1024], f32[64,1024])) -> (s32[], f32[64,1024], f32[64,1024]) {
  %t = (s32[], f32[64,1024]{1,0}, f32[64,1024]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %xs = f32[64,1024]{1,0} get-tuple-element(%t), index=1
  %ys = f32[64,1024]{1,0} get-tuple-element(%t), index=2
  %z = s32[] constant(0)
  %row = f32[1,1024]{1,0} dynamic-slice(%xs, %i, %z), dynamic_slice_sizes={1,1024}
  %new = f32[64,1024]{1,0} fusion(%ys, %row, %i), kind=kLoop, calls=%update
  ROOT %r = (s32[], f32[64,1024]{1,0}, f32[64,1024]{1,0}) tuple(%i, %xs, %new)
}

%cond (t: (s32[], f32[64,1024], f32[64,1024])) -> pred[] {
  %t = (s32[], f32[64,1024]{1,0}, f32[64,1024]{1,0}) parameter(0)
  ROOT %l = pred[] constant(true)
}
"""
    entry = """
  %s = (s32[], f32[64,1024]{1,0}, f32[64,1024]{1,0}) parameter(0)
  ROOT %w = (s32[], f32[64,1024]{1,0}, f32[64,1024]{1,0}) while(%s), condition=%cond, body=%body, CONFIG"""
    known = entry.replace("CONFIG", 'backend_config={"known_trip_count":{"n":"64"}}')
    kinds = {"row": "kKernel", "new": "kKernel"}
    turn = Traffic(SIZE + 8, SIZE)  # the row, and where it stands: read by two kernels, counted at most once
    found = least(program(known, body, **kinds))
    assert found.written == 64 * SIZE
    assert 64 * SIZE <= found.read <= 64 * turn.read
    assert least(program(entry.replace(", CONFIG", ""), body, **kinds)) * 64 == found
