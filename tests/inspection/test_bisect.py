"""`bisect` names exactly the pass, the step of planning or the kernel that is wrong, in a program of many."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jstitch.frontend import kernel_builder, rewrite
from jstitch.frontend.mlir import parse_module
from jstitch.inspection import bisect as bisection
from jstitch.inspection import experiment as experiments
from jstitch.inspection.arrays import read_arrays
from jstitch.inspection.bisect import bisect, describe_frames, first_guilty
from jstitch.inspection.evidence import expose
from jstitch.inspection.experiment import Experiment, keep_kernels, kernel_ops
from jstitch.inspection.reproducer import write_reproducer
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.passes import plan_frame
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.fuse import alias_donated
from jstitch.passes.fuse.hold_together import Held
from jstitch.passes.pipeline import PIPELINE, frames
from tests.inspection.programs import (
    OPTIONS,
    arguments,
    experiment,
    is_difference,
    layers,
    module_of,
    quick_compilation,
    seed_kernel,
    seed_pass,
    turned,
)

Patch = pytest.MonkeyPatch
__all__ = ["quick_compilation"]  # a fixture


def test_a_right_program_has_no_culprit() -> None:
    e = experiment()
    assert len(e.kernels) >= 6
    assert len({bisection.frame_of(e.stitched, op) for op in kernel_ops(e.stitched)}) >= 3
    assert bisect(e) is None
    assert e.judge(e.ours).reference == "NumPy in float64"


@pytest.mark.parametrize("place", [0, 7, len(PIPELINE)])
def test_a_wrong_pass(monkeypatch: Patch, place: int, tmp_path: Path) -> None:
    seed_pass(monkeypatch, place)
    e = experiment()
    tried: list[str] = []
    found = bisect(e, tried.append)
    assert found is not None
    assert (found.kind, found.name) == ("pass", "wrong_pass")
    assert len(tried) <= 2 + math.ceil(math.log2(len(PIPELINE) + 6))
    output = found.comparison.outputs[0]
    assert output.nearer == "xla"
    if place == 7:
        again = write_reproducer(found, e, tmp_path / "case")
        assert again.tune == "off"
        assert len(parse_file(again.folder / "module.mlir").outputs) == 1


def parse_file(path: Path) -> Graph:
    return experiments.import_module(parse_module(path.read_text()))


# marks of the kernel's op mix, and what is replaced in its text: in a loop, in a branch, in the program
KERNELS = [
    (("tanh", "max_reassoc"), "max_reassoc", "min_reassoc", "body of stablehlo.while"),
    (("cos", "max_reassoc"), "max_reassoc", "min_reassoc", "branch 0 of stablehlo.case"),
    (("rsqrt", "exp"), "rsqrt", "sqrt", "the program"),
]


@pytest.mark.parametrize(("marks", "old", "new", "frame"), KERNELS, ids=[k[3] for k in KERNELS])
def test_a_wrong_kernel(
    monkeypatch: Patch, tmp_path: Path, marks: tuple[str, ...], old: str, new: str, frame: str
) -> None:
    changed = seed_kernel(monkeypatch, marks, old, new)
    e = experiment()
    found = bisect(e)
    assert found is not None
    assert found.kind == "kernel"
    assert {found.name} == set(changed)  # built again when it works in place
    kernel = found.kernel
    assert kernel is not None
    assert kernel.frame.startswith(frame)
    assert not kernel.together
    assert not kernel.in_place
    assert any("programs.py" in loc for _, loc in kernel.ops)
    assert kernel.inputs is not None
    assert all(r.least is not None and not r.nans for r in kernel.inputs)
    again = write_reproducer(found, e, tmp_path)
    assert again.tune == "off"
    small = parse_file(tmp_path / "module.mlir")
    assert sum(1 for _ in small.walk()) < 40
    assert not any(map(is_control, small.ops))
    read_arrays(tmp_path / "inputs.npz", [v.tensor for v in small.inputs])


def test_a_wrong_kernel_and_a_wrong_pass(monkeypatch: Patch) -> None:
    """The pass comes first."""
    seed_kernel(monkeypatch, *KERNELS[0][:3])
    seed_pass(monkeypatch, 5)
    found = bisect(experiment())
    assert found is not None
    assert found.name == "wrong_pass"


def test_a_wrong_step_of_planning_is_told_by_frame(monkeypatch: Patch) -> None:
    """Before a loop's body is planned its subtraction is turned; the program's own subtraction stays."""
    hold = plan_frame.hold_together

    def wrong(held: Held, context: Context) -> Held:
        in_loop = any(op.name == "stablehlo.tanh" for op in held.frame.ops)
        return hold(replace(held, frame=turned(held.frame)) if in_loop else held, context)

    monkeypatch.setattr(plan_frame, "hold_together", wrong)
    found = bisect(experiment())
    assert found is not None
    assert (found.kind, found.name) == ("planning", "plan")
    assert found.frame.startswith("body of stablehlo.while at ")
    assert "programs.py" in found.frame


def test_wrong_copies_before_planning(monkeypatch: Patch) -> None:
    for module in (rewrite, bisection):
        monkeypatch.setattr(module, "copy_carried", on_any_target(turned))
    found = bisect(experiment())
    assert found is not None
    assert (found.kind, found.name) == ("planning", "copy_carried")


def test_a_wrong_importer(monkeypatch: Patch, tmp_path: Path) -> None:
    e = experiment()
    wrong = turned(e.source.graph)
    e.source = replace(e.source, graph=wrong)
    monkeypatch.setattr("jstitch.inspection.subject.import_module", lambda _: wrong)
    found = bisect(e)
    assert found is not None
    assert found.kind == "import"
    write_reproducer(found, e, tmp_path)
    assert len(parse_file(tmp_path / "module.mlir").inputs) == 3


def test_a_kernel_that_overwrites_what_it_still_reads(monkeypatch: Patch) -> None:
    """Only wrong in the memory of a donated argument: the kernel reads each row backwards."""
    monkeypatch.setattr(alias_donated, "_is_safe", lambda *_: True)
    monkeypatch.setattr(kernel_builder, "verify_kernel", lambda *_: None)
    (x,) = [np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)]
    module = module_of(lambda x: jnp.tanh(x) - jnp.flip(x, -1), x, donate_argnums=0)
    found = bisect(Experiment(module, [x], OPTIONS.replace(verify=False)))
    assert found is not None
    assert found.kernel is not None
    assert found.kernel.in_place


@given(count=st.integers(1, 2000), data=st.data())
def test_halving_asks_few(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.integers(1, count))
    asked: list[int] = []

    def differs(number: int) -> bool:
        assert 0 < number < count
        asked.append(number)
        return number >= guilty

    assert first_guilty(count, differs) == guilty
    assert len(asked) <= math.ceil(math.log2(count))


def test_every_kernels_inputs_are_had() -> None:
    """Also in loops and branches, but not in conditions; they are what the interpreter finds."""
    e = experiment()
    opened = keep_kernels(e.stitched, ())
    for op in kernel_ops(e.stitched):
        exposed = expose(opened, op.operands)
        if bisection.frame_of(e.stitched, op).startswith("condition"):
            assert exposed is None
            continue
        assert exposed is not None
        found, expected = e.run(exposed, donating=False), interpret(exposed, e.args)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_frames_are_described_in_the_order_of_planning() -> None:
    e = experiment()
    places = describe_frames(e.source.graph)
    assert places[-1] == "the program"
    assert len(places) == sum(1 for _ in frames(e.source.graph))
    assert any(place.startswith("condition of stablehlo.while") for place in places)


def test_what_turned_turns() -> None:
    """The seeded faults do something, in the loop and outside."""
    graph = experiments.import_module(module_of(layers, *arguments()))
    assert sum(is_difference(op) for op in graph.walk()) >= 2
    assert any("turned" in op.attrs for op in turned(graph).walk())
