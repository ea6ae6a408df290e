"""CompileOptions(tune='measure'): what is measured, what is remembered, and what it leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend import measured_gate
from jstitch.frontend.importer import import_module
from jstitch.frontend.measurable import why_not_run
from jstitch.frontend.measure import FLOOR, Measurer, Rivals, apart
from jstitch.frontend.measured_gate import Decision
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.probe import Step, make_program, program_text
from jstitch.frontend.probe_inputs import COUNT, describe_arguments, make_arguments
from jstitch.ir.graph import Graph
from jstitch.runtime.race import Race


def measure(folder: Path, **options: Any) -> jstitch.CompileOptions:
    return jstitch.CompileOptions(tune="measure", cache_dir=str(folder), strict=True, **options)


def decisions(
    f: Callable[..., Any], *args: Any, options: jstitch.CompileOptions, **jit: Any
) -> list[Decision]:
    """What was decided when f was lowered for these arguments; its results are right."""
    since = jstitch.record_count()
    expected = jax.jit(f)(*args)
    found = jstitch.jit(f, options=options)(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=1e-6), found, expected)
    return [d for record in jstitch.last_report(since) for d in record.details.get("tuning", ())]


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def soft(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> list[Rivals]:
    """Every race from now on."""
    found: list[Rivals] = []
    real = Measurer.race

    def spy(self: Measurer, rivals: Rivals, *others: Any) -> Race:
        found.append(rivals)
        return real(self, rivals, *others)

    monkeypatch.setattr(Measurer, "race", spy)
    return found


def pretend(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Nothing is run: programs take these times, XLA's first."""

    def result(self: Measurer, rivals: Rivals, *_: Any) -> Race:
        return Race((seconds[: len(rivals.programs)],) * 5)

    monkeypatch.setattr(Measurer, "race", result)
    monkeypatch.setattr(Measurer, "footprint", lambda self, rivals: FLOOR)


# -- one process -----------------------------------------------------------------------------------------


def test_everything_is_measured_once(tmp_path: Path, races: list[Rivals]) -> None:
    first = decisions(soft, normal(64, 512), options=measure(tmp_path))
    assert [(d.subject, d.how) for d in first] == [("soft_row_0", "measured"), ("function", "measured")]
    assert all(d.ours and d.xla and 1e-7 < d.ours < 1 and 1e-7 < d.xla < 1 for d in first)
    assert len(races) == 2
    again = decisions(lambda y: soft(y), normal(64, 512), options=measure(tmp_path))
    assert [(d.choice, d.how) for d in again] == [(d.choice, "stored") for d in first]
    assert [(d.ours, d.xla) for d in again] == [(d.ours, d.xla) for d in first]
    assert len(races) == 2


def test_the_default_measures_nothing(races: list[Rivals]) -> None:
    assert jstitch.CompileOptions().tune == "model"
    assert decisions(soft, normal(32, 512), options=jstitch.CompileOptions()) == []
    assert races == []


@pytest.mark.parametrize(
    ("seconds", "choices", "kernels"),
    [
        ((1e-3, 5e-4), ["ours", "measured"], 1),  # ours is faster
        ((1e-3, 2e-3), ["xla", "xla"], 0),  # it is slower, alone and in the function
    ],
)
def test_the_faster_one_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, ...],
    choices: list[str],
    kernels: int,
) -> None:
    pretend(monkeypatch, *seconds)
    since = jstitch.record_count()
    found = decisions(soft, normal(64, 512), options=measure(tmp_path))
    assert [d.choice for d in found] == choices
    assert jstitch.stitch_count(since) == kernels


def test_a_pattern_that_wins_alone_and_loses_in_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([(2e-3, 1e-3), (1e-3, 1.5e-3)])
    pretend(monkeypatch)
    monkeypatch.setattr(Measurer, "race", lambda *_: Race((next(times),) * 5))
    since = jstitch.record_count()
    found = decisions(soft, normal(64, 512), options=measure(tmp_path))
    assert [d.choice for d in found] == ["ours", "xla"]
    assert jstitch.stitch_count(since) == 0


def test_without_a_budget_the_model_decides_and_a_later_process_measures(
    tmp_path: Path, races: list[Rivals]
) -> None:
    since = jstitch.record_count()
    found = decisions(soft, normal(64, 512), options=measure(tmp_path, tune_seconds=0))
    assert [d.how for d in found] == ["modelled", "modelled"]
    assert all("budget of 0 s" in d.why for d in found)
    assert races == []
    assert jstitch.stitch_count(since) == 1  # what tune='model' does
    later = decisions(lambda x: soft(x), normal(64, 512), options=measure(tmp_path))
    assert [d.how for d in later] == ["measured", "measured"]


