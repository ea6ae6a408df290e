"""Products go by tiles of registers instead of one sum after another.

    for r in [0, 64):                                  multiply t1[64, 512] = t0[64, 64] * a1[512, 64]^T
      for i2 in [0, 512):
        acc = 0                                 ->     (the nest stays, as what it computes)
        for i3 in [0, 64):
          acc = acc + t0[r * 64 + i3] * a1[i2 * 64 + i3]
        t1[r * 512 + i2] = acc

A nest is a product where its sum is of what two matrices have at places that are multiples of the step's row,
the column and what is summed over, the left one without the column, the right one without the row. Whoever
wrote it: a dot_general, or a multiplication of two broadcasts. GPUs multiply 16-bit elements of one type, or
f32 that the nest rounds to tf32, and the right operand is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.cpu.panel import DEPTH, WIDEST
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    ROW,
    STEP,
    Accumulator,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Matrix,
    Nest,
    Product,
    Space,
    Store,
)
from jstitch.codegen.map_kernel import map_lanes
from jstitch.codegen.step_places import in_steps, is_of_step
from jstitch.ir.expr import Const, Expr, Ref, call, refs
from jstitch.ir.index import Index, Var, add, atoms, mul, var
from jstitch.ir.types import HALVES, DType, TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.tensor_cores import TENSOR_CORES

WIDENED = (DType.F32, DType.BF16)  # elements that the micro-kernel reads as f32
PANEL = TensorType((DEPTH, WIDEST), DType.F32)


@dataclass(frozen=True)
class Axes:
    """The variables of a nest's loops: the row in its step, the column, what is summed over."""

    row: Var
    column: Var
    summed: Var

    @classmethod
    def of(cls, lane: Lane, column: Loop, summed: Loop) -> Axes:
        return cls(Var("row in step", lane.step), column.var, summed.var)

    def matrix(self, access: Load | Store, lane: Lane, used: tuple[Var, Var], unused: Var) -> Matrix | None:
        """Where an access goes, if that is a multiple of `used` behind something that the step says."""
        at = in_steps(access.offset, lane, self.row)
        strides = dict(at.terms)
        first = Index(at.const, tuple((a, k) for a, k in at.terms if a not in (*used, unused)))
        if unused in strides or any(not is_of_step(a, lane) for a in atoms([first])):
            return None
        return Matrix(access.buffer, first, (strides.get(used[0], 0), strides.get(used[1], 0)))


def tile_products(kernel: Kernel, context: Context) -> Kernel:
    """The kernel with Products, and room for what these pack and for sums that are not stored as they are."""
    device = context.machine.device
    if device is not None and device.capability < TENSOR_CORES:
        return kernel
    arena = _Arena(list(kernel.arena), kernel.arena_bytes)
    panel = arena.tile("panel", PANEL) if device is None else None
    made = map_lanes(kernel, lambda lane: _in_lane(lane, panel, arena))
    if made is kernel:
        return kernel
    return replace(made, arena=tuple(arena.buffers), arena_bytes=arena.nbytes)


