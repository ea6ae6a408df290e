"""Sort words of 64 bits by their upper halves, equal ones as they were: insertions, or digits of eight bits.

    sort_items(items, room, n)         // addresses of n words, and of room for as many

A few items are inserted one after another. More are counted by each of their upper four bytes in one pass,
and then moved once for every byte that is not the same in all, from the lowest to the highest, to the room
and back (radix sort, least significant digit first).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from jstitch.codegen.cpu.sort_work import FEW
from jstitch.codegen.cpu.vector_writer import INT, VOID, WORD, VectorWriter, machine

ITEMS = WORD.as_pointer()
HALF, DIGIT, BUCKETS = 32, 8, 256  # bits before the first digit, bits of one, its values
DIGITS = 4
NAME = "sort_items"


@dataclass(frozen=True)
class _Writer(VectorWriter):
    """items: to be sorted; room: for as many; count: how many."""

    items: Any
    room: Any
    count: Any

    def item(self, base: Any, number: Any) -> Any:
        return self.b.load(self.at(base, number, of=WORD), typ=WORD)

    def put(self, item: Any, base: Any, number: Any) -> None:
        self.b.store(item, self.at(base, number, of=WORD))

    def key(self, item: Any) -> Any:
        return self.b.lshr(item, WORD(HALF))

    # -- a few ------------------------------------------------------------------------------------------

    def insert(self) -> None:
        """Each item goes in front of those before it that are larger."""
        self.loop(WORD(1), self.count, 1, lambda number, _: self._insert_one(number))

    def _insert_one(self, number: Any) -> tuple[()]:
        b, item, before = self.b, self.item(self.items, number), self.b.block
        head, compare, move, after = (b.append_basic_block(n) for n in ("head", "compare", "move", "after"))
        b.branch(head)
        b.position_at_end(head)
        place = b.phi(WORD)
        place.add_incoming(number, before)
        b.cbranch(b.icmp_signed(">", place, WORD(0)), compare, after)
        b.position_at_end(compare)
        behind = b.sub(place, WORD(1))
        other = self.item(self.items, behind)
        b.cbranch(b.icmp_unsigned(">", self.key(other), self.key(item)), move, after)
        b.position_at_end(move)
        self.put(other, self.items, place)
        place.add_incoming(behind, move)
        b.branch(head)
        b.position_at_end(after)
        self.put(item, self.items, place)
        return ()

    # -- many -------------------------------------------------------------------------------------------

    def by_digits(self) -> None:
        """Where they end up is not known before: bytes that are the same in all move nothing."""
        b = self.b
        kind = ir.ArrayType(INT, DIGITS * BUCKETS)
        counters = b.bitcast(b.alloca(kind), INT.as_pointer())
        self.loop(WORD(0), WORD(DIGITS * BUCKETS), 1, lambda n, _: self._set(counters, n, INT(0)))
        self.loop(WORD(0), self.count, 1, lambda n, _: self._count(counters, n))
        here, there = self.items, self.room
        for digit in range(DIGITS):
            own = self.at(counters, WORD(digit * BUCKETS), of=INT)
            here, there = self._by_digit(digit, own, here, there)
        with self._if(b.icmp_unsigned("!=", here, self.items)):
            self.loop(WORD(0), self.count, 1, lambda n, _: self._copy(here, n))

    def _set(self, counters: Any, number: Any, value: Any) -> tuple[()]:
        self.b.store(value, self.at(counters, number, of=INT))
        return ()

    def _copy(self, here: Any, number: Any) -> tuple[()]:
        self.put(self.item(here, number), self.items, number)
        return ()

    def _digit(self, item: Any, digit: int) -> Any:
        moved = self.b.lshr(item, WORD(HALF + digit * DIGIT))
        return self.b.and_(moved, WORD(BUCKETS - 1))

    def _next(self, place: Any) -> Any:
        """What a counter has, before it counts one more."""
        found = self.b.load(place, typ=INT)
        self.b.store(self.b.add(found, INT(1)), place)
        return found

    def _count(self, counters: Any, number: Any) -> tuple[()]:
        item = self.item(self.items, number)
        for digit in range(DIGITS):
            self._next(self.at(counters, WORD(digit * BUCKETS), self._digit(item, digit), of=INT))
        return ()

    def _by_digit(self, digit: int, counters: Any, here: Any, there: Any) -> tuple[Any, Any]:
        """Where the items are afterwards, and where they may go next."""
        b = self.b
        first = self.at(counters, self._digit(self.item(here, WORD(0)), digit), of=INT)
        alike = b.icmp_unsigned("==", b.zext(b.load(first, typ=INT), WORD), self.count)
        before = b.block
        with self._if(b.not_(alike)):
            self.loop(WORD(0), WORD(BUCKETS), 1, lambda n, sums: self._begin(counters, n, sums[0]), [INT(0)])
            self.loop(WORD(0), self.count, 1, lambda n, _: self._move(digit, counters, n, here, there))
            moved = b.block
        found = []
        for now, then in ((there, here), (here, there)):
            phi = b.phi(ITEMS)
            phi.add_incoming(then, before)
            phi.add_incoming(now, moved)
            found.append(phi)
        return found[0], found[1]

    def _begin(self, counters: Any, number: Any, total: Any) -> tuple[Any]:
        """A digit's counter becomes the place of its first item."""
        place = self.at(counters, number, of=INT)
        count = self.b.load(place, typ=INT)
        self.b.store(total, place)
        return (self.b.add(total, count),)

    def _move(self, digit: int, counters: Any, number: Any, here: Any, there: Any) -> tuple[()]:
        item = self.item(here, number)
        place = self._next(self.at(counters, self._digit(item, digit), of=INT))
        self.put(item, there, self.b.zext(place, WORD))
        return ()

    @contextmanager
    def _if(self, test: Any) -> Iterator[None]:
        inside, after = (self.b.append_basic_block(name) for name in ("inside", "after"))
        self.b.cbranch(test, inside, after)
        self.b.position_at_end(inside)
        yield
        self.b.branch(after)
        self.b.position_at_end(after)


def _function(module: Any) -> Any:
    """The module's own, written once: sort_items(items, room, count)."""
    found = module.globals.get(NAME)
    if found is None:
        found = ir.Function(module, ir.FunctionType(VOID, [ITEMS, ITEMS, WORD]), NAME)
        found.linkage = "internal"
        found.attributes.add("noinline")
        builder = ir.IRBuilder(found.append_basic_block("entry"))
        writer = _Writer(builder, machine(), *found.args)
        few = builder.icmp_signed("<=", found.args[2], WORD(FEW))
        _either(builder, few, writer.insert, writer.by_digits)
        builder.ret_void()
    return found


def _either(builder: Any, test: Any, yes: Callable[[], None], no: Callable[[], None]) -> None:
    with builder.if_else(test) as (then, otherwise):
        with then:
            yes()
        with otherwise:
            no()


def sort() -> Any:
    """sort_items(items, room, n), as an intrinsic; see the module."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *tiles, count = arguments
        places = (builder.inttoptr(tile, ITEMS) for tile in tiles)
        builder.call(_function(builder.module), [*places, count])
        return context.get_dummy_value()

    @intrinsic
    def call(typingctx, items, room, n):  # type: ignore[no-untyped-def]
        return types.none(*[types.int64] * 3), codegen

    return call
