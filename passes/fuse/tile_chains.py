"""Give chains of products the tiling that they take least time with: MCFuser's search (section IV-B).

softmax(q k) v, 64 rows by 2,048 keys     32 tilings, 13 of them lowered:  32 rows, 128 columns at a time

The search ranks candidates by the paper's model (equations 2 to 5); what it measures is the kernel that
a candidate is lowered to: by the clock of a device that is here and may be asked (`tune="measure"`), else by
the latency-evaluator. On a CPU without a clock nothing is searched: the model's choice is as good as the
evaluator's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.describe_template import in_blocks
from jstitch.passes.lower.form_pattern import FormedPattern, form_pattern
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.tile_rows import Products, StepTile, timed_tiles
from jstitch.passes.schedule.latency import kernel_latency
from jstitch.passes.schedule.tile_products import tile_products
from jstitch.passes.tile.prune_tilings import Tiling
from jstitch.passes.tile.search_tilings import search_tilings
from jstitch.passes.tile.write_expressions import Expression
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile


@dataclass(frozen=True)
class Searched:
    """template: of the best kernel, None: there is nothing to choose. tile: its rows and columns.

    seconds: by the clock, or the evaluator; first_seconds: of what lowering takes by itself. tilings:
    candidates; lowered: how many of them were, in so many generations.
    """

    template: Template | None = None
    tile: StepTile | None = None
    seconds: float = math.inf
    first_seconds: float = math.inf
    tilings: int = 0
    lowered: int = 0
    generations: int = 0


def tile_chains(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan, its patterns with products with templates; on a CPU, where kernels are measured."""
    if context.machine.device is None and context.clock is None:
        return plan
    return replace(plan, patterns=tuple(_tiled(p, context) for p in plan.patterns))


def _tiled(pattern: FusionPattern, context: Context) -> FusionPattern:
    given = pattern.pinned is not None or pattern.template is not None
    if given or all(op.name != PRODUCT for op in pattern.ops):
        return pattern
    found = search_chain(pattern, searched_with(context))
    return pattern if found.template is None else replace(pattern, template=found.template)


def searched_with(context: Context) -> Context:
    """All that the search must know: what it says of one program's patterns holds for others."""
    return Context(context.options, context.profile, clock=context.clock)


@per_structure
def search_chain(pattern: FusionPattern, context: Context) -> Searched:
    """The best tiling of a pattern with products, among those that may find room."""
    formed = form_pattern(pattern.ops, pattern.outputs, context.profile)
    group = _group(formed)
    if group is None:
        return Searched()
    try:
        return _Search(pattern, context, formed, group).run()
    except CannotLowerError:
        return Searched()


def timed_tilings(pattern: FusionPattern, context: Context) -> Sequence[tuple[StepTile, float]]:
    """Those of a pattern with products, the quickest by MCFuser's model first, with seconds."""
    group = _group(form_pattern(pattern.ops, pattern.outputs, context.profile))
    return () if group is None else timed_tiles(Products.of(group.products, group.rows), context.profile)


def templates_of(pattern: FusionPattern, context: Context) -> TileTemplates | None:
    """How to ask for each of its tilings; None where there is no choice."""
    formed = form_pattern(pattern.ops, pattern.outputs, context.profile)
    group = _group(formed)
    if group is None:
        return None
    first = _Search(pattern, context, formed, group).lowered(None)
    return None if first.template is None else TileTemplates(first.template, formed, group)


def _group(formed: FormedPattern) -> Group | None:
    """The rows that products are made by, where all of them go by the same."""
    groups = [g for g in dict.fromkeys(formed.grouping.group_of.values()) if g.tiles]
    return groups[0] if len(groups) == 1 else None


