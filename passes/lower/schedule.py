"""The legal schedules of a shape (FS-2018 section 4.1).

(4, 6)  ->  Row(0, 1) Row(0, 2) Row(0, 4) Row(1, 1) ... Row(1, 6) Column(0, 1) ... Column(1, 6)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from jstitch.ir.schedule import ONE_BLOCK, Coordinates, SchedType, Schedule, blocks, coordinates


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """The divisors of n >= 1 in ascending order; (1,) for 0, where nothing can be split.

    What is left of n after dividing by all factors up to 2 ** 20 counts as a prime.
    """
    found = [1]
    for factor, power in Counter(_factors(n)).items():
        found = [d * factor**k for d in found for k in range(power + 1)]
    return tuple(sorted(found))


def _factors(n: int) -> Iterator[int]:
    """The prime factors of n in ascending order, with repetition; none for 0 and 1."""
    factor = 2
    while factor * factor <= n and factor <= 1 << 20:
        while n % factor == 0:
            yield factor
            n //= factor
        factor += 1 if factor == 2 else 2
    if n > 1:
        yield n


def legal_schedules(shape: Sequence[int]) -> tuple[Schedule, ...]:
    """Every (split_dim, sword, sched_type) of a shape, Row(0, 1) first.

    A scalar and an empty tensor have Row(0, 1) only.
    """
    if not shape or 0 in shape:
        return (ONE_BLOCK,)
    pieces = [(d, sword) for d, size in enumerate(shape) for sword in divisors(size)]
    return tuple(Schedule(d, sword, kind) for kind in SchedType for d, sword in pieces)


def distinct_schedules(shape: Sequence[int]) -> tuple[Schedule, ...]:
    """The legal schedules without those that spread the elements like an earlier one."""
    first: dict[Coordinates, Schedule] = {}
    for schedule in legal_schedules(shape):
        first.setdefault(coordinates(shape, schedule), schedule)
    return tuple(first.values())


def by_blocks(shape: Sequence[int], schedules: Iterable[Schedule]) -> dict[int, list[Schedule]]:
    """The schedules grouped by their number of blocks."""
    groups: dict[int, list[Schedule]] = {}
    for schedule in schedules:
        groups.setdefault(blocks(shape, schedule), []).append(schedule)
    return groups
