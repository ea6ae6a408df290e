"""Settings for the whole suite, made before jax is imported: eight CPU devices, strict and verified passes.

`pytest -m gpu` lets JAX take the GPU where there is one. Tests of ONCE are marked `once`: what they look at
begins at a Graph or a Kernel, or shows what others compute, so CI runs them with one version of JAX.
"""

import gc
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "" if "gpu" in sys.argv or "-mgpu" in sys.argv else "cpu")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
)
os.environ.setdefault("JSTITCH_VERIFY", "1")
os.environ.setdefault("JSTITCH_STRICT", "1")
# Plans are the same on every machine, whatever was measured on it.
os.environ.setdefault("JSTITCH_CALIBRATED", "0")
# What an earlier run decided is decided anew, but where a test says so.
os.environ.setdefault("JSTITCH_KEEP_PLANS", "0")
# Nor asks anybody XLA what it makes of a program, a second each, but where a test says so.
os.environ.setdefault("JSTITCH_ASK_SECONDS", "0")
# Nor does anybody race in the background.
os.environ.setdefault("JSTITCH_RACE_SECONDS", "0")
# Kernels built by an earlier run are taken from here; the user's own cache is left alone.
ONCE = (
    *("benchmarks", "calibration", "codegen", "demo", "inspection", "passes"),
    *("cli/test_golden.py", "frontend/test_measured_gate_processes.py", "runtime/test_library.py"),
    *("robustness/test_cache_faults.py", "robustness/test_memory_growth.py"),
    *("test_recursion.py", "test_structure.py"),
)
_CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jstitch-kernels"
os.environ.setdefault("JSTITCH_CACHE_DIR", str(_CACHE))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-golden", action="store_true", help="Write tests/golden anew.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    paths = [Path(__file__).parent / name for name in ONCE]
    for item in items:
        if any(item.path.is_relative_to(path) for path in paths):
            item.add_marker(pytest.mark.once)


def pytest_collection_finish() -> None:
    """Thousands of tests hold millions of objects: looking for garbage among them is a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
