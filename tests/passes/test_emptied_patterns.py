"""A pattern whose values all its readers compute again is no kernel any more."""

from __future__ import annotations

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.passes.base.plan import FusionPlan, make_patterns
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.pack_patterns import pack_patterns
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from tests.contexts import H200

MODULE = """
func.func @main(%x: tensor<1024x1024xf32>) -> tensor<1024xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<1024x1024xf32>
  %i = stablehlo.iota dim = 0 : tensor<1024x1024xi32>
  %j = stablehlo.iota dim = 1 : tensor<1024x1024xi32>
  %m = stablehlo.compare GE, %i, %j : (tensor<1024x1024xi32>, tensor<1024x1024xi32>) -> tensor<1024x1024xi1>
  %a = stablehlo.select %m, %x, %zeros : tensor<1024x1024xi1>, tensor<1024x1024xf32>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  return %s : tensor<1024xf32>
}
"""


def test_a_mask_that_its_reader_makes() -> None:
    frame = import_module(parse_module(MODULE))
    mask, select, total = frame.ops[4:7]
    plan = FusionPlan(frame, make_patterns(frame, [[mask], [select, total]], "test"))
    left = recompute_outputs(plan, H200)
    assert [[op.name for op in p.ops if op.operands] for p in left.patterns] == [
        ["stablehlo.compare", "stablehlo.select", "stablehlo.reduce"]
    ]
    assert all(p.outputs for p in left.patterns)
    assert check_plan(left) == ()
    assert len(pack_patterns(left, H200).patterns) == 1
