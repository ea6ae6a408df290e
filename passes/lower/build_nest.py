"""Write the scalar program of one loop nest: values at symbolic indices, inlined down to loads.

    value(subtract, (r, i))   ->   v0 = load x[r * C + i];  v1 = load mean[0];  v2 = v0 - v1

Thread composition (FS-2021 section 4.1) is this inlining; a value asked for twice at one index is one Let
(computation reuse, section 4.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jstitch.codegen.kernel_ir import Buffer, Instr, Let, Load, Space, Store
from jstitch.ir.expr import Atomic, Call, Const, Expr, Number, Ref, call
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.index import (
    Atom,
    Condition,
    Dynamic,
    FloorDiv,
    Index,
    Mod,
    Var,
    add,
    atoms,
    bounds,
    clamp,
    const,
    is_longer,
    linearize,
    mod,
    mul,
    substitute,
    var,
)
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import is_splat
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.reason import Reason
from jstitch.ir.types import DType
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import ROW_VAR, is_reduction, read_index
from jstitch.passes.lower.divide_loops import Division
from jstitch.passes.lower.written import InStack, InStrips, Place, Written

MOST_ATOMS = 32  # of one index: reshapes and transposes in turn double it
MOST_VALUES = 1 << 11  # of one loop: a chain of concatenates and pads doubles them at each


class CannotLowerError(Exception):
    """The pattern holds something no kernel can express; the message, and `reason`, say what."""

    def __init__(self, reason: str | Reason) -> None:
        self.reason = Reason("lowering", reason) if isinstance(reason, str) else reason
        super().__init__(str(reason))


def too_many() -> CannotLowerError:
    return CannotLowerError(f"one loop would compute more than {MOST_VALUES} values for each element")


def literal(value: object, dtype: DType) -> Const:
    """A constant, of the type that kernels compute with."""
    if kernel_name(dtype) is None:
        raise CannotLowerError(f"no kernel holds constants of type '{dtype.value}'")
    number = np.asarray(value).item()
    kind = bool if dtype is DType.BOOL else float if dtype.is_float else int
    return Const(kind(number), dtype.compute)


def _is_operand(atom: Atom) -> bool:
    """Whether it is an element of one of an op's operands, by number."""
    return isinstance(atom, Dynamic) and isinstance(atom.operand, int)


