"""The check of launches finds what is broken in them, and nothing in what the emitter is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jstitch.codegen.cuda.check_launch import check_launch
from jstitch.codegen.launch_ir import (
    Barrier,
    For,
    Get,
    If,
    Integer,
    LaunchCode,
    Read,
    Registers,
    Scope,
    Shuffle,
    Statement,
    Write,
)
from jstitch.codegen.launch_places import Less, Shared
from jstitch.ir.graph import Graph
from jstitch.ir.index import Var, const, var
from tests.codegen.cuda.defects import column_sums, softmax
from tests.codegen.cuda.stitched import PROFILES, WHY_NO_PTX, stitch
from tests.codegen.cuda.workloads import WORKLOADS, lowered
from tests.codegen.statements import Change, changed, first, statements

pytestmark = pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))

SHORT, LONG, COLUMNS = softmax(3, 1001), softmax(2, 9000), column_sums(300, 96)


def launches(graph: Graph) -> list[LaunchCode]:
    made = stitch(graph, PROFILES["h200"])
    return [code for emitted in made.kernels.values() for code in emitted.made.codes]


def shuffles(s: For) -> bool:
    return any(isinstance(inside, Shuffle) for inside in statements(s.body))


def always(_: object) -> bool:
    return True


def under_a_test(s: Statement) -> Statement:
    return If(Less(var(Var("t", 1 << 10)), const(7)), (s,))


T = var(Var("t", 1 << 10))
DEFECTS: dict[str, tuple[Graph, Change, str]] = {
    "a barrier that not every thread reaches": (LONG, first(Barrier, under_a_test, always), "barrier"),
    "a shuffle that not every thread reaches": (SHORT, first(Shuffle, under_a_test, always), "shuffle"),
    "a barrier of the CTA where one team's rows end": (
        softmax(7, 1001),
        first(Barrier, lambda s: replace(s, scope=Scope.CTA), lambda s: s.scope is Scope.TEAM),
        "barrier of a cta",
    ),
    "a barrier that the hardware lacks": (
        SHORT,
        first(Barrier, lambda s: replace(s, threads=8), lambda s: s.scope is Scope.TEAM),
        "no barriers",
    ),
    "a name that nothing defines": (LONG, first(Integer, lambda _: None, lambda s: s.name == "e"), "e may"),
    "a value of one branch": (
        SHORT,
        first(Read, under_a_test, lambda s: s.name == "v0"),
        "may have no value",
    ),
    "registers past their end": (LONG, first(Get, lambda s: replace(s, at=s.at + 1000), always), "which has"),
    "too few registers": (LONG, first(Registers, lambda s: replace(s, count=1), always), "which has 1"),
    "shared memory past its end": (
        LONG,
        first(Write, lambda s: replace(s, at=s.at + 100000), lambda s: isinstance(s.memory, Shared)),
        "may touch bytes",
    ),
    "shared memory before its begin": (
        COLUMNS,
        first(Write, lambda s: replace(s, at=s.at - 1), lambda s: isinstance(s.memory, Shared)),
        "may touch bytes",
    ),
    "a name of two kinds": (
        LONG,
        first(Registers, lambda s: replace(s, name="t"), always),
        "is a number elsewhere",
    ),
    "another launch's pointer": (
        SHORT,
        first(Read, lambda s: replace(s, memory=replace(s.memory, pointer="a7")), always),
        "no pointer",
    ),
    "a loop of threads around a shuffle": (
        COLUMNS,
        first(
            For,
            lambda s: replace(s, low=T),
            lambda s: any(isinstance(x, Shuffle) for x in statements(s.body)),
        ),
        "shuffle",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_check_finds(name: str) -> None:
    graph, change, complaint = DEFECTS[name]
    for code in launches(graph):
        assert not check_launch(code)
        broken = replace(code, body=changed(code.body, change))
        if broken != code:
            assert any(complaint in problem for problem in check_launch(broken)), check_launch(broken)
            return
    raise AssertionError("the defect changes nothing")


def test_what_no_thread_reaches_is_in_order() -> None:
    """There, the rows past the end of a tile would be written to shared memory that nobody asked for."""
    (code, *_) = launches(SHORT)
    row, past = Integer("row", T + 8, (const(8), const(500))), var(Var("row", 1 << 10))
    inside = If(Less(past, const(3)), (Get("x", "none", past),))
    assert not check_launch(replace(code, body=(*code.body, row, inside)))
    reached = replace(inside, test=Less(past, const(9)))
    assert check_launch(replace(code, body=(*code.body, row, reached)))


LONG = ("adamw", "lamb", "lion")  # hundreds of tensors


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in WORKLOADS]
)
def test_what_is_emitted_is_in_order(name: str) -> None:
    for emitted in lowered(name).recorder.emitted.values():
        for code in emitted.made.codes:
            assert not check_launch(code)
            assert all(s.why for s in statements(code.body) if isinstance(s, Barrier))
