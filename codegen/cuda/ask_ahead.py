"""The L2 cache is asked for a team's next rows while it works on these.

    if (r + 1 < hi) & (t == 0): prefetch_bulk(b0, (r + 1) * 512, 8192)

One thread of a team asks for all bytes of a row of a tensor at once, which begin at a piece of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jstitch.codegen import kernel_ir
from jstitch.codegen.cuda.exchange import Team
from jstitch.codegen.cuda.under import under
from jstitch.codegen.kernel_ir import CACHE_LINE, Buffer
from jstitch.codegen.launch_ir import PIECE_BYTES, Body, Prefetch
from jstitch.codegen.launch_places import FAR, Equal, Less
from jstitch.ir.index import Index, Var, const, var

ROW = var(Var("r", FAR))


def ask_ahead(
    prefetches: Sequence[kernel_ir.Prefetch], pointer: Callable[[Buffer], str], team: Team, high: Index
) -> Body:
    """Statements of a row's turn. high: past the last row of the program."""
    assert all(p.nbytes % PIECE_BYTES == 0 for p in prefetches)
    body: Body = []
    for p in prefetches:
        row = ROW + team.teams * p.ahead
        nbytes = min(p.last * CACHE_LINE, p.nbytes) - p.first * CACHE_LINE
        pieces = row * (p.nbytes // PIECE_BYTES) + p.first * CACHE_LINE // PIECE_BYTES
        ask = Prefetch(pointer(p.buffer), pieces, nbytes)
        body += under(Less(row, high), [ask])
    return under(Equal(team.thread, const(0)), body)
