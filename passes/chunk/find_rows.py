"""What has to be made row by row, so that a large value never is in memory as a whole.

    %z = dot_general %x, %w   [32768, 128256]      rows: dimension 0 of %x, %z, %m, %e, ... %d
    %m = reduce max of %z's rows;  %e = exp(%z - %m);  ...  %d
    %g = dot_general %x, %d   over the rows        its parts, of some rows each, add up

From one value on, everything that makes large values or reads them is taken in; then what lies between these.
What needs a sum over rows, and is needed for rows again, cannot be so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import is_splat
from jstitch.ir.ops.effects import has_effects
from jstitch.ir.ops.links import adds_to_zero, linked, summed
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import is_control

FEW = 16  # steps from small values to a large one that may be made more than once
LARGE = 4  # what has fewer elements, by this factor, than the value that is not to be whole, is small
MOST_OPS = 500  # of a loop's body


class CannotCutError(Exception):
    """Why a value cannot be made by rows."""


@dataclass(frozen=True)
class Rows:
    """ops: in program order. cut: values -> the dimension whose places are the rows. sums: those of the ops
    that make parts of sums. copies: cheap ones, which stay besides where others read them. value: what is not
    to be whole.
    """

    value: Value
    ops: tuple[Op, ...]
    cut: Mapping[Value, int]
    sums: frozenset[Op]
    copies: frozenset[Op]

    @property
    def count(self) -> int:
        return self.value.shape[self.cut[self.value]]

    def is_large(self, v: Value) -> bool:
        return _is_large(v, self.value)

    def read(self) -> tuple[Value, ...]:
        """Values from outside, in order of use."""
        made = {v for op in self.ops for v in op.results}
        return tuple(dict.fromkeys(v for op in self.ops for v in op.operands if v not in made))

    def written(self, index: Index) -> tuple[Value, ...]:
        """Values that others read, in program order."""
        inside = set(self.ops)
        made = (v for op in self.ops if op not in self.copies for v in op.results)
        return tuple(v for v in made if v in index.returned or not inside.issuperset(index.users.get(v, ())))


@dataclass(frozen=True)
class Index:
    """What is looked up in a frame. copies: of each number of elements that was asked for."""

    frame: Graph
    producers: Mapping[Value, Op]
    users: Mapping[Value, list[Op]]
    place: Mapping[Op, int]
    returned: frozenset[Value]
    copies: dict[int, frozenset[Op]] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: Graph) -> Index:
        place = {op: n for n, op in enumerate(frame.ops)}
        return cls(frame, frame.producers(), frame.users(), place, frozenset(frame.outputs))

    def copies_of(self, value: Value) -> frozenset[Op]:
        """Ops that make constants, or a few steps away from small values what is as large as the value."""
        size = value.tensor.size
        if size not in self.copies:
            self.copies[size] = _copies(self.frame, value)
        return self.copies[size]


def find_rows(index: Index, value: Value, dim: int) -> Rows:
    """The rows of a value that an op of the frame makes. Raises CannotCutError."""
    search = _Search(index, value, index.copies_of(value))
    search.cut(value, dim)
    search.close()
    while between := search.between():
        for op in between:
            search.follow(op)
        search.close()
    search.check()
    ops = tuple(sorted(search.inside, key=index.place.__getitem__))
    return Rows(value, ops, search.dims, frozenset(search.sums), search.copies)


@dataclass
class _Search:
    """copies: cheap ops, of which any may be inside. inside: ops -> the dimension of their results that is
    cut, None for sums. dims: of values.
    """

    index: Index
    value: Value
    copies: frozenset[Op]
    inside: dict[Op, int | None] = field(default_factory=dict)
    dims: dict[Value, int] = field(default_factory=dict)
    todo: list[Value] = field(default_factory=list)

    @property
    def sums(self) -> Iterator[Op]:
        return (op for op, dim in self.inside.items() if dim is None)

    def cut(self, v: Value, dim: int) -> None:
        if self.dims.setdefault(v, dim) != dim:
            raise CannotCutError(f"rows of {v.type} are dimension {self.dims[v]} to one op, {dim} to another")
        self.todo.append(v)

    def close(self) -> None:
        """Take in all that makes or reads large values."""
        done: set[Value] = set()
        while self.todo:
            v = self.todo.pop()
            if v in done:
                continue
            done.add(v)
            maker, large = self.index.producers.get(v), _is_large(v, self.value)
            if maker is not None and maker not in self.inside and (large or is_splat_op(maker)):
                self.take(maker, self.dims[v])
            if not large or maker is None or maker in self.copies:
                continue
            if v in self.index.returned:
                raise CannotCutError(f"the caller wants {v.type} whole")
            for user in self.index.users.get(v, ()):
                if user not in self.inside:
                    self.follow(user)

    def take(self, op: Op, dim: int) -> None:
        """An op of which one dimension is cut."""
        if not _is_plain(op):
            raise CannotCutError(f"{op.name} is no op that can be cut")
        links = linked(op, dim)
        if links is None:
            raise CannotCutError(f"{op.name} needs other rows of {op.results[0].type}")
        self.put(op, dim)
        for v in op.results:
            self.cut(v, dim)
        for v, place in zip(op.operands, links, strict=False):
            if place is not None:
                self.cut(v, place)

    def put(self, op: Op, dim: int | None) -> None:
        self.inside[op] = dim
        if len(self.inside) > MOST_OPS:
            raise CannotCutError(f"more than {MOST_OPS} ops make or read what belongs to its rows")

    def follow(self, op: Op) -> None:
        """An op that reads rows makes rows, or a sum over them."""
        if not _is_plain(op):
            raise CannotCutError(f"{op.name} is no op that can be cut")
        read = [(k, self.dims[v]) for k, v in enumerate(op.operands) if v in self.dims]
        if not read:
            raise CannotCutError(f"{op.name} is needed for rows, and needs a sum over them")
        number, dim = read[0]
        for place in range(op.results[0].tensor.rank):
            links = linked(op, place)
            if links is not None and links[number] == dim:
                return self.take(op, place)
        places = summed(op, number, dim)
        if places is None or not adds_to_zero(op, self.index.producers.get(op.operands[-1])):
            raise CannotCutError(f"{op.name} needs all rows of {op.operands[number].type}")
        self.put(op, None)
        for v, summed_dim in zip(op.operands, places, strict=True):
            if summed_dim is not None:
                self.cut(v, summed_dim)
        return None

    def between(self) -> list[Op]:
        """Ops that need what is made here, and make what is needed here, but are not inside."""
        places = [self.index.place[op] for op in self.inside]
        ops = self.index.frame.ops[min(places) : max(places)]
        after: set[Value] = set()
        needs: set[Op] = set()
        for op in ops:
            inside = op in self.inside and op not in self.copies
            if inside or not after.isdisjoint(op.uses):
                after.update(op.results)
                needs.add(op)
        before = {v for op in self.inside for v in op.operands}
        found: list[Op] = []
        for op in reversed(ops):
            if op not in self.inside and op in needs and not before.isdisjoint(op.results):
                found.append(op)
                before.update(op.uses)
        found.reverse()
        return found

    def check(self) -> None:
        """Whether each op reads what is cut by its rows, and nothing that adds up."""
        parts = {v for op in self.sums for v in op.results}
        for op, dim in self.inside.items():
            links = linked(op, dim) if dim is not None else None
            for k, v in enumerate(op.operands):
                if v in parts:
                    raise CannotCutError(f"{op.name} is needed for rows, and needs a sum over them")
                if links is not None and links and links[k] != self.dims.get(v, links[k]):
                    raise CannotCutError(f"{op.name} needs all rows of {v.type}")


def _is_large(v: Value, value: Value) -> bool:
    return isinstance(v.type, TensorType) and v.tensor.size * LARGE > value.tensor.size


def _copies(frame: Graph, value: Value) -> frozenset[Op]:
    """Of Index.copies_of."""
    steps: dict[Value, int] = {}
    for op in frame.ops:
        kind = lookup(op.name).op_class
        cheap = kind.is_elementwise or kind is OpClass.SHAPE or is_splat_op(op)
        if not (cheap and _is_plain(op) and all(_is_large(v, value) for v in op.results)):
            continue
        large = [v for v in op.operands if _is_large(v, value)]
        if all(v in steps for v in large) and sum(steps[v] for v in large) < FEW:
            steps.update(dict.fromkeys(op.results, 1 + sum(steps[v] for v in large)))
    made = (op for op in frame.ops if is_splat_op(op) or any(v in steps for v in op.results))
    return frozenset(made)


def is_splat_op(op: Op) -> bool:
    """Whether it is one number everywhere."""
    return lookup(op.name).op_class is OpClass.CONSTANT and is_splat(op.attrs["value"])


def _is_plain(op: Op) -> bool:
    """Whether it can be written for fewer rows."""
    tensors = all(isinstance(v.type, TensorType) for v in (*op.uses, *op.results))
    dense = lookup(op.name).op_class is OpClass.CONSTANT and not is_splat_op(op)
    return tensors and not dense and not has_effects(op) and not is_control(op)
