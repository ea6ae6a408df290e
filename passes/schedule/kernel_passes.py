"""What kernels go through before they are written out: one tuple for each target.

for p in kernel_passes(machine): kernel = p.run(kernel, context)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.named_pass import NamedPass, kernel_pass
from jstitch.passes.base.run_passes import Step, run_passes
from jstitch.passes.schedule.block_transposes import block_transposes
from jstitch.passes.schedule.bound_exponents import bound_exponents
from jstitch.passes.schedule.distribute_loops import distribute_loops
from jstitch.passes.schedule.divide_by_invariants import divide_by_invariants
from jstitch.passes.schedule.divide_phases import divide_phases
from jstitch.passes.schedule.in_strips import in_strips
from jstitch.passes.schedule.nest_rows import nest_rows
from jstitch.passes.schedule.pair_halves import pair_halves
from jstitch.passes.schedule.prefetch_rows import prefetch_rows
from jstitch.passes.schedule.prefetch_turns import prefetch_turns
from jstitch.passes.schedule.repeat_columns import repeat_columns
from jstitch.passes.schedule.round_products import round_products
from jstitch.passes.schedule.stream_results import stream_results
from jstitch.passes.schedule.tile_products import tile_products
from jstitch.passes.schedule.time_phases import time_phases
from jstitch.passes.schedule.widen_teams import widen_teams


def _named(change: Callable[[Kernel], Kernel]) -> NamedPass:
    return kernel_pass(change.__name__, run_on=on_any_target(change), about=change)


TILES = kernel_pass("tile_products", run_on=tile_products, about=tile_products)
CPU_PASSES = (
    *map(_named, (block_transposes, nest_rows, distribute_loops, repeat_columns)),
    *map(_named, (bound_exponents, divide_by_invariants)),
    TILES,
    *map(_named, (stream_results, pair_halves, prefetch_rows)),
    kernel_pass("time_phases", run_on=time_phases, about=time_phases),
)
CUDA_PASSES = (
    TILES,
    _named(round_products),
    kernel_pass("in_strips", run_on=in_strips, about=in_strips),
    kernel_pass("widen_teams", run_on=widen_teams, about=widen_teams),
    kernel_pass("prefetch_turns", run_on=prefetch_turns, about=prefetch_turns),
    _named(divide_phases),
)


def kernel_passes(machine: Machine) -> tuple[NamedPass, ...]:
    """Those of the machine's target, in the order in which they run."""
    return CPU_PASSES if machine.device is None else CUDA_PASSES


def schedule_kernel(
    kernel: Kernel,
    context: Context,
    passes: Sequence[NamedPass] | None = None,
    after: Callable[[Step[Kernel]], None] | None = None,
) -> Kernel:
    """The kernel as it is written out. passes: None for the target's own."""
    chosen = kernel_passes(context.machine) if passes is None else passes
    return run_passes(kernel, chosen, context, after)
