"""What a target wants of a lowering: the numbers and loop forms in which backends differ.

CPU    four rows a step, tiles of half an L2 cache, long sums in blocks, loops cut at seams
CUDA   a row a step, tiles of shared memory, kept loops outside reduced ones, selects at seams
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import Lane
from jstitch.passes.base.hashed_once import hashed_once
from jstitch.passes.base.machine import Machine


@hashed_once
@dataclass(frozen=True)
class Profile:
    """arena_bytes: most bytes of one program's tiles, where there is a choice. product_bytes: the same where
    products make rows: further from the core, but right operands are packed for more of them.

    row_step: rows per step where each program has column accumulators of its own. program_work: elements
    of work that make a program worth its start. partial_rows: rows per program with column accumulators,
    at least; ordered_rows: at most, for each addition to what is large already costs digits. kept_first:
    loops over dimensions that a reduction keeps stand outside those that it reduces, so that accumulators
    are scalars. follows_memory: else they go as what is added up lies in memory. jams: several rows are
    added up in registers there. blocks: long sums in blocks. seams: loops cut where a concatenate changes
    sides. one_pass: sums that wait for a mean or a maximum over rows are reduced together with it.
    variance_block: bytes of rows that stay in cache between their sum and their squares around it, or 0.
    combine_whole: elements up to which combining partial results is one row of one program. max_buffers:
    inputs and outputs of one kernel. least_threads, most_threads: that share a row. columns: programs may
    own columns instead of rows. column_blocks: rows between products may go block by block. components:
    rows of a few elements may be written out. updates: kernels make dynamic_update_slices in place.
    recompute: values are computed again in a second kernel rather than read, and not only parts of
    others. copies: kernels make the copies of what is returned twice or as it came in. products: matrix
    products stand as XLA's library will run them. sums: those of products are the library's. unset: XLA
    leaves memory unset that is written before it is read. turns: of a loop that are written out in its
    body, at most. keep_cost: cycles per element above which a value is kept for a later stage. look_up:
    the same of an element whose place is looked up, beyond reading it. reread_bytes: of rows, what is
    read from memory again because it found no room on chip; None: caches see to that. narrow_tiles: what
    is rounded to 16 bits is kept in as many. machine: what the cost model reckons with.
    """

    arena_bytes: int = 1 << 19
    product_bytes: int = 1 << 21
    row_step: int = 4
    program_work: int = 1 << 14
    max_programs: int = 64
    partial_rows: int = 64
    ordered_rows: int = 256
    kept_first: bool = False
    follows_memory: bool = True
    jams: bool = True
    blocks: bool = True
    seams: bool = True
    one_pass: bool = False
    variance_block: int = 1 << 16
    combine_whole: int = 1 << 15
    max_buffers: int = 2000
    least_threads: int = 1
    most_threads: int = 1
    columns: bool = True
    column_blocks: bool = True
    components: bool = True
    updates: bool = False
    recompute: bool = False
    copies: bool = False
    products: bool = False
    sums: bool = False
    unset: bool = False
    turns: int = 2
    keep_cost: float = 4.0
    look_up: float = 0.0
    reread_bytes: Callable[[Lane], int] | None = None
    narrow_tiles: bool = False
    machine: Machine = field(default_factory=Machine)

    def program_count(self, work: int) -> int:
        """Programs that share elements of light work."""
        return min(self.max_programs, max(1, work // self.program_work))

    def column_programs(self, rows: int, step: int, work: int) -> int:
        """Programs that share `rows` rows, `step` at a time, and have column accumulators of their own."""
        most = max(8, min(self.max_programs, rows // self.partial_rows))
        usual = min(rows // step, work // self.program_work, most)
        return max(1, usual, min(rows // step, rows // self.ordered_rows))


CPU = Profile()
