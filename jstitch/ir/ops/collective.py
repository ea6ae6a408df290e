"""What several devices do together: each device has one, and none goes on without the others'.

No kernel holds one. All devices leave one away, or make one of two, together: they run the same program.
"""

from __future__ import annotations

from jstitch.ir.graph import Op
from jstitch.ir.ops.definition import OpClass, OpDef, define

GROUPS = {"replica_groups": "text", "channel_handle": "text", "use_global_device_ids": "text"}
CHANNEL = "channel_handle"  # a number that only tells two collectives apart

MOVES = frozenset(
    {
        define(OpDef(name, OpClass.OPAQUE, None, attrs)).name
        for name, attrs in (
            ("stablehlo.all_gather", {"all_gather_dim": "i64", **GROUPS}),
            (
                "stablehlo.all_to_all",
                {"split_dimension": "i64", "concat_dimension": "i64", "split_count": "i64", **GROUPS},
            ),
            ("stablehlo.collective_permute", {"source_target_pairs": "text", "channel_handle": "text"}),
            ("stablehlo.collective_broadcast", {"replica_groups": "text", "channel_handle": "text"}),
        )
    }
)
"""Those whose results are elements of their operands, of some device."""

SUMMED = define(OpDef("stablehlo.all_reduce", OpClass.OPAQUE, None, GROUPS)).name
COLLECTIVE = MOVES | {
    SUMMED,
    define(
        OpDef("stablehlo.reduce_scatter", OpClass.OPAQUE, None, {"scatter_dimension": "i64", **GROUPS})
    ).name,
}
define(OpDef("stablehlo.partition_id", OpClass.OPAQUE))
define(OpDef("stablehlo.replica_id", OpClass.OPAQUE))

SLICED = "stablehlo.dynamic_slice"
"""What makes of a sum over devices, by each device for itself, a reduce_scatter."""


def devices(op: Op) -> str:
    """Which devices do it together, to compare."""
    return str(op.attrs.get("replica_groups", op.attrs.get("source_target_pairs")))
