"""Whether the programs of a pattern had better own columns than rows, and how many (FS-2018, section 4.3).

    sum over dim 0 of [64, 100000]      800 columns a strip: 125 programs, one phase
    sum over dim 0 of [401408, 64]      None: a strip would not stay near its program
    sum over dim 1 of [8, 1024, 256]    16 columns a strip of each of 8 slabs, for a GPU

Rows are right where all cores have some, or where a strip would not stay near its program. Else sums cross
the rows, which takes two phases more, for their partial results, and reads the rows again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.machine import busy_share
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.join_dimensions import join_dimensions
from jstitch.passes.lower.own_columns import Columns, Part, keeps_columns, own_columns, whole, wide

RUN = 512  # bytes of a strip's row, at least, for a CPU: shorter loops take longer than a phase more does
SECTORS = 2  # the same for a GPU
VECTORS = 128, 16  # bytes that it is a multiple of, for a CPU, whose loops are unrolled, and for a GPU
BUSY = 0.85  # of the cores, at least
SHARES = 4.0, 2.0  # strips for each core of a CPU, the better number first
GPU_SHARES = 1.0, 1 / 2, 1 / 4, 1 / 8  # the same for a GPU: fewer than one where rows are fewer still,
SMALL = 1 << 20  # or for so few elements, where a launch costs more than what of the GPU does nothing
EXCHANGE = 10 << 10  # bytes of shared memory in which threads exchange one sum


def in_best_shape(
    ops: Sequence[Op], outputs: Sequence[Value], profile: Profile, asked: int | None = None
) -> Sequence[Part]:
    """The ops as they are, or in strips of columns.

    asked: a template's columns of a strip; 0: rows; None: what is best. Raises TemplateError.
    """
    if asked:
        return _as_asked(ops, outputs, asked, profile)
    if not profile.columns or asked is not None:
        return [Part(ops)]
    return _in_strips(ops, outputs, profile) or _in_joined_strips(ops, outputs, profile) or [Part(ops)]


def _in_strips(
    ops: Sequence[Op], outputs: Sequence[Value], profile: Profile, asked: int | None = None
) -> Sequence[Part] | None:
    cut = choose_columns(ops, outputs, profile) if asked is None else _cut_as_asked(ops, asked)
    return None if cut is None else own_columns(ops, outputs, cut, profile.machine.device is not None)


def _in_joined_strips(
    ops: Sequence[Op], outputs: Sequence[Value], profile: Profile, asked: int | None = None
) -> Sequence[Part] | None:
    """Of columns that are several dimensions in the pattern."""
    repeat = profile.machine.device is not None
    joined = join_dimensions(ops, repeat) if any(map(is_reduction, ops)) else None
    if joined is None:
        return None
    values = {v: joined.values.get(v, v) for v in outputs}
    owned = _in_strips(joined.ops, tuple(dict.fromkeys(values.values())), profile, asked)
    return None if owned is None else [_of_old(part, values, n == 0) for n, part in enumerate(owned)]


def _of_old(part: Part, values: Mapping[Value, Value], first: bool) -> Part:
    """What it makes, as the pattern has it. first: of the parts, which has what is not in strips."""
    turned = {}
    for old, new in values.items():
        if new in part.turned:
            turned[old] = part.turned[new]
        elif first and new is not old:
            turned[old] = whole(new)
    return replace(part, turned=turned)


def _as_asked(ops: Sequence[Op], outputs: Sequence[Value], width: int, profile: Profile) -> Sequence[Part]:
    of_several = _largest(ops) is None
    owned = (_in_joined_strips if of_several else _in_strips)(ops, outputs, profile, width)
    if owned is None and of_several:
        raise TemplateError("a sum that keeps the last of its dimensions, to own columns of", "none")
    if owned is None:
        raise TemplateError("ops that want no more of each other than a strip", "others")
    return owned


def _cut_as_asked(ops: Sequence[Op], width: int) -> Columns | None:
    found = _largest(ops)
    if found is not None and width >= found.width:
        raise TemplateError(f"strips of a part of {found.width} columns", str(width))
    return None if found is None else replace(found, width=width)


def choose_columns(ops: Sequence[Op], outputs: Sequence[Value], profile: Profile) -> Columns | None:
    """How the largest tensor that is reduced so is cut best; None: not at all."""
    found = _largest(ops)
    if found is None or math.prod(found.shape[: found.lead]) >= profile.machine.units:
        return None
    each = math.prod(found.shape[found.lead : -1]) * _bytes_of_element(ops, outputs, found, profile)
    size = _narrowest(ops, found)
    if profile.machine.device is None:
        least, vector = -(-RUN // size), max(1, VECTORS[0] // size)
        tries = [(profile.arena_bytes, n) for n in SHARES]
    else:
        least, vector = SECTORS * profile.machine.sector_bytes // size, max(1, VECTORS[1] // size)
        shares = [n for n in GPU_SHARES if n >= 1 or found.lead or math.prod(found.shape) <= SMALL]
        exchanged = EXCHANGE * (1 + sum(map(is_reduction, ops)))
        rooms = profile.arena_bytes // 2 - exchanged, profile.arena_bytes - exchanged
        tries = [(room, n) for n in shares for room in rooms]
    every = (_best(found, least, vector, room // each, profile, share) for room, share in tries)
    return next((cut for cut in every if cut is not None), None)


def _best(
    cut: Columns, least: int, vector: int, most: int, profile: Profile, shares: float
) -> Columns | None:
    """The widest strips of whole vectors, with little or nothing left over, that keep the target busy.

    least, most: columns of one. shares: strips for each core.
    """
    rows, units = math.prod(cut.shape[: cut.lead]), profile.machine.units
    widths = range(-(-least // vector) * vector, min(most, cut.width // 2) + 1, vector)
    found = [replace(cut, width=n) for n in widths if n * shares * units <= cut.width * rows]
    if profile.machine.device is None:
        found = [c for c in found if busy_share((c.strips + (c.rest is not None)) * rows, units) >= BUSY]
    return max(found, key=_worth, default=None)


def _worth(cut: Columns) -> float:
    """The width, less where what is left over is a strip's work, or much less than a strip."""
    rest = cut.rest
    if rest is None:
        return float(cut.width)
    return cut.width * (0.75 if 2 * rest.width >= cut.width else 0.5)


