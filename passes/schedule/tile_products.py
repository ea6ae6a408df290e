"""Products of a CPU's kernels go by tiles of registers instead of one sum after another.

    for r in [0, 64):                                  multiply t1[64, 512] = t0[64, 64] * a1[512, 64]^T
      for i2 in [0, 512):
        acc = 0                                 ->     (the nest stays, as what it computes)
        for i3 in [0, 64):
          acc = acc + t0[r * 64 + i3] * a1[i2 * 64 + i3]
        t1[r * 512 + i2] = acc

A nest is a product where its sum is of what two matrices have at places that are multiples of the step's row,
the column and what is summed over, the left one without the column, the right one without the row. Whoever
wrote it: a dot_general, or a multiplication of two broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jstitch.codegen.cpu.panel import DEPTH, WIDEST
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    ROW,
    STEP,
    Accumulator,
    Buffer,
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
from jstitch.ir.expr import Const, Ref, call
from jstitch.ir.index import (
    Atom,
    FloorDiv,
    Index,
    Mod,
    Var,
    add,
    atoms,
    bounds,
    const,
    floordiv,
    mod,
    mul,
    var,
)
from jstitch.ir.types import DType, TensorType

COPY = "copied_"  # begins the name of what is stored twice
PANEL = TensorType((DEPTH, WIDEST), DType.F32)


@dataclass(frozen=True)
class _Axes:
    """The variables of a nest's loops: the row in its step, the column, what is summed over."""

    row: Var
    column: Var
    summed: Var

    def matrix(self, access: Load | Store, lane: Lane, used: tuple[Var, Var], unused: Var) -> Matrix | None:
        """Where an access goes, if that is a multiple of `used` behind something that the step says."""
        at = _in_steps(access.offset, lane, self.row)
        strides = dict(at.terms)
        first = Index(at.const, tuple((a, k) for a, k in at.terms if a not in (*used, unused)))
        if unused in strides or any(not _is_of_step(a) for a in atoms([first])):
            return None
        return Matrix(access.buffer, first, (strides.get(used[0], 0), strides.get(used[1], 0)))


def _is_of_step(atom: Atom) -> bool:
    """Whether it says no more than the number of the step."""
    match atom:
        case Var(name):
            return name == STEP
        case FloorDiv() | Mod():
            return True
    return False


def _in_steps(e: Index, lane: Lane, row: Var) -> Index:
    """With the row as the step's first row, and a place in the step that no whole number of steps sees."""
    found = const(e.const)
    for atom, k in e.terms:
        found = add(found, mul(_atom_in_steps(atom, lane, row), k))
    return found


def _atom_in_steps(atom: Atom, lane: Lane, row: Var) -> Index:
    step = lane.step
    match atom:
        case Var(name) if name == ROW:
            return add(mul(var(Var(STEP, lane.rows // step)), step), var(row))
        case FloorDiv(of, by) | Mod(of, by):
            inside = _in_steps(of, lane, row)
            steps = Index(
                inside.const // step, tuple((a, k // step) for a, k in inside.terms if k % step == 0)
            )
            rest = add(inside, mul(steps, -step))
            low, high = bounds(rest)
            divides = isinstance(atom, FloorDiv)
            if by % step or low < 0 or high >= step:
                return floordiv(inside, by) if divides else mod(inside, by)
            turn = by // step
            return floordiv(steps, turn) if divides else add(mul(mod(steps, turn), step), rest)
    return var(atom)


def tile_products(kernel: Kernel) -> Kernel:
    """The kernel with Products, and room for what these pack."""
    start = -(-kernel.arena_bytes // CACHE_LINE) * CACHE_LINE
    panel = Buffer("panel", PANEL, Space.ARENA, len(kernel.arena), start)
    made = map_lanes(kernel, lambda lane: _in_lane(lane, panel))
    if made is kernel:
        return kernel
    return replace(made, arena=(*kernel.arena, panel), arena_bytes=start + PANEL.nbytes)


def _in_lane(lane: Lane, panel: Buffer) -> Lane:
    """A result that goes to several places is copied from the first of them."""
    if lane.flat or lane.step == 1:
        return lane
    stages = []
    for stage in lane.stages:
        nests = []
        for nest in stage.nests:
            first = replace(nest, after=nest.after[:1])
            product = _tiled(first, lane, panel) if nest.after else nest
            nests += [nest] if not isinstance(product, Product) else [product, *_copies(nest)]
        stages.append(replace(stage, nests=tuple(nests)))
    found = any(isinstance(nest, Product) for stage in stages for nest in stage.nests)
    return replace(lane, stages=tuple(stages)) if found else lane


def _copies(nest: Nest) -> Iterator[Nest]:
    """What the nest stores once more, from where it stores it first."""
    first, *others = nest.after
    assert isinstance(first, Store)
    for other in others:
        assert isinstance(other, Store)
        load = Load(f"{COPY}{other.buffer.name}", first.buffer, first.offset, first.depth)
        body = load, replace(other, value=Ref(load.name))
        yield Nest(nest.loops[: first.depth], (), body, ())


def _tiled(nest: Nest, lane: Lane, panel: Buffer) -> Nest:
    """The nest, as a Product if it is one."""
    if not _is_sum_of_products(nest):
        return nest
    _, column, summed = nest.loops
    x, y, _, _ = nest.body
    (store,) = nest.after
    assert isinstance(x, Load)
    assert isinstance(y, Load)
    assert isinstance(store, Store)
    axes = _Axes(Var("row in step", lane.step), column.var, summed.var)
    for left, right in ((x, y), (y, x)):
        a = axes.matrix(left, lane, (axes.row, axes.summed), axes.column)
        b = axes.matrix(right, lane, (axes.summed, axes.column), axes.row)
        c = axes.matrix(store, lane, (axes.row, axes.column), axes.summed)
        if a is not None and b is not None and c is not None and c.strides[1] == 1:
            sizes = lane.step, column.hi, summed.hi
            return Product(
                nest.loops,
                nest.accumulators,
                nest.body,
                nest.after,
                nest.combines,
                left=a,
                right=b,
                result=c,
                sizes=sizes,
                panel=panel,
            )
    return nest


def _is_sum_of_products(nest: Nest) -> bool:
    """Over rows, columns and a third loop: total = total + x * y of f32, stored somewhere else."""
    match nest:
        case Nest(
            (Loop(Var(name), each=1), Loop(_, 0, columns), Loop(_, 0, turns)),
            (Accumulator(total, init, 2, DType.F32),),
            (Load() as x, Load() as y, Let(times, product), Let(last, plus)),
            (Store(written, _, value, 2),),
        ):
            pass
        case _:
            return False
    adds = product == call("mul", Ref(x.name), Ref(y.name))
    sums = last == total and plus == call("add_reassoc", Ref(total), Ref(times))
    floats = all(b.type.dtype is DType.F32 for b in (x.buffer, y.buffer, written))
    from_zero = init == Const(0.0, DType.F32) and value == Ref(total)
    apart = written not in (x.buffer, y.buffer)
    return name == ROW and min(columns, turns) > 1 and adds and sums and floats and from_zero and apart
