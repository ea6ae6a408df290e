"""What a launch takes and gives: the buffers that its phase touches, as its custom call passes them.

lane: o0 = a0 + s1, where o0 takes a1's memory, s1 is an earlier launch's
operands a0, s1, a1    results o0    aliases {0: 2}    parameters 4
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import Buffer, Lane, Let, Load, Phase, Store


@dataclass(frozen=True)
class LaunchBuffers:
    """What a launch's custom call takes and gives. aliases: position in results -> in operands."""

    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    aliases: Mapping[int, int]

    @property
    def parameters(self) -> int:
        """Pointers that the kernel is given: a result in place of an operand is one more."""
        return len(self.operands) + len(self.results)


def launch_buffers(
    phase: Phase, in_place: Mapping[Buffer, Buffer], written: Collection[Buffer]
) -> LaunchBuffers:
    """Operands: what earlier launches or the caller made; results: what this one writes.

    in_place: results -> arguments whose memory they take. written: by earlier launches.
    """
    touched = dict.fromkeys(b for lane in phase.lanes for b in touched_buffers(lane))
    stores = {i.buffer for lane in phase.lanes for i in _instructions(lane) if isinstance(i, Store)}
    results = [b for b in touched if b in stores]
    operands = [b for b in touched if b not in stores]
    aliases: dict[int, int] = {}
    for n, b in enumerate(results):
        source = b if b in written else in_place.get(b)
        if source is not None:
            if source not in operands:
                operands.append(source)
            aliases[n] = operands.index(source)
    return LaunchBuffers(tuple(operands), tuple(results), aliases)


def touched_buffers(lane: Lane) -> list[Buffer]:
    """Buffers in memory that a lane touches, in order of first use."""
    found = (i.buffer for i in _instructions(lane) if not isinstance(i, Let))
    return [b for b in dict.fromkeys(found) if b.space.value != "arena"]


def _instructions(lane: Lane) -> list[Load | Store | Let]:
    nests = (nest for stage in lane.stages for nest in stage.nests)
    return [i for nest in nests for i in nest.instructions]
