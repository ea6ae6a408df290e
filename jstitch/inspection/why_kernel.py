"""Why a pattern has the schemes and the schedule that it has, in sentences with the numbers.

block: rows of 512 elements meet in 2,176 bytes of arena, of 524,288
phase 0: 1024 rows, 1 at a step, in 32 programs: 5,767,168 elements of work, 16,384 make a program
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.inspection.kernel_facts import KernelFacts, LaneFacts
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.pack_patterns import SMALL
from jstitch.passes.fuse.tile_chains import Searched, search_chain, searched_with, timed_tilings


def why_schemes(kernel: KernelFacts, context: Context) -> Iterator[str]:
    """One sentence for each scheme."""
    for scheme in kernel.schemes:
        match scheme:
            case "thread":
                yield "thread: elements go from op to op in registers, where each reads that of its own place"
            case "warp":
                yield f"warp: a row has {_threads(kernel)} threads, so its sums go round by shuffles"
            case "block":
                yield f"block: what all of a row needs goes through {_room(kernel, context)}"
            case "phases":
                yield (
                    f"phases: {kernel.phases}, as values cross rows; {kernel.scratch_bytes:,} bytes of"
                    " scratch memory go from one to the next"
                )
            case "packing":
                lanes = sum(lane.times for lane in kernel.lanes)
                yield (
                    f"packing: {lanes} lanes that do not wait for each other share {_calls(kernel)}; patterns"
                    f" are packed up to {SMALL * 1e6:.0f} us"
                )


def _threads(kernel: KernelFacts) -> int:
    return max(lane.threads for lane in kernel.lanes if len(lane.stages) > 1)


def _room(kernel: KernelFacts, context: Context) -> str:
    limit = context.options.arena_bytes
    profile = context.profile
    own = profile.product_bytes if kernel.products else profile.arena_bytes
    budget = own if limit is None else limit
    if not kernel.launches:
        return f"{kernel.arena_bytes:,} bytes of arena, of {budget:,}"
    return f"{kernel.shared_bytes:,} bytes of shared memory, of {budget:,}, and registers"


def _calls(kernel: KernelFacts) -> str:
    count = len(kernel.launches)
    return f"{count} launch{'es' if count > 1 else ''}" if count else "one call"


def why_schedule(kernel: KernelFacts, context: Context) -> Iterator[str]:
    """One sentence for each kind of lane, and one for each launch."""
    tried = context.options.tried
    yield from (_lane(lane, context.profile) for lane in kernel.lanes)
    for n, launch in enumerate(kernel.launches):
        yield (
            f"launch {n}: {launch.grid} CTAs of {launch.block} threads, {launch.registers} registers and"
            f" {launch.shared_bytes:,} bytes of shared memory each: {launch.occupancy:.0%} occupancy"
        )
    chosen = "the first schedule" if tried == 1 else f"the best of {tried} schedules at most"
    yield f"{chosen}, modelled to take {kernel.seconds * 1e6:.1f} us"


def why_tiling(pattern: FusionPattern, context: Context) -> Iterator[str]:
    """For kernels with products of matrices: which rows and columns go together, out of how many choices."""
    timed = timed_tilings(pattern, context) if any(op.name == PRODUCT for op in pattern.ops) else ()
    if not timed:
        return
    tile, seconds = timed[0]
    yield f"tilings: {len(timed)}; quickest by MCFuser's model, {seconds * 1e6:.1f} us: {tile}"
    found = Searched() if pattern.template is None else search_chain(pattern, searched_with(context))
    if found.tile is not None:
        how = "by the latency-evaluator" if context.clock is None else "as measured"
        yield (
            f"tilings: {found.lowered} lowered, in {found.generations} generations; quickest {how},"
            f" {found.seconds * 1e6:.1f} us, without the search {found.first_seconds * 1e6:.1f} us:"
            f" {found.tile}"
        )


def _lane(lane: LaneFacts, profile: Profile) -> str:
    times = f"{lane.times} lanes of " if lane.times > 1 else ""
    kind = "elements" if lane.flat else f"strips of {lane.columns:,} columns" if lane.columns else "rows"
    rows = f"{lane.rows:,} {kind}"
    step = "" if lane.flat else f", {lane.step} at a step"
    return (
        f"phase {lane.phase}: {times}{rows}{step}, in {lane.programs} programs: {lane.work:,} elements of"
        f" work, {profile.program_work:,} make a program, {profile.max_programs} at most"
    )
