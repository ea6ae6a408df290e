"""`jstitch.plan` and `.explain`: numbers that add up, options that hold, and what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.inspection.program_plan import ProgramPlan
from jstitch.passes.base.plan import Reason
from jstitch.runtime.report import record_count

X = jax.ShapeDtypeStruct((256, 1024), jnp.float32)
H200 = jstitch.CompileOptions(target="h200")


def norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layers(x: jax.Array, *weights: jax.Array) -> jax.Array:
    for w in weights:
        x = norm(jnp.tanh(x @ w))
    return x


@pytest.fixture(scope="module")
def planned() -> ProgramPlan:
    weights = [jax.ShapeDtypeStruct((1024, 1024), jnp.float32)] * 3
    return jstitch.plan(layers, H200)(X, *weights)


def test_totals_are_sums(planned: ProgramPlan) -> None:
    assert len(planned.patterns) == 3
    assert planned.ours.launches == sum(len(p.kernel.launches) for p in planned.patterns if p.kernel)
    assert planned.xla.launches > planned.ours.launches
    assert planned.ours.nbytes == pytest.approx(3 * 2 * 256 * 1024 * 4)
    (frame,) = planned.frames
    assert frame.left == {"stablehlo.dot_general": 3}
    assert frame.ops == 3 + sum(p.size for p in planned.patterns)


def test_kernels_have_their_resources(planned: ProgramPlan) -> None:
    for p in planned.patterns:
        assert p.kernel is not None
        assert p.where.endswith("(norm)")
        assert 0 < (p.kernel.occupancy or 0) <= 1
        assert all(launch.registers > 0 for launch in p.kernel.launches)
        assert "thread" in p.kernel.schemes
        assert {"warp", "block"} & set(p.kernel.schemes)
        assert p.kernel.schedule.count(";") > 1


@pytest.mark.parametrize("gradient", [False, True])
def test_statistics_of_columns_have_theirs(gradient: bool) -> None:
    """Three phases of the Kernel IR that are two launches."""

    def batch_norm(x: jax.Array) -> jax.Array:
        return (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5)

    f = jax.grad(lambda x: jnp.sin(batch_norm(x)).sum()) if gradient else batch_norm
    x = jax.ShapeDtypeStruct((25088, 256), jnp.float32)
    (pattern,) = jstitch.plan(f, H200)(x).patterns
    made = pattern.kernel
    assert made is not None
    assert made.phases == len(made.launches) == (4 if gradient else 2)
    assert {lane.phase for lane in made.lanes} == set(range(made.phases))
    assert all(launch.grid > 1 and launch.registers > 18 for launch in made.launches)
    assert all(lane.threads > 1 for lane in made.lanes)
    text = str(jstitch.explain(f, H200)(x))
    assert f"launch {made.phases - 1}: {made.launches[-1].grid} CTAs of 256 threads" in text


def test_alike_patterns_are_one_line(planned: ProgramPlan) -> None:
    rows = [line for line in str(planned).splitlines() if line.startswith("│")]
    assert len(rows) == 2
    assert "3 dot_general" in str(planned)
    assert "planner layers" in str(planned)


def test_json_has_everything(planned: ProgramPlan) -> None:
    again = json.loads(json.dumps(planned.to_json()))
    assert again["totals"]["patterns"] == 3
    kernels = [p["kernel"] for call in again["calls"] for f in call["frames"] for p in f["patterns"]]
    assert len(kernels) == 3
    assert all(kernel["launches"][0]["registers"] > 0 for kernel in kernels)


def test_a_jit_object_keeps_its_options() -> None:
    f = jstitch.jit(norm, options=H200.replace(schemes=("thread", "packing"), tune="off"))
    assert f.options.schemes == ("thread", "packing")
    for made in (f.plan(X), jstitch.plan(f)(X)):
        assert made.target == "h200"
        assert all(set(p.kernel.schemes) <= {"thread"} for p in made.patterns if p.kernel)
    assert {e.why.rule for e in f.explain(X).open_edges if e.why} >= {"scheme"}
    assert jstitch.plan(f, jstitch.CompileOptions(target="cpu"))(X).target == "cpu"


def test_a_swapping_jit_object_is_looked_at_as_well() -> None:
    f = jstitch.jit(norm, options=H200.replace(async_compile=True))
    assert len(f.plan(X).patterns) == 1


def test_static_arguments_stay_static() -> None:
    made = jstitch.jit(lambda x, n: norm(x) * n, options=H200, static_argnums=1).plan(X, 3)
    assert len(made.patterns) == 1


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("jstitch.codegen.cpu.backend.begin", fail)
    options = jstitch.CompileOptions(target="cpu", strict=True)
    assert len(jstitch.plan(norm, options)(X).patterns) == 1
    assert len(jstitch.explain(norm, options)(X).patterns) == 1


def test_loop_bodies_are_frames_of_their_own() -> None:
    def scanned(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (norm(c @ c.T @ c), None), x, None, length=50)[0]

    options = jstitch.CompileOptions(target="cpu", tune="off", without=("recurrences",))
    made = jstitch.plan(scanned, options)(X)
    titles = [frame.title for frame in made.frames if frame.patterns]
    assert [title.partition(" at ")[0] for title in titles if "region 1" in title] == [
        "region 1 of stablehlo.while"
    ]


def test_a_pattern_that_no_kernel_holds_says_so() -> None:
    options = jstitch.CompileOptions(target="cpu", tune="off", arena_bytes=16)
    made = jstitch.plan(norm, options)(X)
    (pattern,) = made.frames[0].patterns
    assert not made.patterns
    assert pattern.kernel is None
    assert isinstance(pattern.refused, Reason)
    assert pattern.refused.bound == 16
    assert "stays XLA's: arena: needs 128 bytes" in str(made)


def test_explanations_say_why_a_pattern_is_as_it_is() -> None:
    (pattern,) = jstitch.explain(norm, H200)(X).patterns
    text = str(pattern)
    assert "modelled" in text
    assert "against XLA's" in text
    assert "256 rows" in text
    assert "occupancy" in text
    assert any(scheme.startswith(("warp:", "block:")) for scheme in pattern.schemes)


def test_edges_by_value_name_op_name_and_line() -> None:
    made = jstitch.explain(lambda x: jnp.exp(x @ x.T), H200.replace(tune="off"))(X)
    (edge,) = [e for e in made.open_edges if e.consumer.name == "stablehlo.exponential"]
    line = edge.consumer.where.partition(" ")[0]
    short = line.rpartition("/")[2]
    for producer, consumer in (
        (edge.producer.values[0], edge.consumer.values[0]),
        ("dot_general", "exponential"),
        ("stablehlo.dot_general", short),
        (line, line),
        ("dot_general", f":{line.rpartition(':')[2]}"),
    ):
        assert edge in made.edge(producer, consumer)
    assert made.edge("exponential", "dot_general") == ()
    assert made.edge("dot_general", "other.py:1") == ()


def test_opaque_ops_are_told_apart() -> None:
    def program(x: jax.Array) -> jax.Array:
        return jnp.linalg.cholesky(jnp.sort(x)).at[jnp.arange(3)].add(jnp.ones((3, 256)))

    square = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    (call,) = jstitch.explain(program, jstitch.CompileOptions(target="cpu", without=("sorts",)))(square).calls
    why = {story.op.name: story.why for story in call.opaque}
    assert "passes know stablehlo.sort by its attributes" in why["stablehlo.sort"]
    assert "potrf" in why["stablehlo.custom_call"]


def attention(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.tanh(x @ w))


STITCHED = jstitch.jit(
    attention, options=jstitch.CompileOptions(target="cpu", tune="off", without=("chains",))
)
SQUARE = jax.ShapeDtypeStruct((64, 64), jnp.float32)
BATCH = jax.ShapeDtypeStruct((3, 64, 64), jnp.float32)


@pytest.mark.parametrize(
    ("f", "x", "names"),
    [
        (jax.vmap(STITCHED, in_axes=(0, None)), BATCH, ["vmap(attention)"]),
        (
            jax.grad(lambda x, w: STITCHED(x, w).sum()),
            SQUARE,
            ["jvp(attention)", "transpose(jvp(attention))"],
        ),
        (
            jax.vmap(jax.grad(lambda x, w: STITCHED(x, w).sum()), in_axes=(0, None)),
            BATCH,
            ["vmap(jvp(attention))", "vmap(transpose(jvp(attention)))"],
        ),
    ],
)
def test_transformed_calls_are_calls_of_their_own(f: Any, x: Any, names: list[str]) -> None:
    """They are opaque to the function around them, as their kernels are."""
    plan = jstitch.plan(f, STITCHED.options)(x, SQUARE)
    *inner, outer = plan.calls
    assert [call.name for call in inner] == names
    assert all(frame.patterns for call in inner for frame in call.frames)
    assert "stablehlo.dot_general" not in outer.frames[-1].left
    made = jstitch.explain(f, STITCHED.options)(x, SQUARE)
    assert [call.name for call in made.calls] == [*names, outer.name]
    assert made.edge("dot_general", "tanh")


def test_what_was_planned_of_nested_calls_is_what_runs() -> None:
    x, count = jnp.ones((64, 64)), jstitch.stitch_count
    outer = jstitch.jit(lambda x, w: STITCHED(x, w) * 2 + 1, options=STITCHED.options)
    patterns = len(outer.plan(x, x).patterns)
    before = record_count()
    outer(x, x).block_until_ready()
    assert count(before) == patterns == 2


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())])
def test_asking_while_something_is_traced(transform: Any) -> None:
    asked = []

    def f(x: jax.Array) -> jax.Array:
        x = jnp.broadcast_to(x, (64, 64))
        asked.append((len(STITCHED.plan(x, x).patterns), len(STITCHED.explain(x, x).open_edges)))
        return STITCHED(x, x)

    transform(f)(jnp.ones((64, 64)))
    assert asked[0] == (1, 1)


def test_import_does_not_pay_for_it() -> None:
    slow = "m in ('rich', 'IPython') or 'jstitch.inspection.e' in m"
    code = f"import sys, jstitch; print([m for m in sys.modules if {slow}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
