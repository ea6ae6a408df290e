"""Loops that XLA:CPU makes one kernel of stay one; where kernels pay they stay; nobody asks without need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import jstitch
from benchmarks.workloads.loops import ode_loop, scalar_loop
from benchmarks.workloads.recurrent import layer, lstm
from jstitch.frontend import ask_xla, loop_gate
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.probe import compiled_text, make_program
from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops.build import elementwise
from jstitch.ir.types import DType, TensorType
from jstitch.runtime.cache import KernelCache
from jstitch.xla.cpu_thunks import ONE_KERNEL, thunks_of
from jstitch.xla.hlo import Module, parse_module
from tests.frontend.random_loops import random_loop

Function = Callable[..., Any]
KERNEL = 'custom_call_target="jstitch"'
STAY = ("recurrences", "chains")
QUICK_SEEDS, ALL_SEEDS = range(8), range(8, 60)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that XLA answers with; nothing is remembered from before."""
    answers: list[str] = []
    compiled_text = ask_xla.compiled_text

    def compiled(*args: Any) -> str:
        answers.append(compiled_text(*args))
        return answers[-1]

    monkeypatch.setattr(ask_xla, "compiled_text", compiled)
    monkeypatch.setattr(ask_xla, "_answers", ask_xla._Answers())
    monkeypatch.setattr(ask_xla, "kernel_store", lambda folder: KernelCache(tmp_path))
    return answers


def compiled(f: Function, args: Any, **options: Any) -> str:
    # A function that nobody has seen: it is lowered again. Loops that are kernels are in no question.
    chosen = jstitch.CompileOptions(strict=True, verify=True, without=STAY, **options)
    found = jstitch.jit(lambda *args: f(*args), options=chosen)
    return str(found.lower(*args).compile().as_text())


def loops(text: str) -> tuple[int, int]:
    """Those that are one kernel; those with calls of ours at their turns."""
    module = parse_module(text)
    bodies = [i.attribute("body") for i in _instructions(module) if i.opcode == "while"]
    ours = sum(any(KERNEL in t.rest for t in thunks_of(module.computations[b])) for b in bodies)
    return text.count(ONE_KERNEL), ours


def _instructions(module: Module) -> Iterator[Any]:
    return (i for scope in module.computations.values() for i in scope.instructions.values())


