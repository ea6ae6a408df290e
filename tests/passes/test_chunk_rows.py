"""Rows of large intermediates in chunks: the same results, less memory, a reason where it is not done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops.links import linked
from jstitch.ir.verify import check
from jstitch.passes.chunk.chunk_rows import WHOLE, chunk_rows, chunks_of
from jstitch.passes.chunk.find_rows import CannotCutError, Index, find_rows
from jstitch.passes.graph.batch_gathers import batch_gathers
from jstitch.passes.pipeline import PIPELINE, run
from tests.contexts import CPU_PROFILE, H200, on
from tests.passes.chunk_programs import PICKS, program
from tests.passes.test_own_columns import graph_of

Array = Any
EAGER = {"least": 1, "longer": math.inf}
CONTEXT = on(CPU_PROFILE, without=("chunk_rows", "chains"))


def _chunked(f: Any, args: Sequence[Any], **settings: Any) -> tuple[Graph, Graph]:
    """The graph before, and after the pass."""
    graph = graph_of(f, args, CONTEXT)
    return graph, check(chunk_rows(graph, CONTEXT, **settings), "chunk_rows")


@pytest.mark.parametrize("seed", range(60))
def test_drawn_programs_keep_their_results(seed: int) -> None:
    f, args = program(seed)
    before, after = _chunked(f, args, **EAGER)
    narrow = any(a.dtype == jnp.bfloat16 for a in args)
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=(2e-2 if narrow else 1e-5) * max(1.0, abs(a).max()))


def test_most_drawn_programs_are_chunked() -> None:
    assert sum(bool(chunks_of(_chunked(*program(seed), **EAGER)[1])) for seed in range(8)) >= 6


@pytest.mark.parametrize("seed", range(6))
def test_drawn_programs_on_this_machine(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole pipeline, beside kernels."""
    for name, value in EAGER.items():
        monkeypatch.setitem(chunk_rows.__kwdefaults__, name, value)
    f, args = program(seed)
    options = jstitch.CompileOptions(strict=True, verify=True, without=("chains",), tune="off")
    found, wanted = jstitch.jit(f, options=options)(*args), jax.jit(f)(*args)
    narrow = any(a.dtype == jnp.bfloat16 for a in args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=(2e-2 if narrow else 1e-5) * max(1.0, abs(b).max()))


ROWS, WIDTH, CLASSES = 8192, 256, 32000


def _loss(pick: Any, classes: int = CLASSES) -> Any:
    def loss(x: Array, w: Array, y: Array) -> Array:
        z = (x @ w).astype(jnp.float32)
        return (jax.nn.logsumexp(z, -1) - pick(z, y)).mean()

    return jax.value_and_grad(loss, (0, 1))


def _arguments(rows: int = ROWS, width: int = WIDTH, classes: int = CLASSES, dtype: Any = jnp.float32) -> Any:
    shapes = ((rows, width), dtype), ((width, classes), dtype), ((rows,), jnp.int32)
    return [jax.ShapeDtypeStruct(*s) for s in shapes]


@pytest.mark.parametrize("pick", PICKS)
def test_a_linear_layer_and_its_loss_leave_a_tenth_of_the_memory(pick: Any) -> None:
    """By default. XLA's own count of temporary memory."""
    f, args = _loss(pick), _arguments()
    plain, ours = (g.lower(*args).compile().memory_analysis() for g in (jax.jit(f), jstitch.jit(f)))
    assert ours.temp_size_in_bytes <= plain.temp_size_in_bytes / 10


def test_a_large_loss_is_chunked_on_a_gpu() -> None:
    args = _arguments(32768, 2560, 128256, jnp.bfloat16)
    graph = graph_of(_loss(PICKS[0], 128256), args, H200)
    (text,) = chunks_of(graph)
    assert "in 16 chunks of 2048 rows" in text


def test_small_losses_are_not_chunked() -> None:
    assert not chunks_of(graph_of(_loss(PICKS[0]), _arguments(128), on(CPU_PROFILE)))


def _returned(x: Array, w: Array) -> Array:
    return jax.nn.softmax(x @ w)


def _normalised(x: Array, w: Array) -> Array:
    z = jnp.tanh(x @ w)
    return (z - z.mean()) @ w.T  # the mean over all rows is needed for each


def _over_both(x: Array, w: Array) -> Array:
    z = jnp.tanh(x @ w)
    z = (z - z.mean(0)) / (1 + abs(z).max(1, keepdims=True))
    return z @ w.T


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (_returned, "the caller wants tensor<24x40xf32> whole"),
        (_normalised, "stablehlo.divide is needed for rows, and needs a sum over them"),
        (_over_both, "stablehlo.reduce needs all rows of tensor<24x40xf32>"),
    ],
)
def test_values_that_are_wanted_whole_stay_so_for_a_reason(f: Any, why: str) -> None:
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((24, 4), (4, 40))]
    before, after = _chunked(f, args, **EAGER)
    assert not chunks_of(after)
    found = [op.attrs[WHOLE] for op in after.ops if WHOLE in op.attrs]
    assert any(why in text for text in found), found
    assert [op.name for op in before.ops] == [op.name for op in after.ops]


