"""A program with kernels in several frames, and faults that are put into the pipeline on its way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.cpu import backend
from jstitch.codegen.cpu.emit import Emitted
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend import rewrite as frontend
from jstitch.frontend.mlir import ir, parse_module
from jstitch.inspection import execute
from jstitch.inspection.experiment import Experiment
from jstitch.ir.graph import Graph, Op, Value
from jstitch.options import CompileOptions
from jstitch.passes.base.context import on_any_target
from jstitch.passes.base.named_pass import graph_pass
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.pipeline import PIPELINE

ROWS, COLUMNS, TURNS = 8, 16, 3
OPTIONS = CompileOptions(tune="off", target="cpu", without=("recurrences",))


def layers(x: Any, w: Any, c: Any) -> Any:
    """A softmax; a loop around products, with a max-tanh kernel; a branch; a normalised result."""
    h = jax.nn.softmax(x @ w, -1)

    def turn(h: Any, _: Any) -> Any:
        a = jnp.tanh(h)
        h = a - jnp.max(a, -1, keepdims=True) / 4
        b = jnp.sin(h @ w)
        return b / (1 + jnp.sum(b * b, -1, keepdims=True)), jnp.sum(jnp.abs(h), -1)

    h, sums = jax.lax.scan(turn, h, None, length=TURNS)
    low, high = (lambda y: jnp.log1p(jnp.exp(y)).sum(-1)), (lambda y: jnp.cos(y).max(-1))
    picked = jax.lax.cond(c[0] > 100, low, high, h)
    y = (h @ w) * jnp.exp(c)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-3)
    return y, sums, picked, y > 0, y.astype(jnp.bfloat16)


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(7)
    shapes = [(ROWS, COLUMNS), (COLUMNS, COLUMNS), (COLUMNS,)]
    return [random.standard_normal(shape).astype(np.float32) / 2 for shape in shapes]


def module_of(f: Callable[..., Any], *args: Any, **settings: Any) -> ir.Module:
    return parse_module(jax.jit(f, **settings).lower(*args).as_text(debug_info=True))


def experiment() -> Experiment:
    """Of `layers`, whose right results are known."""
    e, known = _new(), _known()
    vars(e).update(expected=known.expected, reference=known.reference)
    return e


def _new() -> Experiment:
    args = arguments()
    return Experiment(module_of(layers, *args), args, OPTIONS)


@functools.cache
def _known() -> Experiment:
    return _new()


@pytest.fixture(autouse=True)
def quick_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM takes a third of the time without its optimisations, which change no decision here."""
    monkeypatch.setattr(execute, "SETTINGS", {"xla_backend_optimization_level": 0})


def is_difference(op: Op) -> bool:
    """A subtraction of matrices: the loop has one, the program's end too."""
    return op.name == "stablehlo.subtract" and len(op.result.shape) == 2


def turned(graph: Graph, chosen: Callable[[Op], bool] = is_difference) -> Graph:
    """The graph with the operands of these ops exchanged: a wrong pass."""

    def rule(op: Op, _: Producer) -> Replacement | None:
        if not chosen(op) or "turned" in op.attrs:
            return None
        results = tuple(Value(v.type) for v in op.results)
        attrs = {**op.attrs, "turned": True}
        return Replacement(results, (replace(op, operands=op.operands[::-1], results=results, attrs=attrs),))

    return rewrite(graph, rule)


def seed_pass(patch: pytest.MonkeyPatch, place: int, name: str = "wrong_pass") -> None:
    passes = [
        *PIPELINE[:place],
        graph_pass(name, run_on=on_any_target(turned), about=turned),
        *PIPELINE[place:],
    ]
    patch.setattr(frontend, "PIPELINE", tuple(passes))


def seed_kernel(patch: pytest.MonkeyPatch, marks: tuple[str, ...], old: str, new: str) -> list[str]:
    """Change the generated text of kernels that have all these marks; their names, as they are emitted."""
    changed: list[str] = []
    emit = backend.emit

    def wrong(kernel: Kernel) -> Emitted:
        emitted = emit(kernel)
        if not all(f"{mark}(" in emitted.source.text for mark in marks):
            return emitted
        changed.append(kernel.name)
        text = emitted.source.text.replace(f"{old}(", f"{new}(")
        assert text != emitted.source.text
        return replace(emitted, source=replace(emitted.source, text=text))

    patch.setattr(backend, "emit", wrong)
    return changed
