"""Which ops may be dropped when unused: all but those with effects that somebody can see."""

from __future__ import annotations

from jstitch.ir.graph import Op
from jstitch.ir.ops.definition import OPS

# Not in the table (no kernel, no reference), yet known to compute their results and nothing else.
PURE = frozenset(
    {
        "chlo.ragged_dot",
        "chlo.scan",
        "chlo.top_k",
        "stablehlo.cholesky",
        "stablehlo.composite",
        "stablehlo.fft",
        "stablehlo.rng_bit_generator",
        "stablehlo.triangular_solve",
    }
)


def has_effects(op: Op) -> bool:
    """True unless the op (regions included) is known to be pure.

    The importer marks pure opaque ops with `attrs['pure']`, from `PURE` or the op's own annotation.
    """
    if op.name in OPS:
        return any(has_effects(inner) for region in op.regions for inner in region.ops)
    return not op.attrs.get("pure", False)
