"""Small phases run on all threads where the pool's are awake, by a clock that the tests set."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import jax
import pytest
from runtime_kernels import add_constant, call, random

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import process_block, set_num_threads

SHORT, MIDDLE, LONG = process_block.AWAKE_NS // 2, process_block.AWAKE_NS * 2, process_block.SERIAL_NS * 2
SOON, LATE = at.STAY_AWAKE_NS // 2, at.STAY_AWAKE_NS * 2
_CLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))


class Clock:
    """nanoseconds: what the handler is told."""

    def __init__(self) -> None:
        self.nanoseconds = 10**12

        def tell(clock: int, words: ctypes._Pointer[ctypes.c_int64]) -> int:
            words[0], words[1] = divmod(self.nanoseconds, 10**9)
            return 0

        self.function = _CLOCK(tell)


@pytest.fixture
def clock() -> Iterator[Clock]:
    block, made = process_block.process_block(), Clock()
    words = at.PROCESS_CLOCK, at.PROCESS_SEEN, at.PROCESS_CALLED, at.PROCESS_STREAK
    old, threads = [block[word] for word in words], set_num_threads(2)
    block[at.PROCESS_CLOCK] = ctypes.cast(made.function, ctypes.c_void_p).value or 0
    for word in words[1:]:
        block[word] = 0
    yield made
    set_num_threads(threads)
    for word, value in zip(words, old, strict=True):
        block[word] = value


def is_shared(alone_ns: int) -> bool:
    """Whether a call's threads have something to share: a block, which the last one gives back."""
    source = add_constant(64, 1.0, alone_ns=alone_ns)
    x = random(64)
    run = jax.jit(lambda x: call(source, jax.ShapeDtypeStruct(x.shape, x.dtype), x)).lower(x).compile()
    block = process_block.process_block()
    slots = range(at.PROCESS_JOIN_SLOTS, at.PROCESS_JOIN_SLOTS + at.NUM_SLOTS)
    for slot in slots:
        block[slot] = 0
    jax.block_until_ready(run(x))
    end = time.monotonic() + 0.2
    while time.monotonic() < end and not any(block[slot] for slot in slots):
        time.sleep(0.001)
    return any(block[slot] for slot in slots)


@pytest.mark.skipif(process_block.available_threads() < 2, reason="nobody to share with")
@pytest.mark.parametrize(
    ("times", "first", "pause", "then", "shared"),
    [
        (1, LONG, LATE, LONG, True),
        (1, LONG, LATE, MIDDLE, False),
        (1, LONG, SOON, MIDDLE, True),
        (1, LONG, SOON, SHORT, False),
        (at.STREAK, MIDDLE, SOON, MIDDLE, True),
        (at.STREAK - 1, MIDDLE, SOON, MIDDLE, False),
        (at.STREAK, MIDDLE, LATE, MIDDLE, False),
        (at.STREAK, SHORT, SOON, MIDDLE, False),
    ],
)
def test_who_is_woken(clock: Clock, times: int, first: int, pause: int, then: int, shared: bool) -> None:
    for _ in range(times):
        assert is_shared(first) == (first == LONG)
        clock.nanoseconds += pause
    assert is_shared(then) == shared


@pytest.mark.skipif(process_block.available_threads() < 2, reason="nobody to share with")
def test_a_pause_ends_a_streak(clock: Clock) -> None:
    for pause in (SOON, SOON, 4 * LATE, SOON, SOON):
        assert not is_shared(MIDDLE)
        clock.nanoseconds += pause
    assert not is_shared(MIDDLE)
    clock.nanoseconds += SOON
    assert is_shared(MIDDLE)


def test_without_a_clock_no_thread_is_awake(clock: Clock) -> None:
    process_block.process_block()[at.PROCESS_CLOCK] = 0
    assert not is_shared(MIDDLE)
    assert not is_shared(MIDDLE)
