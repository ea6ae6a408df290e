"""Many compilations in one process: nothing of a program stays but its kernels' machine code."""

from __future__ import annotations

from pathlib import Path

import pytest
from robustness_support import run_python

COMPILE = """
import ctypes, gc, linecache, resource, sys
from pathlib import Path
from jax.extend.core import Jaxpr
import jstitch
from jstitch.ir.graph import Graph, Op
from robustness_support import STRICT, arguments, standardize

trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)

def resident():
    gc.collect()
    trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def jaxprs():
    return sum(isinstance(o, Jaxpr) for o in gc.get_objects())

count, kernels, warm_up = map(int, sys.argv[1:])
x, w = arguments()
before = jaxprs_before = 0
for i in range(count):
    jstitch.jit(standardize(float(i % kernels)), options=STRICT)(x, w).block_until_ready()
    if i == warm_up:
        before, jaxprs_before = resident(), jaxprs()
after = resident()
assert jstitch.stitch_count() == count
assert not [o for o in gc.get_objects() if isinstance(o, Graph | Op)], "graphs of compiled programs are alive"
assert jaxprs() <= jaxprs_before, "traces of dead functions are alive"
assert not [name for name in linecache.cache if "jstitch " in name], "kernel texts are alive"
print((after - before) / (count - warm_up - 1))
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


@needs_proc
def test_memory_of_60_compilations(tmp_path: Path) -> None:
    """An importer's MLIR context that is kept alive costs more than a megabyte each time."""
    grown = float(run_python(COMPILE, "60", "12", "30", JSTITCH_CACHE_DIR=str(tmp_path)))
    assert grown < 200_000


@needs_proc
@pytest.mark.slow
def test_memory_of_1000_compilations(tmp_path: Path) -> None:
    """Every kernel is another one. Its code stays, because XLA may hold its address: some memory pages."""
    cold = float(run_python(COMPILE, "1000", "1000", "50", timeout=3000, JSTITCH_CACHE_DIR=str(tmp_path)))
    warm = float(run_python(COMPILE, "1000", "1000", "50", timeout=3000, JSTITCH_CACHE_DIR=str(tmp_path)))
    assert cold < 48_000
    assert warm < 32_000
