"""HLO that XLA prints, read back as StableHLO."""

from __future__ import annotations

import pytest

from jstitch.frontend.from_hlo import module_of_hlo, number_groups
from jstitch.frontend.importer import import_module
from jstitch.frontend.measurable import why_not_run
from jstitch.frontend.mlir import make_context

PROGRAM = """HloModule program, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  t = f32[8,4]{0,1} transpose(x), dimensions={1,0}
  u = f32[8,4]{0,1} copy(t)
  s = f32[8,4]{0,1} add(u, t)
  ROOT y = f32[8,4]{1,0} all-reduce(s), channel_id=1, replica_groups=GROUPS, to_apply=add
}
"""


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("mesh['a'=2,'b'=3] {'b'}", "{{0,1,2},{3,4,5}}"),
        ("mesh['a'=2,'b'=3] {'a'}", "{{0,3},{1,4},{2,5}}"),
        ("mesh['a'=2,'b'=2] {'b','a'}", "{{0,2,1,3}}"),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", "{{0,2,4,6},{1,3,5,7}}"),
        ("mesh['a'=4], device_ids=(3,1,2,0) {'a'}", "{{3,1,2,0}}"),
        ("mesh['a'=8] {'a':(2)2}", "{{0,2},{1,3},{4,6},{5,7}}"),
        ("{{0,1},{2,3}}", "{{0,1},{2,3}}"),
    ],
)
def test_groups_of_devices(said: str, meant: str) -> None:
    assert number_groups(f"x, replica_groups={said}, y") == f"x, replica_groups={meant}, y"


def test_layouts_and_copies_are_dropped() -> None:
    text = PROGRAM.replace("GROUPS", "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}")
    graph = import_module(module_of_hlo(text, make_context()))
    transpose, add, total = graph.ops
    assert [op.name for op in graph.ops] == ["stablehlo.transpose", "stablehlo.add", "stablehlo.all_reduce"]
    assert add.operands == (transpose.result, transpose.result)
    assert why_not_run(graph) == "stablehlo.all_reduce takes several devices"
    assert str(total.attrs["replica_groups"]).startswith("dense<[[0, 2, 4, 6], [1, 3, 5, 7]]>")