def test_plans_and_explanations_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EAGER.items():
        monkeypatch.setitem(chunk_rows.__kwdefaults__, name, value)
    f, args = _loss(PICKS[0], 64), _arguments(96, 3, 64)
    text = "tensor<96x64xf32>, 0.0 MB, is made in 32 chunks of 3 rows"
    options = jstitch.CompileOptions(without=("chains",))
    assert text in str(jstitch.plan(f, options=options)(*args))
    explanation = jstitch.explain(f, options=options)(*args)
    assert text in str(explanation)
    assert explanation.to_json()["calls"][0]["chunks"] == [text]
    jstitch.jit(f, options=options).lower(*args)
    assert jstitch.last_report()[-1].details["chunked"] == (text,)


def test_chunks_stay_where_no_kernel_does() -> None:
    """As many kernels of ours as XLA's: the loop alone is worth it."""
    f, args = _loss(PICKS[0]), _arguments()
    options = jstitch.CompileOptions(schemes=(), strict=True)
    memory = jstitch.jit(f, options=options).lower(*args).compile().memory_analysis()
    assert memory.temp_size_in_bytes <= ROWS * CLASSES * 4 / 4


def test_infinite_and_missing_numbers_come_out_alike() -> None:
    """In the rows that have them, and in sums; an inf of one row is no other row's."""
    f = jax.value_and_grad(lambda x, w: jax.nn.logsumexp(x @ w, -1).sum(), (0, 1))
    x, w = np.ones((16, 4), np.float32), np.ones((4, 64), np.float32)
    x[3, 1], x[9, 0] = np.inf, np.nan
    before, after = _chunked(f, [x, w], **EAGER)
    assert chunks_of(after)
    for a, b in zip(interpret(before, [x, w]), interpret(after, [x, w]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("algorithm", [None, "BF16_BF16_F32"])
def test_narrow_sums_are_added_in_f32(algorithm: str | None) -> None:
    """Parts of a gradient in bf16 would lose what is small."""

    def f(x: Array, w: Array) -> Array:
        p = jax.nn.softmax(x @ w)
        return jax.lax.dot_general(p, x, (((0,), (0,)), ((), ())), precision=algorithm)

    args = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((512, 8), (8, 64))]
    _, after = _chunked(f, args, **EAGER)
    (loop,) = (op for op in after.ops if op.name == "stablehlo.while")
    assert "f32" in {v.tensor.dtype.value for v in loop.results}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.uint8, jnp.int32, jnp.float32])
def test_numbers_of_rows_are_rounded_once(dtype: Any) -> None:
    """Also where neither a chunk's first row nor the distance from it is a number of the type."""

    def f(x: Array, w: Array) -> Array:
        z = jnp.tanh(x @ w)
        return (z + jax.lax.broadcasted_iota(dtype, z.shape, 0).astype(jnp.float32)).max(1)

    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(shape, np.float32) for shape in ((5000, 3), (3, 24))]
    before, after = _chunked(f, args, **EAGER)
    assert chunks_of(after)
    np.testing.assert_array_equal(interpret(before, args)[0], interpret(after, args)[0])


def test_an_op_is_cut_where_its_index_map_says_so() -> None:
    f = lambda x, y: jnp.pad(x, ((0, 0), (1, 2)))[:, 2:] + y.T  # noqa: E731
    graph = graph_of(f, [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((6, 8), (9, 6))], CONTEXT)
    links = {op.name.partition(".")[2]: (linked(op, 0), linked(op, 1)) for op in graph.ops}
    assert links["pad"] == ((0, None), None)
    assert links["slice"] == ((0,), None)
    assert links["transpose"] == ((1,), (0,))


def test_rows_by_number_are_batches() -> None:
    """x[arange, y] needs no other row, and is right."""
    x, y = np.random.default_rng(0).random((5, 7, 3)).astype(np.float32), np.array([0, 6, -1, 3, 9], np.int32)
    for f in (
        lambda x, y: x[jnp.arange(5), y],
        lambda x, y: x[jnp.arange(5), :, y % 3],
        lambda x, y: x[jnp.arange(5)[:, None], y[:, None], jnp.arange(3)[None]],
        lambda x, y: x[:, :5][y % 5, jnp.arange(5)],
    ):
        context = on(CPU_PROFILE, without=("batch_gathers",))
        plain = run(graph_of(f, [x, y], context), context, PIPELINE)
        batched = check(batch_gathers(plain), "batch_gathers")
        gathers = [op for op in batched.ops if op.name == "stablehlo.gather"]
        assert all(op.attrs["operand_batching_dims"] for op in gathers), gathers
        np.testing.assert_array_equal(interpret(batched, [x, y])[0], jax.jit(f)(x, y))


def test_what_no_op_makes_by_rows_says_so() -> None:
    f = lambda x, w: jnp.sort(x @ w, 0) @ w.T  # noqa: E731
    graph = graph_of(f, [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((24, 4), (4, 40))], CONTEXT)
    product = next(op for op in graph.ops if op.name == "stablehlo.dot_general")
    with pytest.raises(CannotCutError, match="sort"):
        find_rows(Index.of(graph), product.result, 0)
