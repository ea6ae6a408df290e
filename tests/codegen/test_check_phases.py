"""The check of a CPU's phases finds what is broken in them, and nothing in what is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cpu import emit as emitter
from jstitch.codegen.cpu.check_phases import check_phases
from jstitch.codegen.cpu.launch_phases import launch_phases
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.launch_calls import Multiply, SortItems
from jstitch.codegen.launch_ir import (
    Address,
    Barrier,
    For,
    Integer,
    KernelCode,
    PhaseCode,
    Prefetch,
    Read,
    Scope,
    Statement,
    Stream,
    Write,
)
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.index import Var, add, const, mul, var
from jstitch.ir.types import DType
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.schedule import stream_results
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.codegen.statements import Change, changed, first, statements
from tests.contexts import CPU, CPU_PROFILE, on

Array = jax.Array
EVERYTHING = on(CPU_PROFILE, tune="off")


def shape(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def kernels(f: Callable[..., Any], *args: Any) -> list[Kernel]:
    graph = run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)
    patterns = plan_frame(graph, EVERYTHING).patterns
    made = (lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE) for p in patterns)
    return [schedule_kernel(kernel, CPU) for kernel in made]


def norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def tiles_of_rows(x: Array) -> Array:
    """Rows so short that several are taken at a time, in tiles."""
    return jax.nn.softmax(x) / (1.0 + jnp.max(jax.nn.softmax(x * 2.0), -1, keepdims=True))


def two_types(x: Array) -> tuple[Array, Array]:
    """Streamed: elements of 2 and of 4 bytes, block by block."""
    return (x * 3.0).astype(jnp.bfloat16), jnp.minimum(x, 0.0)


def updates(*xs: Array) -> list[Array]:
    """Lanes that share their code, beside others."""
    return [jnp.tanh(x) * 2.0 for x in xs] + [jax.nn.softmax(xs[0].reshape(8, -1))]


def attention(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2), -1) @ v


PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[jax.ShapeDtypeStruct]]] = {
    "rows": (norm, (shape(1024, 1536),)),
    "tiles": (tiles_of_rows, (shape(4096, 24),)),
    "blocks": (two_types, (shape(40001),)),
    "packed": (updates, (shape(512),) * 3),
    "columns": (lambda x: jax.nn.softmax(x, 0), (shape(300, 4000),)),
    "words": (lambda x: jnp.tanh(x) * 2, (shape(999, 64, dtype=jnp.bfloat16),)),
    "sums": (lambda x: jax.nn.softmax(x).sum(0), (shape(500, 96),)),
    "products": (attention, (shape(3, 48, 16), shape(3, 70, 16), shape(3, 70, 40))),
    "sorted": (lambda x: jnp.sort(x), (shape(40, 300),)),
    "gathered": (lambda t, i: jnp.tanh(t[i]) * 2.0, (shape(1000, 40), shape(77, dtype=jnp.int32))),
}


def codes(name: str, monkeypatch: pytest.MonkeyPatch) -> list[KernelCode]:
    """Of a program whose results are past every cache, and none too small to be streamed."""
    monkeypatch.setattr(stream_results, "last_level_cache", lambda: 0)
    monkeypatch.setattr(stream_results, "SMALL", 0)
    f, args = PROGRAMS[name]
    return [launch_phases(kernel) for kernel in kernels(f, *args)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_built_is_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = codes(name, monkeypatch)
    assert found
    assert [check_phases(code) for code in found] == [()] * len(found)


def always(_: object) -> bool:
    return True


def one_more(s: For) -> For:
    return replace(s, high=add(s.high, const(1)))


def one_further(s: Read | Write) -> Statement:
    return replace(s, at=add(s.at, const(1)))


def as_gpu(s: Statement) -> Statement:
    return Barrier(Scope.CTA, "nobody is here")


def named(*names: str) -> Callable[[Any], bool]:
    return lambda s: s.name in names


def more(by: int) -> Callable[[Any], Statement]:
    return lambda s: replace(s, value=s.value + by)


def result_elsewhere(s: Multiply) -> Multiply:
    return replace(s, result=replace(s.result, at=s.result.at + 1))


def right_too_wide(s: Multiply) -> Multiply:
    m, n, k = s.sizes
    return replace(s, sizes=(m, n + 1, k))


DEFECTS: dict[str, tuple[str, Change, str]] = {
    "a row too many": ("rows", first(Integer, more(1), named("hi")), "may touch bytes"),
    "an element too far": ("rows", first(Write, one_further, always), "may touch bytes"),
    "a read before the buffer": (
        "columns",
        first(Read, lambda s: replace(s, at=s.at - 1), always),
        "may touch bytes",
    ),
    "rows of a tile too many": ("tiles", first(For, one_more, named("r")), "may touch bytes"),
    "a tile in the next one's bytes": (
        "tiles",
        first(Address, lambda s: replace(s, offset=s.offset + 100_000), lambda s: s.number is None),
        "ends at byte",
    ),
    "bytes of another type": (
        "blocks",
        first(Stream, lambda s: replace(s, nbytes=mul(s.nbytes, 2)), always),
        "copies",
    ),
    "a block longer than its tile": ("blocks", first(Integer, more(1), named("end")), "copies"),
    "another lane's tasks": ("packed", first(Integer, more(1000), named("lane")), "Address: pointer"),
    "a pointer that the table has not": (
        "sums",
        first(Address, lambda s: replace(s, number=const(99)), always),
        "pointer 99 of",
    ),
    "words behind the last pair": ("words", first(Write, one_further, always), "may touch bytes"),
    "a name that nothing defines": ("rows", first(Integer, lambda _: None, named("lo")), "lo may"),
    "a pointer that nothing defines": ("rows", first(Address, lambda _: None, always), "is no pointer"),
    "a line of nobody's": (
        "rows",
        first(Prefetch, lambda s: replace(s, pointer="b77"), always),
        "b77 is no pointer",
    ),
    "a barrier": ("rows", first(Write, as_gpu, always), "no statement of this target"),
    "a sort of too many": (
        "sorted",
        first(SortItems, lambda s: replace(s, count=301), always),
        "sorts 301",
    ),
    "a sort without a room": (
        "sorted",
        first(SortItems, lambda s: replace(s, room=s.items), always),
        "which it reads",
    ),
    "a product's rows one element too far": (
        "products",
        first(Multiply, result_elsewhere, always),
        "may touch",
    ),
    "a product of a column too many": ("products", first(Multiply, right_too_wide, always), "may touch"),
    "a product that reads what it writes": (
        "products",
        first(Multiply, lambda s: replace(s, result=replace(s.left, strides=(s.left.strides[0], 1))), always),
        "which it reads",
    ),
    "a product whose columns lie apart": (
        "products",
        first(Multiply, lambda s: replace(s, result=replace(s.result, strides=(1, 2))), always),
        "side by side",
    ),
    "a product with rounded sums": (
        "products",
        first(Multiply, lambda s: replace(s, result=replace(s.result, dtype=DType.BF16)), always),
        "sums of another type",
    ),
    "a panel that is too small": (
        "products",
        first(Address, lambda s: replace(s, nbytes=64), lambda s: "256x32" in s.about),
        "packs",
    ),
    "an index that nothing keeps in bounds": (
        "gathered",
        first(Read, lambda s: replace(s, at=mul(s.at, 2)), lambda s: s.name != "v0"),
        "may touch bytes",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_check_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, change, complaint = DEFECTS[name]
    for code in codes(program, monkeypatch):
        phases = tuple(replace(phase, body=changed(phase.body, change)) for phase in code.phases)
        broken = replace(code, phases=phases)
        if broken != code:
            problems = check_phases(broken)
            assert any(complaint in problem for problem in problems), problems
            return
    raise AssertionError("the defect changes nothing")


def test_programs_have_what_the_defects_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        type(s)
        for name in PROGRAMS
        for code in codes(name, monkeypatch)
        for phase in code.phases
        for s in statements(phase.body)
    }
    assert {Address, Multiply, SortItems, Prefetch, Read, Stream, Write, For, Integer} <= kinds


def test_a_loop_may_take_a_name_that_was_another_value() -> None:
    """And leaves none: crnn's launches did so, and were XLA's for it."""
    inner = For("e", const(0), const(3), 1, ())
    outer = For("k", const(0), const(4), 1, (Integer("e", const(1)), inner))
    last = Integer("f", var(Var("e", 9)))

    def problems(*body: Statement) -> tuple[str, ...]:
        return check_phases(KernelCode((PhaseCode("phase0", 1, 1, body),), (), (), 0, 0))

    start = Integer("e", const(2))
    assert problems(start, inner) == problems(start, outer) == ()
    assert problems(start, outer, last) == ("phase0: e may have no value",)


def test_what_is_not_in_order_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "check_phases", lambda code: ("b2 is no pointer of this phase",))
    (kernel,) = kernels(norm, shape(64, 96))
    with pytest.raises(CannotBuildError, match="b2 is no pointer"):
        emitter.emit(kernel)