@dataclass(eq=False)
class NestBuilder:
    """Instructions of one nest.

    producers: the pattern's ops by value. places: values to be read from memory instead of computed.
    depths: loop variable -> number of loops around and including it. first_row: the step's first row.
    inner_names: the tile's loop variables. modular: some index takes one of them through // or %, by what is
    in divided. numbers: integer scalars that say how often loops around the nest have turned.
    """

    producers: Mapping[Value, Op]
    places: Mapping[Value, Place]
    depths: Mapping[str, int]
    names: Callable[[], str]
    first_row: Index = field(default_factory=Index)
    inner_names: frozenset[str] = frozenset()
    body: list[Instr] = field(default_factory=list)
    depth_of: dict[str, int] = field(default_factory=dict)
    memo: dict[tuple[Value, tuple[Index, ...]], Atomic] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    modular: bool = False
    divided: dict[Division, None] = field(default_factory=dict)
    numbers: Mapping[Value, Index] = field(default_factory=dict)

    def value(self, v: Value, index: tuple[Index, ...], compute: bool = False) -> Atomic:
        """The scalar that is element `index` of `v`. `compute`: even if `v` has a place to be read from."""
        return unwind(self._value(v, index, compute))

    def _value(self, v: Value, index: tuple[Index, ...], compute: bool = False) -> Deep[Atomic]:
        key = (v, index)
        if key not in self.memo:
            place = self.places.get(v)
            if v in self.numbers:
                self.memo[key] = self.position(v.tensor.dtype, self.numbers[v])
            elif place is not None and not compute and self._is_here(v, place, index):
                self.memo[key] = self.load(v, place, index)
            else:
                self.memo[key] = yield self._compute(v, index)
        return self.memo[key]

    def parts(self, v: Value, index: tuple[Index, ...], compute: bool = False) -> list[Atomic]:
        """What memory has for that element of `v`: a scalar, or both parts of a complex number."""
        op = self.producers.get(v)
        if op is None or not lookup(op.name).parts:
            return [self.value(v, index, compute)]
        return [self.value(part, index) for part in op.operands]

    def _is_here(self, v: Value, place: Place, index: tuple[Index, ...]) -> bool:
        """Whether memory holds the element: a tile lacks other rows, which are computed again."""
        producer = self.producers.get(v)
        if place.buffer.space is not Space.ARENA or producer is None or is_reduction(producer):
            return True
        offset = linearize(read_index(index, v.shape), v.shape)
        low, high = bounds(self._in_step(self.tile_offset(offset, v, place), place))
        return low >= 0 and high < place.buffer.type.size

    def _in_step(self, e: Index, place: Place) -> Index:
        """The row as the step's first row and a place in the step, which cancel out of a tile's offsets."""
        step = place.buffer.type.shape[0]
        if step == 1:
            return e
        row = add(self.first_row, var(Var("row in step", step)))
        return substitute(e, lambda atom: row if isinstance(atom, Var) and atom.name == ROW_VAR else None)

    def load(self, v: Value, place: Place, index: tuple[Index, ...]) -> Ref:
        offset = linearize(read_index(index, v.shape), v.shape)
        if place.buffer.space is Space.ARENA:
            offset = self.tile_offset(offset, v, place)
        return self.read(place.buffer, offset)

    def tile_offset(self, offset: Index, v: Value, place: Place) -> Index:
        """From an offset in the whole tensor to one in the step's tile."""
        return self.in_tile(offset, v.tensor.size, place)

    def in_tile(self, offset: Index, size: int, place: Place) -> Index:
        """The same for a tensor of so many elements."""
        rows = size // place.slab
        slab = place.slab if rows > 1 else 0
        return add(offset, mul(self.first_row, -slab))

    def read(self, buffer: Buffer, offset: Index, depth: int = 0) -> Ref:
        """One load, inside at least `depth` loops."""
        name = self.names()
        depth = max(depth, self._depth(offset))
        self.body.append(Load(name, buffer, offset, depth))
        self.depth_of[name] = depth
        return Ref(name)

    def moved(self, place: Written, index: Sequence[Index], shape: Sequence[int]) -> Index:
        """Where the buffer has that element of a value that is written into it."""
        if isinstance(place, InStrips):
            return place.offset(index)
        if isinstance(place, InStack):
            return place.offset(index, shape)
        offset = linearize(index, shape)
        if isinstance(place, Place):
            return self.in_tile(offset, math.prod(shape), place)
        for start, limit, stride in place.moves:
            number = self.number(self.value(start, ()))
            offset = add(offset, mul(clamp(number, 0, limit), stride))
        return offset

    @staticmethod
    def number(value: Atomic) -> Index:
        """An integer scalar as an index."""
        return const(int(value.value)) if isinstance(value, Const) else var(Dynamic(value.name, ()))

    def store(self, buffer: Buffer, offset: Index, *values: Expr) -> None:
        """An element, or both parts of a complex one, side by side."""
        for part, value in enumerate(values):
            place = add(mul(offset, len(values)), const(part))
            self.body.append(Store(buffer, place, value, max(self._depth(place), self._inside(value))))

    def let(self, value: Expr, depth: int = 0) -> Ref:
        """A name for the value, inside at least `depth` loops."""
        name = self.names()
        depth = max(depth, self._inside(value))
        self.body.append(Let(name, value, depth))
        self.depth_of[name] = depth
        return Ref(name)

    def _inside(self, e: Expr) -> int:
        """Loops around the values that the expression reads."""
        match e:
            case Ref(name):
                return self.depth_of.get(name, 0)
            case Call(_, args):
                return max(map(self._inside, args), default=0)
        return 0

    def _depth(self, e: Index) -> int:
        depth = 0
        for atom in atoms([e]):
            match atom:
                case Var(name, _):
                    depth = max(depth, self.depths.get(name, 0))
                case Dynamic(operand, _):
                    depth = max(depth, self.depth_of.get(str(operand), 0))
                case FloorDiv(of, by) | Mod(of, by) if self._is_inner(of):
                    self.modular = True
                    self.divided.setdefault((of, by))
        return depth

    def _is_inner(self, e: Index) -> bool:
        return any(isinstance(a, Var) and a.name in self.inner_names for a in atoms([e]))

    def _compute(self, v: Value, index: tuple[Index, ...]) -> Deep[Atomic]:
        op = self.producers[v]
        if len(self.memo) > MOST_VALUES:
            raise too_many()
        definition = lookup(op.name)
        if definition.position is not None:
            return self.position(op.result.tensor.dtype, definition.position(op, index))
        if definition.part is not None:
            return (yield from self._part(op.operands[0], index, definition.part))
        match definition.op_class:
            case OpClass.CONSTANT if is_free(op):
                return self._constant(op, index)
            case OpClass.LIGHT | OpClass.EXPENSIVE:
                self._formula(op)  # before operands are asked, whose shape is another one where there is none
                wanted = (self._value(u, index if u.shape == v.shape else ()) for u in op.operands)
                return self.scalar(op, (yield from each(wanted)))
            case OpClass.SHAPE | OpClass.INDEX if definition.cases is not None:
                return (yield from self._choose(op, index))
        raise CannotLowerError(f"'{op.name}' cannot be computed inside another op's loop")

    def _part(self, v: Value, index: tuple[Index, ...], part: int) -> Deep[Atomic]:
        """One of the two numbers of a complex one: of what made it here, or in memory."""
        if v in self.producers:
            op = self.producers[v]
            if not lookup(op.name).parts:
                raise CannotLowerError(f"no kernel computes with complex numbers, as '{op.name}' does")
            made: Atomic = yield self._value(op.operands[part], index)
            return made
        if v not in self.places:
            raise CannotLowerError(
                "no kernel computes with complex numbers that a turn of its loop goes on from"
            )
        offset = linearize(read_index(index, v.shape), v.shape)
        return self.read(self.places[v].buffer, add(mul(offset, 2), const(part)))

    def _constant(self, op: Op, index: tuple[Index, ...]) -> Atomic:
        """A splat, or one of a few elements, by comparing the offset with each of theirs."""
        array, dtype = op.attrs["value"], op.result.tensor.dtype
        if is_splat(array):
            return literal(array.flat[0], dtype)
        elements, offset = list(array.flat), linearize(index, array.shape)
        if offset.is_const:
            return literal(elements[offset.const], dtype)
        result: Atomic = literal(elements[-1], dtype)
        where = self._depth(offset)
        for k in reversed(range(len(elements) - 1)):
            test = call("eq", Number(offset), Number(const(k)))
            result = self.let(call("select", test, literal(elements[k], dtype), result), where)
        return result

    def scalar(self, op: Op, arguments: Sequence[Expr]) -> Ref:
        """One elementwise op on scalars."""
        return self.let(self._formula(op)(*arguments))

    def _formula(self, op: Op) -> Callable[..., Expr]:
        rule = lookup(op.name).scalar
        formula = rule(op) if rule is not None else None
        if formula is None:
            raise CannotLowerError(f"'{op.name}' has no scalar form for these types")
        return formula

    def region(self, body: Graph, arguments: Sequence[Atomic]) -> tuple[Atomic, ...]:
        """A region of scalar ops, inlined."""
        made = dict(zip(body.inputs, arguments, strict=True))
        for op in body.ops:
            if lookup(op.name).op_class is OpClass.CONSTANT:
                made[op.result] = literal(op.attrs["value"].reshape(-1)[0], op.result.tensor.dtype)
            else:
                made[op.result] = self.scalar(op, [made[v] for v in op.operands])
        return tuple(made[v] for v in body.outputs)

    def position(self, dtype: DType, e: Index) -> Ref:
        """A place in the loops as a number."""
        return self.let(call(f"convert_{kernel_name(dtype)}", Number(e)), self._depth(e))

    def _choose(self, op: Op, index: tuple[Index, ...]) -> Deep[Atomic]:
        """First case whose conditions hold; the reads of the others stay in bounds and are dropped."""
        cases = lookup(op.name).cases
        assert cases is not None
        open_cases = [c for c in cases(op, index) if not any(k.never for k in c.conditions)]
        chosen: list[tuple[Ref | None, Atomic]] = []
        for case in open_cases:
            test = yield from self._test(op, [k for k in case.conditions if not k.always])
            where = map(self._named, (yield from each(self._resolve(op, e) for e in case.index)))
            operand = op.operands[case.operand]
            chosen.append((test, (yield self._value(operand, read_index(tuple(where), operand.shape)))))
            if test is None:
                break
        result = chosen.pop()[1]
        for test, value in reversed(chosen):
            assert test is not None
            result = self.let(call("select", test, value, result))
        return result

    def _resolve(self, op: Op, e: Index) -> Deep[Index]:
        """Dynamic atoms that name an operand's number become ones that name a scalar."""
        read: dict[Atom, Index] = {}

        def find(atom: Atom) -> Index | None:
            return read.setdefault(atom, Index()) if _is_operand(atom) else None

        substitute(e, find)
        for atom in read:
            assert isinstance(atom, Dynamic)
            assert isinstance(atom.operand, int)
            where = yield from each(self._resolve(op, i) for i in atom.index)
            read[atom] = yield self._integer(op.operands[atom.operand], tuple(where))
        return substitute(e, read.get)

    def _integer(self, v: Value, index: tuple[Index, ...]) -> Deep[Index]:
        """An element of a tensor of integers as an index."""
        if v in self.numbers:
            return self.numbers[v]
        return self.number((yield self._value(v, index)))

    def _named(self, e: Index) -> Index:
        """A long index as a number that is computed once: the next op's would be twice as long."""
        if not is_longer(e, MOST_ATOMS):
            return e
        return self.number(self.let(call("convert_s64", Number(e)), self._depth(e)))

    def _test(self, op: Op, conditions: Sequence[Condition]) -> Deep[Ref | None]:
        tests: list[Ref] = []
        for k in conditions:
            of = yield self._resolve(op, k.of)
            self.conditions.append(Condition(of, k.lo, k.hi, k.step))
            depth = self._depth(of)
            parts = [_compare("ge", of, k.lo), _compare("lt", of, k.hi)]
            if k.step > 1:
                parts.append(_compare("eq", mod(add(of, const(-k.lo)), k.step), 0))
            tests += [self.let(part, depth) for part in parts]
        if not tests:
            return None
        result = tests[0]
        for test in tests[1:]:
            result = self.let(call("and_", result, test))
        return result


def _compare(how: str, e: Index, number: int) -> Call:
    return call(how, Number(e), Number(const(number)))
