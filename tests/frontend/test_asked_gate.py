"""The asked gate: XLA's compiler is asked with which kernels a function with matrix products costs less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from benchmarks.block_costs import rows
from benchmarks.blocks import KINDS, Block, draw
from jstitch.device_spec import find_spec
from jstitch.frontend import ask, asked_gate
from jstitch.frontend.ask import WAYS, Asker, Cost, Question, UnansweredError
from jstitch.frontend.asked_gate import without
from jstitch.frontend.measured_gate import nameless
from jstitch.frontend.probe import Program
from jstitch.inspection.subject import observe_function
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL
from jstitch.ir.verify import check
from jstitch.xla.compile import AnalysisError

needs_plugin = pytest.mark.skipif(
    util.find_spec("jax_cuda13_plugin") is None, reason="JAX's CUDA plugin is not installed: jstitch[analyze]"
)
SHAPES = tuple(jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 96), (96, 80), (80, 96)))


def block(x: Any, a: Any, b: Any) -> Any:
    """Two kernels that differ: before the first product, and after the second."""
    y = x - x.mean(-1, keepdims=True)
    z = jax.nn.softmax(y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)) @ a
    s = jnp.exp(z - z.max(-1, keepdims=True)) @ b
    return s / jnp.sqrt((s * s).sum(-1, keepdims=True) + 1e-5)


def options(folder: Path, **more: Any) -> jstitch.CompileOptions:
    given: dict[str, Any] = {"target": "h200", "ask_seconds": 600.0, "cache_dir": str(folder), "strict": True}
    return jstitch.CompileOptions(**(given | more))


def texts(graph: Graph) -> list[str]:
    return [nameless(op.attrs) for op in graph.walk() if op.name == KERNEL]


def names(graph: Graph) -> list[str]:
    return [op.attrs["name"] for op in graph.walk() if op.name == KERNEL]


def stitched(chosen: jstitch.CompileOptions) -> tuple[Graph, jstitch.Record]:
    since = jstitch.record_count()
    (call,) = observe_function(block, SHAPES, {}, chosen)
    assert call.stitched is not None
    return call.stitched, jstitch.last_report(since)[-1]


def by(rule: Callable[[set[str]], Mapping[str, Cost]], monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """From now on XLA says what `rule` makes of the entries of a program's kernels; all that was asked."""
    asked: list[set[str]] = []

    def costs(self: Asker, question: Question, ways: Sequence[str] = tuple(WAYS)) -> Mapping[str, Cost]:
        asked.append(set(question.known))
        return {way: cost for way, cost in rule(set(question.known)).items() if way in ways}

    monkeypatch.setattr(Asker, "costs", costs)
    return asked


def both(cost: Cost) -> Mapping[str, Cost]:
    return dict.fromkeys(WAYS, cost)


def test_kernels_stay_where_they_cost_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = by(lambda kernels: both(Cost(10 - len(kernels), 1000)), monkeypatch)
    found, record = stitched(options(tmp_path))
    assert len(texts(found)) == len(asked[1]) >= 2
    assert [bool(kernels) for kernels in asked] == [False, True]
    assert "launches" in record.details["asked"]


def test_the_kernel_that_costs_more_is_taken_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one of the two ways, by one byte."""
    unasked, _ = stitched(options(tmp_path, ask_seconds=0.0))
    dear, *others = sorted(names(unasked))

    def rule(kernels: set[str]) -> Mapping[str, Cost]:
        worse = any(entry.startswith(dear) for entry in kernels)
        return {"own": Cost(10, 1000), "library": Cost(10 - len(kernels), 1000 + worse)}

    by(rule, monkeypatch)
    since = jstitch.record_count()
    lowered = jax.jit(jstitch.stitch(block, options(tmp_path))).trace(*SHAPES)
    text = lowered.lower(lowering_platforms=("cuda",)).as_text()
    assert [name for name in (dear, *others) if name in text] == others != []
    assert jstitch.last_report(since)[-1].kernels == len(others)
    (call,) = observe_function(block, SHAPES, {}, options(tmp_path))
    (reason,) = (reason for _, reason in call.refused)
    assert reason.rule == "asked"
    assert "launches" in str(reason)


def test_the_faster_way_to_prepare_is_mended_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not the one that has fewest bytes too many: five launches less are worth more than five bytes."""
    prepared = iter((Cost(5, 1010), Cost(9, 1005), Cost(9, 1005), Cost(9, 1005)))

    def rule(kernels: set[str]) -> Mapping[str, Cost]:
        if not kernels:
            return both(Cost(10, 1000))
        return both(next(prepared, Cost(7, 1000)))

    by(rule, monkeypatch)
    _, record = stitched(options(tmp_path))
    assert "with all kernels 5 launches" in record.details["asked"]


