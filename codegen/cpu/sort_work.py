"""What sorting takes, for those who do without llvmlite: light ops outside vectors, as measured."""

from __future__ import annotations

FEW = 80  # items that are compared with all others: up to here sooner than counted
RANKED, COMPARED = 24.0, 0.7  # of an item that is, and of each that it is compared with
STARTED, MOVED = 12500.0, 104.0  # of counters of digits, and of an item that goes by them
FAR_ITEMS, FAR = 1 << 17, 170.0  # items that a core's cache does not hold, and what one of more takes


def sort_work(items: int) -> float:
    """Of so many, by one word of keys."""
    if items <= FEW:
        return items * (RANKED + COMPARED * items)
    return STARTED + items * (FAR if items > FAR_ITEMS else MOVED)