@dataclass(eq=False)
class _Search:
    """group: of the pattern's products."""

    pattern: FusionPattern
    context: Context
    formed: FormedPattern
    group: Group

    def run(self) -> Searched:
        """Raises CannotLowerError where no tiling makes a kernel."""
        products = Products.of(self.group.products, self.group.rows)
        timed = timed_tiles(products, self.context.profile)
        first = self.lowered(None)
        if first.template is None or len(timed) == 1:
            return Searched()
        templates = TileTemplates(first.template, self.formed, self.group)
        tiles = {tiling_of(tile).key: tile for tile, _ in timed}
        modelled = {tiling_of(tile).key: seconds for tile, seconds in timed}
        found = search_tilings(
            [tiling_of(tile) for tile, _ in timed],
            lambda tiling: modelled[tiling.key],
            lambda tiling: self._seconds(templates.template(tiles[tiling.key])),
        )
        if found.seconds == math.inf:
            return Searched()
        tile = tiles[found.tiling.key]
        counts = len(timed), found.measured, found.generations
        return Searched(templates.template(tile), tile, found.seconds, self._evaluated(first), *counts)

    def lowered(self, template: Template | None) -> Kernel:
        pattern, context = self.pattern, self.context
        what = pattern.ops, pattern.inputs, pattern.outputs, context.profile, context.options.arena_bytes
        return lower_kernel("chain", *what, template=template)

    def _seconds(self, template: Template) -> float:
        """math.inf where there is no such kernel, or products do not go by tiles in it."""
        try:
            kernel = self.lowered(template)
        except (CannotLowerError, TemplateError):
            return math.inf
        wanted = sum(op.name == PRODUCT for op in self.pattern.ops)
        tiled = tile_products(kernel, self.context).products >= wanted
        return self._evaluated(kernel) if tiled else math.inf

    def _evaluated(self, kernel: Kernel) -> float:
        if self.context.clock is not None:
            return self.context.clock(kernel)
        try:
            return kernel_latency(kernel, self.context).seconds
        except (NoRoom, CannotBuildError):
            return math.inf


def tiling_of(tile: StepTile) -> Tiling:
    """The paper's: columns between products are the loop that a block has."""
    return Tiling(Expression(("n",)), {"m": tile.rows, "n": tile.block})


@dataclass(frozen=True, eq=False)
class TileTemplates:
    """The template of what lowering makes by itself, for other tilings of the group's rows."""

    known: Template
    formed: FormedPattern
    group: Group

    def template(self, tile: StepTile) -> Template:
        return Template(tuple(self._schedule(s, tile) for s in self.known.schedules))

    def _schedule(self, schedule: OpSchedule, tile: StepTile) -> OpSchedule:
        if schedule.op not in self._labels:
            return schedule
        attrs = [self._rows(schedule.attrs[0], tile.rows), *map(_whole, schedule.attrs[1:])]
        if tile.block and schedule.op == self._marked:
            attrs[-2] = in_blocks(attrs[-2], tile.block)
        return replace(schedule, attrs=tuple(attrs))

    @cached_property
    def _labels(self) -> frozenset[str]:
        """Of the group's ops."""
        owners, labels = self.formed.grouping.group_of, self.formed.labels
        return frozenset(labels[op.results[0]] for op in self.group.ops if owners.get(op) is self.group)

    @cached_property
    def _marked(self) -> str:
        """The first product that makes what lies between products: its columns say how wide blocks are."""
        between = Products.of(self.group.products, self.group.rows).between
        ops = (op for op in self.formed.grouping.ops if op in self.group.products)
        first = next(op for op in ops if op.operands[0].shape[-2] == between)
        return self.formed.labels[first.results[0]]

    def _rows(self, attr: Attr, rows: int) -> Attr:
        """So many at a time, by the programs that there then are."""
        grid, *rest = attr
        counted = None if grid.count is None else replace(self.group, step=rows).programs
        behind = rest[1:] if rest[:1] == [Tile(Scope.THREAD, self._step)] else rest
        return (Tile(Scope.GRID, counted), *([Tile(Scope.THREAD, rows)] if rows > 1 else []), *behind)

    @cached_property
    def _step(self) -> int | None:
        """Rows at a time of the known template."""
        mine = next(s for s in self.known.schedules if s.op in self._labels)
        return mine.attrs[0][1].count if len(mine.attrs[0]) > 1 else None


def _whole(attr: Attr) -> Attr:
    """Without blocks."""
    return attr[-1:] if len(attr) > 1 and attr[0].scope is Scope.THREAD else attr
