"""How long a tiling takes: (t_mem + t_comp) * alpha (MCFuser, IV-A, equations 2 to 5).

t_mem = sum of tile bytes * runs / W over loads and stores;  t_comp = sum of multiplications * runs / P

alpha says what blocks that are few cost: (N_block + N_SM) / N_block on a GPU; on a CPU, whose cores are few,
the share of the last round that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jstitch.passes.tile.chain import Chain
from jstitch.passes.tile.place_statements import Kind, blocks_of, place_statements
from jstitch.passes.tile.prune_tilings import Tiling


@dataclass(frozen=True)
class Rates:
    """bandwidth: bytes/s of loads and stores. products: multiplications/s. carries: bytes/s of sums that

    turns go on with, on their way to what holds them and back; None where that is registers. alpha: blocks ->
    the factor by which they are slower than if they filled the device.
    """

    bandwidth: float
    products: float
    alpha: Callable[[int], float]
    carries: float | None = None


def paper_alpha(units: int) -> Callable[[int], float]:
    """Equation 5, for so many multiprocessors."""
    return lambda blocks: (blocks + units) / blocks


def tiling_seconds(tiling: Tiling, chain: Chain, rates: Rates) -> float:
    """Equation 2."""
    memory = arithmetic = 0.0
    for s in place_statements(tiling.expression, chain, tiling.tiles):
        match s.kind:
            case Kind.COMPUTE:
                arithmetic += s.size * s.runs / rates.products
            case Kind.LOAD | Kind.STORE:
                memory += s.size * s.runs * chain.itemsize / rates.bandwidth
            case Kind.CARRY if rates.carries is not None:
                memory += 2 * s.size * s.runs * chain.itemsize / rates.carries
    return (memory + arithmetic) * rates.alpha(blocks_of(tiling.expression, chain, tiling.tiles))
