"""Events of jax.monitoring and lines of the log: who is told what, and that nobody has to listen."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring

import jstitch
from jstitch.errors import JstitchWarning
from jstitch.runtime import telemetry
from jstitch.runtime.cache import KernelCache, Label
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict
from jstitch.runtime.report import note, recording

EVERYTHING = jstitch.CompileOptions(tune="off", strict=True)
X = np.ones((8, 64), np.float32)
Told = list[tuple[str, float | None, dict[str, Any]]]


@pytest.fixture
def told() -> Iterator[Told]:
    """What listeners hear of jstitch: name, value, labels."""
    found: Told = []

    def count(name: str, **labels: Any) -> None:
        if name.startswith("/jstitch/"):
            found.append((name, None, labels))

    def measure(name: str, value: float, **labels: Any) -> None:
        if name.startswith("/jstitch/"):
            found.append((name, value, labels))

    monitoring.register_event_listener(count)
    monitoring.register_event_duration_secs_listener(measure)
    monitoring.register_scalar_listener(measure)
    yield found
    monitoring.unregister_event_listener(count)
    monitoring.unregister_event_duration_listener(measure)
    monitoring.unregister_scalar_listener(measure)


def named(told: Told, event: telemetry.Event) -> list[tuple[float | None, dict[str, Any]]]:
    """The events of that name; their labels are those of the table, in its order."""
    found = [(value, labels) for name, value, labels in told if name == event.name]
    assert all(tuple(labels) == event.labels for _, labels in found)
    return found


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x * 3, -1)


def transform(x: Any) -> Any:
    return jnp.fft.fft(x)


def anew(f: Any) -> Any:
    """The function, which JAX has not lowered before."""
    return types.FunctionType(f.__code__, f.__globals__, f.__name__)


def test_a_stitched_call(told: Told) -> None:
    jstitch.jit(anew(softmax), options=EVERYTHING)(X)
    assert named(told, telemetry.CALLS) == [(None, {"function": "softmax"})]
    assert named(told, telemetry.KERNELS) == [(1, {"function": "softmax"})]
    [(seconds, labels)] = named(told, telemetry.STITCHING)
    assert seconds is not None
    assert seconds > 0
    assert labels == {"function": "softmax"}
    assert not named(told, telemetry.FALLBACKS)


def test_a_fallback_says_why(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "jstitch.fusion"):
        jstitch.jit(anew(transform), options=EVERYTHING).lower(X)
    why = "there are no ops that can be stitched together"
    assert named(told, telemetry.FALLBACKS) == [(None, {"function": "transform", "reason": why})]
    assert not named(told, telemetry.KERNELS)
    line = transform.__code__.co_firstlineno
    assert f"transform: XLA's own kernels: {why} (at {__file__}:{line})" in caplog.messages


def test_the_log_tells_of_kernels(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "jstitch.fusion"):
        jstitch.jit(anew(softmax), options=EVERYTHING).lower(X)
    kernel, call = caplog.messages
    line = softmax.__code__.co_firstlineno + 1
    assert re.fullmatch(rf"kernel softmax_row_0: \d+ ops, by \w+, at {__file__}:{line} \(softmax\)", kernel)
    assert re.fullmatch(
        r"softmax: 1 kernel of (\d+) of \1 ops, \d+\.\d\d -> \d+\.\d\d MB \(modelled\)", call
    ), call


def test_the_log_tells_what_is_not_fused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "jstitch.fusion"):
        jstitch.jit(
            lambda x: jnp.cumsum(jnp.sort(x * 2, -1) * 3), options=EVERYTHING.replace(without=("sorts",))
        ).lower(X)
    assert any(m.startswith("not fused, opaque: ") and f"at {__file__}:" in m for m in caplog.messages)


def test_nothing_is_told_of_what_is_only_considered(caplog: pytest.LogCaptureFixture) -> None:
    """tune="measure" plans a function twice; the log tells once."""
    options = jstitch.CompileOptions(tune="measure", tune_seconds=0.0)
    with caplog.at_level(logging.DEBUG, "jstitch"):
        jstitch.jit(anew(softmax), options=options).lower(X)
    kernels = [m for m in caplog.messages if m.startswith(("kernel ", "softmax_row_0 stays"))]
    assert len(kernels) == 1
    assert any(r.name == "jstitch.tune" and "the budget of 0 s is spent" in r.message for r in caplog.records)


def test_the_cache(told: Told, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, label = KernelCache(tmp_path), Label("cpu here")
    with caplog.at_level(logging.DEBUG, "jstitch"):
        assert [cache.obtain("00", "softmax_0", label, lambda: b"code") for _ in range(2)] == [b"code"] * 2
    assert [name for name, _, _ in told] == [
        telemetry.MISSES.name,
        telemetry.COMPILATION.name,
        telemetry.HITS.name,
    ]
    assert all(labels == {"target": "cpu here"} for _, _, labels in told)
    assert [r.name for r in caplog.records] == ["jstitch.cache", "jstitch.compile", "jstitch.cache"]
    assert all(m.startswith("softmax_0 for cpu here: ") for m in caplog.messages)


def test_a_failed_compilation_is_no_compilation(told: Told, tmp_path: Path) -> None:
    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        KernelCache(tmp_path).obtain("00", "softmax_0", Label("cpu"), fail)
    assert [name for name, _, _ in told] == [telemetry.MISSES.name]


def test_verdicts(told: Told, tmp_path: Path) -> None:
    with PerformanceLibrary(tmp_path / "library.db", "cpu", "1") as library:
        library.decide("a", Verdict("pattern", 1.0, 2.0, 5, "ours"))
        library.decide("b", Verdict("function", 2.0, 1.0, 0, "xla"))
    assert [labels for _, labels in named(told, telemetry.VERDICTS)] == [
        {"kind": "pattern", "choice": "ours", "how": "measured"},
        {"kind": "function", "choice": "xla", "how": "modelled"},
    ]


def test_background_compilations(told: Told) -> None:
    with recording("f"):
        note(background_seconds=1.5)
    assert told == [(telemetry.BACKGROUND.name, 1.5, {"function": "f"})]


def test_a_listener_that_fails_stops_nobody() -> None:
    def listener(name: str, **_: Any) -> None:
        if name.startswith("/jstitch/"):
            raise RuntimeError("my metrics are down")

    monitoring.register_event_listener(listener)
    try:
        with pytest.warns(JstitchWarning, match="my metrics are down"):
            found = jstitch.jit(anew(softmax), options=EVERYTHING)(X)
    finally:
        monitoring.unregister_event_listener(listener)
    np.testing.assert_allclose(found, softmax(X), rtol=1e-6)


SCRIPT = """
import jax.numpy as jnp, jstitch
f = jstitch.jit(lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True))
f.lower(jnp.ones((512, 512)))
"""


def test_the_variable() -> None:
    """A wrong name is one warning, and the right ones count."""
    env = {**os.environ, "JSTITCH_LOG": "+cache,fusion,fusoin", "PYTHONWARNINGS": "always"}
    python = [sys.executable, "-c", SCRIPT]
    found = subprocess.run(python, env=env, capture_output=True, text=True, check=True).stderr
    assert set(re.findall(r"^(jstitch\.\w+): ", found, re.MULTILINE)) == {"jstitch.cache", "jstitch.fusion"}
    (warning,) = [line for line in found.splitlines() if "JstitchWarning" in line]
    assert "found 'fusoin'" in warning
    assert "fusion, cache, compile, tune, all" in warning


@pytest.mark.skipif("JSTITCH_LOG" in os.environ, reason="somebody wants to see lines")
def test_silent_by_default() -> None:
    root = logging.getLogger("jstitch")
    assert [type(handler) for handler in root.handlers] == [logging.NullHandler]
    assert not any(telemetry.logger(area).isEnabledFor(logging.INFO) for area in telemetry.AREAS)


@pytest.mark.parametrize(
    ("wanted", "levels"),
    [
        ("tune", {"tune": logging.INFO}),
        ("+all,cache", {**dict.fromkeys(telemetry.AREAS, logging.DEBUG), "cache": logging.INFO}),
    ],
)
def test_levels(wanted: str, levels: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "ROOT", "jstitch_test")
    root = logging.getLogger("jstitch_test")
    telemetry.start_logging(wanted)
    found = {area: telemetry.logger(area).level for area in telemetry.AREAS}
    for area in telemetry.AREAS:
        telemetry.logger(area).setLevel(logging.NOTSET)
    root.handlers.clear()
    assert {area: level for area, level in found.items() if level} == levels