@dataclass
class _Arena:
    """Tiles of a kernel, to which more are added."""

    buffers: list[Buffer]
    nbytes: int

    def tile(self, name: str, kind: TensorType) -> Buffer:
        start = -(-self.nbytes // CACHE_LINE) * CACHE_LINE
        self.buffers.append(Buffer(name, kind, Space.ARENA, len(self.buffers), start))
        self.nbytes = start + kind.nbytes
        return self.buffers[-1]


def _in_lane(lane: Lane, panel: Buffer | None, arena: _Arena) -> Lane:
    """Sums that are converted, or stored twice, are copied from where the product puts them."""
    if lane.flat or lane.step == 1:
        return lane
    stages = []
    for stage in lane.stages:
        nests = [made for nest in stage.nests for made in _tiled(nest, lane, panel, arena)]
        stages.append(replace(stage, nests=tuple(nests)))
    found = any(isinstance(nest, Product) for stage in stages for nest in stage.nests)
    return replace(lane, stages=tuple(stages)) if found else lane


@dataclass(frozen=True)
class _Factor:
    """What is multiplied. to: what its elements are converted to before, f32 or tf32."""

    load: Load
    to: str | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether the micro-kernel multiplies it."""
        return self.to != "tf32"

    @property
    def is_gpu(self) -> bool:
        """Whether tensor cores do, which take f32 only as tf32."""
        return (self.to == "tf32") == (self.load.buffer.type.dtype is DType.F32)


@dataclass(frozen=True)
class _Sums:
    """A nest of sums over rows, columns and a third loop, total = total + x * y, and what becomes of each."""

    nest: Nest
    total: str
    factors: tuple[_Factor, _Factor]

    @classmethod
    def of(cls, nest: Nest) -> _Sums | None:
        """Of elements that become f32, added up in f32."""
        match nest:
            case Nest(
                (Loop(Var(name), each=1), Loop(_, 0, columns), Loop(_, 0, turns)),
                (Accumulator(total, init, 2, DType.F32),),
                (*loads, Let(times, product), Let(last, plus)),
            ):
                pass
            case _:
                return None
        sums = last == total and plus == call("add_reassoc", Ref(total), Ref(times))
        from_zero = init == Const(0.0, DType.F32)
        if name != ROW or min(columns, turns) < 2 or not (sums and from_zero):
            return None
        factors = _factors(loads)
        if factors is None or product != call("mul", *map(Ref, factors)):
            return None
        x, y = factors.values()
        return cls(nest, total, (x, y))

    def stored(self) -> Store | None:
        """Where each sum goes first, as it is."""
        match self.nest.after:
            case (Store(buffer, value=Ref(self.total)) as store, *_) if buffer.type.dtype is DType.F32:
                return store if buffer not in [x.load.buffer for x in self.factors] else None
        return None

    def stored_apart(self, lane: Lane, arena: _Arena) -> Store:
        """To a tile of their own."""
        _, column, _ = self.nest.loops
        tile = arena.tile(f"sums{len(arena.buffers)}", TensorType((lane.step, column.hi), DType.F32))
        steps = mul(var(Var(STEP, lane.rows // lane.step)), lane.step)
        row = add(var(Var(ROW, lane.rows)), mul(steps, -1))
        return Store(tile, add(mul(row, column.hi), var(column.var)), Ref(self.total), 2)

    def product(self, store: Store, lane: Lane, panel: Buffer | None) -> Product | None:
        """With sums that are stored there, columns side by side."""
        _, column, summed = self.nest.loops
        axes = Axes.of(lane, column, summed)
        c = axes.matrix(store, lane, (axes.row, axes.column), axes.summed)
        if c is None or c.strides[1] != 1:
            return None
        if not all(x.is_cpu if panel is not None else x.is_gpu for x in self.factors):
            return None
        for left, right in (self.factors, self.factors[::-1]):
            a = axes.matrix(left.load, lane, (axes.row, axes.summed), axes.column)
            b = axes.matrix(right.load, lane, (axes.summed, axes.column), axes.row)
            if a is not None and b is not None and (panel is not None or _by_tensor_cores(a, b)):
                sizes, n = (lane.step, column.hi, summed.hi), self.nest
                what = n.loops, n.accumulators, n.body, (store,), n.combines
                return Product(*what, left=a, right=b, result=c, sizes=sizes, panel=panel)
        return None


def _factors(instructions: Sequence[Instr]) -> Mapping[str, _Factor] | None:
    """Two loads by the names of what is multiplied: their elements, or those as f32, or as tf32."""
    loads: dict[str, _Factor] = {}
    for i in instructions:
        match i:
            case Load(name, buffer) if buffer.type.dtype in (*WIDENED, *HALVES):
                loads[name] = _Factor(i)
            case Let(name, value) if (found := _converted(value, loads)) is not None:
                load, to = found
                loads[name] = replace(loads.pop(load), to=to)
            case _:
                return None
    return loads if len(loads) == 2 else None


def _by_tensor_cores(left: Matrix, right: Matrix) -> bool:
    """Whether a GPU multiplies them: what it makes of the right one has no place in panels."""
    return left.buffer.type.dtype is right.buffer.type.dtype and right.buffer.space is not Space.ARENA


def _converted(value: Expr, loads: Mapping[str, _Factor]) -> tuple[str, str] | None:
    """Which load is converted, and to what."""
    for name, factor in loads.items():
        for to in ("f32", "tf32") if factor.to is None else ():
            if value == call(f"convert_{to}", Ref(name)):
                return name, to
    return None


def _tiled(nest: Nest, lane: Lane, panel: Buffer | None, arena: _Arena) -> list[Nest]:
    """The nest as Products, one for each of its sums, and what else is done with these; or as it is."""
    stores = any(isinstance(i, Store) for i in nest.body)
    if not nest.accumulators or stores or any(i.depth != 2 for i in nest.after):
        return [nest]
    before = list(arena.buffers), arena.nbytes
    made: list[Nest] = []
    again: list[Load] = []
    uses = _uses(nest)
    for a in nest.accumulators:
        own = tuple(uses.pop(frozenset((a.name,)), ()))
        body, combines = _needed(nest.body, {a.name}), [c for c in nest.combines if c.names == (a.name,)]
        part = replace(nest, accumulators=(a,), body=body, after=own, combines=tuple(combines))
        placed = _placed(part, lane, panel, arena)
        if placed is None:
            arena.buffers, arena.nbytes = before
            return [nest]
        product, store, rest = placed
        again.append(Load(a.name, store.buffer, store.offset, store.depth))
        made += [product, *([_after(nest, again[-1:], rest)] if rest else [])]
    joint = [i for i in nest.after if any(i in used for used in uses.values())]
    return [*made, *([_after(nest, again, joint)] if joint else [])]


def _after(nest: Nest, sums: Sequence[Load], rest: Sequence[Instr]) -> Nest:
    """What is done with sums that are somewhere now."""
    return Nest(nest.loops[:2], (), (*sums, *rest), ())


def _placed(
    part: Nest, lane: Lane, panel: Buffer | None, arena: _Arena
) -> tuple[Product, Store, Sequence[Instr]] | None:
    """The product that a nest of one sum is, where its sums go, and what else is done with them."""
    sums = _Sums.of(part)
    if sums is None:
        return None
    stored = sums.stored()
    if stored is not None and (product := sums.product(stored, lane, panel)) is not None:
        return product, stored, part.after[1:]
    tile = sums.stored_apart(lane, arena)
    product = sums.product(tile, lane, panel)
    return None if product is None else (product, tile, part.after)


def _uses(nest: Nest) -> dict[frozenset[str], list[Instr]]:
    """The accumulators that stores behind the inner loop wait for -> those, and what they need, in order."""
    depends = {a.name: frozenset((a.name,)) for a in nest.accumulators}
    stores: dict[frozenset[str], list[Store]] = {}
    for i in nest.after:
        names = refs(i.value) if isinstance(i, Let | Store) else ()
        reached = frozenset().union(*(depends.get(name, frozenset()) for name in names))
        if isinstance(i, Store):
            stores.setdefault(reached, []).append(i)
        else:
            depends[i.name] = reached
    found = {}
    for reached, group in stores.items():
        needed = _needed(nest.after, {name for store in group for name in refs(store.value)})
        found[reached] = [i for i in nest.after if i in needed or i in group]
    return found


def _needed(instructions: Sequence[Instr], names: Iterable[str]) -> tuple[Instr, ...]:
    """Those that make these values, in order."""
    wanted, found = set(names), list[Instr]()
    for i in reversed(instructions):
        if not isinstance(i, Store) and i.name in wanted:
            found.append(i)
            wanted.update(refs(i.value) if isinstance(i, Let) else ())
    return tuple(found[::-1])
