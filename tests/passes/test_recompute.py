"""What a kernel computes again on a GPU rather than read, and what it reads instead."""

from __future__ import annotations

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_patterns
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from tests.contexts import H200

WIDE, ROWS, MASK = "4096x1024xf32", "4096xf32", "4096x1024xi1"
LAYER_NORM = f"""
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<{WIDE}>, tensor<f32>) -> tensor<{ROWS}>
  %mb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<{ROWS}>) -> tensor<{WIDE}>
  %c = stablehlo.subtract %x, %mb : tensor<{WIDE}>
  %y = stablehlo.tanh %c : tensor<{WIDE}>
  %g = stablehlo.custom_call @product(%y) : (tensor<{WIDE}>) -> tensor<{WIDE}>
  %r = stablehlo.multiply %c, %g : tensor<{WIDE}>
"""


def replanned(body: str, *patterns: range) -> list[FusionPattern]:
    """Of a function of %x and %w that returns %r; a pattern is a range of its ops, constants not counted."""
    text = f"""func.func @main(%x: tensor<{WIDE}>, %w: tensor<{WIDE}>) -> tensor<{WIDE}> {{
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        {body}
        return %r : tensor<{WIDE}> }}"""
    frame = import_module(parse_module(text))
    free = [op for op in frame.ops if is_free(op)]
    ops = [op for op in frame.ops if not is_free(op)]
    groups = [[*free, *ops[p.start : p.stop]] for p in patterns]
    old = FusionPlan(frame, make_patterns(frame, groups, "test"))
    new = recompute_outputs(old, H200)
    assert new is old or check_plan(new) == ()
    return list(new.patterns)


def reads(pattern: FusionPattern) -> list[str]:
    return sorted(str(v.tensor) for v in pattern.inputs)


def writes(pattern: FusionPattern) -> list[str]:
    return sorted(str(v.tensor) for v in pattern.outputs)


def test_from_a_mean_of_each_row_which_is_written_instead() -> None:
    first, second = replanned(LAYER_NORM, range(4), range(5, 6))
    assert writes(first) == [f"tensor<{WIDE}>", f"tensor<{ROWS}>"]  # %y, and %s instead of %c
    assert reads(second) == [f"tensor<{WIDE}>", f"tensor<{WIDE}>", f"tensor<{ROWS}>"]  # %x, %g, %s


def test_from_a_mask_not_from_the_numbers_behind_it() -> None:
    """The power of a power is dear: it is not computed again; the numbers chosen by it are."""
    body = f"""
      %a = stablehlo.power %x, %w : tensor<{WIDE}>
      %b = stablehlo.power %a, %w : tensor<{WIDE}>
      %d = stablehlo.power %b, %w : tensor<{WIDE}>
      %m = stablehlo.compare LT, %d, %x : (tensor<{WIDE}>, tensor<{WIDE}>) -> tensor<{MASK}>
      %f = stablehlo.convert %m : (tensor<{MASK}>) -> tensor<{WIDE}>
      %y = stablehlo.multiply %x, %f : tensor<{WIDE}>
      %g = stablehlo.custom_call @product(%y) : (tensor<{WIDE}>) -> tensor<{WIDE}>
      %r = stablehlo.multiply %f, %g : tensor<{WIDE}>"""
    first, second = replanned(body, range(6), range(7, 8))
    assert writes(first) == [f"tensor<{WIDE}>", f"tensor<{MASK}>"]
    assert reads(second) == [f"tensor<{WIDE}>", f"tensor<{MASK}>"]


def test_from_what_is_written_all_the_same() -> None:
    """%h has to be in memory for the product; %c, its distance from the mean, need not be."""
    body = f"""
      %p = stablehlo.power %x, %w : tensor<{WIDE}>
      %h = stablehlo.power %p, %w : tensor<{WIDE}>
      %s = stablehlo.reduce(%h init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<{WIDE}>, tensor<f32>) -> tensor<{ROWS}>
      %mb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<{ROWS}>) -> tensor<{WIDE}>
      %c = stablehlo.subtract %h, %mb : tensor<{WIDE}>
      %g = stablehlo.custom_call @product(%h) : (tensor<{WIDE}>) -> tensor<{WIDE}>
      %k = stablehlo.multiply %c, %g : tensor<{WIDE}>
      %r = stablehlo.add %h, %k : tensor<{WIDE}>"""
    first, second = replanned(body, range(5), range(6, 8))
    assert writes(first) == [f"tensor<{WIDE}>", f"tensor<{ROWS}>"]
    assert reads(second) == [f"tensor<{WIDE}>", f"tensor<{WIDE}>", f"tensor<{ROWS}>"]  # %h, %g, %s


def test_not_what_costs_nothing_to_keep() -> None:
    """A scalar that a kernel made is read: computing it again saves four bytes, and can cost a phase."""
    body = f"""
      %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<{WIDE}>, tensor<f32>) -> tensor<f32>
      %b = stablehlo.sqrt %a : tensor<f32>
      %d = stablehlo.log %b : tensor<f32>
      %g = stablehlo.custom_call @product(%a) : (tensor<f32>) -> tensor<{WIDE}>
      %db = stablehlo.broadcast_in_dim %d, dims = [] : (tensor<f32>) -> tensor<{WIDE}>
      %r = stablehlo.multiply %db, %g : tensor<{WIDE}>"""
    first, second = replanned(body, range(3), range(4, 6))
    assert writes(first) == ["tensor<f32>", "tensor<f32>"]
    assert reads(second) == [f"tensor<{WIDE}>", "tensor<f32>"]
    assert len(second.ops) == 3
