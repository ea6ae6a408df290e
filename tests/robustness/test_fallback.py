"""Something inside the pipeline raises: XLA runs the program, one warning says why, strict mode raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba.core.errors import TypingError
from robustness_support import LENIENT, arguments, check, our_warnings, standardize

import jstitch
from jstitch.codegen.cpu import backend, compile_kernel
from jstitch.frontend import kernel_builder, rewrite
from jstitch.ir.graph import Graph
from jstitch.ir.ops import build
from jstitch.passes.base.context import Context
from jstitch.passes.fuse import plan_tree
from jstitch.passes.pipeline import PIPELINE

STAGES = [
    *((rewrite, name) for name in ("import_ops", "plan_frame")),
    (kernel_builder, "best_kernel"),
    (plan_tree, "contract_patterns"),
    *((backend, name) for name in ("emit", "begin")),
    (rewrite, "emit_kernel"),
]


def _raise(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("broken on purpose")


def _falls_back(f: Callable[..., Any], *args: Any, options: jstitch.CompileOptions = LENIENT) -> str:
    """Run `f` with a broken pipeline; the reason on record."""
    since = jstitch.record_count()
    with our_warnings() as texts:
        check(jstitch.jit(f, options=options), f, *args)
    (record,) = jstitch.last_report(since)
    assert len(texts) == 1
    assert "JSTITCH_STRICT=1" in texts[0]
    assert record.kernels == 0
    assert record.reason is not None
    assert record.reason.splitlines()[0] in texts[0]
    return record.reason


@pytest.mark.parametrize(("module", "stage"), STAGES, ids=[name for _, name in STAGES])
def test_a_stage_raises(monkeypatch: pytest.MonkeyPatch, module: ModuleType, stage: str) -> None:
    monkeypatch.setattr(module, stage, _raise)
    assert _falls_back(standardize(), *arguments()) == "ZeroDivisionError: broken on purpose"
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        jstitch.jit(standardize(), options=LENIENT.replace(strict=True))(*arguments())


@pytest.mark.parametrize("number", range(len(PIPELINE)))
def test_a_graph_pass_raises(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    broken = [*PIPELINE]
    broken[number] = replace(broken[number], run_on=_raise)
    monkeypatch.setattr(rewrite, "PIPELINE", tuple(broken))
    assert "on purpose" in _falls_back(standardize(), *arguments())


def test_a_pass_breaks_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `verify` the damage is found where it was done."""
    broken = replace(PIPELINE[0], run_on=lambda graph, context: replace(graph, ops=graph.ops[:-1]))
    monkeypatch.setattr(rewrite, "PIPELINE", (broken, *PIPELINE[1:]))
    reason = _falls_back(standardize(), *arguments(), options=LENIENT.replace(verify=True))
    assert broken.name in reason


def _turned_wrongly(graph: Graph, _: Context) -> Graph:
    """With a transposition that has fewer dimensions than what it turns."""
    flat = build.transpose(graph.inputs[0], (1, 0))
    broken = replace(flat, attrs={"permutation": (0,)})
    return replace(graph, ops=(broken, *graph.ops), outputs=(flat.result, *graph.outputs[1:]))


def test_a_pass_writes_what_mlir_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `verify`, where JAX would raise after the call is lowered."""
    broken = replace(PIPELINE[-1], run_on=_turned_wrongly)
    monkeypatch.setattr(rewrite, "PIPELINE", (*PIPELINE[:-1], broken))
    assert "permutation" in _falls_back(lambda x: jnp.tanh(x) * x, jnp.ones((40, 40)))


@pytest.mark.parametrize(
    ("constant", "error"),
    [(0.71, TypingError("no such type")), (0.72, MemoryError()), (0.73, RecursionError("too deep"))],
    ids=["Numba", "memory", "recursion"],
)
def test_the_compiler_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, constant: float, error: Exception
) -> None:
    """The constants make kernels that no other test has built."""

    def broken(*_: Any) -> bytes:
        raise error

    monkeypatch.setattr(compile_kernel, "compile_kernel", broken)
    options = LENIENT.replace(cache_dir=str(tmp_path))
    reason = _falls_back(standardize(constant), *arguments(), options=options)
    assert reason.startswith(type(error).__name__)
    monkeypatch.undo()
    since = jstitch.record_count()
    check(jstitch.jit(standardize(constant), options=options), standardize(constant), *arguments())
    assert jstitch.stitch_count(since) == 1


def test_strict_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "plan_frame", _raise)
    monkeypatch.setenv("JSTITCH_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        jstitch.jit(standardize())(*arguments())
    monkeypatch.setenv("JSTITCH_STRICT", "0")
    with pytest.warns(jstitch.JstitchWarning, match="on purpose"):
        check(jstitch.jit(standardize()), standardize(), *arguments())


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(rewrite, "plan_frame", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jstitch.jit(standardize(), options=LENIENT)(*arguments())


def test_loops_and_gradients_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half rewritten program with regions is put back as it was."""
    monkeypatch.setattr(rewrite, "emit_kernel", _raise)

    def loss(x: Any, w: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            c = jax.nn.softmax(c * w) + jnp.tanh(c).sum(-1, keepdims=True)
            return c, c.sum()

        end, sums = jax.lax.scan(step, x, None, length=3)
        return (end**2).mean() + sums.mean()

    x, w = arguments()
    with our_warnings() as texts:
        found = jax.jit(jax.grad(jstitch.stitch(loss, LENIENT)))(x, w)
    assert texts
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(x, w), rtol=2e-5, atol=1e-6)
