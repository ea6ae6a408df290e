"""Memory of the native handler's calls: blocks that are kept from one call to the next.

A block is a header, and behind it what the call asked for.
"""

from __future__ import annotations

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.native_function import helper, round_up


@helper
def ask_huge_pages(process: int, start: int, size: int) -> None:
    """madvise the whole 2 MiB pages inside [start, start + size)."""
    first = round_up(start, at.HUGE_PAGE)
    length = ((start + size) & -at.HUGE_PAGE) - first
    if length > 0 and op.word(process, at.PROCESS_MADVISE) != 0:
        op.call3(op.word(process, at.PROCESS_MADVISE), first, length, at.MADV_HUGEPAGE)


@helper
def _new_block(process: int, size: int) -> int:
    """A block of at least `size` bytes behind its header; 0 when there is no memory."""
    align = at.HUGE_PAGE if size >= at.HUGE_BYTES else at.MEMORY_HEADER_BYTES
    total = size + at.MEMORY_HEADER_BYTES + align
    raw = op.call1(op.word(process, at.PROCESS_MALLOC), total)
    if raw == 0:
        return 0
    if size >= at.HUGE_BYTES:
        ask_huge_pages(process, raw, total)
    block = round_up(raw, align)
    op.put(block, at.MEMORY_RAW, raw)
    op.put(block, at.MEMORY_CAPACITY, size)
    return block


@helper
def take_block(process: int, slots: int, size: int) -> int:
    """A block from the slots, or a new one. Ownership moves by an atomic swap: no list, no ABA."""
    for slot in range(at.NUM_SLOTS):
        if op.word(process, slots + slot) != 0:
            block = op.atomic_swap(process, slots + slot, 0)
            if block != 0:
                if op.word(block, at.MEMORY_CAPACITY) >= size:
                    return block
                op.call1(op.word(process, at.PROCESS_FREE), op.word(block, at.MEMORY_RAW))
                break
    return _new_block(process, size)


@helper
def give_block(process: int, slots: int, block: int) -> None:
    """Put a block into the first empty slot; free it when it is too large to keep or all are full."""
    if op.word(block, at.MEMORY_CAPACITY) <= at.KEEP_BYTES:
        for slot in range(at.NUM_SLOTS):
            if op.word(process, slots + slot) == 0:
                block = op.atomic_swap(process, slots + slot, block)
                if block == 0:
                    return
    op.call1(op.word(process, at.PROCESS_FREE), op.word(block, at.MEMORY_RAW))
