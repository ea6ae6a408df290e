"""Whether two ops compute the same of what may be different operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op


def are_same(one: Op, other: Op) -> bool:
    """By name, attributes, types, and their regions, which have none themselves."""
    if not _are_alike(one, other) or len(one.regions) != len(other.regions):
        return False
    return all(map(_do_the_same, one.regions, other.regions))


def _are_alike(one: Op, other: Op) -> bool:
    """The same but for their regions."""
    if one.name != other.name or len(one.operands) != len(other.operands):
        return False
    types = [v.type for v in one.results] == [v.type for v in other.results]
    return types and _are_equal(one.attrs, other.attrs)


def _do_the_same(one: Graph, other: Graph) -> bool:
    """Of two regions: op by op."""
    counts = [(len(g.inputs), len(g.ops), len(g.outputs)) for g in (one, other)]
    if counts[0] != counts[1]:
        return False
    place = {v: n for n, v in enumerate(one.inputs)}
    same = {v: n for n, v in enumerate(other.inputs)}
    for a, b in zip(one.ops, other.ops, strict=True):
        if a.regions or b.regions or not _are_alike(a, b):
            return False
        if [place.get(v, v) for v in a.operands] != [same.get(v, v) for v in b.operands]:
            return False
        place |= {v: len(place) + n for n, v in enumerate(a.results)}
        same |= {v: len(same) + n for n, v in enumerate(b.results)}
    return [place.get(v, v) for v in one.outputs] == [same.get(v, v) for v in other.outputs]


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return set(one) == set(other) and all(_is_equal(one[k], other[k]) for k in one)


def _is_equal(one: Any, other: Any) -> bool:
    """Of constants bit by bit: NaN is itself, and -0 is not 0."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    return bool(one == other)
