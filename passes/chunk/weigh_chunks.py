"""In how many chunks rows are made, and whether that is worth it: what stays in memory, against time.

%z = dot_general %x, %w  [32768, 128256]; ...   ->   16 chunks: 1.0 GB and a sum of 1.3 GB, instead of 16.8 GB

Time is that of the library's products, of which each chunk reads whole operands again, and of adding up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.chunk.find_rows import CannotCutError, Rows, find_rows
from jstitch.passes.chunk.write_chunks import Chunks, write_chunks
from jstitch.passes.cost.cost_model import xla_work

MOST = 64  # chunks
PARTS = 8  # a chunk of the value has at least such a part of what is worth a loop: products fill a device
ENOUGH = 32  # times less memory is as little as anybody needs
WORTH = 4  # times less memory, with sums and their parts, is the least that is worth a loop


@dataclass(frozen=True)
class Way:
    """A loop. left: bytes of what stays in memory. seconds: of all products."""

    rows: Rows
    chunks: Chunks
    left: int
    seconds: float


@dataclass(frozen=True)
class Limits:
    """least: bytes of a value that is worth a loop. longer: share of the products' time that it may cost."""

    machine: Machine
    least: int
    longer: float


def weigh_chunks(frame: Graph, value: Value, dim: int, limits: Limits) -> Way:
    """The fewest chunks by a dimension that leave little. Raises CannotCutError with why there are none."""
    rows = find_rows(frame, value, dim)
    written, whole = rows.written(frame), _whole_bytes(rows)
    around = sum(v.tensor.nbytes for v in {*rows.read(), *written})
    if whole < around:
        raise CannotCutError(f"what is around it, {_mb(around)}, is more than its {_mb(whole)}")
    sums = sum(_sum_bytes(v) for v in written if v not in rows.cut)
    products = (op for op in rows.ops if op.name == PRODUCT)
    bound = (1 + limits.longer) * sum(_seconds(op, limits.machine) for op in products)
    found: Way | None = None
    why = f"no chunks of its {rows.count} rows leave a quarter of {_mb(whole)}"
    for count in _counts(rows, limits.least):
        left = whole // count + sums
        if WORTH * left > whole:
            continue
        made = write_chunks(rows, written, count, _what(rows, count))
        seconds = count * _turn_seconds(made.body, limits.machine)
        if seconds > bound:
            why = f"{count} chunks would take {seconds * 1e6:.0f} us, {bound * 1e6:.0f} would be worth it"
            break
        found = Way(rows, made, left, seconds)
        if whole / count <= max(sums, whole / ENOUGH):
            break
    if found is None:
        raise CannotCutError(why)
    return found


def _what(rows: Rows, count: int) -> str:
    size = _mb(rows.value.tensor.nbytes)
    return f"{rows.value.type}, {size}, is made in {count} chunks of {rows.count // count} rows"


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"


def _counts(rows: Rows, least: int) -> Iterator[int]:
    """Numbers of chunks, the smallest first; of those that leave no rows, if there are any."""
    most = min(MOST, rows.value.tensor.nbytes * PARTS // max(1, least), rows.count)
    whole = [n for n in range(2, most + 1) if rows.count % n == 0]
    return iter(whole if whole and whole[-1] * 4 > most else range(2, most + 1))


# -- memory ------------------------------------------------------------------------------------------------


def _whole_bytes(rows: Rows) -> int:
    """Of what products make and read of the rows, and nobody else wants."""
    products = [op for op in rows.ops if op.name == PRODUCT]
    made = {v for op in rows.ops if op not in rows.sums for v in op.results}
    moved = {v for op in products for v in (*op.operands, *op.results)}
    return sum(v.tensor.nbytes for v in moved & made if rows.is_large(v))


def _sum_bytes(v: Value) -> int:
    """Of what is added up, besides the result: a turn's part; the sum itself, where its type is wider."""
    wide = v.tensor.dtype.compute
    return v.tensor.size * wide.itemsize * (1 if wide is v.tensor.dtype else 2)


# -- time --------------------------------------------------------------------------------------------------


def _turn_seconds(body: Graph, machine: Machine) -> float:
    """Of the products of a turn, and of adding up: on GPUs in the products' own kernels."""
    added = {v for op in body.ops if op.result in body.outputs for v in op.operands}
    total = 0.0
    for op in body.ops:
        if op.name == PRODUCT:
            more = op.result.tensor.nbytes if op.result in added else 0
            if machine.device is not None:
                total += _seconds(op, machine, more)
            else:
                total += _seconds(op, machine) + 3 * more / machine.bandwidth(3 * more)
    return total


def _seconds(op: Op, machine: Machine, more: int = 0) -> float:
    """Of a product in XLA's library, which reads so many bytes more."""
    nbytes = more + sum(v.tensor.nbytes for v in (*op.operands, *op.results))
    arithmetic = xla_work(op, machine) * machine.lane_cycle
    return machine.launch + max(arithmetic, nbytes / machine.bandwidth(nbytes))
