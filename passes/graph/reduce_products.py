"""Write the product of a matrix and few vectors as a multiplication and a sum.

    %s = dot_general %m, %v                            %b = broadcast %v;  %p = multiply %m, %b
                                               ->      %s = reduce add %p
    %m: [b, l, w], %v: [b, w], batch b, contract w

No library is quicker than a sum over what is read once, so XLA:GPU makes a kernel of its own of a small one.
On CPUs its library is slower, by far with batches in the middle, or with 16 bits. As ops they are kernels'
like all others: what makes the vector, the sum, and what is made of it can share one kernel, as scores,
softmax and mixture do in the attention of one query. On CPUs sums that no kernel takes are products again in
the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side, by_size, is_product
from jstitch.passes.base.rewrite import Producer, Replacement, is_loop, rewrite
from jstitch.passes.base.thin_products import CONVERT, THIN, Thin
from jstitch.passes.graph.small_products import small_products

MULTIPLY, SUM = "stablehlo.multiply", "stablehlo.add"
SMALL = 10_000_000  # multiplications up to which XLA:GPU does it
FEW = 4  # vectors, where a library would have to turn the matrix first


def reduce_products(graph: Graph, context: Context) -> Graph:
    """The graph without such products."""
    if context.profile.products:
        return rewrite(graph, _as_xla_does, of=(PRODUCT,))
    stays = _unchanged(graph)
    return rewrite(graph, lambda op, producer: _thin(op, producer, stays))


def _unchanged(graph: Graph) -> set[Value]:
    """What a loop reads again at every turn: XLA makes it what its library wants once, before the loop."""
    bodies = [region for op in graph.walk() if is_loop(op) for region in op.regions]
    return {v for body in bodies for v in (*body.captures, *({*body.inputs} & {*body.outputs}))}


def _as_xla_does(op: Op, producer: Producer) -> Replacement | None:
    """For a GPU."""
    if {v.tensor.dtype for v in (*op.operands, *op.results)} != {DType.F32}:
        return None
    matrix, vectors = by_size(op)
    if vectors.size(vectors.free) != 1 or not matrix.contracted or not 0 < matrix.value.tensor.size < SMALL:
        return None
    return _replaced(_written(matrix, vectors, op, matrix == Side.of(op, 0), {}), op)


def _thin(op: Op, producer: Producer, stays: Set[Value]) -> Replacement | None:
    """For a CPU. stays: in loops."""
    if not is_product(op, None):
        return None
    if (made := small_products(op)) is not None:
        return _replaced(made, op)
    matrix, vectors = by_size(op)
    few = 1 if matrix.leads else FEW
    if not matrix.contracted or vectors.size(vectors.free) > few or matrix.size(matrix.free) <= few:
        return None
    if _source(matrix.value, producer) in stays:
        return None
    if matrix.ends_in_sums and not vectors.ends_in_sums:  # each would be looked up apart
        return None
    attrs = tuple((k, v) for k, v in op.attrs.items() if not k.endswith("_dimensions"))
    thin = Thin(frozenset(v.tensor.dtype for v in op.operands), op.result.tensor.dtype, attrs)
    view, rows = _by_batches(matrix)
    return _replaced((view, *_written(rows, vectors, op, matrix == Side.of(op, 0), {THIN: thin})), op)


def _source(v: Value, producer: Producer) -> Value:
    """What it is another form of."""
    while (op := producer(v)) is not None and len(op.operands) == 1:
        if op.name != CONVERT and lookup(op.name).op_class is not OpClass.SHAPE:
            break
        (v,) = op.operands
    return v


def _replaced(made: Iterable[Op], op: Op) -> Replacement:
    ops = tuple(made)
    return Replacement(op.results, (*ops[:-1], replace(ops[-1], results=op.results)))


def _by_batches(matrix: Side) -> tuple[Op, Side]:
    """With its batch dimensions first, which are a kernel's rows, unless the last of all is one of them."""
    rank = matrix.value.tensor.rank
    order = (
        range(rank) if rank - 1 in matrix.batch else sorted(range(rank), key=lambda d: d not in matrix.batch)
    )
    view = build.transpose(matrix.value, order)
    batch, contracted = (tuple(map(order.index, dims)) for dims in (matrix.batch, matrix.contracted))
    return view, Side(view.result, batch, contracted)


def _written(matrix: Side, vectors: Side, op: Op, is_left: bool, mark: dict[str, Thin]) -> Iterator[Op]:
    """The ops; the last makes the product's result. is_left: whether the matrix is the left operand.

    Vectors are beside the matrix's last dimension, so that each of its rows is read once.
    """
    m, v = (build.convert(side.value, _wide(side)) for side in (matrix, vectors))
    rank, count = matrix.value.tensor.rank, vectors.size(vectors.free)
    beside = (rank - 1,) if count > 1 else ()
    places = [d if d < rank - 1 else d + len(beside) for d in range(rank)]
    shape = [*matrix.value.shape]
    shape[rank - 1 : rank - 1] = [count for _ in beside]
    rows = build.broadcast(m.result, shape, places)
    spread = tuple(_spread(v.result, matrix, vectors, places, beside, shape))
    product = build.elementwise(MULTIPLY, rows.result, spread[-1].result)
    zero = build.splat(TensorType((), product.result.tensor.dtype), 0.0)
    total = build.reduce(SUM, product.result, zero.result, sorted(places[d] for d in matrix.contracted))
    yield from (m, v, rows, *spread, product, zero, replace(total, attrs={**total.attrs, **mark}))
    kept = [d for d in range(len(shape)) if d not in total.attrs["dimensions"]]
    free = [[places[d] for d in matrix.free], beside]
    first, second = free if is_left else reversed(free)
    turned = build.transpose(
        total.result, [kept.index(d) for d in (*(places[d] for d in matrix.batch), *first, *second)]
    )
    shaped = build.reshape(turned.result, op.result.shape)
    yield from (turned, shaped, build.convert(shaped.result, op.result.tensor.dtype))


def _wide(side: Side) -> DType:
    return max(side.value.tensor.dtype, DType.F32, key=lambda t: t.itemsize)


def _spread(
    v: Value, matrix: Side, vectors: Side, places: Sequence[int], beside: Sequence[int], shape: Sequence[int]
) -> Iterator[Op]:
    """Vectors, repeated for every row of the matrix. beside: their dimension there, if they are several."""
    own = dict(zip(vectors.paired, (places[d] for d in matrix.paired), strict=True))
    order = sorted(own, key=own.__getitem__)
    turned = build.transpose(v, (*order, *vectors.free))
    count = [shape[d] for d in beside]
    flat = build.reshape(turned.result, (*(v.shape[d] for d in order), *count))
    dims = [*(own[d] for d in order), *beside]
    sorted_dims = sorted(dims)
    between = build.transpose(flat.result, [dims.index(d) for d in sorted_dims])
    yield from (turned, flat, between, build.broadcast(between.result, shape, sorted_dims))
