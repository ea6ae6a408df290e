"""Small programs in which an edge stays open: the rule, its numbers, and what closes the edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jstitch
from jstitch.device_spec import find_spec
from tests.passes.test_weigh_cuts import WHOLE, rooted

Array = jax.Array
Program = Callable[..., Any]
OFF: Mapping[str, Any] = {"tune": "off"}
LOOPS: Mapping[str, Any] = {"tune": "off", "without": ("recurrences",)}
NO_SORTS: Mapping[str, Any] = {"without": ("sorts",)}


def shape(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


X = shape(512, 512)
TALL = shape(4096, 1024)
SMALL = shape(64, 64)
ODD, WEIGHTS = shape(2285, 438), shape(438, 438)
COUNT = shape(dtype=jnp.int32)
NARROW = replace(find_spec("h200"), shared_optin=64)
KEY = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))


@dataclass(frozen=True)
class Lift:
    """What the remedy says, done. options: instead of the old ones. f, edge: None = as before."""

    options: Mapping[str, Any] = field(default_factory=lambda: OFF)
    f: Program | None = None
    edge: tuple[str, str] | None = None


@dataclass(frozen=True)
class Situation:
    """edge: the ops in question. says: patterns of the message. numbers: it has a bound, and what was found.

    lift: where the remedy is something that one can do.
    """

    name: str
    f: Program
    args: Sequence[Any]
    edge: tuple[str, str]
    rule: str
    says: str
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: bool = False
    lift: Lift | None = None


def norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def magnitude(x: Array) -> Array:
    return jnp.abs(-x)


def total(x: Array) -> Array:
    return jnp.tanh(x).sum()


def rows_then_columns(x: Array) -> Array:
    y = jax.nn.softmax(x)
    return y / y.sum(0, keepdims=True)


def rows_then_rows(x: Array) -> Array:
    y = jax.nn.softmax(x)
    return y / y.sum(1, keepdims=True)


def around_a_product(x: Array, w: Array) -> Array:
    y = jax.nn.softmax(x)
    return jnp.tanh(y @ w) + y


def beside_a_product(x: Array, w: Array) -> Array:
    return jnp.tanh(x @ w) + jax.nn.softmax(x)


def around_a_sort(x: Array) -> Array:
    y = jnp.exp(x)
    return jnp.sort(y) + y


def loop(x: Array) -> Array:
    return lax.while_loop(lambda c: c.sum() < 100, lambda c: jnp.exp(c) * 2 + 1, jnp.tanh(x)) * 2


def scan(x: Array, unroll: int = 1) -> Array:
    return lax.scan(lambda c, _: (jnp.sin(c) * 0.5, None), jnp.tanh(x), None, length=60, unroll=unroll)[0] * 2


def sorting_loop(x: Array) -> Array:
    return lax.scan(lambda c, _: (jnp.exp(jnp.sort(jnp.tanh(c))), None), x, None, length=50)[0]


def branch(x: Array) -> Array:
    return jnp.exp(lax.cond(x[0, 0] > 0, jnp.linalg.cholesky, jnp.cos, jnp.tanh(x)))


def branch_inside(x: Array) -> Array:
    return lax.cond(x[0, 0] > 0, lambda x: jnp.exp(jnp.sort(jnp.tanh(x))), jnp.cos, x)


def counted(x: Array) -> Any:
    return lax.while_loop(lambda c: c[1] < 1000, lambda c: (jnp.exp(c[0]) * 0.1, c[1] * 2 + 1), (x, 1))


def smoothed(x: Array) -> Array:
    """Each element of a turn is made of its neighbour below."""
    return lax.fori_loop(0, 60, lambda _, y: jnp.tanh(jnp.pad(y, ((0, 1), (0, 0)))[1:]), x)


def residual(x: Array, weights: Array) -> Array:
    y = jnp.tanh(x)
    return jnp.exp(y + jnp.sin(y @ weights) @ weights)


def printing(x: Array, late: bool = False) -> Array:
    y = jnp.tanh(x)
    z = jnp.exp(y) if late else y
    jax.debug.print("{}", z, ordered=True)
    return z if late else jnp.exp(y)


def calling_back(x: Array) -> Array:
    y = jax.pure_callback(lambda v: v, SMALL, jnp.tanh(x))
    return jnp.exp(y)


def overwriting(x: Array, y: Array, i: Array) -> Array:
    return jnp.exp(lax.dynamic_update_slice(jnp.tanh(x), jnp.tanh(y), (i, 0)))


def complex_size(x: Array) -> Array:
    return jnp.abs(jnp.sqrt(lax.complex(jnp.tanh(x) * 2, x)))


def real_size(x: Array) -> Array:
    return jnp.sqrt(jnp.sqrt(jnp.square(jnp.tanh(x) * 2) + jnp.square(x)))


def chain(x: Array) -> Array:
    for i in range(300):
        x = jnp.sin(x + i)
    return x


def repeating(x: Array) -> Any:
    y = jnp.exp(jnp.sum(x, 1))
    return y, jnp.broadcast_to(y[:, None, None], (512, 8, 8))


def odd_sum(x: Array) -> Array:
    return lax.reduce(jnp.exp(x), np.float32(0), lambda a, b: lax.igamma(a, b), (1,)) + 1


def even_sum(x: Array) -> Array:
    return lax.reduce(jnp.exp(x), np.float32(0), lambda a, b: a + b, (1,)) + 1


def together(x: Array) -> Array:
    return jstitch.fuse_together(lambda y: jnp.exp(y) + 1)(jnp.tanh(x)) * 2


def not_together(x: Array, w: Array) -> Array:
    return jstitch.fuse_together(lambda y: jnp.tanh(jnp.exp(y) @ w) + jnp.exp(y), strict=False)(x)


def many_arrays(*xs: Array) -> Array:
    return sum((jnp.exp(x) for x in xs), jnp.zeros(()))


def scaled_updates(c: Array, *xs: Array) -> list[Array]:
    k = jnp.sqrt(1 - c)
    return [jnp.sin(x / k) * x for x in xs]


def coupled_scalars(x: Array) -> tuple[Array, ...]:
    s = tuple(x[i] for i in range(16))
    for _ in range(10):
        s = tuple(jnp.tanh(a * 0.9 + 0.1 * b) for a, b in zip(s, s[1:] + s[:1], strict=True))
    return s


def scalar_loop(xs: Array) -> list[Array]:
    def turn(carried: list[Array], x: Array) -> tuple[list[Array], None]:
        return [jnp.tanh(a * 0.9 + x) for a in carried], None

    return lax.scan(turn, [jnp.float32(0.1 * k) for k in range(16)], xs)[0]


def computed_again(x: Array, v: Array, m: Array) -> tuple[Array, Array]:
    s = jnp.sum(x, 1)
    h = jnp.abs(s[:, None] * v)
    return ((h * h + 1) @ m) * h, s


def powers(x: Array) -> Array:
    """Dear to compute again."""
    p = jnp.power(jnp.power(jnp.power(x, x), x), x)
    return p / jnp.sum(p, -1, keepdims=True)


def dropped(x: Array, key: Array) -> Array:
    kept = jax.random.bernoulli(jax.random.fold_in(key, 3), 0.9, x.shape)
    return jnp.where(kept, jax.nn.softmax(x) / 0.9, 0.0)


def windowed(x: Array) -> Array:
    return jnp.exp(lax.reduce_window(jnp.tanh(x), -jnp.inf, lax.max, (33, 33), (1, 1), "SAME"))


def attention(x: Array, dtype: Any = jnp.float32, rows: int = 512) -> Array:
    x = x.astype(dtype)
    return jax.nn.softmax(x[:rows] @ x.T) @ x


def centred(x: Array) -> Array:
    return x - x.mean(0)


# -- ops that no pattern holds ----------------------------------------------------------------------------

OUTSIDE = (
    Situation(
        *("chain", lambda x, w: centred(jnp.tanh(x @ w) @ w), (X, X), ("dot_general", "subtract")),
        *("chain", "a chain of products is a kernel of its own", OFF),
    ),
    Situation(
        *("one product", lambda x, w: jnp.tanh(x) @ w, (X, X), ("tanh", "dot_general")),
        *("alone", "no other product's rows become its own"),
    ),
    Situation(
        *("products of f16", lambda x: attention(x, jnp.float16), (X,), ("divide", "dot_general")),
        *("product", "no kernel multiplies matrices of f16, f16, f16", OFF),
        lift=Lift(f=lambda x: attention(x, jnp.bfloat16)),
    ),
    Situation(
        *("rows that nothing divides", lambda x, w: jnp.tanh((x @ w)[::-1]) @ w, (ODD, WEIGHTS)),
        *(("dot_general", "reverse"), "tiles", "no step divides the rows but one of 5", OFF),
        lift=Lift(f=lambda x, w: jnp.tanh(x @ w) @ w, edge=("tanh", "dot_general")),
    ),
    Situation(
        *("products by a planner of the papers", lambda x, w: jnp.exp(jnp.tanh(x) @ w), (X, X)),
        *(("tanh", "dot_general"), "contraction", "dot_general is contraction", {"planner": "fs2021"}),
    ),
    Situation(
        *("convolution", lambda x, w: jnp.exp(lax.conv(x, w, (1, 1), "SAME"))),
        *((shape(1, 8, 64, 64), shape(8, 8, 3, 3)), ("convolution", "exponential")),
        *("contraction", "convolution is contraction"),
    ),
    Situation("while", loop, (X,), ("while", "multiply"), "recurrence", "how many turns the loop has"),
    Situation(
        *("scan", scan, (SMALL,), ("tanh", "while"), "control", "while is control", LOOPS),
        lift=Lift(f=lambda x: scan(x, 60), edge=("tanh", "sine")),
    ),
    Situation("branch", branch, (SMALL,), ("tanh", "case"), "control", "case is control"),
    Situation(
        *("sort", lambda x: jnp.exp(jnp.sort(jnp.tanh(x))), (SMALL,), ("tanh", "sort")),
        *("sort", "a sort is a kernel of its own"),
    ),
    Situation(
        *("sort of XLA's", lambda x: jnp.exp(jnp.sort(jnp.tanh(x))), (SMALL,), ("tanh", "sort")),
        *(
            "opaque",
            "passes know stablehlo.sort by its attributes, but no kernel has it: left to XLA",
            NO_SORTS,
        ),
        lift=Lift(f=lambda x: jnp.exp(jnp.tanh(jnp.sort(x))), edge=("tanh", "exponential")),
    ),
    Situation("in a loop", sorting_loop, (SMALL,), ("tanh", "sort"), "sort", "a sort is a kernel of its own"),
    Situation(
        "in a branch",
        branch_inside,
        (SMALL,),
        ("sort", "exponential"),
        "sort",
        "a sort is a kernel of its own",
    ),
    Situation(
        *("Fourier transform", lambda x: jnp.fft.fft(jnp.tanh(x)).real, (SMALL,), ("complex", "fft")),
        *("opaque", "the op table has no stablehlo.fft"),
    ),
    Situation(
        *("custom call", lambda x: jnp.linalg.cholesky(jnp.tanh(x)), (SMALL,), ("divide", "custom_call")),
        *("opaque", "no stablehlo.custom_call to lapack_spotrf_ffi"),
    ),
    Situation(
        *("random bits", lambda k: jnp.exp(jax.random.uniform(k, (64, 64))), (KEY,)),
        *(("rng_bit_generator", "shift_right_logical"), "opaque", "no stablehlo.rng_bit_generator"),
    ),
    Situation(
        *("callback that is pure", calling_back, (SMALL,), ("tanh", "custom_call")),
        *("opaque", "no stablehlo.custom_call to .*callback"),
    ),
    Situation(
        *(
            "scatter",
            lambda x, i, y: jnp.tanh(x).at[i].add(y),
            (X, shape(77, dtype=jnp.int32), shape(77, 512)),
        ),
        *(("tanh", "scatter"), "opaque", "stablehlo.scatter by its attributes, but no kernel has it"),
    ),
    Situation(
        *("wide window", windowed, (shape(164, 164),), ("tanh", "reduce_window")),
        *("opaque", "stablehlo.reduce_window by its attributes, but no kernel has it"),
    ),
    Situation(
        *("print", printing, (SMALL,), ("tanh", "custom_call"), "effect"),
        r"custom_call to \S*callback\S* has, or may have, an effect",
        lift=Lift(f=lambda x: printing(x, late=True), edge=("tanh", "exponential")),
    ),
    Situation(
        *("complex", complex_size, (SMALL,), ("complex", "sqrt"), "type", "complex<f32>"),
        lift=Lift(f=real_size, edge=("tanh", "multiply")),
    ),
    Situation(
        *("four bits", lambda x: jnp.tanh(x).astype(jnp.int4).astype(jnp.float32), (SMALL,)),
        *(("tanh", "convert"), "type", "type i4"),
        lift=Lift(f=lambda x: jnp.tanh(x).astype(jnp.int8).astype(jnp.float32)),
    ),
    Situation(
        *("eight-bit float that no kernel has", lambda x: jnp.tanh(x).astype(jnp.float8_e5m2fnuz), (SMALL,)),
        *(("tanh", "convert"), "type", "f8E5M2FNUZ"),
        lift=Lift(f=lambda x: jnp.tanh(x).astype(jnp.float8_e5m2)),
    ),
    Situation(
        *("no elements", lambda x: jnp.exp(jnp.tanh(x)), (shape(0, 64),), ("tanh", "exponential")),
        *("empty", "tensor<0x64xf32>: 0 elements, at least 1"),
        numbers=True,
    ),
    Situation(
        *("no expression", lambda x: jax.scipy.special.polygamma(2, jnp.exp(x)), (SMALL,)),
        *(("exponential", "polygamma"), "expression", "polygamma has no kernel expression.*64x64xf32"),
        lift=Lift(f=lambda x: jax.scipy.special.digamma(jnp.exp(x)), edge=("exponential", "digamma")),
    ),
    Situation(
        *("odd reducer", odd_sum, (SMALL,), ("exponential", "reduce"), "expression"),
        *(r"reduce combines by stablehlo\.\w+, which has no kernel expression", OFF),
        lift=Lift(f=even_sum),
    ),
    Situation(
        *("update in place", overwriting, (X, shape(8, 512), COUNT), ("tanh", "dynamic_update_slice")),
        *("in place", "would copy tensor<512x512xf32>"),
    ),
    Situation(
        *("a loop's counter", counted, (X,), ("multiply", "add"), "counter", "counts the turns"),
        {"target": "h200"},
    ),
    Situation(
        *("turns of a stencil", smoothed, (X,), ("tanh", "turn_end"), "turns", "XLA has to copy it"),
        {"without": ("recurrences",)},
    ),
    Situation(
        *("a residual block's sum", residual, (SMALL, SMALL), ("add", "exponential"), "library"),
        *("is added while the library multiplies", {"target": "h200"}),
    ),
)

# -- what the user said -----------------------------------------------------------------------------------

SAID = (
    Situation(
        *("no_fuse", lambda x: jnp.exp(jstitch.no_fuse(jnp.tanh(x))), (X,), ("tanh", "no_fuse")),
        *("user", r"no_fuse at .*situations\.py:\d+", OFF),
        lift=Lift(f=lambda x: jnp.exp(jnp.tanh(x)), edge=("tanh", "exponential")),
    ),
    Situation(
        *("fuse_together", together, (X,), ("tanh", "exponential"), "user", "a kernel of its own", OFF),
        lift=Lift(f=lambda x: (jnp.exp(jnp.tanh(x)) + 1) * 2),
    ),
    Situation(
        *("fuse_together in vain", not_together, (SMALL, SMALL), ("exponential", "add"), "user"),
        r"fuse_together.* cannot be one kernel: stablehlo.dot_general at .*situations\.py:\d+",
        OFF,
    ),
    Situation(
        *("no threads", jax.nn.softmax, (X,), ("exponential", "divide"), "scheme", "needs 'thread'"),
        {"schemes": ("warp", "block", "packing"), **OFF},
        lift=Lift({"schemes": ("warp", "block", "packing", "thread"), **OFF}),
    ),
    Situation(
        *("no blocks", jax.nn.softmax, (X,), ("reduce", "broadcast_in_dim"), "scheme", "needs 'block'"),
        {"schemes": ("thread", "packing"), **OFF},
        lift=Lift({"schemes": ("thread", "packing", "block"), **OFF}),
    ),
    Situation(
        *("no blocks on the other way", powers, (X,), ("power", "divide"), "scheme"),
        "what else the consumer waits for a kernel needs 'block' or 'warp'",
        {"schemes": ("thread",), "target": "h200", **OFF},
        lift=Lift({"schemes": ("thread", "block"), "target": "h200", **OFF}),
    ),
)

# -- plans ------------------------------------------------------------------------------------------------

PLANNED = (
    Situation(
        *("schedules clash", rows_then_columns, (TALL,), ("reduce", "broadcast_in_dim")),
        *("schedule", "every block would need all of a reduction; and one kernel .* us, two take"),
        numbers=True,
        lift=Lift(f=rows_then_rows),
    ),
    Situation(
        *("one kernel is slower", rows_then_columns, (TALL,), ("exponential", "divide")),
        *("merge", r"one kernel for both is modelled to take [\d,.]+ us, two take [\d,.]+ us"),
        numbers=True,
    ),
    Situation(
        *("too little in common", scaled_updates, (shape(), *[SMALL] * 200), ("sqrt", "broadcast_in_dim")),
        *("merge", "the kernels on its sides share 4 bytes, at least 256 are wanted", OFF),
        numbers=True,
    ),
    Situation(
        *("a product between", around_a_product, (X, X), ("divide", "add")),
        *("cycle", r"would wait for stablehlo.dot_general at .*situations\.py:\d+ \(around_a_product\)"),
        lift=Lift(f=beside_a_product),
    ),
    Situation(
        *("a sort between", around_a_sort, (X,), ("exponential", "add")),
        *("cycle", r"would wait for stablehlo.sort at .*situations\.py:\d+ \(around_a_sort\)", NO_SORTS),
        lift=Lift(f=lambda x: jnp.exp(jnp.sort(x)) + jnp.exp(x)),
    ),
    Situation(
        *("a product between, dp", around_a_product, (X, X), ("divide", "add"), "cycle", "dot_general"),
        {"planner": "dp"},
    ),
    Situation(
        *("a product between, ilp", around_a_product, (X, X), ("divide", "add"), "cycle", "dot_general"),
        {"planner": "ilp"},
    ),
    Situation(
        *("does not pay", lambda x: jnp.exp(x) + 1, (shape(4096, 4096),), ("exponential", "add"), "gate"),
        r"modelled .* us .*, and must be less than .* us, 0.95 of XLA's .* 1 kernel\)",
        {"target": "h200"},
        numbers=True,
        lift=Lift({"target": "h200", **OFF}),
    ),
    Situation(
        *("too small to pay", magnitude, (shape(8, 8),), ("negate", "abs"), "gate"),
        *(r"modelled .* us .*, and must be less than .* us", {}, True, Lift()),
    ),
    Situation(
        *(
            "a kernel of XLA's cut",
            rooted,
            (shape(128, 512, dtype=jnp.complex64),),
            ("multiply", "add"),
            "cut",
        ),
        r"modelled .* us, and must be less than .* us, 0.95 of what XLA takes longer with these ops in its",
        *({"without": WHOLE}, True, Lift()),
    ),
    Situation(
        *("a loop of scalars", scalar_loop, (shape(614),), ("add", "tanh"), "loop"),
        r"the loop around it is modelled at least [\d,.]+ us with kernels, and must be less than [\d,.]+ us,"
        r" 0.95 of [\d.]+ us without: XLA makes it one kernel",
        *({"without": ("recurrences",)}, True, Lift(LOOPS)),
    ),
    Situation(
        *("scalars", coupled_scalars, (shape(16),), ("add", "tanh"), "small"),
        r"work on scalars: modelled [\d.]+ us as XLA's \d+ kernels, and [\d.]+ us as a call",
        *({}, True, Lift()),
    ),
    Situation(
        *("only moves data", repeating, (shape(512, 64),), ("exponential", "broadcast_in_dim")),
        *("trim", "in memory anyway"),
    ),
    Situation(
        *("only moves data, ilp", repeating, (shape(512, 64),), ("exponential", "broadcast_in_dim")),
        *("trim", "in memory anyway", {"planner": "ilp"}),
    ),
    Situation(
        *("computed again", computed_again, (shape(512, 64), shape(512), X), ("reduce", "broadcast_in_dim")),
        *("recompute", "computed again from a value that stays in memory", {"target": "h200", **OFF}),
    ),
    Situation(
        *("few numbers", dropped, (X, shape(2, dtype=jnp.uint32)), ("xor", "broadcast_in_dim")),
        *("prologue", "would wait for these few numbers", {"target": "h200", **OFF}),
    ),
    Situation(
        *("too many ops", chain, (SMALL,), ("sine", "add"), "size", "900 ops, the bound is 400", OFF),
        numbers=True,
    ),
    Situation(
        *("too many arrays", many_arrays, (SMALL,) * 600, ("add", "add"), "size"),
        *("ops, the bound is 400", {"target": "h200", **OFF}, True),
    ),
    Situation(
        *("ilp: others save more", rows_then_columns, (TALL,), ("reduce", "broadcast_in_dim")),
        *("selection", "saves .* us, those chosen instead .* us", {"planner": "ilp"}),
        numbers=True,
    ),
    Situation(
        *("ilp: saves nothing", total, (shape(8, 8),), ("tanh", "reduce"), "score"),
        *(r"saves -[\d.]+ us", {"planner": "ilp", "target": "h200"}),
        numbers=True,
    ),
    Situation(
        *("dp: nothing better", rows_then_columns, (TALL,), ("reduce", "broadcast_in_dim")),
        *("search", r"saves more than the patterns on its sides do, [\d,.]+ us", {"planner": "dp"}),
    ),
)

# -- kernels ----------------------------------------------------------------------------------------------

KERNELS = (
    Situation(
        *("arena too small", norm, (shape(64, 512),), ("rsqrt", "broadcast_in_dim"), "arena"),
        *(r"needs 128 bytes .*t0: 4.*multiples of 64.*arena_bytes is 16", {"arena_bytes": 16, **OFF}, True),
        Lift({"arena_bytes": 128, **OFF}),
    ),
    Situation(
        *("no shrinking", lambda x: norm(jnp.tanh(jax.nn.softmax(x)) ** 1.5), (shape(64, 512),)),
        *(("reduce", "broadcast_in_dim"), "shrinking", r"4,112 bytes of an arena of 4,096, .*switched off"),
        *({"arena_bytes": 4096, "without": ("shrinking",), **OFF}, True),
        Lift({"arena_bytes": 4096, **OFF}),
    ),
    Situation(
        *("shared memory too small", norm, (shape(64, 51200),), ("rsqrt", "broadcast_in_dim")),
        *("shared memory", "bytes of shared memory for a CTA, the target has 64"),
        *({"target": NARROW, **OFF}, True),
        Lift({"target": "h200", **OFF}),
    ),
    Situation(
        *("a template that does not fit", jax.nn.softmax, (shape(64, 512),), ("exponential", "divide")),
        *("template", "at most 64 rows, in whole steps, found 400 programs"),
        *({"template": "reduce_0[GRID_400, THREAD]S;", **OFF}, False),
        Lift({"template": "reduce_0[GRID_4, THREAD]S;", **OFF}),
    ),
)

SITUATIONS = (*OUTSIDE, *SAID, *PLANNED, *KERNELS)
