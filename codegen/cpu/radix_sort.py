"""Sort words of 64 bits by their upper halves, equal ones as they were: by ranks, or digits of eight bits.

    sort_items(items, room, n)         // addresses of n words, and of room for as many

Of a few items each is compared with all, in vectors. More are counted by each of their upper four bytes in
one pass, and then moved once for every byte that is not the same in all, from the lowest to the highest, to
the room and back (radix sort, least significant digit first). Where no cache holds them, they go by lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from jstitch.codegen.cpu.flush import fence, past_caches
from jstitch.codegen.cpu.sort_work import FAR_ITEMS, FEW
from jstitch.codegen.cpu.vector_writer import INT, LINE, VOID, WORD, VectorWriter, machine

ITEMS = WORD.as_pointer()
HALF, DIGIT, BUCKETS = 32, 8, 256  # bits before the first digit, bits of one, its values
DIGITS = 4
LINE_ITEMS = LINE // 8
BLOCK = 2 * LINE_ITEMS  # items whose ranks are found together
WORDS = FEW + BLOCK
NAME = "jstitch_sort"


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

    # -- a few ------------------------------------------------------------------------------------------

    def by_ranks(self) -> None:
        """An item goes behind all smaller ones, and equal ones before it: no branch hangs on data."""
        b, words, ranks = self.b, self._room(WORDS, WORD), self._room(WORDS, WORD)
        self._each(lambda n: self._put_word(words, n))
        blocks = b.lshr(b.add(self.count, WORD(BLOCK - 1)), WORD(BLOCK.bit_length() - 1))
        self.loop(WORD(0), blocks, 1, lambda n, _: self._rank(words, ranks, b.mul(n, WORD(BLOCK))))
        self._each(lambda n: self.put(self.item(self.items, n), self.room, n))
        self._each(lambda n: self.put(self.item(self.room, n), self.items, self.item(ranks, n)))

    def _put_word(self, words: Any, number: Any) -> None:
        """A word that is in order by the key and by where the item is now."""
        key = self.b.and_(self.item(self.items, number), WORD(-1 << HALF))
        self.put(self.b.or_(key, number), words, number)

    def _rank(self, words: Any, ranks: Any, first: Any) -> tuple[()]:
        """How many words are smaller than those of a block."""
        b, kind = self.b, ir.VectorType(WORD, LINE_ITEMS)
        places = [b.add(first, WORD(n)) for n in range(0, BLOCK, LINE_ITEMS)]
        own = [self._vector(words, place) for place in places]

        def compare(number: Any, found: Sequence[Any]) -> list[Any]:
            other = self.spread(self.item(words, number), LINE_ITEMS)
            smaller = (b.icmp_unsigned("<", other, word) for word in own)
            return [b.sub(n, b.sext(is_so, kind)) for n, is_so in zip(found, smaller, strict=True)]

        zeros = [ir.Constant(kind, [0] * LINE_ITEMS) for _ in own]
        _, *found = self.loop(WORD(0), self.count, 1, compare, zeros)
        for place, rank in zip(places, found, strict=True):
            b.store(rank, b.bitcast(self.at(ranks, place, of=WORD), kind.as_pointer()), align=LINE)
        return ()

    def _vector(self, base: Any, place: Any) -> Any:
        kind = ir.VectorType(WORD, LINE_ITEMS)
        return self.b.load(
            self.b.bitcast(self.at(base, place, of=WORD), kind.as_pointer()), align=LINE, typ=kind
        )

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
            _either(
                b,
                self._are_near(),
                lambda: self._each(lambda n: self._move(digit, counters, n, here, there)),
                lambda: self._by_lines(digit, counters, here, there),
            )
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

    def _move(self, digit: int, counters: Any, number: Any, here: Any, there: Any) -> None:
        item = self.item(here, number)
        place = self._next(self.at(counters, self._digit(item, digit), of=INT))
        self.put(item, there, self.b.zext(place, WORD))

    def _each(self, body: Callable[[Any], None]) -> None:
        """The body for the number of every item."""

        def turn(number: Any, _: Any) -> tuple[()]:
            body(number)
            return ()

        self.loop(WORD(0), self.count, 1, turn)

    # -- where no cache holds them ----------------------------------------------------------------------

    def _are_near(self) -> Any:
        """Whether a core's cache holds the items, or lines are not where the processor has them."""
        b = self.b
        places = b.or_(*(b.ptrtoint(base, WORD) for base in (self.items, self.room)))
        apart = b.icmp_unsigned("!=", b.and_(places, WORD(LINE - 1)), WORD(0))
        return b.or_(b.icmp_signed("<=", self.count, WORD(FAR_ITEMS)), apart)

    def _by_lines(self, digit: int, counters: Any, here: Any, there: Any) -> None:
        """A line of each digit's items is in cache, and goes to memory past it when it is full.

        A digit's first line may begin with items of the one before, whose rest follows behind all full lines.
        """
        b = self.b
        begins = self._room(BUCKETS, INT)
        lines = self._room(BUCKETS * LINE_ITEMS, WORD)
        self.loop(WORD(0), WORD(BUCKETS), 1, lambda n, _: self._remember(counters, begins, n))

        def move(number: Any) -> None:
            item = self.item(here, number)
            own = self._digit(item, digit)
            place = b.zext(self._next(self.at(counters, own, of=INT)), WORD)
            line = self.at(lines, b.mul(own, WORD(LINE_ITEMS)), of=WORD)
            in_line = b.and_(place, WORD(LINE_ITEMS - 1))
            self.put(item, line, in_line)
            with self._if(b.icmp_unsigned("==", in_line, WORD(LINE_ITEMS - 1))):
                kind = ir.VectorType(WORD, LINE_ITEMS)
                full = b.load(b.bitcast(line, kind.as_pointer()), align=8, typ=kind)
                goes = self.at(there, b.sub(place, in_line), of=WORD)
                past_caches(b.store(full, b.bitcast(goes, kind.as_pointer()), align=LINE))

        self._each(move)
        fence(b)
        self.loop(WORD(0), WORD(BUCKETS), 1, lambda n, _: self._rest(counters, begins, lines, there, n))

    def _room(self, count: int, kind: Any) -> Any:
        """Of the function's own."""
        with self.b.goto_entry_block():
            made = self.b.alloca(ir.ArrayType(kind, count))
            made.align = LINE
        return self.b.bitcast(made, kind.as_pointer())

    def _remember(self, counters: Any, begins: Any, number: Any) -> tuple[()]:
        return self._set(begins, number, self.b.load(self.at(counters, number, of=INT), typ=INT))

    def _rest(self, counters: Any, begins: Any, lines: Any, there: Any, number: Any) -> tuple[()]:
        """What is left of a digit's last line."""
        b = self.b
        begin, end = (b.zext(b.load(self.at(x, number, of=INT), typ=INT), WORD) for x in (begins, counters))
        first = b.and_(end, WORD(-LINE_ITEMS))
        first = b.select(b.icmp_signed(">", begin, first), begin, first)
        line = self.at(lines, b.mul(number, WORD(LINE_ITEMS)), of=WORD)

        def copy(place: Any, _: Any) -> tuple[()]:
            self.put(self.item(line, b.and_(place, WORD(LINE_ITEMS - 1))), there, place)
            return ()

        self.loop(first, end, 1, copy)
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
        _either(builder, few, writer.by_ranks, writer.by_digits)
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
