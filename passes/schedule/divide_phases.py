"""Phases whose buffers are more than the parameters of a launch, in several launches.

phase 0   190 lanes, 1,325 parameters      ->      phase 0   95 lanes, 664 parameters
                                                   phase 1   95 lanes, 664 parameters

XLA passes a kernel at most 1,024 parameters where it is built for a CUDA before 12.1. Lanes of a phase do not
depend on each other, so that runs of them may be launched in turn; what several runs read is given to each.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.launch_buffers import launch_buffers, touched_buffers
from jstitch.codegen.cuda.source import MOST_PARAMETERS
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase
from jstitch.ir.reason import Reason

TOO_MANY = "a lane reads and writes {found} buffers, a launch is given at most {bound}"


def divide_phases(kernel: Kernel, *, parameters: int = MOST_PARAMETERS) -> Kernel:
    """The kernel, each of its phases with no more buffers than a launch is given.

    parameters: so many. Raises CannotBuildError where one lane has more.
    """
    found: list[Phase] = []
    written: set[Buffer] = set()
    for phase in kernel.phases:
        found += _divided(phase, kernel.in_place, written, parameters)
        written |= set(launch_buffers(phase, kernel.in_place, written).results)
    return replace(kernel, phases=tuple(found)) if len(found) > len(kernel.phases) else kernel


def _divided(
    phase: Phase, in_place: Mapping[Buffer, Buffer], written: Collection[Buffer], parameters: int
) -> list[Phase]:
    """As few runs of lanes as fit, of about equally many buffers."""
    parts, most = [phase], _most_parameters([phase], in_place, written)
    count = -(-most // parameters)
    while most > parameters:
        if len(parts) == len(phase.lanes):
            raise CannotBuildError(Reason("parameters", TOO_MANY, most, parameters))
        parts = [Phase(lanes) for lanes in _runs(phase.lanes, min(count, len(phase.lanes)))]
        most = _most_parameters(parts, in_place, written)
        count += 1
    return parts


def _most_parameters(
    parts: Iterable[Phase], in_place: Mapping[Buffer, Buffer], written: Collection[Buffer]
) -> int:
    """Of the launches of these phases, one after the other."""
    most, before = 0, set(written)
    for part in parts:
        made = launch_buffers(part, in_place, before)
        most = max(most, made.parameters)
        before |= set(made.results)
    return most


def _runs(lanes: Sequence[Lane], count: int) -> list[tuple[Lane, ...]]:
    """So many runs of neighbours that touch about equally many buffers, none empty."""
    ends = list(itertools.accumulate(len(touched_buffers(lane)) for lane in lanes))
    runs: list[tuple[Lane, ...]] = []
    start = 0
    for n in range(1, count + 1):
        goal, last = ends[-1] * n, len(lanes) - (count - n)
        end = next((k for k in range(start + 1, last) if ends[k - 1] * count >= goal), last)
        runs.append(tuple(lanes[start:end]))
        start = end
    return runs
