"""Options and the report: the project's own knobs and what it says it did."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import jstitch
from jstitch.errors import OptionError
from jstitch.runtime import report


def test_defaults_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSTITCH_TUNE", "off")
    monkeypatch.setenv("JSTITCH_VERIFY", "no")
    monkeypatch.setenv("JSTITCH_ARENA_BYTES", "4096")
    monkeypatch.setenv("JSTITCH_PRINT_AFTER", "cse, dce")
    options = jstitch.CompileOptions()
    assert (options.tune, options.verify, options.arena_bytes) == ("off", False, 4096)
    assert options.print_after == ("cse", "dce")
    assert jstitch.CompileOptions(tune="model").tune == "model"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TUNE", "sometimes"),
        ("VERIFY", "2"),
        ("ARENA_BYTES", "many"),
        ("ARENA_BYTES", "-1"),
        ("PLANNER", "none"),
        ("TARGET", "abacus"),
        ("SCHEMES", "packing,loom"),
    ],
)
def test_bad_environment_values_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"JSTITCH_{name}", value)
    with pytest.raises(OptionError, match=rf"(?i)\b(JSTITCH_)?{name}\b") as caught:
        jstitch.CompileOptions()
    assert value.split(",")[-1] in str(caught.value)
    assert "next:" in str(caught.value)


@pytest.mark.parametrize("bad", [{"tune": "x"}, {"arena_bytes": 0}, {"schemes": ("loom",)}], ids=str)
def test_bad_fields(bad: dict[str, Any]) -> None:
    with pytest.raises(jstitch.JstitchError):
        jstitch.CompileOptions(**bad)


def test_options_are_hashable_and_normal() -> None:
    a = jstitch.CompileOptions(print_after="cse,dce", dump_dir=Path("d"))  # type: ignore[arg-type]
    b = jstitch.CompileOptions(print_after=("cse", "dce"), dump_dir="d")
    assert a == b
    assert hash(a) == hash(b)
    assert a.replace(tune="off") != a


def test_records_nest_and_add_up() -> None:
    since = jstitch.record_count()
    with report.recording("outer"):
        report.note(kernels=1, bytes=8)
        with report.recording("transpose(inner)"):
            report.note(reason="too small")
        report.note(kernels=2)
    inner, outer = jstitch.last_report(since)
    assert inner == jstitch.Record("transpose(inner)", 0, "too small")
    assert inner.backward
    assert outer == jstitch.Record("outer", 3, None, {"bytes": 8})
    assert jstitch.stitch_count(since) == 3


def test_the_report_is_bounded_and_thread_safe() -> None:
    since = jstitch.record_count()

    def run() -> None:
        for _ in range(report.MAX_RECORDS):
            with report.recording("f"):
                report.note(kernels=1)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert jstitch.record_count() == since + 2 * report.MAX_RECORDS
    assert len(jstitch.last_report(since)) == report.MAX_RECORDS == jstitch.stitch_count(since)
    report.note(kernels=5)
    assert jstitch.last_report(jstitch.record_count()) == ()
