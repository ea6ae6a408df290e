"""Saved plans: the same kernels from them, in this process and others; what is said of changed programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jstitch
from jstitch.errors import OptionError, ParseError, PlanMismatchError
from jstitch.frontend.exporter import export_module
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import Observed, observing
from jstitch.inspection.inspected import inspect_module
from jstitch.inspection.program_plan import ProgramPlan, plan_program
from jstitch.inspection.subject import observe_function
from jstitch.inspection.write_plan import plan_text
from jstitch.plan_file import PlanFile, read_plan
from tests.fuzz.programs import make_program
from tests.robustness.robustness_support import our_warnings, run_python

Array = jax.Array
LENIENT = jstitch.CompileOptions(strict=False)
OFF = LENIENT.replace(tune="off")
APART = OFF.replace(without=("chains",))
"""Products are XLA's."""


def norm(x: Array, scale: Array) -> Array:
    y = x - x.mean(-1, keepdims=True)
    return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * scale


def net(x: Array, w: Array, scale: Array) -> Array:
    for _ in range(3):
        x = norm(jnp.tanh(x @ w), scale)
    return jax.nn.softmax(x)


def changed_net() -> Callable[..., Array]:
    """By the same name, with the second layer changed."""

    def net(x: Array, w: Array, scale: Array) -> Array:
        for layer in range(3):
            x = norm(jnp.tanh(x @ w) if layer != 1 else jnp.sin(x @ w) * 2, scale)
        return jax.nn.softmax(x)

    return net


def attention(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v


def scanned(x: Array, w: Array) -> Array:
    return jax.lax.scan(lambda c, _: (norm(jnp.tanh(c @ w), c[0]), c.sum()), x, None, length=4)[0]


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def total(f: Callable[..., Array]) -> Callable[..., Any]:
    return jax.grad(lambda *args: jnp.sin(f(*args)).sum(), argnums=(0, 1))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "net": (net, (floats(128, 256), floats(256, 256), floats(256))),
    "gradient": (total(norm), (floats(512, 256), floats(256))),
    "attention": (attention, (floats(4, 128, 32),) * 3),
    "scan": (total(scanned), (floats(64, 64), floats(64, 64))),
    "columns": (lambda x: (x - x.mean(0)) / x.std(0), (floats(512, 96),)),
    "empty": (lambda x: jnp.exp(x).sum(-1), (floats(0, 7),)),
    "scalar": (lambda x: jnp.exp(x) + 1, (floats(),)),
}


def arrays(shapes: tuple[Any, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [0.1 * rng.normal(size=s.shape).astype(np.float32) for s in shapes]


NET = arrays(PROGRAMS["net"][1])


def save(f: Callable[..., Any], options: jstitch.CompileOptions, path: Path, *args: Any) -> ProgramPlan:
    plan = jstitch.plan(f, options)(*args)
    plan.save(path)
    return plan


def sources(f: Callable[..., Any], options: jstitch.CompileOptions, *args: Any) -> list[str]:
    """What the kernels of a program are compiled from, which the kernel cache knows them by."""
    calls = observe_function(f, args, {}, options)
    return [built.text for call in calls for built in call.built]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.txt"


@pytest.fixture
def saved(path: Path) -> Path:
    """The plan of `net`."""
    assert len(save(net, APART, path, *NET).patterns) == 3
    return path


# -- the same kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pinned_plan_is_the_plan(name: str, target: str, path: Path) -> None:
    """Saved again it is the same text, and nothing is left to say."""
    f, args = PROGRAMS[name]
    options = OFF.replace(target=target, strict=True)
    first = save(f, options, path, *args)
    again = jstitch.plan(f, options.replace(plan=path))(*args)
    assert plan_text(again.pins(), again.name) == path.read_text()
    assert [p.kernel for p in again.patterns] == [p.kernel for p in first.patterns]
    assert again.calls[0].pinned == (f"{len(first.patterns)} of {len(first.patterns)} kernels of {path}",)


def pinned(module: ir.Module, options: jstitch.CompileOptions, path: Path) -> tuple[Observed, ProgramPlan]:
    calls = inspect_module(module, options.replace(plan=path)).calls
    return calls[0], plan_program("random", calls)


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 100), marks=pytest.mark.slow)])
def test_random_programs_are_planned_as_saved(seeds: range, target: str, path: Path) -> None:
    options, kernels = OFF.replace(target=target, strict=True), 0
    for seed in seeds:
        module = export_module(make_program(seed))
        plan_program("random", inspect_module(module, options).calls).save(path)
        seen, again = pinned(module, options, path)
        assert plan_text(again.pins(), "random") == path.read_text(), seed
        assert seen.pins is not None
        assert not seen.pins.lost
        assert not seen.pins.new
        kernels += len(again.patterns)
    assert kernels >= len(seeds) // 3


