"""Programs of two or three parts that are packed: the suite's programs at drawn shapes, and random ones.

    pack(seed)      Pack(parts: layer_norm_vjp [37, 1000] bf16, softmax [3, 9001], adamw of 5 tensors)

The first two parts have rows of the lengths that two teams are for; 66 seeds in a row go through all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.check import WrongResultError, require_equal
from benchmarks.workload import Problem, normal
from benchmarks.workloads import fused, norms, optimizers, quantize, softmax
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from tests.analysis import programs
from tests.codegen.cuda.large_graphs import make_columns, make_large, make_many_lanes
from tests.codegen.cuda.references import Expected
from tests.fuzz.programs import make_program
from tests.passes.random_graphs import Limits, arguments

Arrays = Sequence[np.ndarray]
ELEMENTS = 12_000  # of a part's largest array, about
# Row lengths for which a team of 1, 2, 4, ... 1024 threads is chosen, most often.
LENGTHS: Sequence[Sequence[int]] = (
    (1, 2, 4, 8),
    (8, 16),
    (3, 6, 12, 16, 32),
    (5, 7, 20, 28, 32, 64),
    (9, 11, 15, 44, 60, 64, 128),
    (17, 31, 33, 96, 100, 127, 128, 200, 256, 333, 511, 512),
    (513, 516, 640, 768, 777, 1000, 1023, 1024),
    (1025, 1032, 1100, 1536, 2000, 2047, 2048),
    (2049, 2056, 3000, 4000, 4093, 4096),
    (4097, 4104, 5000, 7001, 8000, 8192),
    (8193, 8200, 9001, 12000, 16384, 16411, 20000),
)
PAIRS = tuple(itertools.combinations_with_replacement(range(len(LENGTHS)), 2))
FLOATS = (np.float32, np.float32, jnp.bfloat16, np.float16)
ALONE = 13  # one program in so many is not packed; prime to the number of pairs
WIDE = FLOATS[:-1]  # for sums of cubes, which are no numbers of f16


@dataclass(frozen=True, eq=False)
class Part:
    """A program, and its arguments: `args(attempt)`. rough: a random one, of any size of numbers."""

    name: str
    graph: Graph
    args: Callable[[int], Arrays]
    tolerance: float
    rough: bool


@dataclass(frozen=True, eq=False)
class Pack:
    parts: tuple[Part, ...]

    @cached_property
    def graph(self) -> Graph:
        graphs = [p.graph for p in self.parts]
        return Graph(
            tuple(v for g in graphs for v in g.inputs),
            tuple(op for g in graphs for op in g.ops),
            tuple(v for g in graphs for v in g.outputs),
        )

    def args(self, attempt: int) -> list[np.ndarray]:
        return [a for p in self.parts for a in p.args(attempt)]

    def wrong(self, found: Arrays, attempt: int) -> str:
        """What is wrong with the outputs of a machine, part by part; empty where nothing is."""
        rest = list(found)
        messages = []
        for part in self.parts:
            own = [rest.pop(0) for _ in part.graph.outputs]
            message = _wrong(part, own, part.args(attempt))
            messages += [f"{part.name}: {message}"] if message else []
        return "; ".join(messages)

    def __str__(self) -> str:
        return ", ".join(p.name for p in self.parts)


def _wrong(part: Part, found: Arrays, args: Arrays) -> str | None:
    """Not what the interpreter gives, by the workloads' rule and by that of random programs."""
    if not part.rough:
        try:
            require_equal(tuple(found), interpret(part.graph, args), part.tolerance, part.name)
        except WrongResultError:
            pass
        else:
            return None
    expected = Expected(part.graph, args)
    message = expected.wrong(found)
    return None if expected.undecided else message


