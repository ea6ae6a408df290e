"""How much of what is sliced or looked up in a kernel reads from memory, and makes: the parts.

gather %x : 50000 x 64, of 8 rows          512 elements
slice %x [:, 0], of 1000 x 64              1,000 elements, each of a cache line of its own
add %x, slice %x [0:9]                     all of %x
slice (tanh %x) [0:9]                      9 elements of tanh
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.build import is_reshape, takes_part

LINE = 64  # bytes that come at once


def bytes_read(values: Collection[Value], readers: Mapping[Op, float]) -> float:
    """Bytes of the values that the ops read. readers: of the elements of each, those that are made."""
    found: dict[Value, float] = {}
    views = _views(values, readers)
    for op, made in readers.items():
        if not views.keys().isdisjoint(op.results):
            continue
        for n, operand in enumerate(op.operands):
            v = views.get(operand, operand)
            if v in values:
                taken = _taken(op) if n == 0 and takes_part(op) else v.tensor.nbytes
                found[v] = found.get(v, 0) + taken * made
    return sum(min(found.get(v, v.tensor.nbytes), v.tensor.nbytes) for v in values)


def _views(values: Collection[Value], readers: Iterable[Op]) -> dict[Value, Value]:
    """Reshaped values that ops read parts of -> what is in memory."""
    shaped = {op.result: op.operands[0] for op in readers if is_reshape(op)}
    found: dict[Value, Value] = {}
    for v in dict.fromkeys(op.operands[0] for op in readers if takes_part(op)):
        of, between = v, list[Value]()
        while of in shaped and of not in values:
            between.append(of)
            of = shaped[of]
        if of in values:
            found.update(dict.fromkeys(between, of))
    return found


def shares_made(ops: Sequence[Op], kept: Collection[Value]) -> dict[Op, float]:
    """Of the elements of each op, those that a kernel makes; {}: all are. kept: values in memory."""
    if not any(takes_part(op) for op in ops):
        return {}
    found: dict[Op, float] = {}
    needed = dict.fromkeys(kept, 1.0)
    for op in reversed(ops):
        share = found[op] = max((needed.get(v, 0.0) for v in op.results), default=1.0)
        for n, v in enumerate(op.operands):
            if n == 0 and takes_part(op):
                needed[v] = min(1.0, needed.get(v, 0.0) + share * share_taken(op))
            else:
                needed[v] = max(needed.get(v, 0.0), share)
    return found


def share_taken(op: Op) -> float:
    """Of its first operand's elements, those that the op reads."""
    return op.result.tensor.size / max(1, op.operands[0].tensor.size) if takes_part(op) else 1.0


def _taken(op: Op) -> int:
    """Bytes of the lines that a part lies in."""
    whole, part = op.operands[0].tensor, op.result.tensor
    size = whole.dtype.itemsize
    run = _run(op) * size
    return part.size * size * max(1, LINE // run) if run else 0


def _run(op: Op) -> int:
    """Elements of the part that lie side by side, at least; 0: there are none."""
    whole = op.operands[0].shape
    sizes: tuple[int, ...] = op.attrs.get("slice_sizes", op.result.shape)
    steps = op.attrs.get("strides", (1,) * len(whole))
    run = 1
    for size, step, all_ in zip(reversed(sizes), reversed(steps), reversed(whole), strict=True):
        if step != 1:
            return run
        run *= size
        if size != all_:
            return run
    return run
