"""LLVM's vectors of floats, as wide as the machine's, and loops that stay as they are written.

w.loop(0, depth, 1, turn, sums)   ->   head: phi ...; br;  turn: <16 x float> fma ...;  br, unroll.disable
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.processor import fuses, host_has

VECTORS = 2  # of a panel's row
HALFBITS = 16
FLOAT, WORD, BIT, VOID = ir.FloatType(), ir.IntType(64), ir.IntType(1), ir.VoidType()
POINTER = FLOAT.as_pointer()
HALF, INT = ir.IntType(16), ir.IntType(32)
ELEMENTS: Mapping[str, ir.Type] = {"f32": FLOAT, "bf16": HALF}
"""Types of operands -> what their elements are in memory."""
SIZES: Mapping[str, int] = {"f32": 4, "bf16": 2}
LINE = 64  # bytes of a cache's line
READ, NEAR, DATA = 0, 2, 1  # what a line is asked for, how near it is to be (0 to 3), of which cache


@dataclass(frozen=True)
class VectorMachine:
    """lanes: floats of a vector. rows: of c that are in registers at once, with VECTORS vectors each."""

    lanes: int
    rows: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.lanes * VECTORS

    @property
    def heights(self) -> Sequence[int]:
        """Rows that are in registers at once, the most first."""
        return (self.rows, *(rows for rows in (8, 4, 2, 1) if rows < self.rows))

    @cached_property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(FLOAT, self.lanes)

    @cached_property
    def integers(self) -> ir.VectorType:
        return ir.VectorType(INT, self.lanes)


def machine() -> VectorMachine:
    """What the machine that Numba compiles for has registers for."""
    if host_has("avx512f"):
        return VectorMachine(16, 12)
    return VectorMachine(8 if host_has("avx2") else 4, 6)


@dataclass(frozen=True)
class VectorWriter:
    """Writes one function of the module."""

    b: Any
    m: VectorMachine

    def at(self, base: Any, *offsets: Any, of: ir.Type = FLOAT) -> Any:
        """The element so many behind `base`."""
        for offset in offsets:
            base = self.b.gep(base, [offset], source_etype=of)
        return base

    def read(self, place: Any, of: ir.Type = FLOAT) -> Any:
        """A vector of floats, of elements that are those or the upper halves of those."""
        if of is FLOAT:
            return self.b.load(place, align=4, typ=self.m.vector)
        narrow = self.b.load(place, align=2, typ=ir.VectorType(of, self.m.lanes))
        return self.widened(self.b.zext(narrow, self.m.integers))

    def one(self, place: Any, of: ir.Type = FLOAT) -> Any:
        """A float."""
        if of is FLOAT:
            return self.b.load(place, align=4, typ=FLOAT)
        word = self.b.zext(self.b.load(place, align=2, typ=of), INT)
        return self.b.bitcast(self.b.shl(word, INT(HALFBITS)), FLOAT)

    def widened(self, words: Any) -> Any:
        """Floats whose upper halves are the lower ones of words."""
        shift = ir.Constant(self.m.integers, [HALFBITS] * self.m.lanes)
        return self.b.bitcast(self.b.shl(words, shift), self.m.vector)

    def write(self, value: Any, place: Any) -> None:
        self.b.store(value, self.b.bitcast(place, self.m.vector.as_pointer()), align=4)

    def splat(self, place: Any, of: ir.Type = FLOAT) -> Any:
        """A vector of one element, as floats."""
        if of is FLOAT:
            return self.spread(self.one(place), self.m.lanes)
        halves = self.spread(self.b.load(place, align=2, typ=of), 2 * self.m.lanes)
        return self.widened(self.b.bitcast(halves, self.m.integers))

    def spread(self, element: Any, lanes: int) -> Any:
        undefined = ir.Constant(ir.VectorType(element.type, lanes), ir.Undefined)
        first = self.b.insert_element(undefined, element, INT(0))
        return self.b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT, lanes), [0] * lanes))

    def least(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def most(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def ask(self, place: Any) -> None:
        """Ask for the line that an element is in, to be read from a core's own cache."""
        name, pointer = "llvm.prefetch.p0", ir.IntType(8).as_pointer()
        kind = ir.FunctionType(VOID, [pointer, *[INT] * 3])
        prefetch = self.b.module.globals.get(name) or ir.Function(self.b.module, kind, name)
        self.b.call(prefetch, [self.b.bitcast(place, pointer), INT(READ), INT(NEAR), INT(DATA)])

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        if not fuses():
            return self.b.fadd(self.b.fmul(x, y), z)
        kind, name = ir.FunctionType(self.m.vector, [self.m.vector] * 3), f"llvm.fma.v{self.m.lanes}f32"
        fma = self.b.module.globals.get(name) or ir.Function(self.b.module, kind, name)
        return self.b.call(fma, [x, y, z])

    def loop(
        self,
        first: Any,
        end: Any,
        step: int,
        body: Callable[[Any, Sequence[Any]], Sequence[Any]],
        carried: Sequence[Any] = (),
    ) -> Sequence[Any]:
        """body(number, carried) -> carried, while number + step <= end; the number behind it, and carried."""
        b, before = self.b, self.b.block
        head, inside, after = (b.append_basic_block(name) for name in ("head", "turn", "after"))
        b.branch(head)
        b.position_at_end(head)
        number, *values = (b.phi(v.type) for v in (first, *carried))
        for phi, v in zip((number, *values), (first, *carried), strict=True):
            phi.add_incoming(v, before)
        behind = b.add(number, WORD(step))
        b.cbranch(b.icmp_signed("<=", behind, end), inside, after)
        b.position_at_end(inside)
        made = body(number, values)
        for phi, v in zip((number, *values), (behind, *made), strict=True):
            phi.add_incoming(v, b.block)
        self._as_written(b.branch(head))
        b.position_at_end(after)
        return number, *values

    def _as_written(self, latch: Any) -> None:
        """The loop as it is written: it has as many independent sums as registers, and none to spare."""
        module = self.b.module
        loop = module.add_metadata([WORD(len(module.metadata))])
        loop.operands = (loop, module.add_metadata(["llvm.loop.unroll.disable"]))
        latch.set_metadata("llvm.loop", loop)

    def transpose(self, rows: Sequence[Any]) -> list[Any]:
        """Vectors as columns of those given, by exchanging ever smaller blocks."""
        found, half = list(rows), self.m.lanes // 2
        index = ir.VectorType(ir.IntType(32), self.m.lanes)
        while half:
            keep = [j if not j & half else self.m.lanes + j - half for j in range(self.m.lanes)]
            take = [j + half if not j & half else self.m.lanes + j for j in range(self.m.lanes)]
            for i in (i for i in range(self.m.lanes) if not i & half):
                x, y = found[i], found[i + half]
                found[i] = self.b.shuffle_vector(x, y, ir.Constant(index, keep))
                found[i + half] = self.b.shuffle_vector(x, y, ir.Constant(index, take))
            half //= 2
        return found