def test_nothing_is_stitched_where_every_kernel_costs_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    by(lambda kernels: both(Cost(10 + len(kernels), 1000)), monkeypatch)
    since = jstitch.record_count()
    lowered = jax.jit(jstitch.stitch(block, options(tmp_path))).trace(*SHAPES)
    assert "xla.gpu.ptx" not in lowered.lower(lowering_platforms=("cuda",)).as_text()
    assert jstitch.last_report(since)[-1].reason is not None


def test_the_answer_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = by(lambda kernels: both(Cost(10 - len(kernels), 1000)), monkeypatch)
    first, _ = stitched(options(tmp_path))
    before = len(asked)
    again, record = stitched(options(tmp_path))
    assert (len(asked), texts(again)) == (before, texts(first))
    assert "asked" in record.details


def test_time_is_reckoned_by_ops_and_read_from_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been answered once costs nothing; the last program may take longer than what is left."""
    monkeypatch.setattr(Asker, "_compiled", lambda *_: Cost(1, 1))
    questions = [
        Question(Program(bytes([n]), (), ()), donated={}, known={}, seconds=1.0 + n / 10) for n in range(5)
    ]
    asker = Asker(find_spec("h200"), 3.0)
    for question in (*questions[:3], *questions[:2]):
        assert asker.costs(question) == both(Cost(1, 1))
    with pytest.raises(UnansweredError, match="is over"):
        asker.costs(questions[3])


def test_without_the_plugin_it_is_the_models_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: Any) -> Any:
        raise AnalysisError("JAX's CUDA plugin", "none", hint="install it")

    unasked, _ = stitched(options(tmp_path, ask_seconds=0.0))
    monkeypatch.setattr(ask, "device_sharding", missing)
    found, record = stitched(options(tmp_path))
    assert texts(found) == texts(unasked)
    assert "plugin" in record.details["unasked"]


def test_nobody_is_asked_where_nothing_is_multiplied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(asked_gate, "Asker", never)
    (call,) = observe_function(jax.nn.softmax, SHAPES[:1], {}, options(tmp_path, tune="off"))
    assert call.built


def test_written_out_kernels_are_the_graph_that_they_were_made_of(tmp_path: Path) -> None:
    found, _ = stitched(options(tmp_path, ask_seconds=0.0))
    args = [np.random.default_rng(n).normal(size=s.shape).astype(np.float32) for n, s in enumerate(SHAPES)]
    for text in texts(found):
        assert sorted(texts(without(found, frozenset((text,))))) == sorted(
            t for t in texts(found) if t != text
        )
    none = without(found, frozenset(texts(found)))
    check(none, "without")
    np.testing.assert_allclose(interpret(none, args)[0], block(*args), rtol=2e-5, atol=2e-6)


SMALL = (
    pytest.param(Block("encoder", 256, 2, 16, bias=True), marks=pytest.mark.slow),  # XLA is asked most often
    Block("decoder", 256, 2, 16, "bfloat16", "silu", bias=False, first=True, groups=2),
    Block("decode", 256, 4, 1, "bfloat16", "silu", bias=False, first=True, groups=2, cached=64),
)


@needs_plugin
@pytest.mark.parametrize("block", SMALL, ids=lambda block: block.name)
def test_small_blocks_cost_no_more_than_xlas(block: Block, tmp_path: Path) -> None:
    for row in rows(block, options(tmp_path)):
        assert not row.is_worse, str(row)


@pytest.mark.slow
@needs_plugin
@pytest.mark.parametrize("number", range(30))
def test_drawn_blocks_cost_no_more_than_xlas(number: int, tmp_path: Path) -> None:
    for row in rows(draw(0, 30)[number], options(tmp_path)):
        assert not row.is_worse, str(row)


def test_the_draw_meets_every_kind_and_is_the_same_every_time() -> None:
    members = draw(0, 30)
    assert members == draw(0, 30)
    assert {member.kind for member in members} == set(KINDS)
    assert {member.bias for member in members if member.kind == "encoder"} == {True, False}
    assert {member.activation for member in members} >= {"gelu", "exact gelu", "relu", "silu"}
