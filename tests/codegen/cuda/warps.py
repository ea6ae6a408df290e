"""What the 32 threads of a warp touch at once, from the text of a launch that is run as plain Python.

accesses(source, launch)   ->   Access('shared_load', 'f32', 0, 1, (0, 33, 66, ...)), ...

Values are not computed: loads give 0. Threads that skip an access are missing from it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.source import CudaSource, Launch

_MEMORY = re.compile(r"(read|load|store|shared_load|shared_store)_([a-z0-9]+?)(?:x(\d+))?")
WARP = 32


@dataclass(frozen=True)
class Access:
    """One access of a warp. what: read, load, store, shared_load or shared_store. at: of each thread.

    width: elements of a vector, of which `at` is the first.
    """

    what: str
    dtype: str
    base: object
    width: int
    at: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def sectors(self) -> int:
        """Sectors of 32 bytes that memory moves."""
        return len({(i + k) * self.itemsize // 32 for i in self.at for k in range(self.width)})

    @property
    def wavefronts(self) -> int:
        """Turns that the banks of shared memory need: 1, or 2 for elements of 8 bytes, without conflicts."""
        size = max(4, self.itemsize)
        groups = [self.at] if size == 4 else [self.at[:16], self.at[16:]]
        return sum(_turns({i * self.itemsize // size for i in group}, 128 // size) for group in groups)


def _turns(words: set[int], banks: int) -> int:
    return max(Counter(word % banks for word in words).values(), default=0)


def accesses(source: CudaSource, launch: Launch, block: int = 0, warps: int = 8) -> list[Access]:
    """The accesses of the first warps of a CTA, those of a warp in program order."""
    found: list[Access] = []
    for warp in range(warps):
        sites: dict[tuple[Any, ...], list[int]] = {}
        for lane in range(WARP):
            seen: Counter[tuple[Any, ...]] = Counter()
            for site, index in _run(source, launch, block, warp * WARP + lane):
                sites.setdefault((*site, seen[site]), []).append(index)
                seen[site] += 1
        found += [
            Access(what, dtype, base, width, tuple(at))
            for (what, dtype, base, width, *_), at in sites.items()
        ]
    return found


def _run(source: CudaSource, launch: Launch, block: int, thread: int) -> Iterator[tuple[Any, ...]]:
    """((what, dtype, base, width, line), index) of each access of one thread."""
    found: list[tuple[Any, ...]] = []
    _, _, names = source.text.splitlines()[0].partition(" import ")
    scope: dict[str, Any] = {name: _function(name, found) for name in names.split(", ")}
    scope |= {"block": lambda: block, "thread": lambda: thread}
    exec(source.text.split("\n", 1)[1], scope)
    scope[launch.function](*(p.name for p in launch.parameters))
    return iter(found)


def _function(name: str, found: list[tuple[Any, ...]]) -> Callable[..., Any]:
    memory = _MEMORY.fullmatch(name)
    if memory:
        what, dtype, wide = memory.groups()
        width = int(wide or 1)

        def touch(base: object, index: int, *_: object) -> object:
            found.append(((what, dtype, base, width, sys._getframe(1).f_lineno), index))
            return [0] * width if wide else 0

        return touch
    known: dict[str, Callable[..., Any]] = {
        "unroll": range,
        "quotient": lambda a, k: a // k,
        "remainder_pos": lambda a, k: a % k,
        "clamp_index": lambda i, low, high: min(max(i, low), high),
        "barrier": lambda: None,
        **{f"registers_{dtype}": lambda n: [0] * n for dtype in DTYPES},
    }
    return known.get(name, lambda *_: 0)
