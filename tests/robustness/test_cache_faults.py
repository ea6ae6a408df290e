"""A kernel cache that is full, forbidden, damaged or cut off: right results, and at most one warning."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from robustness_support import STRICT, arguments, check, our_warnings, run_python, standardize

import jstitch


def _stitched(constant: float, folder: Path) -> None:
    f = standardize(constant)
    check(jstitch.jit(f, options=STRICT.replace(cache_dir=str(folder))), f, *arguments())


def test_cache_dir_is_where_kernels_go(tmp_path: Path) -> None:
    with our_warnings() as texts:
        _stitched(0.101, tmp_path)
        _stitched(0.101, tmp_path)
    assert len(list((tmp_path / "kernels").glob("*.kernel"))) == 1
    assert texts == []


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with our_warnings() as texts:
        _stitched(0.102, tmp_path)
        _stitched(0.103, tmp_path)
    assert len(texts) == 1
    assert "No space left" in texts[0]
    assert list((tmp_path / "kernels").iterdir()) == []


FILE_LIMIT = """
import resource, sys, warnings
from pathlib import Path
import jstitch
from robustness_support import STRICT, arguments, check, our_warnings, standardize
resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
options = STRICT.replace(cache_dir=sys.argv[1])
with our_warnings() as texts:
    for constant in (0.104, 0.105):
        check(jstitch.jit(standardize(constant), options=options), standardize(constant), *arguments())
print(len(texts), "cannot write" in texts[0], list(Path(sys.argv[1], "kernels").iterdir()))
"""


def test_a_write_that_stops_halfway(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    assert run_python(FILE_LIMIT, str(tmp_path)) == "1 True []\n"


@pytest.mark.parametrize("name", ["file", "no/rights"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    (tmp_path / "no").mkdir(mode=0o500)
    if name == "no/rights" and os.access(tmp_path / "no", os.W_OK):
        pytest.skip("this user may write anywhere")
    with our_warnings() as texts:
        _stitched(0.106 + len(name), tmp_path / name)
        _stitched(0.107 + len(name), tmp_path / name)
    assert len(texts) == 1
    assert "JSTITCH_CACHE_DIR" in texts[0]


USE = """
import sys
import jstitch
from jstitch.codegen.cpu import build
from robustness_support import STRICT, arguments, check, our_warnings, standardize
options = STRICT.replace(cache_dir=sys.argv[1])
with our_warnings() as texts:
    for constant in (0.1, 0.2, 0.3, 0.4):
        check(jstitch.jit(standardize(constant), options=options), standardize(constant), *arguments())
print(len(texts), jstitch.stitch_count(), "numba" in sys.modules, *texts)
"""


def test_damaged_entries_are_built_again(tmp_path: Path) -> None:
    assert run_python(USE, str(tmp_path)) == "0 4 True\n"
    entries = sorted((tmp_path / "kernels").iterdir())
    whole = {path: path.read_bytes() for path in entries}
    flipped, cut, empty, swapped = entries
    data = bytearray(whole[flipped])
    data[len(data) // 2] ^= 0x10
    flipped.write_bytes(data)
    cut.write_bytes(whole[cut][:-100])
    empty.write_bytes(b"")
    swapped.write_bytes(whole[flipped])
    found = run_python(USE, str(tmp_path))
    assert found.startswith("1 4 True"), "one warning is enough"
    assert "damaged" in found
    assert {path: len(path.read_bytes()) for path in entries} == {p: len(d) for p, d in whole.items()}
    assert run_python(USE, str(tmp_path)) == "0 4 False\n"


KILLED = """
import os, random, signal, sys, time, warnings
from pathlib import Path
from jstitch.runtime.cache import KernelCache
warnings.simplefilter("error")
random.seed(0)
payloads = {f"{k:064x}": bytes([k]) * (1 << 21) for k in range(4)}
whole = 0
for turn in range(1, 21):
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        cache = KernelCache(Path(sys.argv[1]))
        os.write(write, b"x")
        while True:
            for key, payload in payloads.items():
                cache.put(key, payload)
    os.read(read, 1)
    time.sleep(random.random() * 0.02 * turn)  # longer and longer, so that busy machines write some, too
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    cache = KernelCache(Path(sys.argv[1]))
    for key, payload in payloads.items():
        found = cache.get(key)
        assert found is None or found == payload
        whole += found is not None
assert whole
print("no entry was ever half written")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_writers_killed_at_any_moment(tmp_path: Path) -> None:
    assert run_python(KILLED, str(tmp_path)) == "no entry was ever half written\n"
