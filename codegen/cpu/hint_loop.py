"""What LLVM is told about a loop: not to unroll it, to end it in a masked vector, or to write it out."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.processor import host_has

_HALF = ir.IntType(32)
MIDDLE_LOOP, LONG_LOOP = 26, 40  # instructions
VECTOR, FEW_VECTORS = 8, 8
MASKED, LEAST_MASKED, MOST_MASKED = 16, 9, 256  # elements of a vector; turns of loops that end in masked ones
MOST_WRITTEN = 2048  # instructions that such a loop's vectors are written out in
SMALLEST = 4  # elements of a vector, of the widest type
MOST_UNROLLED = 96  # turns that LLVM may write out one by one


def hint_loop(latch: Any, body: Any, number: Any, trips: int | None) -> None:
    """What LLVM cannot know about a long loop (of more than a few instructions, or with loops inside).

    Unrolling it does not pay, and can take ten times the rest of the compilation. Two vectors at a time do
    when it is innermost; LLVM does that by itself to short ones only, and more of them than have room in
    registers beside a polynomial's constants. (It would force a loop with division, whose loads are gathers,
    into vectors.) A loop of a few vectors must not be unrolled before it is made of vectors. What is left
    over of one has a masked vector of its own: one by one, 15 of 47 turns take longest. Its vectors are
    written out then, so that only the last one has a mask, which is a constant.

    latch: the branch back. body: the block that it ends, if nothing is inside. number: the loop's variable.
    """
    innermost, size = latch.parent is body, len(body.instructions)
    few = trips is not None and trips <= MOST_UNROLLED
    gathers = any(i.opname in ("udiv", "urem") for i in body.instructions)
    masked = innermost and trips is not None and _ends_masked(trips, size)
    masked = masked and not _gathers(body, number) and not _strides(body, number)
    one_left = trips is not None and trips % SMALLEST == 1
    masked = masked and not (one_left and _narrows(body))
    vectors = trips is not None and few and (trips % VECTOR == 0 or trips > FEW_VECTORS * VECTOR)
    if innermost and size < MIDDLE_LOOP and not vectors and not masked:
        return
    module = latch.parent.parent.module
    hints = [module.add_metadata(["llvm.loop.unroll.disable"])]
    if masked:
        hints.append(module.add_metadata(["llvm.loop.vectorize.predicate.enable", ir.IntType(1)(1)]))
        hints.append(_afterwards(module, "llvm.loop.unroll.full"))
    if innermost and size >= MIDDLE_LOOP and not gathers:
        count = _HALF(1 if size < LONG_LOOP else 2)
        hints.append(module.add_metadata(["llvm.loop.interleave.count", count]))
    _attach(latch, hints)


def hint_short_loop(latch: Any, *_: Any) -> None:
    """It is written out, so that the loop around it can be made of vectors."""
    _attach(latch, [latch.parent.parent.module.add_metadata(["llvm.loop.unroll.full"])])


def hint_vector(latch: Any, *_: Any) -> None:
    """It is one vector: not unrolled before it is made of one."""
    module = latch.parent.parent.module
    unrolled = _afterwards(module, "llvm.loop.unroll.full")
    _attach(latch, [module.add_metadata(["llvm.loop.unroll.disable"]), unrolled])


def trips_of(lo: Any, hi: Any) -> int | None:
    """The number of turns, where it is known."""
    known = isinstance(lo, ir.Constant) and isinstance(hi, ir.Constant)
    return hi.constant - lo.constant if known else None


def _attach(latch: Any, hints: list[Any]) -> None:
    module = latch.parent.parent.module
    loop = module.add_metadata([ir.IntType(64)(len(module.metadata))])
    loop.operands = (loop, *hints)  # LLVM's loop identifiers refer to themselves
    latch.set_metadata("llvm.loop", loop)


def _afterwards(module: Any, *hints: str) -> Any:
    """What LLVM is told about the loop that it has made vectors of."""
    done = module.add_metadata(["llvm.loop.isvectorized", _HALF(1)])
    told = [module.add_metadata([hint]) for hint in hints]
    return module.add_metadata(["llvm.loop.vectorize.followup_vectorized", done, *told])


def _gathers(body: Any, number: Any) -> bool:
    """Whether the loop's number is divided: its loads are not of neighbours."""
    varying = {number}
    for i in body.instructions:
        if not varying.isdisjoint(i.operands):
            varying.add(i)
            if i.opname in ("udiv", "urem"):
                return True
    return False


def _strides(body: Any, number: Any) -> bool:
    """Whether a turn takes several elements, which LLVM loads and stores as groups, but not with a mask."""
    return any(i.opname in ("mul", "shl") and number in i.operands for i in body.instructions)


def _narrows(body: Any) -> bool:
    """Whether it stores less than it computes, as bfloat16 from float32.

    LLVM's x86 backend writes all of what was computed, and so behind an array's end, where a mask that it
    knows has one element (`reduceMaskedStoreToScalarStore` of a truncating store).
    """
    stored = [i.operands[0].type for i in body.instructions if i.opname == "store"]
    whole = [t.width for t in stored if isinstance(t, ir.IntType)]
    if any(width < _HALF.width for width in whole):
        return True
    return bool(whole) and any(i.opname == "trunc" for i in body.instructions)


def _ends_masked(trips: int, size: int) -> bool:
    """Whether a loop's last turns, fewer than a vector, have one with a mask. size: instructions of a turn.

    Where masks are registers of their own: elsewhere LLVM would store element by element.
    """
    written = -(-trips // MASKED) * size
    few = LEAST_MASKED <= trips <= MOST_MASKED and written <= MOST_WRITTEN
    return few and trips % MASKED > 0 and host_has("avx512f")
