"""Combine accumulators over the threads of a team: by shuffles in a warp, through the arena across warps.

acc1 of 256 threads  ->  5 shuffles, one value of each warp to the arena, barrier, 3 shuffles
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import WARP
from jstitch.codegen.kernel_ir import OTHER, Combine
from jstitch.codegen.print_expr import print_expr
from jstitch.ir.types import DType

SLOT = 8  # bytes of one value in the arena
TEAM_BARRIERS = 15  # of a CTA, numbered from 1: the hardware has 16, the first is the whole CTA's


@dataclass(frozen=True)
class Team:
    """`threads` (a power of two) that share a row; `teams` of them in a CTA."""

    threads: int
    teams: int

    @staticmethod
    def fitting(threads: int, block: int) -> Team:
        """Teams of `threads` in a CTA of `block`, or of more where there were more of them than barriers.

        A CTA may be larger than its teams need when its launch packs them with others that need it all.
        """
        while threads > WARP and block > threads * TEAM_BARRIERS:
            threads *= 2
        return Team(threads, max(1, block // threads))

    @property
    def block(self) -> int:
        return self.threads * self.teams

    @property
    def barrier(self) -> list[str]:
        """Statements that wait for the team."""
        if self.threads == 1:
            return []
        if self.threads <= WARP:
            return ["barrier_warp()"]
        if self.teams == 1:
            return ["barrier()"]
        return [f"barrier_team(team + 1, {self.threads})"]


def exchange_bytes(combines: Sequence[Combine], team: Team) -> int:
    """Arena bytes of one exchange."""
    if team.threads <= WARP:
        return 0
    return sum(len(c.names) for c in combines) * SLOT * (team.block // WARP)


def exchange(
    combines: Sequence[Combine], dtypes: Mapping[str, DType], team: Team, offset: int, thread: str = "t"
) -> list[str]:
    """Afterwards every thread of the team has the combined values.

    offset: of arena bytes of its own. thread: the thread's number in the team.
    """
    lines = _shuffles(combines, min(team.threads, WARP) // 2)
    if team.threads <= WARP:
        return lines
    warps = team.threads // WARP
    slots = {name: offset + k * SLOT * (team.block // WARP) for k, name in enumerate(_names(combines))}
    first = f"team * {warps} + " if team.teams > 1 else ""
    lines.append(f"if remainder_pos({thread}, 32) == 0:")
    for name, at in slots.items():
        scale = SLOT // dtypes[name].itemsize
        lines.append(
            f"    shared_store_{_suffix(dtypes[name])}({at}, quotient(thread(), 32) * {scale}, {name})"
        )
    lines += team.barrier
    for name, at in slots.items():
        scale = SLOT // dtypes[name].itemsize
        where = f"({first}remainder_pos({thread}, {warps})) * {scale}"
        lines.append(f"{name} = shared_load_{_suffix(dtypes[name])}({at}, {where})")
    return lines + _shuffles(combines, warps // 2)


def slices_bytes(combines: Sequence[Combine], team: Team) -> int:
    """Arena bytes of one exchange of slices."""
    return sum(len(c.names) for c in combines) * SLOT * team.block


def exchange_slices(
    combines: Sequence[Combine], dtypes: Mapping[str, DType], team: Team, offset: int
) -> list[str]:
    """Teams that each made a slice of the same sums: afterwards every thread has its element's whole sum."""
    slots = {name: offset + k * SLOT * team.block for k, name in enumerate(_names(combines))}
    kinds = {name: _suffix(dtypes[name]) for name in slots}
    lines = [f"shared_store_{kinds[name]}({at}, thread(), {name})" for name, at in slots.items()]
    lines.append("barrier()")
    lines += [f"{name} = shared_load_{kinds[name]}({at}, t)" for name, at in slots.items()]
    lines.append(f"for g in unroll({team.teams - 1}):")
    for name, at in slots.items():
        other = f"shared_load_{kinds[name]}({at}, t + (g + 1) * {team.threads})"
        lines.append(f"    {name}{OTHER} = {other}")
    return lines + [f"    {line}" for c in combines for line in merge(c)]


def _shuffles(combines: Sequence[Combine], most: int) -> list[str]:
    lines: list[str] = []
    while most:
        for c in combines:
            lines += [f"{name}{OTHER} = shuffle_xor({name}, {most})" for name in c.names]
            lines += merge(c)
        most //= 2
    return lines


def merge(c: Combine) -> list[str]:
    """names = names combined with names + OTHER."""
    lines = [f"{i.name} = {print_expr(i.value)}" for i in c.lets]
    if len(c.names) == 1:
        return [*lines, f"{c.names[0]} = {print_expr(c.results[0])}"]
    lines += [f"{name}_new = {print_expr(result)}" for name, result in zip(c.names, c.results, strict=True)]
    return lines + [f"{name} = {name}_new" for name in c.names]


def _names(combines: Iterable[Combine]) -> list[str]:
    return [name for c in combines for name in c.names]


def _suffix(dtype: DType) -> str:
    return dtype.name.lower()