def one_kernel_stays_one(f: Function, args: Any) -> None:
    plain = str(jax.jit(f).lower(*args).compile().as_text())
    assert loops(compiled(f, args))[0] >= loops(plain)[0]
    leaves = (jax.tree.leaves(jitted(*args)) for jitted in (jstitch.jit(f), jax.jit(f)))
    for found, wanted in zip(*leaves, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("count", [4, 16])
def test_loops_of_scalars(count: int, gradient: bool) -> None:
    problem = scalar_loop(count, 50, gradient=gradient)
    one_kernel_stays_one(problem.function, problem.args)


@pytest.mark.parametrize("shape", [(2237, 50), (900, 128), (5000, 17)])
def test_what_is_made_beside_a_loop_is_a_kernel(shape: tuple[int, ...]) -> None:
    """As without the loop, which stays one kernel of XLA's."""

    def f(x: Array, a: Array) -> Any:
        return jax.nn.softmax(x), lax.fori_loop(0, 10, lambda _, s: jnp.sin(s) * 0.9, a)

    text = compiled(f, (jnp.ones(shape), jnp.ones(4)))
    assert KERNEL in text
    assert loops(text) == (1, 0)


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_random_loops(seed: int) -> None:
    one_kernel_stays_one(*random_loop(seed))


@pytest.mark.parametrize(
    "seed", [*QUICK_SEEDS[::3], *(pytest.param(s, marks=pytest.mark.slow) for s in ALL_SEEDS)]
)
def test_the_whole_question_has_the_same_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that which is not asked to the end because calls alone take too long."""
    f, args = random_loop(seed)
    found = loops(compiled(f, args))
    monkeypatch.setattr(loop_gate._Gate, "least", lambda *_: None)
    assert loops(compiled(f, args)) == found


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_more_random_loops(seed: int) -> None:
    one_kernel_stays_one(*random_loop(seed))


def branches(xs: Array) -> Any:
    """A turn of either branch is worth a kernel by itself."""

    def turn(carried: list[Array], x: Array) -> tuple[list[Array], Array]:
        carried = lax.cond(
            x > 0.5, lambda c: [jnp.tanh(v + x) for v in c], lambda c: [jnp.sin(v) * x for v in c], carried
        )
        return carried, carried[0]

    return lax.scan(turn, [jnp.float32(0.1 * k) for k in range(16)], xs)


def nested(xs: Array) -> Any:
    def turn(carried: list[Array], x: Array) -> tuple[list[Array], Array]:
        carried = lax.fori_loop(0, 20, lambda i, c: [jnp.sin(v * 0.9 + x) + 0.1 * v for v in c], carried)
        return [v / 1.1 + x for v in carried], sum(carried)

    return lax.scan(turn, [jnp.float32(0.1 * k) for k in range(16)], xs)


@pytest.mark.parametrize("f", [branches, nested])
def test_branches_and_loops_in_loops(f: Function) -> None:
    one_kernel_stays_one(f, (jnp.linspace(0.0, 1.0, 50),))


def test_off_keeps_every_pattern(asked: list[str]) -> None:
    problem = scalar_loop(16, 50, gradient=False)
    assert loops(compiled(problem.function, problem.args, tune="off")) == (0, 1)
    assert not asked


def test_kernels_of_an_lstm_stay(asked: list[str]) -> None:
    problem = layer(lstm, 4, 8, 256, 64)
    assert loops(compiled(problem.function, problem.args)) == (0, 1)
    assert len(asked) == 2
    assert "known_trip_count" in asked[1]  # the counter is XLA's, and it knows it


def test_equal_loops_are_asked_about_once(asked: list[str]) -> None:
    f, args = scalar_loop(16, 50, gradient=False).function, scalar_loop(16, 50, gradient=False).args
    compiled(f, args)
    assert len(asked) == 1
    compiled(lambda *args: f(*args) * 2.0, args)
    assert len(asked) == 1


def test_calls_that_take_longer_than_xlas_loop_are_no_question(asked: list[str]) -> None:
    """XLA is asked about its own loop alone; the verdict is what the whole question would have been."""
    problem = scalar_loop(16, 50, gradient=False)
    explain = jstitch.explain(problem.function, jstitch.CompileOptions(without=STAY))
    reasons = {str(edge.why) for edge in explain(*problem.args).open_edges}
    assert len(asked) == 1
    assert any("modelled at least" in why and "XLA makes it one kernel" in why for why in reasons)


def test_answers_outlive_the_process(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were given with the same flags."""
    problem = scalar_loop(16, 50, gradient=False)
    for flags, questions in ((None, 1), (None, 1), ("--xla_cpu_enable_fast_math=false", 2)):
        if flags is not None:
            monkeypatch.setenv("XLA_FLAGS", flags)
        monkeypatch.setattr(ask_xla, "_answers", ask_xla._Answers())
        assert loops(compiled(problem.function, problem.args)) == (1, 0)
        assert len(asked) == questions


def test_nobody_asks_where_the_answer_cannot_matter(asked: list[str]) -> None:
    def f(x: Array) -> Array:
        def turn(c: Array, _: None) -> tuple[Array, None]:
            e = jnp.exp(c - c.max(-1, keepdims=True))
            y = e / e.sum(-1, keepdims=True)
            return (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5), None

        return lax.scan(turn, x, None, length=3)[0]

    assert loops(compiled(f, (jax.ShapeDtypeStruct((4096, 1024), jnp.float32),)))[1] == 1
    assert not asked


def test_what_nobody_can_ask_about_is_xlas(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    def refuse(*args: Any) -> str:
        raise RuntimeError("no compiler today\nsays XLA")

    monkeypatch.setattr(ask_xla, "compiled_text", refuse)
    problem = ode_loop(10)
    assert loops(compiled(problem.function, problem.args))[1] == 0
    problem = layer(lstm, 4, 8, 256, 64)
    options = jstitch.CompileOptions(without=STAY)
    explained = jstitch.explain(problem.function, options)(*problem.args)
    reasons = {str(edge.why) for edge in explained.open_edges}
    assert "XLA cannot be asked about the loop around it: RuntimeError: no compiler today" in reasons


def test_what_the_user_holds_together_stays() -> None:
    @jstitch.fuse_together
    def step(c: list[Array], x: Array) -> list[Array]:
        return [jnp.tanh(a * 0.9 + x) for a in c]

    def f(xs: Array) -> Any:
        starts = [jnp.float32(0.1 * k) for k in range(4)]
        return lax.scan(lambda c, x: (step(c, x), None), starts, xs)

    assert loops(compiled(f, (jnp.linspace(0.0, 1.0, 50),)))[1] == 1


def test_nobody_hears_of_our_questions(
    asked: list[str], caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """A user who asks JAX what it traces and compiles, on every thread, sees the user's own programs."""
    problem = scalar_loop(16, 50, gradient=False)
    for name in ("jax_log_compiles", "jax_explain_cache_misses"):
        request.addfinalizer(partial(jax.config.update, name, getattr(jax.config, name)))
        jax.config.update(name, True)  # type: ignore[no-untyped-call]
    with caplog.at_level("WARNING"):
        compiled(problem.function, problem.args)
    assert asked
    assert caplog.records
    assert not [r.getMessage() for r in caplog.records if "probe" in r.getMessage()]


@pytest.mark.parametrize("turns", [0.0, 1.0, 2.0, 7.0])
def test_a_call_that_makes_all_that_a_loop_carries_stays_in_the_loop(turns: float) -> None:
    """XLA takes it for invariant where the body's results are the call's, and nothing else."""

    def f(start: Array, x: Array) -> Any:
        return lax.while_loop(lambda c: c[0] < 7.0, lambda c: (c[0] + 1.0, jnp.sin(c[1] + c[0])), (start, x))

    args = jnp.float32(7.0 - turns), jnp.arange(5.0)
    assert loops(compiled(f, args, tune="off")) == (0, 1)
    found = jstitch.jit(lambda *args: f(*args), options=jstitch.CompileOptions(tune="off"))(*args)
    for ours, xla in zip(found, jax.jit(f)(*args), strict=True):
        np.testing.assert_allclose(ours, xla, rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda body: body, jax.jit], ids=["inlined", "in a function"])
def test_so_does_that_in_a_loop_of_the_callers(wrap: Function) -> None:
    """As JAX's eager loops have it: their bodies alone are stitched."""
    options = jstitch.CompileOptions(tune="off", strict=True)
    body = wrap(jstitch.jit(lambda c: (c[0] + 1.0, jnp.sin(c[1] + c[0])), options=options))

    def f(start: Array, x: Array) -> Any:
        return lax.while_loop(lambda c: c[0] < 7.0, body, (start, x))

    args = jnp.float32(2.0), jnp.arange(5.0)
    assert loops(str(jax.jit(f).lower(*args).compile().as_text())) == (0, 1)
    expected = args
    while expected[0] < 7.0:
        expected = expected[0] + 1.0, jnp.sin(expected[1] + expected[0])
    for ours, wanted in zip(f(*args), expected, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5)


def test_what_xla_is_asked_is_not_stitched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program puts jstitch.jit in the place of jax.jit, too: it would ask again, without end."""
    x = Value(TensorType((4,), DType.F32))
    op = elementwise("stablehlo.exponential", x)
    program = make_program(Graph((x,), (op,), (op.result,)), emit_kernel)

    def ours(*_: Any, **__: Any) -> None:
        raise AssertionError("jax.jit was looked up when XLA was asked")

    monkeypatch.setattr(jax, "jit", ours)
    assert "HloModule" in compiled_text(program, jax.local_devices(backend="cpu")[0], {})
