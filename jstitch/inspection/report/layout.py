"""Where a frame's ops stand in the picture: rows are span layers, columns have as few crossings as can be.

exp -> add, exp -> mul, add -> div, mul -> div         exp          row of span 2
                                                     add mul        row of span 1
                                                       div          row of span 0

The order within rows is the Sugiyama method's (Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11(2), 1981), by
fast-sugiyama.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from fast_sugiyama import from_edges

from jstitch.ir.node_graph import connected_parts

NEAR = 6  # layers: edges over more of them have no say, those of a backward pass would tear all apart
BAND = 2000  # ops that are placed at once: the method takes time that grows faster than their number
BEND = 0.2  # of a column, that an edge takes up in the rows that it passes

Edge = tuple[int, int]


def columns(spans: Sequence[int], edges: Iterable[Edge]) -> list[float]:
    """Each op's column, from 0; ops of one layer are at least one column apart.

    edges: from ops of a larger span to ops of a smaller one, by number.
    """
    near = [(a, b) for a, b in edges if 0 < spans[a] - spans[b] <= NEAR]
    found: dict[int, float] = {}
    for band in _bands(spans):
        inside = [(a, b) for a, b in near if a in band and b in band]
        found |= _band(spans, band, inside)
    return [found[op] for op in range(len(spans))]


def _bands(spans: Sequence[int]) -> Iterator[frozenset[int]]:
    """The ops in whole layers, about BAND at once."""
    layers: dict[int, list[int]] = defaultdict(list)
    for op, span in enumerate(spans):
        layers[span].append(op)
    band: list[int] = []
    for span in sorted(layers):
        band += layers[span]
        if len(band) >= BAND:
            yield frozenset(band)
            band = []
    if band:
        yield frozenset(band)


def _band(spans: Sequence[int], band: frozenset[int], edges: Sequence[Edge]) -> dict[int, float]:
    """Connected parts side by side, as far to the left as there is room; then apart in each layer."""
    connected = connected_parts(sorted(band), edges)
    parts = sorted((sorted(part) for part in connected), key=lambda p: (-len(p), p))
    owner = {op: n for n, part in enumerate(parts) for op in part}
    inner: dict[int, list[Edge]] = defaultdict(list)
    for a, b in edges:
        inner[owner[a]].append((a, b))
    right: dict[int, float] = defaultdict(float)
    found: dict[int, float] = {}
    for n, part in enumerate(parts):
        placed = _part(part, inner[n])
        layers = sorted({spans[op] for op in part})
        start = max(right[layer] for layer in range(layers[0], layers[-1] + 1))
        found |= {op: start + x for op, x in placed.items()}
        end = start + max(placed.values()) + 1
        right.update(dict.fromkeys(range(layers[0], layers[-1] + 1), end))
    return _apart(spans, found)


def _part(part: Sequence[int], edges: Sequence[Edge]) -> dict[int, float]:
    """Of connected ops, the leftmost at 0."""
    if not edges:
        return dict.fromkeys(part, 0.0)
    number = {op: n for n, op in enumerate(part)}
    (layout,) = from_edges(
        sorted({(number[a], number[b]) for a, b in edges}),
        vertex_spacing=1,
        dummy_vertices=False,
        dummy_size=BEND,
        transpose=False,
    )
    at = {part[n]: float(x) for n, (x, _) in layout[0] if isinstance(n, int) and n < len(part)}
    left = min(at.values())
    return {op: x - left for op, x in at.items()}


def _apart(spans: Sequence[int], at: Mapping[int, float]) -> dict[int, float]:
    """The nearest places, in the same order, in which ops of a layer do not overlap."""
    # Here, because SciPy is a third of the start of every command, and only the report needs it.
    import scipy.optimize

    layers: dict[int, list[int]] = defaultdict(list)
    for op in sorted(at, key=lambda op: (at[op], op)):
        layers[spans[op]].append(op)
    found: dict[int, float] = {}
    for ops in layers.values():
        steps = np.arange(len(ops))
        places = np.array([at[op] for op in ops])
        moved = scipy.optimize.isotonic_regression(places - steps).x + steps
        found.update(zip(ops, moved.tolist(), strict=True))
    left = min(found.values(), default=0.0)
    return {op: round(x - left, 2) for op, x in found.items()}
