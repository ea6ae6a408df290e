"""Library-call layers: where fusion has to stop (FS-2018 section 3.2).

layer 5: exp                     LC-layers: {4, 1}
layer 4: dot_general     ->      roof(0) = 1,  roof(1) = 4,  roof(4) = 6 (one above the last layer)
layer 3, 2: add, mul
layer 1: custom_call
layer 0: tanh
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from jstitch.ir.graph import Op


def cut_lc_layers(spans: dict[Op, int], is_library_call: Callable[[Op], bool]) -> tuple[int, ...]:
    """The spans, ascending, of the layers that hold a library call."""
    return tuple(sorted({span for op, span in spans.items() if is_library_call(op)}))


def roof(span: int, lc_layers: tuple[int, ...], depth: int) -> int:
    """The first LC-layer above `span`, or `depth` (the number of layers) when there is none."""
    above = bisect_right(lc_layers, span)
    return lc_layers[above] if above < len(lc_layers) else depth