def test_donated_arguments_are_measured_in_place(tmp_path: Path, races: list[Rivals]) -> None:
    def step(p: Any, m: Any, g: Any) -> tuple[Any, Any]:
        m = 0.9 * m + g
        return p - 0.1 * m / (1 + jnp.abs(m)), m

    args = [jnp.asarray(normal(128, 256)) for _ in range(3)]
    expected = jax.jit(step)(*args)
    found = jstitch.jit(step, options=measure(tmp_path), donate_argnums=(0, 1))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), found, expected)
    assert [sorted(r.donated.values()) for r in races] == [[0, 1], [0, 1]]


def test_loops_are_measured_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    def f(h: Any, xs: Any) -> Any:
        def body(h: Any, x: Any) -> Any:
            h = soft(jnp.tanh(h) + x)
            return h, h.sum()

        return lax.scan(body, h, xs)

    with jax.checking_leaks():
        found = decisions(f, normal(32, 128), normal(10, 32, 128), options=measure(tmp_path))
    assert {d.how for d in found} <= {"measured", "stored"}
    assert found[-1].subject == "function"
    names = [t.name for t in threading.enumerate()]
    assert "jstitch-measure" not in names


def test_settings_of_the_user_do_not_reach_the_measuring_thread(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return soft(jnp.log(x - 0.5)) * 2  # NaN on some arguments that are measured with

    with jax.enable_x64(True), jax.debug_nans(True):
        x = np.abs(normal(64, 256, dtype=np.float64)) + 1
        found = decisions(f, x, options=measure(tmp_path))
    assert found
    assert {d.how for d in found} == {"measured"}
    assert not jax.config.jax_debug_nans


def test_four_threads_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def run(rows: int) -> None:
        try:
            x = normal(rows, 256)
            np.testing.assert_allclose(jstitch.jit(soft, options=measure(tmp_path))(x), soft(x), rtol=2e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(32 + 32 * (n % 2),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_under_grad_and_vmap(tmp_path: Path) -> None:
    f = jax.grad(lambda x: (soft(x) ** 2).sum())
    since = jstitch.record_count()
    stitched = jstitch.stitch(lambda x: (soft(x) ** 2).sum(), measure(tmp_path))
    x = normal(3, 16, 128)
    found = jax.jit(jax.vmap(jax.grad(stitched)))(x)
    np.testing.assert_allclose(found, jax.jit(jax.vmap(f))(x), rtol=3e-5, atol=1e-7)
    assert all("tuning" in record.details for record in jstitch.last_report(since))


@pytest.mark.parametrize(("ours", "kernels"), [(5e-4, 1), (2e-3, 0)])
def test_a_function_with_effects_is_left_to_its_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: float, kernels: int
) -> None:
    pretend(monkeypatch, 1e-3, ours)
    seen: list[float] = []

    def f(x: Any) -> Any:
        y = soft(x)
        jax.debug.callback(lambda v: seen.append(float(v)), y[0, 0])
        return y * 2

    since = jstitch.record_count()
    jstitch.jit(f, options=measure(tmp_path))(normal(64, 512)).block_until_ready()
    jax.effects_barrier()
    assert len(seen) == 1
    *patterns, function = jstitch.last_report(since)[0].details["tuning"]
    assert function.how == "modelled"
    assert function.why
    assert patterns
    assert jstitch.stitch_count(since) == kernels


def test_what_needs_more_memory_than_the_function_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, races: list[Rivals]
) -> None:
    monkeypatch.setattr("jstitch.frontend.measure.FLOOR", 0)

    def f(x: Any, w: Any) -> Any:  # 4 MB in the middle, a few KB around; effects: its own needs are not known
        jax.debug.callback(lambda v: None, x[0, 0])
        return soft(x @ w).sum(0) + soft(x @ w).sum(1)[0]

    since = jstitch.record_count()
    jstitch.jit(f, options=measure(tmp_path))(normal(1024, 2), normal(2, 1024)).block_until_ready()
    patterns = jstitch.last_report(since)[0].details["tuning"][:-1]
    assert patterns
    assert all(d.how == "modelled" and "MB, the function" in d.why for d in patterns)


def test_memory_that_is_not_free_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jstitch.frontend.measure.free_bytes", lambda device: 1000)
    found = decisions(soft, normal(64, 512), options=measure(tmp_path))
    assert all(d.how == "modelled" and "are free" in d.why for d in found)


def test_other_devices_are_modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not here, as when a program is compiled for another machine."""
    monkeypatch.setattr(measured_gate, "_device_here", lambda options, backend: None)
    since = jstitch.record_count()
    (found,) = decisions(soft, normal(64, 512), options=measure(tmp_path))
    assert (found.how, found.why) == ("modelled", "their device is not here")
    assert jstitch.stitch_count(since) == 1
    monkeypatch.undo()
    assert measured_gate._device_here(measure(tmp_path, target="h200"), None) is None  # type: ignore[arg-type]


def test_the_dump_says_what_was_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1e-3, 5e-4)
    decisions(soft, normal(64, 512), options=measure(tmp_path, dump_dir=str(tmp_path / "dump")))
    (path,) = (tmp_path / "dump").rglob("*_tuning.txt")
    pattern, function = path.read_text().splitlines()
    assert pattern.startswith("soft_row_0: ours, measured, ")
    assert "us against XLA's " in pattern
    assert function.startswith("function: measured, measured, ")


# -- its parts -------------------------------------------------------------------------------------------


def graph_of(f: Callable[..., Any], *args: Any) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def test_the_text_of_a_program_knows_no_names_and_no_lines() -> None:
    def same(first: Any, second: Any) -> Any:
        total = first * second
        return total + 1.0

    x = np.ones((4, 4), np.float32)
    text = program_text(graph_of(same, x, x))
    assert text == program_text(graph_of(lambda a, b: a * b + 1.0, x, x))
    assert text != program_text(graph_of(lambda a, b: a * b + 2.0, x, x))
    assert text != program_text(graph_of(lambda a, b: a * b + 1.0, x[:2], x[:2]))


def test_positions_are_valid_and_cover_what_they_index() -> None:
    def f(table: Any, ids: Any, start: Any, x: Any, n: Any, bits: Any) -> Any:
        rows = table[jnp.where(ids < 0, ids + 1000, ids)]
        return rows.sum() + lax.dynamic_slice(x, (start,), (10,)).sum() + n + bits.sum()

    args = (
        normal(1000, 4),
        np.zeros(500, np.int32),
        np.int32(0),
        normal(30),
        np.int32(3),
        np.zeros(9, np.uint32),
    )
    arguments = describe_arguments(graph_of(f, *args))
    assert [a.below for a in arguments] == [COUNT, 1000, 21, COUNT, COUNT, None]
    table, ids, begin, *_ = (np.asarray(a) for a in make_arguments(arguments, jax.devices("cpu")[0]))
    assert 0 <= ids.min() < 100
    assert 900 < ids.max() < 1000
    assert 0 <= begin <= 20
    assert 0.1 <= table.min() < table.max() < 1.0


def test_functions_that_may_run_on_random_arguments() -> None:
    x = normal(4, 4)
    n = np.int32(3)

    def until(limit: Any) -> Callable[..., Any]:
        return lambda x: lax.while_loop(lambda s: s.sum() < limit, lambda s: s * 2, x)

    def nested(x: Any) -> Any:
        outer = lambda i, s: lax.fori_loop(0, 3, lambda j, t: t * 2 + i, s)  # noqa: E731
        return lax.fori_loop(0, 5, outer, x)

    assert why_not_run(graph_of(soft, x)) is None
    assert why_not_run(graph_of(nested, x)) is None
    assert why_not_run(graph_of(lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x), x)) is None
    assert why_not_run(graph_of(lambda x: jnp.sort(jnp.fft.fft(x).real), x)) is None
    assert "depends on data" in str(why_not_run(graph_of(until(1.0), x)))
    trips = lambda x, n: lax.fori_loop(0, n, lambda i, s: s * 2, x)  # noqa: E731
    assert "depends on data" in str(why_not_run(graph_of(trips, x, n)))
    inner = lambda x: lax.fori_loop(0, 5, lambda i, s: lax.fori_loop(0, i, lambda j, t: t + 1, s), x)  # noqa: E731
    assert "depends on data" in str(why_not_run(graph_of(inner, x)))
    call = lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)  # noqa: E731
    assert "custom_call" in str(why_not_run(graph_of(call, x)))


def test_a_program_run_in_turns_gives_what_one_run_gives() -> None:
    x, y = normal(8, 8), normal(8, 8)
    graph = graph_of(lambda x, y: (x * y, (x + y).sum()), x, y)
    cpu = jax.devices("cpu")[0]

    def results(turns: int) -> list[Any]:
        step = Step(make_program(graph), cpu, {}, turns)
        return list(step._compiled(*map(jnp.asarray, (x, y))))

    once, many = (apart(lambda stop, n=n: results(n)) for n in (1, 5))  # type: ignore[misc]
    for a, b in zip(once, many, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_errors_of_the_measuring_thread_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(lambda stop: 1 // 0)
