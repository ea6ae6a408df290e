"""Read XLA:GPU's dumped list of thunks: what the host will launch, and for which HLO instruction.

003: kCustomKernel [source | sink] fusion_1 grid: [8, 1, 1] threads: [128, 1, 1]  shared_memory: 64 bytes
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^(?P<indent> *)(?P<id>\d+): (?P<kind>k\w+) +\[.*?\] ?(?P<text>.*)$")
_LAUNCH = re.compile(
    r"^(?P<entry>\S+) grid: \[(?P<grid>[\d, ]+)\] threads: \[(?P<block>[\d, ]+)\] +"
    r"shared_memory: (?P<shared>\d+) bytes"
)
_INFO = re.compile(r'profile_annotation: "(?P<name>[^"]*)"\s+thunk_id: (?P<id>\d+)')
_SLICED = "kDynamicSliceFusion"


@dataclass(frozen=True)
class Thunk:
    """One line. entry, grid, block, shared_bytes: a kernel's; "" and zeros for other thunks."""

    id: int
    kind: str
    entry: str = ""
    grid: int = 0
    block: int = 0
    shared_bytes: int = 0


def parse_thunks(sequence: str, metadata: str) -> dict[str, tuple[Thunk, ...]]:
    """Thunks of each HLO instruction. What runs inside a dynamic-slice fusion belongs to the fusion.

    sequence: the text of `*.thunk_sequence.txt`. metadata: that of `*.thunk_metadata.txt`.
    """
    names = {int(match["id"]): match["name"] for match in _INFO.finditer(metadata)}
    found: dict[str, list[Thunk]] = defaultdict(list)
    outer: tuple[int, str] | None = None  # the dynamic-slice fusion around this line: its indent and name
    for match in filter(None, map(_LINE.match, sequence.splitlines())):
        indent = len(match["indent"])
        if outer is not None and indent <= outer[0]:
            outer = None
        name = outer[1] if outer is not None else names.get(int(match["id"]), "")
        if outer is None and match["kind"] == _SLICED:
            outer = (indent, name)
        found[name].append(_thunk(match.groupdict()))
    return {name: tuple(thunks) for name, thunks in found.items()}


def _thunk(fields: Mapping[str, str]) -> Thunk:
    launch = _LAUNCH.match(fields["text"])
    if launch is None:
        return Thunk(int(fields["id"]), fields["kind"])
    return Thunk(
        int(fields["id"]),
        fields["kind"],
        launch["entry"],
        _product(launch["grid"]),
        _product(launch["block"]),
        int(launch["shared"]),
    )


def _product(text: str) -> int:
    x, y, z = (int(part) for part in text.split(","))
    return x * y * z
