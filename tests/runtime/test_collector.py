"""The garbage collector waits while a program is compiled, and works again afterwards."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from runtime_kernels import run_python

import jstitch
from jstitch.frontend import rewrite
from jstitch.runtime.collector import collector_paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    assert gc.isenabled()


def test_until_all_pauses_have_ended() -> None:
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=other)
    with collector_paused(), collector_paused():
        assert not gc.isenabled()
        thread.start()
        inside.wait(10)
    assert not gc.isenabled()
    go.set()
    thread.join()


def test_an_exception_ends_a_pause() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    off = not gc.isenabled()
    gc.enable()
    assert off


FORK = """
import gc, os, threading
from contextlib import nullcontext
from jstitch.runtime.collector import collector_paused

def pause():
    with collector_paused():
        inside.set()
        go.wait(60)

inside, go = threading.Event(), threading.Event()
thread = threading.Thread(target=pause)
thread.start()
inside.wait(60)
for own in (False, True):
    with collector_paused() if own else nullcontext():
        child = os.fork()
        if child == 0:
            running = gc.isenabled()
    if child == 0:
        os._exit(0 if (running, gc.isenabled()) == (not own, True) else 3)
    assert os.waitpid(child, 0)[1] == 0, own
    assert not gc.isenabled()
go.set()
thread.join()
assert gc.isenabled()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_other_threads_pauses_end_in_a_forked_child() -> None:
    run_python(FORK)


@pytest.mark.parametrize(("tune", "running"), [("off", False), ("model", False), ("measure", True)])
def test_lowering_pauses_it_unless_it_measures(
    tune: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    planned = rewrite.plan_frame

    def look(*args: object, **named: object) -> object:
        seen.append(gc.isenabled())
        return planned(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "plan_frame", look)
    x = np.ones((64, 128), np.float32)
    jstitch.jit(lambda x: x - x.mean(-1, keepdims=True), options=jstitch.CompileOptions(tune=tune))(x)
    assert set(seen) == {running}
