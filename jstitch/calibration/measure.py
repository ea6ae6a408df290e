"""Measure this machine: memory's speed by working set and cores, arithmetic, calls, forks, XLA's launches.

calibrate(progress) == Machine(lane_cycle=1.0e-11, bandwidths=BandwidthCurve(((524288.0, 2.4e11), ...)), ...)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jstitch.calibration.streams import Step, chain, seconds_per_call, seconds_per_turn, stream, threads
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import F32_BYTES, Machine
from jstitch.runtime.native_object import host_processor
from jstitch.runtime.process_block import available_threads

LONE_SIZES = tuple(1 << k for k in range(14, 28))  # bytes in use
SHARED_SIZES = tuple(1 << k for k in range(20, 28))
CHAIN = 4096, 64  # elements, additions: in the nearest cache, and nothing but arithmetic
PAIRS = 32  # buffers in and out of the kernel that shows what an operand costs
XLA_ELEMENTS, XLA_STEPS = 64, (8, 40)
STEPS = len(LONE_SIZES) + len(SHARED_SIZES) + 4


def calibrate(advance: Callable[[str], None] = lambda step: None, budget: float = 0.3) -> Machine:
    """Measure for about `budget` seconds at each of STEPS steps; `advance` hears the name of each first."""
    advance("arithmetic")
    lane = _lane_cycle(budget)
    advance("calls")
    call, operand = _call(budget)
    advance("launches of XLA's")
    launch = _launch(budget)
    advance("forks")
    cores = available_threads()
    fork = _fork(budget) if cores > 1 else Machine().fork
    lone = BandwidthCurve(tuple(_curve(LONE_SIZES, 1, advance, budget)))
    shared = BandwidthCurve(tuple(_curve(SHARED_SIZES, cores, advance, budget)))
    return replace(
        Machine(),
        lane_cycle=lane / cores,
        launch=launch,
        call_seconds=call,
        operand=operand,
        fork=fork,
        cores=float(cores),
        vector_bytes=vector_bytes(),
        near_bytes=near_bytes(),
        lone_bandwidths=lone,
        bandwidths=shared,
    )


def _lane_cycle(budget: float) -> float:
    """Seconds of one more light op on one element, on one core."""
    elements, additions = CHAIN
    short, long = (seconds_per_call(chain(elements, k), budget / 2) for k in (additions // 4, additions))
    return max(1e-13, (long - short) / (elements * (additions - additions // 4)))


def _call(budget: float) -> tuple[float, float]:
    """Seconds of a call with one buffer in and one out, less these; and of each buffer."""
    one, many = (seconds_per_call(stream(16, pairs), budget / 2) for pairs in (1, PAIRS))
    operand = max(1e-10, (many - one) / (2 * (PAIRS - 1)))
    return max(1e-9, one - 2 * operand), operand


def _launch(budget: float) -> float:
    """Seconds of one more small kernel of XLA's: sums and differences in turn, in one program."""
    few, many = XLA_STEPS
    short, long = (_xla_seconds(steps, budget / 2) for steps in XLA_STEPS)
    return max(1e-9, (long - short) / (2 * (many - few)))


def _xla_seconds(steps: int, budget: float) -> float:
    return seconds_per_turn(jax.jit(small_kernels(steps)), [jnp.ones(XLA_ELEMENTS), jnp.ones(2)], budget)


def small_kernels(steps: int) -> Step:
    """(turns, numbers, two): so many sums and differences at each turn, each kernel started by itself.

    XLA would make one function of the loop, if that did not sort two numbers.
    """

    def run(turns: Any, x: Any, two: Any) -> Any:
        def body(k: Any, carried: Any) -> Any:
            x, two = carried
            for _ in range(steps):
                x = x - 1e-3 * jnp.sum(x)
            return x, jnp.sort(-two)

        return jax.lax.fori_loop(0, turns, body, (x, two))

    return run


def _fork(budget: float) -> float:
    """Seconds that a phase on all cores takes longer than its share of the work."""
    call = chain(1 << 17, 16)
    together = seconds_per_call(call, budget / 2)
    with threads(1):
        alone = seconds_per_call(call, budget / 2)
    return max(1e-8, together - alone / available_threads())


def _curve(
    sizes: tuple[int, ...], cores: int, advance: Callable[[str], None], budget: float
) -> Iterator[tuple[float, float]]:
    """(bytes in use, bytes per second), reading half of them and writing the other half."""
    for size in sizes:
        advance(f"memory, {size // 1024} KiB, {cores} cores" if cores > 1 else f"memory, {size // 1024} KiB")
        with threads(cores):
            seconds = seconds_per_call(stream(size // (2 * F32_BYTES)), budget)
        yield float(size), size / seconds


def vector_bytes() -> int:
    """Of this processor's registers, as far as compiled code uses them."""
    features = host_processor()
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


def near_bytes() -> int:
    """Of a core's own second-level cache; the default where the system does not say."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if (index / "level").read_text().strip() == "2":
                return int((index / "size").read_text().strip().removesuffix("K")) * 1024
    return Machine().near_bytes
