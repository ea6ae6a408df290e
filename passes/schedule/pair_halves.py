"""bf16 two at a time: a 32-bit word holds two neighbours, each of which is an f32 once the other is masked.

    v0 = load_bf16(b0, i, 1)                       v4 = load_u32(b0, k, 1)             # i = 2 k and 2 k + 1
    store_bf16(b1, i, v0 * v2, 2)        ->        v0 = low_bf16(v4)
                                                   v5 = high_bf16(v4)
                                                   store_u32(b1, k, pack_bf16(v0 * v2, v5 * v2), 2)

Widening 16-bit lanes takes two instructions of the few units that shift and shuffle, and narrowing them more;
halves of a word need one, and none that crosses lanes. Loops whose running elements are bf16 alone, all of
them in pairs that begin at even places, are written so. The order of the elements stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import (
    ROW,
    Called,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    LoadPair,
    Loop,
    Nest,
    Store,
    StorePair,
    Streamed,
)
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.ir.expr import Expr, Ref, call, refs, replace_refs, variables
from jstitch.ir.index import Dynamic, Index, Var, add, atoms, mul, substitute, var
from jstitch.ir.types import DType

SHORT = 32  # elements; a shorter loop does not fill the vectors of both halves


def pair_halves(kernel: Kernel) -> Kernel:
    """The kernel with its loops over bf16 elements as loops over pairs."""
    return map_lanes(kernel, _lane)


def _lane(lane: Lane) -> Lane:
    names = _Names(lane)
    return map_nests(lane, lambda nest: _nest(nest, lane, names))


@dataclass
class _Names:
    """Numbers of values that the lane does not use yet."""

    lane: Lane
    last: int = field(init=False)

    def __post_init__(self) -> None:
        instructions = (i for s in self.lane.stages for nest in s.nests for i in nest.instructions)
        names = (i.name.removeprefix("v") for i in instructions if not isinstance(i, Store))
        self.last = max((int(n) for n in names if n.isdecimal()), default=0)

    def new(self) -> str:
        self.last += 1
        return f"v{self.last}"


def _nest(nest: Nest, lane: Lane, names: _Names) -> Nest:
    if isinstance(nest, Called):
        return nest
    depth = len(nest.loops)
    inner = [i for i in nest.body if i.depth == depth]
    if not nest.loops or not _runs_even(nest.loops[-1], lane) or not _all_pairs(inner, nest.loops[-1].var):
        return nest
    loop = nest.loops[-1]
    pairs = _of_pairs(loop, lane)
    body = [i for i in nest.body if i.depth < depth]
    body += _Pairs(loop.var, pairs.var, {a.name for a in nest.accumulators}, names).body(inner)
    return replace(nest, loops=(*nest.loops[:-1], pairs), body=tuple(body))


def _of_pairs(loop: Loop, lane: Lane) -> Loop:
    """The loop with half as many turns."""
    half = Var(loop.var.name, loop.var.extent // 2)
    return Loop(half, 0, 1, each=2) if lane.flat else Loop(half, loop.lo // 2, loop.hi // 2)


def _runs_even(loop: Loop, lane: Lane) -> bool:
    """Whether the loop is over elements, and every program's share of it is whole pairs."""
    if lane.flat:
        return loop.var.name == ROW and lane.rows % 2 == 0 and lane.rows >= SHORT
    return loop.var.name != ROW and loop.lo % 2 == 0 and loop.hi % 2 == 0 and loop.hi - loop.lo >= SHORT


def _all_pairs(inner: Sequence[Instr], running: Var) -> bool:
    """Whether what moves with the loop is bf16 at even places, and nothing else depends on its variable."""
    moving, stored = 0, set()
    for i in inner:
        if isinstance(i, Let):
            if running.name in variables(i.value):
                return False
            continue
        moves = running in atoms([i.offset])
        if isinstance(i, Streamed) or any(isinstance(a, Dynamic) for a in atoms([i.offset])):
            return False
        if (moves or isinstance(i, Store)) and not _is_pair(i, running):
            return False
        if isinstance(i, Store):
            stored.add(i.buffer)
        elif i.buffer in stored:
            return False
        moving += moves
    return moving > 0


def _is_pair(i: Load | Store, running: Var) -> bool:
    """Whether elements 2 k and 2 k + 1 of the loop are the halves of one word."""
    rest = add(i.offset, mul(var(running), -1))
    even = all(k % 2 == 0 for k in (rest.const, *(k for _, k in rest.terms)))
    return i.buffer.type.dtype is DType.BF16 and even and running not in atoms([rest])


@dataclass
class _Pairs:
    """The loop's body for both halves of each word.

    running, pair: the loop's variable, and that of the loop over pairs. again: names of the second half's
    values.
    """

    running: Var
    pair: Var
    sums: set[str]
    names: _Names
    again: dict[str, str] = field(default_factory=dict)

    def body(self, inner: Sequence[Instr]) -> list[Instr]:
        first: list[Instr] = []
        second: list[Instr] = []
        stores: list[Instr] = []
        for i in inner:
            match i:
                case Load() if self.running in atoms([i.offset]):
                    word = LoadPair(self.names.new(), i.buffer, self._doubled(i.offset), i.depth)
                    first += [word, Let(i.name, call("low_bf16", Ref(word.name)), i.depth)]
                    second.append(Let(self._second(i.name), call("high_bf16", Ref(word.name)), i.depth))
                case Load():
                    first.append(i)
                case Let():
                    first.append(i)
                    second += self._repeated(i)
                case Store(b, offset, value, depth):
                    stores.append(StorePair(b, self._doubled(offset), value, depth, self._renamed(value)))
        return [*first, *second, *stores]

    def _doubled(self, offset: Index) -> Index:
        twice = mul(var(self.pair), 2)
        return substitute(offset, lambda atom: twice if atom == self.running else None)

    def _second(self, name: str) -> str:
        self.again[name] = self.names.new()
        return self.again[name]

    def _renamed(self, e: Expr) -> Expr:
        return replace_refs(e, lambda name: Ref(self.again.get(name, name)))

    def _repeated(self, let: Let) -> list[Let]:
        """The instruction for the second half; nothing when it is the same for both."""
        used = set(refs(let.value))
        if let.name in self.sums:
            return [replace(let, value=self._renamed(let.value))]
        if not used & (self.sums | self.again.keys()):
            return []
        value = self._renamed(let.value)
        return [Let(self._second(let.name), value, let.depth)]