def _largest(ops: Sequence[Op]) -> Columns | None:
    """The largest tensor that has such reductions, and no others, in one piece."""
    found = max(_tensors(ops), key=lambda cut: math.prod(cut.shape), default=None)
    return found if found is not None and _all_keep(ops, found) else None


def _tensors(ops: Sequence[Op]) -> Iterator[Columns]:
    """What is reduced, over all between its leading and its last dimension, whole."""
    for op in ops:
        if not is_reduction(op):
            continue
        shape = op.operands[0].shape
        places = [d for d, n in enumerate(shape) if n > 1]
        reduced = [n for n, d in enumerate(places) if d in op.attrs["dimensions"]]
        if reduced and reduced == list(range(reduced[0], len(places) - 1)):
            yield Columns(wide(shape), reduced[0], wide(shape)[-1])


def _all_keep(ops: Sequence[Op], cut: Columns) -> bool:
    reductions = (op for op in ops if is_reduction(op) and wide(op.operands[0].shape) == cut.shape)
    return all(keeps_columns(op, cut) for op in reductions)


def _inputs(ops: Sequence[Op], cut: Columns) -> dict[Value, None]:
    """Of the pattern, as large as what is cut."""
    made = {v for op in ops for v in op.results}
    used = (v for op in ops if not is_free(op) for v in op.operands if v not in made)
    return dict.fromkeys(v for v in used if wide(v.shape) == cut.shape)


def _bytes_of_element(ops: Sequence[Op], outputs: Sequence[Value], cut: Columns, profile: Profile) -> int:
    """That a program has near it: of all inputs, in tiles; of a CPU, whose caches hold both, of outputs."""
    read = _inputs(ops, cut)
    if profile.machine.device is not None:
        return max(1, sum(v.tensor.dtype.compute.itemsize for v in read))
    written = [v for v in outputs if wide(v.shape) == cut.shape]
    return max(1, sum(v.tensor.dtype.itemsize for v in (*read, *written)))


def _narrowest(ops: Sequence[Op], cut: Columns) -> int:
    """Bytes of an element of the input that has least."""
    return min((v.tensor.dtype.itemsize for v in _inputs(ops, cut)), default=4)