def test_a_planner_and_a_search_are_pinned_with_what_they_found(path: Path) -> None:
    """Options that would plan otherwise say so, and change nothing."""
    f, args = PROGRAMS["gradient"]
    searched = OFF.replace(planner="dp", templates=6)
    save(f, searched, path, *args)
    pinned = OFF.replace(plan=path, schemes=("thread", "warp", "block"))
    assert sources(f, pinned, *args) == sources(f, searched, *args)
    (call,) = jstitch.plan(f, pinned)(*args).calls
    assert "option planner was dp, and is the default" in call.pinned
    assert "option schemes was the default, and is thread,warp,block" in call.pinned


def test_neither_models_nor_clocks_decide(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the gate would leave to XLA is a kernel, and nobody measures."""
    x = np.ones((24, 40), np.float32)
    wanted = save(jax.nn.softmax, OFF, path, x)
    assert len(wanted.patterns) == 1
    small = OFF.replace(tune="model")
    monkeypatch.setattr("jstitch.passes.fuse.gate.MARGINS", {"model": 0.0, "measure": 0.0, "off": 0.0})
    monkeypatch.setattr("jstitch.frontend.measure.Measurer.race", lambda *args: pytest.fail("a race"))
    for options in (small, small.replace(tune="measure")):
        assert not sources(jax.nn.softmax, small, x)
        assert len(sources(jax.nn.softmax, options.replace(plan=path), x)) == 1


ELSEWHERE = """
import sys
from tests.inspection.test_pinned_plans import APART, NET, net, sources
print(*sources(net, APART.replace(plan=sys.argv[1], strict=True, tune=sys.argv[2]), *NET), sep="")
"""


def test_another_process_makes_the_same_kernels(saved: Path, tmp_path: Path) -> None:
    """With another cache and library, another order of hashes, and options that would measure."""
    variables = {"JSTITCH_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": "7"}
    found = run_python(ELSEWHERE, str(saved), "measure", **variables)
    assert found == "".join(sources(net, APART, *NET)) + "\n"


def test_what_was_measured_is_what_is_saved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that XLA runs faster as a whole keeps no kernel, and neither does its plan."""
    monkeypatch.setattr("jstitch.frontend.measured_gate.MeasuredGate.keeps", lambda *args: True)
    monkeypatch.setattr(
        "jstitch.frontend.measured_gate.MeasuredGate.choose", lambda self, candidates: self.graph
    )
    monkeypatch.setattr(
        "jstitch.frontend.measured_gate.MeasuredGate.reason",
        jstitch.passes.base.plan.Reason("measured", "XLA is faster"),
    )
    measuring = APART.replace(tune="measure", cache_dir=str(path.parent))
    plan = save(net, measuring, path, *NET)
    assert not plan.patterns
    assert "XLA is faster" in path.read_text()
    assert not sources(net, APART.replace(plan=path), *NET)


def gradient_of_calls(options: jstitch.CompileOptions) -> Callable[..., Any]:
    """Of two functions of one name, one of which is called twice with equal shapes, and once with others."""

    def step(x: Array) -> Array:
        return jnp.tanh(norm(x, x[0])).sum()

    def named_step() -> Callable[..., Array]:
        def step(x: Array) -> Array:
            return jax.nn.softmax(x).max()

        return step

    first, second = (jstitch.stitch(f, options=options) for f in (step, named_step()))
    return jax.grad(lambda x, y: first(x) + first(x + 1) + first(y) + second(x), (0, 1))


def test_names_and_fingerprints_pair_the_calls(path: Path) -> None:
    args = jnp.ones((64, 32)), jnp.ones((8, 48))

    def observed(options: jstitch.CompileOptions) -> list[Observed]:
        with observing() as calls:
            jax.jit(gradient_of_calls(options)).lower(*args)
        return calls

    first = observed(OFF)
    plan_program("calls", first).save(path)
    again = observed(OFF.replace(plan=path, strict=True))

    def made(calls: list[Observed]) -> list[tuple[str, list[str]]]:
        return [(call.name, [built.text for built in call.built]) for call in calls]

    assert made(again) == made(first)
    assert len(first) > len(read_plan(path).calls) >= 6
    assert all(call.pinned[0].endswith(f"kernels of {path}") for call in again)


def test_sharded_programs_are_pinned(path: Path) -> None:
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    x = jax.device_put(np.ones((64, 128), np.float32), NamedSharding(mesh, PartitionSpec("d")))
    plan = save(jax.nn.softmax, OFF, path, x)
    assert len(plan.patterns) == 1
    options = OFF.replace(plan=path, strict=True)
    assert sources(jax.nn.softmax, options, x) == sources(jax.nn.softmax, OFF, x)


# -- changed programs -------------------------------------------------------------------------------------


def test_a_changed_program_is_told_what_changed(saved: Path) -> None:
    """The first layer's kernel is the saved one, and the last; results are right."""
    before = jstitch.record_count()
    with our_warnings() as texts:
        found = jstitch.jit(changed_net(), options=APART.replace(plan=saved))(*NET)
    np.testing.assert_allclose(found, jax.jit(changed_net())(*NET), rtol=2e-5, atol=2e-6)
    (record,) = jstitch.last_report(before)
    assert record.kernels == 3
    said = "\n".join(record.details["pinned"])
    assert said.startswith(f"2 of 3 kernels of {saved}")
    here = r"at .*test_pinned_plans.py:\d+ \(changed_net.<locals>.net\)"
    assert re.search(rf"new: sine f32\[128,256\], multiply f32\[128,256\] {here}", said)
    assert re.search(r"gone: tanh f32\[128,256\] at .*test_pinned_plans.py:\d+ \(net\)", said)
    (text,) = texts
    assert said.partition("\n")[2] in text.replace("\n  ", "\n")
    assert "--save" in text
    with our_warnings():
        story = str(jstitch.explain(changed_net(), APART.replace(plan=saved))(*NET))
    assert all(f"net: {line}" in story for line in record.details["pinned"])


def test_edges_of_what_is_left_say_why_it_was(saved: Path) -> None:
    story, *_ = jstitch.explain(net, APART.replace(plan=saved, strict=True))(*NET).edge("dot_general", "tanh")
    assert story.why is not None
    assert story.why.rule == "pinned"
    assert "dot_general is contraction" in str(story.why)
    assert "--save" in story.remedy


def test_strict_raises(saved: Path) -> None:
    options = APART.replace(plan=saved, strict=True)
    with pytest.raises(PlanMismatchError, match="tanh"):
        jstitch.jit(changed_net(), options=options).lower(*NET)
    with pytest.raises(PlanMismatchError, match="no call of this name"):
        jstitch.jit(jax.nn.silu, options=options).lower(NET[0])


def test_a_call_that_the_plan_does_not_know_is_planned_as_usual(saved: Path) -> None:
    with our_warnings() as texts:
        assert len(sources(jax.nn.softmax, APART.replace(plan=saved), NET[0])) == 1
    assert [("no call of this name" in text) for text in texts] == [True]


def test_lines_that_move_change_nothing(saved: Path) -> None:
    text = saved.read_text()
    saved.write_text(re.sub(r"test_pinned_plans\.py:(\d+)", lambda m: f"other.py:{int(m[1]) + 9}", text))
    assert sources(net, APART.replace(plan=saved, strict=True), *NET) == sources(net, APART, *NET)


def test_other_versions_and_targets_are_said(saved: Path) -> None:
    text = re.sub(r'(?m)^(jstitch|jax|target) = ".*"', r'\1 = "of old"', saved.read_text())
    saved.write_text(text)
    before = jstitch.record_count()
    with our_warnings() as texts:
        jstitch.jit(net, options=APART.replace(plan=saved, strict=True)).lower(*NET)
    said = jstitch.last_report(before)[0].details["pinned"]
    assert not texts
    assert [line.partition(" was of old, and is ")[0] for line in said[1:]] == ["jstitch", "jax", "target"]


def test_a_plan_of_another_target_is_used_where_it_verifies(path: Path) -> None:
    """Its ops are these; its schedules are for threads that a CPU has not."""
    f, args = PROGRAMS["net"]
    save(f, OFF.replace(target="h200"), path, *args)
    options = OFF.replace(plan=path)
    with our_warnings() as texts:
        found = jstitch.jit(f, options=options)(*NET)
    np.testing.assert_allclose(found, jax.jit(f)(*NET), rtol=2e-5, atol=2e-6)
    assert "target was h200, and is cpu" in texts[0]


def test_a_kernel_that_is_lowered_otherwise_is_said(saved: Path) -> None:
    saved.write_text(re.sub(r'loops = "\w+"', 'loops = "0"', saved.read_text()))
    with our_warnings() as texts:
        jstitch.jit(net, options=APART.replace(plan=saved)).lower(*NET)
    assert texts[0].count("other loops of the same ops") == 3
    with pytest.raises(PlanMismatchError, match="other loops"):
        jstitch.jit(net, options=APART.replace(plan=saved, strict=True)).lower(*NET)


# -- the file ---------------------------------------------------------------------------------------------


def test_the_file_is_short_and_has_what_one_reviews(saved: Path) -> None:
    text = saved.read_text()
    assert text.count("\n") < 60
    for part in ('name = "norm_row_0"', 'like = "norm_row_0"', "reduce_0[", "dot_general", "contraction: "):
        assert part in text
    assert f'at = "{Path(__file__).relative_to(Path.cwd())}:' in text


def test_variables_name_a_plan(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSTITCH_PLAN", str(saved))
    assert jstitch.CompileOptions().plan == str(saved)


def test_a_plan_that_cannot_be_read_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="saved plan"):
        jstitch.CompileOptions(plan=str(tmp_path / "none.txt"))
    broken = tmp_path / "broken.txt"
    broken.write_text("format = 1\nname")
    with pytest.raises(OptionError, match="TOML"):
        jstitch.CompileOptions(plan=str(broken))


def refused(text: str, file: Path) -> bool:
    file.write_text(text)
    try:
        return not isinstance(read_plan(file), PlanFile)
    except ParseError as error:
        return "--save" in str(error)


def test_damaged_files_are_refused_or_mean_something(saved: Path) -> None:
    """Every line left out, and its numbers and words replaced: a plan, or a ParseError with a hint."""
    lines, damaged = saved.read_text().splitlines(), []
    for n, line in enumerate(lines):
        others = re.sub(r"\d+", "77", line), re.sub(r'"[^"]*"', "[]", line), line.replace("[", "", 1), ""
        damaged += ["\n".join([*lines[:n], other, *lines[n + 1 :]]) for other in others]
    found = [refused(text, saved.with_name(f"{n}.txt")) for n, text in enumerate(damaged)]
    assert sum(found) > len(lines)


def test_a_folder_that_cannot_be_written_keeps_the_old_plan(saved: Path, tmp_path: Path) -> None:
    plan = jstitch.plan(net, APART)(*NET)
    with pytest.raises(OSError, match="none"):
        plan.save(tmp_path / "none" / "plan.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.txt"]
