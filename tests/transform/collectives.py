"""What devices exchange in a compiled program."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

COLLECTIVE = re.compile(r"= (.*?) (all-[a-z-]+?|reduce-scatter|collective-[a-z]+)(?:-start)?\(")
ARRAY = re.compile(r"\b[a-z]+(\d+)\[([\d,]*)\]")


def collectives(compiled: Any) -> dict[str, tuple[int, int]]:
    """Kind -> how many, and the bytes of their results, in a compiled program."""
    found: dict[str, tuple[int, int]] = {}
    for line in compiled.as_text().splitlines():
        match = COLLECTIVE.search(re.sub(r"/\*.*?\*/", "", line))
        if match:
            sizes = [
                int(bits) // 8 * int(np.prod([int(n) for n in dims.split(",") if n], dtype=int))
                for bits, dims in ARRAY.findall(match[1])
            ]
            count, moved = found.get(match[2], (0, 0))
            found[match[2]] = count + 1, moved + sum(sizes)
    return found
