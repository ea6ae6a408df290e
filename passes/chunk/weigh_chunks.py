"""In how many chunks rows are made, and whether that is worth it: what stays in memory, against time.

%z = dot_general %x, %w  [32768, 128256]; ...   ->   16 chunks: 1.0 GB and a sum of 1.3 GB, instead of 16.8 GB

Time is that of XLA's own kernels and of its library, of which each chunk reads whole operands again, and of
adding up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.chunk.find_rows import CannotCutError, Index, Rows, find_rows
from jstitch.passes.chunk.write_chunks import SLICE, UPDATE, Chunks, write_chunks
from jstitch.passes.cost.cost_model import CostEstimate, xla_kernels

MOST = 64  # chunks
PARTS = 8  # a chunk of the value has at least such a part of what is worth a loop: products fill a device
ENOUGH = 32  # times less memory is as little as anybody needs
WORTH = 4  # times less memory, with sums and their parts, is the least that is worth a loop


@dataclass(frozen=True)
class Way:
    """A loop. left: bytes of what stays in memory. seconds: of all turns."""

    rows: Rows
    chunks: Chunks
    left: int
    seconds: float


@dataclass(frozen=True)
class Limits:
    """least: bytes of a value that is worth a loop. longer: share of its time that it may cost."""

    machine: Machine
    least: int
    longer: float


def weigh_chunks(index: Index, value: Value, dim: int, limits: Limits) -> Way:
    """The fewest chunks by a dimension that leave little. Raises CannotCutError with why there are none."""
    rows, machine = find_rows(index, value, dim), limits.machine
    written, whole = rows.written(index), _whole_bytes(rows)
    around = sum(v.tensor.nbytes for v in {*rows.read(), *written})
    if whole < around:
        raise CannotCutError(f"what is around it, {_mb(around)}, is more than its {_mb(whole)}")
    sums = sum(_sum_bytes(v) for v in written if v not in rows.cut)
    bound = (1 + limits.longer) * _seconds(index.frame, rows.ops, machine, rows.copies)
    found: Way | None = None
    why = f"no chunks of its {rows.count} rows leave a quarter of {_mb(whole)}"
    for count in _counts(rows, limits.least):
        left = whole // count + sums
        if WORTH * left > whole:
            continue
        made = write_chunks(rows, written, count, _what(rows, count))
        turns = rows.count / (rows.count // count)
        seconds = turns * _turn_seconds(made.body, machine)
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
    """Of a turn, and of adding up: on GPUs that is done in the kernels of products. Slices are no kernels."""
    products = {op.result for op in body.ops if op.name == PRODUCT}
    added = [op for op in body.ops if op.result in body.outputs and not products.isdisjoint(op.operands)]
    inside = added if machine.device is not None else []
    ops = [op for op in body.ops if op not in inside and op.name not in (SLICE, UPDATE)]
    return _seconds(body, ops, machine, sums={v for op in inside for v in op.operands})


def _seconds(
    frame: Graph,
    ops: Sequence[Op],
    machine: Machine,
    copies: Collection[Op] = (),
    sums: Collection[Value] = (),
) -> float:
    """Of some of the frame's ops, as XLA runs them, kernel by kernel.

    copies: XLA makes them where it reads them. sums: what the kernels that make them add to something.
    """
    pattern = make_pattern(frame, ops, "chunk_rows")
    made = {v for op in copies for v in op.results}
    pattern = replace(pattern, outputs=tuple(v for v in pattern.outputs if v not in made))
    more = {v: CostEstimate(nbytes=v.tensor.nbytes) for v in sums}
    costs = xla_kernels(pattern, machine)
    return sum((cost + more.get(v, CostEstimate())).seconds(machine) for v, cost in costs.items())
