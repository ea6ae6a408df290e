"""Run in a process by test_measured_gate_processes.py: `python tuned.py <what> [<shapes>]`, measuring.

Prints one JSON object: how many races there were, and what was decided about each pattern and function.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import jstitch
from jstitch.codegen.cpu import backend
from jstitch.frontend.measure import Measurer
from jstitch.frontend.measured_gate import Decision

AGAIN = 40
races: list[int] = []


def count_races() -> None:
    real = Measurer.race

    def race(self: Measurer, *args: Any) -> Any:
        races.append(1)
        return real(self, *args)

    Measurer.race = race  # type: ignore[method-assign]


def make_kernels_bad() -> None:
    """From now on every kernel does its work many times over: right, and slow."""
    real = backend.emit

    def emit(kernel: Any) -> Any:
        emitted = real(kernel)
        text = re.sub(r"(?m)^    (?=\S)|^    (?=    )", "        ", emitted.source.text)
        text = re.sub(r"(?m)^(def .*:)$", rf"\1\n    for again in range(0, {AGAIN}):", text)
        return replace(emitted, source=replace(emitted.source, text=text))

    backend.emit = emit  # type: ignore[assignment]


def soft(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def tune(rows: int) -> tuple[Decision, ...]:
    since = jstitch.record_count()
    x = np.random.default_rng(rows).normal(size=(rows, 512)).astype(np.float32)
    found = jstitch.jit(soft, options=jstitch.CompileOptions(tune="measure"))(x)
    np.testing.assert_allclose(found, soft(x), rtol=2e-5)
    (record,) = jstitch.last_report(since)
    return record.details["tuning"]  # type: ignore[no-any-return]


if __name__ == "__main__":
    count_races()
    if sys.argv[1] == "bad":
        make_kernels_bad()
    decisions = [d for rows in map(int, sys.argv[2:]) for d in tune(rows)]
    print(json.dumps({"races": len(races), "decisions": [(d.subject, d.choice, d.how) for d in decisions]}))