def pack(seed: int) -> Pack:
    """One program, of the same seed the same; now and then one of columns that has its kernel for itself.

    Packed, columns are seldom cut into strips, of which threads of a team share the sums.
    """
    random = Random(seed)
    if seed % ALONE == 7:
        return Pack((_part(_COLUMNS[seed // ALONE % len(_COLUMNS)], random, 0),))
    makers = [random.choice(_ROWS) for _ in range(2)]
    lengths = random.sample(PAIRS[seed % len(PAIRS)], 2)
    if seed % 3 == 0:
        makers[1] = _OTHERS[seed // 3 % len(_OTHERS)]
    if seed % 2:
        every = _OTHERS + _ROWS
        makers.append(every[seed // 2 % len(every)])
        lengths.append(random.randrange(len(LENGTHS)))
    return Pack(tuple(_part(make, random, k) for make, k in zip(makers, lengths, strict=True)))


# -- parts ------------------------------------------------------------------------------------------------

Make = Callable[[Random, int], "Problem | Graph"]


def _part(maker: tuple[str, Make], random: Random, length: int) -> Part:
    name, make = maker
    made = make(random, length)
    if isinstance(made, Graph):
        seed = random.randrange(1 << 30)
        specials = random.random() < 0.3
        return Part(name, made, lambda attempt: arguments(made, seed + attempt, specials), 0.0, True)
    graph = _graph(made)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(made.args)]
    shapes = " ".join(f"{x.dtype}{list(x.shape)}" for x in leaves[:3])
    return Part(f"{name} {shapes}", graph, partial(_shuffled, leaves), made.tolerance, False)


def _graph(problem: Problem) -> Graph:
    jitted = jax.jit(problem.function, keep_unused=True)
    return import_module(parse_module(jitted.lower(*problem.args).as_text()))


def _shuffled(leaves: Arrays, attempt: int) -> Arrays:
    """The arguments; floats in other places for other attempts."""
    if not attempt:
        return leaves
    rng = np.random.default_rng(attempt)
    is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]
    return [
        rng.permutation(x.reshape(-1)).reshape(x.shape) if f else x
        for x, f in zip(leaves, is_float, strict=True)
    ]


def _rows(random: Random, length: int) -> tuple[int, int]:
    """Rows of a length for that team; now and then a single one."""
    columns = random.choice(LENGTHS[length])
    most = max(2, min(300, ELEMENTS // columns))
    return (1 if random.random() < 0.06 else random.randint(2, most)), columns


def _columns(random: Random, length: int) -> tuple[int, int]:
    return random.choice((40, 64, 100, 257, 391)), random.choice((32, 33, 40, 48, 64, 96, 100, 128))


def _narrowed(random: Random, problem: Problem, floats: Sequence[Any] = FLOATS) -> Problem:
    """The problem in one of the floats."""
    dtype = random.choice(floats)

    def narrow(x: Any) -> np.ndarray:
        return np.asarray(x, dtype if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype)

    return replace(problem, args=jax.tree.map(narrow, problem.args))


def _of(
    make: Callable[..., Problem],
    shape: Callable[[Random, int], tuple[int, ...]] = _rows,
    floats: Sequence[Any] = FLOATS,
) -> Make:
    return lambda random, length: _narrowed(random, make(*shape(random, length)), floats)


def _of_rows(f: Callable[..., Any], *kinds: str) -> Make:
    """f of rows "r", vectors of columns "c", labels "l"."""

    def make(random: Random, length: int) -> Problem:
        rows, columns = _rows(random, length)
        labels = jnp.asarray(np.random.default_rng(rows).integers(0, columns, rows, dtype=np.int32))
        found = {"r": normal((rows, columns), 1), "c": normal((columns,), 2), "l": labels}
        return _narrowed(random, Problem(f, tuple(found[kind] for kind in kinds)))

    return make


def _turned(*sizes: tuple[int, int]) -> Make:
    """Operands across the direction of results, small ones now and then in planes."""

    def f(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        turned = jnp.exp(jnp.swapaxes(x, -1, -2))
        return turned + y, turned * y

    def make(random: Random, _: int) -> Problem:
        sides = random.choice(sizes)
        planes = (random.randint(2, 4),) * random.randrange(2 if sides[0] < 1000 else 1)
        args = normal((*planes, *sides)), normal((*planes, *sides[::-1]), 1)
        return _narrowed(random, Problem(f, args))

    return make


def _in_groups(random: Random, _: int) -> Problem:
    """Sums of neighbours inside of a row, and a row's largest of them."""
    shape = random.randint(2, 40), random.randint(2, 9), random.choice((32, 40, 64, 100))

    def f(x: jax.Array) -> jax.Array:
        sums = jnp.sum(x, -1, keepdims=True)
        return x / (1 + jnp.max(jnp.abs(sums), 1, keepdims=True)) + sums

    return _narrowed(random, Problem(f, (normal(shape),)))


def _many_partials(random: Random, _: int) -> Problem:
    """Sums of columns over so many rows that their partial results are many."""
    shape = random.choice(((1100, 256), (2111, 128), (4200, 64), (2800, 100)))

    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sum(x, 0), jnp.sum(x * x, 0)

    return Problem(f, (normal(shape),))


def sums_of_all_kinds(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Totals, sums of rows and sums of columns."""
    scale = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
    columns = jnp.sum(x * y, 0), jnp.sum(x, 0), jnp.sum(y * scale, 0)
    return jnp.sum(x * x), x * scale, *columns


def _all_kinds(random: Random, length: int) -> Problem:
    shape = random.randint(20, 64), random.choice((*LENGTHS[length], *LENGTHS[-1]))
    return _narrowed(random, Problem(sums_of_all_kinds, (normal(shape), normal(shape, 1))))


def _long(random: Random, _: int) -> Problem:
    """Rows that neither registers nor the arena have room for."""
    return softmax.softmax(random.randint(2, 3), random.choice((60_000, 65_537, 65_540, 90_000)))


def _optimizer(random: Random, _: int) -> Problem:
    transform = random.choice((optax.adamw, optax.lion, optax.lamb, partial(optax.sgd, momentum=0.9)))(1e-3)
    sizes = (1, 3, 8, 33, 64, 100)
    shapes = [tuple(random.choices(sizes, k=random.randint(0, 2))) for _ in range(4)]
    trees = [{str(n): normal(shape, seed + n) for n, shape in enumerate(shapes)} for seed in (0, 10)]

    def step(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return Problem(step, (trees[0], optimizers.warmed_up(transform, trees[0]), trees[1]))


def _clip(random: Random, length: int) -> Problem:
    """Sums over whole arrays of a few sizes, and what waits for their sum."""

    def clip(*xs: jax.Array) -> list[jax.Array]:
        scale = jnp.minimum(1.0, 1.0 / jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in xs)))
        return [x * scale for x in xs]

    return Problem(clip, tuple(normal(_rows(random, random.randrange(11)), n) for n in range(3)))


def _behind_a_product(f: Callable[..., Problem]) -> Make:
    """A column statistic in a launch of its own, since it waits for a product."""

    def make(random: Random, length: int) -> Problem:
        problem = f(*_columns(random, length))
        width = problem.args[0].shape[1]

        def g(weights: jax.Array, x: jax.Array, *others: jax.Array) -> Any:
            return problem.function(x @ weights, *others)

        return Problem(g, (normal((width, width), 7, width**-0.5), *problem.args))

    return make


def _grouped(random: Random, _: int) -> tuple[int, ...]:
    return random.randint(1, 3), random.choice((9, 49, 64)), random.choice((32, 64, 96))


def _scores(random: Random, _: int) -> tuple[int, ...]:
    return random.randint(1, 2), random.randint(1, 3), random.choice((8, 31, 40, 64))


def _heads(random: Random, _: int) -> tuple[int, ...]:
    return 1, random.choice((7, 32, 33)), random.randint(1, 4), random.choice((6, 16, 64))


def _softmax_of_columns(*shape: int) -> Problem:
    return Problem(partial(jax.nn.softmax, axis=0), (normal(shape, scale=3),))


def _sums_of_what_is_left(*shape: int) -> Problem:
    """Sums of columns by what was made of other sums of the same columns, twice."""

    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        above = jnp.where(x > jnp.mean(x, 0), x, 0)
        most = jnp.max(above, 0)
        return jnp.sum(jnp.where(above * 2 < most, above, 1), 0), jnp.sum(above, 0)

    return Problem(f, (normal(shape),))


def _long_columns(random: Random, _: int) -> tuple[int, int]:
    """So many rows that threads of a team share each column's sums."""
    return random.choice((64, 130, 333, 391)), random.choice((128, 130, 256, 260, 384, 517))


def _graphs(make: Callable[..., Graph]) -> Make:
    return lambda random, _: make(random.randrange(1 << 20))


_CROSS_ENTROPY = jax.value_and_grad(programs.cross_entropy)
_SMOOTHED = jax.value_and_grad(programs.smoothed_cross_entropy)
_RMS = partial(programs.pullback, programs.rms_residual)
_GELU = partial(programs.pullback, programs.gelu_residual_norm)
_ROW_PARTS: Mapping[str, Make] = {
    "layer_norm": _of(partial(norms.forward, norms.layer_norm)),
    "layer_norm_grad": _of(partial(norms.gradient, norms.layer_norm), floats=WIDE),
    "layer_norm_vjp": _of(partial(norms.pullback, norms.layer_norm)),
    "rms_norm": _of(norms.rms_forward),
    "rms_norm_grad": _of(norms.rms_gradient, floats=WIDE),
    "rms_residual_vjp": _of_rows(_RMS, "r", "r", "c", "r"),
    "softmax": _of(softmax.softmax),
    "log_softmax": _of(softmax.log_softmax),
    "cross_entropy_grad": _of_rows(_CROSS_ENTROPY, "r", "l"),
    "label_smoothed_grad": _of_rows(_SMOOTHED, "r", "l"),
    "quantize_rows": _of(quantize.quantize),
    "dequantize_rows": _of(quantize.dequantize),
    "gelu_bias_residual_layer_norm": _of(fused.gelu_bias_residual_layer_norm),
    "gelu_bias_residual_layer_norm_vjp": _of_rows(_GELU, "r", "c", "r", "c", "c", "r"),
    "dropout_residual_layer_norm": _of(fused.dropout_residual_layer_norm),
    "swiglu_grad": _of(fused.swiglu_grad),
}
_COLUMN_PARTS: Mapping[str, Make] = {
    "softmax of long columns": _of(_softmax_of_columns, _long_columns),
    "sums of what is left": _of(_sums_of_what_is_left, _long_columns, WIDE[:2]),
}
_OTHER_PARTS: Mapping[str, Make] = {
    **_COLUMN_PARTS,
    "batch_norm": _of(partial(norms.forward, norms.batch_norm), _columns),
    "batch_norm_grad": _of(partial(norms.gradient, norms.batch_norm), _columns, WIDE),
    "batch_norm_vjp": _of(partial(norms.pullback, norms.batch_norm), _columns),
    "softmax of columns": _of(_softmax_of_columns, _columns),
    "batch_norm behind a product": _behind_a_product(partial(norms.forward, norms.batch_norm)),
    "batch_norm_grad behind a product": _behind_a_product(partial(norms.gradient, norms.batch_norm)),
    "softmax of columns behind a product": _behind_a_product(_softmax_of_columns),
    "group_norm": _of(partial(norms.forward, norms.group_norm), _grouped),
    "group_norm_grad": _of(partial(norms.gradient, norms.group_norm), _grouped, WIDE),
    "masked_softmax": _of(softmax.masked_softmax, _scores),
    "rope": _of(fused.rope, _heads),
    "turned": _turned((64, 64), (64, 128), (33, 70), (9, 100), (70, 16), (60, 65), (130, 36)),
    "turned, in vectors": _turned((1024, 1024), (1000, 1090)),
    "in groups": _in_groups,
    "many partial results": _many_partials,
    "long rows": _long,
    "sums of all kinds": _all_kinds,
    "optimizer": _optimizer,
    "clip_global_norm": _clip,
    "a random program": _graphs(make_program),
    "a random program, medium": _graphs(lambda seed: make_program(seed, Limits(elements=4096))),
    "a random program, large": _graphs(make_large),
    "a random program of columns": _graphs(make_columns),
    "many random lanes": _graphs(make_many_lanes),
}
_ROWS, _OTHERS, _COLUMNS = (list(m.items()) for m in (_ROW_PARTS, _OTHER_PARTS, _COLUMN_PARTS))
