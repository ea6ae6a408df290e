"""What lies between products: from one product back to others, through what a kernel of rows can hold.

%s = dot_general %q, %k;  %p = softmax of %s's rows;  %o = dot_general %p, %v
behind(%o)      ->  {%s ... %p, %o}
around(those)   ->  those with a product that reads %p too, or with the one that makes %q
ahead(%s)       ->  {%s ... %p}, and so of chains
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.product_side import is_product
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.graph.keep_counters import ADDED, LEFT
from jstitch.passes.lower.store_turned import RESHAPE, TRANSPOSE

MOST_OPS = 100  # between two products
SMALL = 16  # what has so many times fewer elements than the largest value costs nothing to make outside


class Added(IntEnum):
    """What is added up: rows with one another, elements of a row, or nothing."""

    ROWS = 2
    ROW = 1
    NOTHING = 0


@dataclass(frozen=True)
class ChainSearch:
    """What lies between a frame's products. place: of each op, in program order. device: a GPU, or none."""

    frame: Graph
    producers: Mapping[Value, Op]
    users: Mapping[Value, list[Op]]
    place: Mapping[Op, int]
    device: DeviceSpec | None

    @classmethod
    def of(cls, frame: Graph, device: DeviceSpec | None) -> ChainSearch:
        place = {op: n for n, op in enumerate(frame.ops)}
        return cls(frame, frame.producers(), frame.users(), place, device)

    def makes(self, op: Op) -> bool:
        """Whether it is a product that kernels can make."""
        return is_product(op, self.device)

    def behind(self, last: Op, taken: set[Op]) -> Iterator[list[Op]]:
        """The ops of chains that end with this product, in program order."""
        for start in sorted(last.operands, key=lambda v: -v.tensor.size):
            between = self._reached(start, taken)
            sizes = {op.result.tensor.size for op in between if self.makes(op)}
            if start.tensor.size not in sizes or len(between) > MOST_OPS:
                continue
            inside = self._from(between)
            if self.producers[start] in inside:
                yield from self._with_own(last, inside, taken)

    def around(self, chain: Sequence[Op], taken: set[Op]) -> Iterator[list[Op]]:
        """The chain with one more product, which reads what it makes or makes what it reads."""
        inside = set(chain)
        made = {v for op in chain for v in op.results}
        for last in self._readers(made, taken, inside):
            for start in last.operands:
                between = self._reached(start, taken, inside)
                read = {v for op in (*between, last) for v in op.operands}
                if len(between) <= MOST_OPS and not made.isdisjoint(read):
                    more = self._from(between, made)
                    yield from self._with_own(last, inside | more, taken)
        for v in dict.fromkeys(v for op in chain for v in op.operands if v not in made):
            between = self._reached(v, taken, inside)
            sizes = {op.result.tensor.size for op in between if self.makes(op)}
            if v.tensor.size in sizes and len(between) <= MOST_OPS:
                yield from self._with_own(chain[-1], inside | self._from(between), taken)

    def ahead(self, chain: Sequence[Op], taken: set[Op]) -> Iterator[list[Op]]:
        """The chain and what is made of each of its rows; then with less of what is added up there."""
        known: set[frozenset[Op]] = {frozenset(chain)}
        for added in Added:
            inside = self._of_rows(chain, taken, added)
            if (key := frozenset(inside)) not in known:
                known.add(key)
                yield from self._with_own(chain[-1], inside, taken)

    def _of_rows(self, chain: Sequence[Op], taken: set[Op], added: Added) -> set[Op]:
        """The chain and those after it that read nothing of it but its rows and what the others make.

        What reads totals of all rows is held where it makes little: rows would wait for it.
        """
        inside, totals, apart = {*chain}, set[Value](), set[Value]()
        little = chain[-1].results[0].tensor.size // SMALL
        seen = {user for op in chain for v in op.results for user in self.users.get(v, ())} - inside
        todo = [(self.place[op], op) for op in seen]
        heapq.heapify(todo)
        while todo and len(seen) <= MOST_OPS:  # in program order: by its turn, all that it reads is known
            _, op = heapq.heappop(todo)
            total = _adds(op) is Added.ROWS or not totals.isdisjoint(op.operands)
            fits = op not in taken and not self.makes(op) and _holds(op) and _adds(op) <= added
            if fits and apart.isdisjoint(op.operands) and not (total and op.results[0].tensor.size > little):
                inside.add(op)
                totals.update(op.results if total else ())
            else:
                apart.update(op.results)
            users = {user for v in op.results for user in self.users.get(v, ())} - seen
            seen |= users
            for user in users:
                heapq.heappush(todo, (self.place[user], user))
        return inside

    def _readers(self, made: Iterable[Value], taken: set[Op], inside: set[Op]) -> list[Op]:
        """Products that read the values, or what kernels make of them, in program order."""
        found: set[Op] = set()
        todo = list(made)
        while todo and len(found) <= MOST_OPS:
            for op in self.users.get(todo.pop(), ()):
                if op in found or op in taken or op in inside or not (self.makes(op) or _holds(op)):
                    continue
                found.add(op)
                todo += () if self.makes(op) else op.results
        return sorted(filter(self.makes, found), key=self.place.__getitem__)

    def is_written(self, v: Value) -> bool:
        """Whether XLA's program writes it: elementwise ops alone make what they read of it again."""
        if v in self.frame.outputs or v not in self.producers:
            return True
        readers = (lookup(op.name).op_class for op in self.users.get(v, ()))
        made = lookup(self.producers[v].name).op_class
        return not made.is_elementwise or any(not (k.is_elementwise or k is OpClass.SHAPE) for k in readers)

    def _reached(self, start: Value, taken: set[Op], inside: Container[Op] = ()) -> set[Op]:
        """What the value is made of, up to products and what kernels do not hold."""
        found: set[Op] = set()
        todo = [start]
        while todo and len(found) <= MOST_OPS:
            op = self.producers.get(todo.pop())
            if op is None or op in found or op in taken or op in inside or is_free(op):
                continue
            if self.makes(op):
                found.add(op)
            elif _holds(op):
                found.add(op)
                todo += op.operands
        return found

    def _from(self, between: Iterable[Op], given: Iterable[Value] = ()) -> set[Op]:
        """Those of the ops that are products, or depend on one or on what is given."""
        made = set(given)
        inside: set[Op] = set()
        for op in sorted(between, key=self.place.__getitem__):
            if self.makes(op) or not made.isdisjoint(op.operands):
                inside.add(op)
                made.update(op.results)
        return inside

    def _moved(self, last: Op, taken: set[Op]) -> Iterator[Op]:
        """The op, and what gives its result another shape: that is stored where it belongs.

        Another chain may have taken that, as its operand's.
        """
        yield last
        users = self.users.get(last.result, [])
        while len(users) == 1 and users[0].name in (TRANSPOSE, RESHAPE) and users[0] not in taken:
            if last.result in self.frame.outputs:
                return
            last = users[0]
            yield last
            users = self.users.get(last.result, [])

    def _with_own(self, last: Op, inside: set[Op], taken: set[Op]) -> Iterator[list[Op]]:
        """With what nobody else reads: masks and biases of what lies between, and shapes of operands.

        Then with fewer of them: without small ones, such as a mask of each row, and without what makes
        operands of products, such as keys with their bias. Where rows need all of these, they would be made
        before all rows, and rows wait for that.
        """
        inside = {*inside, *self._moved(last, taken)}
        large = max(op.results[0].tensor.size for op in inside) // SMALL
        known: set[frozenset[Op]] = set()
        for operands in (True, False):
            for small in (0, large):
                found = self._own(inside, taken, small, operands)
                if (key := frozenset(found)) not in known:
                    known.add(key)
                    yield found

    def _own(self, inside: set[Op], taken: set[Op], small: int, operands: bool) -> list[Op]:
        """The ops, and those which only they read and that do more to numbers than move so few.

        operands: those, too, that make what products read in another shape.
        """
        found = set(inside)
        todo = [(-self.place[op], op) for op in inside]
        heapq.heapify(todo)
        while todo:  # the last op first: by its turn, all that read it have had theirs
            _, op = heapq.heappop(todo)
            for maker in dict.fromkeys(self.producers.get(v) for v in op.operands):
                if maker is None or maker in found or not self._is_own(maker, found, taken, small):
                    continue
                if operands or not self._makes_operands(maker):
                    found.add(maker)
                    heapq.heappush(todo, (-self.place[maker], maker))
        return sorted(found, key=self.place.__getitem__)

    def _makes_operands(self, op: Op) -> bool:
        """Whether it computes what a product reads, be it in another shape."""
        if lookup(op.name).op_class is OpClass.SHAPE:
            return False
        todo, seen = [*op.results], set(op.results)
        while todo:
            for user in self.users.get(todo.pop(), ()):
                if self.makes(user):
                    return True
                if lookup(user.name).op_class is OpClass.SHAPE and user.result not in seen:
                    seen.add(user.result)
                    todo.append(user.result)
        return False

    def _is_own(self, op: Op, inside: set[Op], taken: set[Op], small: int) -> bool:
        if op in taken or is_free(op) or partition_reason(op) is not None:
            return False
        users = {user for v in op.results for user in self.users.get(v, ())}
        kind = lookup(op.name).op_class
        read_by_products = any(self.makes(user) for user in users)
        return (
            users <= inside
            and not any(v in self.frame.outputs for v in op.results)
            and kind is not OpClass.REDUCTION
            and (kind is OpClass.SHAPE or (not read_by_products and op.results[0].tensor.size > small))
        )


def _adds(op: Op) -> Added:
    if lookup(op.name).op_class is not OpClass.REDUCTION:
        return Added.NOTHING
    return Added.ROWS if 0 in op.attrs.get("dimensions", (0,)) else Added.ROW


def _holds(op: Op) -> bool:
    """Whether a chain may hold it: where the product is no library's, nothing is added there either."""
    return op.attrs.get(LEFT) == ADDED or partition_reason(op) is None
