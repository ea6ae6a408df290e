"""Kernel -> Launch IR of a CPU: a parallel loop for each phase, its tasks dealt out to lanes.

    lanes of 4, 4 and 1 programs     ->     if program < 8:  lane = program // 4; p = program % 4; ...
                                            else:            p = program - 8; ...

Lanes that differ only in their buffers share one piece of code (packing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.branches import choose_branch
from jstitch.codegen.cpu.assign_slots import Place, Slots
from jstitch.codegen.cpu.launch_lane import buffers_of, launch_lane
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase
from jstitch.codegen.launch_ir import Body, Comment, If, Integer, KernelCode, PhaseCode
from jstitch.codegen.launch_places import FAR, TASK, Less
from jstitch.ir.index import Var, add, const, floordiv, mod, var

_FIRST = var(Var("first", FAR))


@dataclass(frozen=True)
class Part:
    """Lanes that share code. places: of the first one's buffers. base: the number of their first task.

    tag: in all names: one name has one type in a function, and is assigned in one place.
    """

    lanes: tuple[Lane, ...]
    places: tuple[Place, ...]
    base: int
    tag: str

    @property
    def tasks(self) -> int:
        return self.lanes[0].programs * len(self.lanes)


def launch_phases(kernel: Kernel) -> KernelCode:
    """Every phase of a kernel, and the order of the pointers that they receive."""
    slots = Slots(kernel)
    dealt = [_deal(phase, slots) for phase in kernel.phases]
    phases = tuple(
        PhaseCode(
            f"phase{n}",
            sum(part.tasks for part in parts),
            phase.alone_ns,
            tuple(_phase(parts, slots)),
        )
        for n, (phase, parts) in enumerate(zip(kernel.phases, dealt, strict=True))
    )
    memory = kernel.scratch_bytes, kernel.arena_bytes
    return KernelCode(phases, tuple(slots.operands), tuple(slots.results), *memory)


def _deal(phase: Phase, slots: Slots) -> list[Part]:
    """The phase's tasks, dealt out to lanes; those of the same code and memory share it."""
    classes: dict[object, list[Lane]] = {}
    for lane in phase.lanes:
        spaces = tuple(b.space for b in buffers_of(lane))
        code = tuple(launch_lane(_without_notes(lane), slots.aliases))
        classes.setdefault((code, spaces), []).append(lane)
    parts: list[Part] = []
    for lanes in (part for alike in classes.values() for part in _packed(alike, slots)):
        members = [buffers_of(lane) for lane in lanes]
        places = tuple(slots.place([m[k] for m in members]) for k in range(len(members[0])))
        base = sum(part.tasks for part in parts)
        parts.append(Part(tuple(lanes), places, base, f"{len(parts)}_" if parts else ""))
    return parts


def _without_notes(lane: Lane) -> Lane:
    """Without what is for readers only."""
    return replace(lane, stages=tuple(replace(stage, note="", lines=()) for stage in lane.stages))


def _packed(lanes: Sequence[Lane], slots: Slots) -> list[list[Lane]]:
    """Lanes of the same code, cut into as few parts as find their buffers at even strides."""
    parts: list[list[Lane]] = []
    members: list[Sequence[Buffer]] = []
    for lane in sorted(lanes, key=lambda lane: slots.places(buffers_of(lane))):
        members.append(buffers_of(lane))
        if parts and slots.can_pack(members):
            parts[-1].append(lane)
        else:
            parts.append([lane])
            members = [buffers_of(lane)]
    return parts


def _phase(parts: Sequence[Part], slots: Slots) -> Body:
    """The code of the part that has the task."""
    branches = [(part.base + part.tasks, _part(part, slots)) for part in parts]
    return choose_branch(branches, _below)


def _below(end: int, first: Body, rest: Body) -> Body:
    return [If(Less(TASK, const(end)), tuple(first), tuple(rest))]


def _part(part: Part, slots: Slots) -> Body:
    """One lane's code, its pointers chosen by the lane's number when there are several lanes."""
    lane, several = part.lanes[0], len(part.lanes) > 1
    rows = lane.rows_in_words + (f", {lane.step} at a time" if lane.step > 1 else "")
    times = f", {len(part.lanes)} times" if several else ""
    first, programs = add(TASK, const(-part.base)), lane.programs
    body: Body = [Comment(f"{rows}, {programs} programs{times}")]
    if several:
        body += [
            Integer("first", first),
            Integer("lane", floordiv(_FIRST, programs)),
            Integer("p", mod(_FIRST, programs)),
        ]
    else:
        body.append(Integer("p", first))
    for k, (buffer, place) in enumerate(zip(buffers_of(lane), part.places, strict=True)):
        body.append(slots.address(f"b{part.tag}{k}", place, buffer))
    return body + launch_lane(lane, slots.aliases, part.tag)
