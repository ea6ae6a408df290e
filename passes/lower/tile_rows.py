"""How many rows a step takes that multiplies matrices, and how many columns between products at a time.

attention of [8, 512, 64] by 512 keys      64 rows, all 512 columns;  64 rows, 128 columns;  32 rows, all ...

The chain's tilings, the quickest by MCFuser's model first: lowering takes the first that finds room. A step
has its left operands whole and, but for columns in blocks, its sums: of the paper's loops k and h are left to
the panels of each product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from jstitch.codegen.cpu.panel import FAR_BYTES, FAR_PACK_CYCLES, PACK_CYCLES, PRODUCT_CYCLES
from jstitch.ir.graph import Op
from jstitch.ir.types import DType
from jstitch.passes.base.machine import F32_BYTES, Machine, busy_share
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import FACTORS, ROWS
from jstitch.passes.base.tensor_cores import tensor_seconds
from jstitch.passes.lower.schedule import divisors
from jstitch.passes.tile.chain import Chain, Product
from jstitch.passes.tile.prune_tilings import Tiling
from jstitch.passes.tile.tiling_seconds import Rates, paper_alpha, tiling_seconds
from jstitch.passes.tile.write_expressions import live_expressions

TENSOR_ROWS = 16  # that a warp multiplies at least
FEW_ROWS = 12  # that a right operand is packed for
MOST_ROWS = 64  # of a CTA
MOST_CPU_ROWS = 256  # of a step, whose tiles are to stay in a core's cache
LEAST, MOST = 32, 128  # columns of a block
TILES = 3  # of a product's rows, for which there is to be room at once
SHARED_BYTES = 128  # that a multiprocessor's shared memory moves in a cycle


@dataclass(frozen=True)
class StepTile:
    """rows of a step; block: columns at a time between products, 0: all of them."""

    rows: int
    block: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows by {f'{self.block} columns' if self.block else 'all columns'}"


@dataclass(frozen=True)
class Products:
    """shapes: (columns, contracted) of each. rows: of the lane; `alike` of them share right operands.

    factors: what is multiplied, the widest.
    """

    shapes: tuple[tuple[int, int], ...]
    rows: int
    alike: int
    factors: DType

    @classmethod
    def of(cls, ops: Sequence[Op], rows: int) -> Products:
        """Of sums over [..., rows, columns, contracted], as `write_products` has them."""
        shapes = [op.operands[0].shape[-2:] for op in ops]
        alike = math.gcd(rows, *(op.attrs[ROWS] for op in ops))
        factors = max((op.attrs[FACTORS] for op in ops), key=lambda d: d.itemsize)
        return cls(tuple(sorted((n, k) for n, k in shapes)), rows, alike, factors)

    @property
    def between(self) -> int:
        """Columns of what one product makes and another one reads; 0 where there are none."""
        return max({n for n, _ in self.shapes} & {k for _, k in self.shapes}, default=0)

    def has_room(self, rows: int, nbytes: int) -> bool:
        """Whether there is room for tiles of so many whole rows."""
        row = max(n for n, _ in self.shapes) * DType.F32.itemsize
        return rows == 1 or rows * TILES * row <= nbytes

    def chain(self, itemsize: int) -> Chain:
        """With loops m, n and those of single products; what is as wide as it is deep makes columns."""
        extents = {"m": self.alike, **({"n": self.between} if self.between else {})}
        found = []
        for number, (columns, contracted) in enumerate(self.shapes):
            k, h = f"k{number}", f"h{number}"
            if columns == self.between:
                extents[k] = contracted
                found.append(Product(f"{number}", ("m", "n"), ("m", k), (k, "n"), kept=True))
            elif contracted == self.between:
                extents[h] = columns
                found.append(Product(f"{number}", ("m", h), ("m", "n"), ("n", h), made=True))
            else:
                extents |= {k: contracted, h: columns}
                found.append(Product(f"{number}", ("m", h), ("m", k), (k, h)))
        return Chain(tuple(found), extents, self.rows // self.alike, itemsize)


def step_tiles(products: Products, profile: Profile) -> tuple[StepTile, ...]:
    """Tilings that may find room, the quickest first, as modelled; some of whole rows are among them."""
    return tuple(tile for tile, _ in timed_tiles(products, profile))


@lru_cache(maxsize=1024)
def timed_tiles(products: Products, profile: Profile) -> tuple[tuple[StepTile, float], ...]:
    """The same with seconds."""
    on_gpu = profile.machine.device is not None
    chain = products.chain(products.factors.itemsize if on_gpu else F32_BYTES)
    rates = rates_of(products, profile.machine)
    live = ("m", "n") if products.between else ("m",)  # k and h are whole: one turn each
    expressions = live_expressions(chain, live)

    def seconds(tile: StepTile) -> float:
        tiles = {**chain.extents, "m": tile.rows, **({"n": tile.block} if tile.block else {})}
        return min(tiling_seconds(Tiling(e, tiles), chain, rates) for e in expressions)

    even = divisors(products.alike)
    whole = [n for n in even if products.has_room(n, profile.product_bytes)]
    rows = _good_rows(even, on_gpu)
    found = [StepTile(n) for n in rows if n in whole]
    if profile.column_blocks:
        found += [StepTile(n, b) for n in rows for b in _blocks(products.between)]
    last = StepTile(whole[-1])  # where nothing else finds room
    timed = sorted(((tile, seconds(tile)) for tile in found), key=lambda pair: pair[1])
    return (*timed, *([] if last in found else [(last, seconds(last))]))


def _good_rows(even: Sequence[int], on_gpu: bool) -> list[int]:
    """Of numbers of rows, those that a warp's tiles, or packed right operands, are best used with."""
    if on_gpu:
        found = [n for n in even if n <= MOST_ROWS]
        return [n for n in found if n % TENSOR_ROWS == 0] or [n for n in found if n >= FEW_ROWS]
    found = [n for n in even if FEW_ROWS <= n <= MOST_CPU_ROWS]
    return found or [n for n in even if n > MOST_CPU_ROWS][:1]


def _blocks(columns: int) -> list[int]:
    return [n for n in divisors(columns) if LEAST <= n <= MOST and n < columns] if columns else []


def rates_of(products: Products, machine: Machine) -> Rates:
    """What the model reckons with: a GPU's memory and tensor cores; of a CPU, packing and multiplying."""
    device = machine.device
    if device is not None:
        carries = device.sms * device.clock * SHARED_BYTES
        each = tensor_seconds(1.0, device, products.factors)
        return Rates(device.bandwidth, 1 / each, paper_alpha(device.sms), carries)
    largest = max(n * k for n, k in products.shapes) * F32_BYTES
    pack = FAR_PACK_CYCLES if largest > FAR_BYTES else PACK_CYCLES
    near = machine.lone_bandwidths.at(machine.near_bytes) * machine.cores
    return Rates(
        F32_BYTES / (pack * machine.lane_cycle),
        1 / (PRODUCT_CYCLES * machine.lane_cycle),
        lambda blocks: 1 / busy_share(blocks, machine.units),
        near,
    )
