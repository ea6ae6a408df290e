"""One lane: what is kept where, its stages by depth, and the nests of each stage by domain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import ROW, Lane, Nest, Stage
from jstitch.codegen.merge_loops import merge_loops
from jstitch.ir.graph import Value
from jstitch.ir.ops import lookup
from jstitch.passes.base.row_access import ROWS
from jstitch.passes.lower.cut_rows import RowsPart
from jstitch.passes.lower.divide_loops import (
    MOST_CODE,
    MOST_POINTS,
    MOST_UNROLLED,
    fewer_points,
    seams_of,
    unrolled,
    without_edges,
)
from jstitch.passes.lower.follow_memory import Order, follow_memory
from jstitch.passes.lower.lane_context import LaneContext
from jstitch.passes.lower.loop_order import (
    LONG,
    block_in,
    block_of,
    block_of_rows,
    inner_dims,
    sums_floats,
)
from jstitch.passes.lower.place_values import Placement, last_stage, place_values
from jstitch.passes.lower.quote_lines import quote_lines
from jstitch.passes.lower.trace_lane import Node
from jstitch.passes.lower.unroll_and_jam import jam, jammed_turns
from jstitch.passes.lower.write_nest import NestWriter, inits
from jstitch.passes.lower.write_out_turns import write_out_turns
from jstitch.passes.lower.written import Place

POINTS = MOST_POINTS, 32, 12  # at which a nest is cut, to try in turn
MOST_PIECES = 16  # of a nest that is cut at seams along two loops


@dataclass(eq=False, kw_only=True)
class LaneLowering(LaneContext):
    """keep: (value, rows, step) -> a tile of the arena for that many rows of the value."""

    keep: Callable[[Value, int, int], Place]
    placement: Placement = field(init=False)

    def run(self) -> Lane:
        group = self.view.group
        placement = self.placement = place_values(self.view)
        for node in placement.nodes:
            if node.is_reduction or node.value in placement.kept:
                for v in node.op.results if node.is_reduction else (node.value,):
                    self.tiles[v] = self._accumulator(node, v) or self.keep(v, group.rows, group.step)
        where = last_stage(placement, group.profile)
        once = [self._zero(n) for n in placement.nodes if n.is_partial]
        stages = [Stage((nest,), "start the partial sums", once=True) for nests in once for nest in nests]
        for key in sorted(set(where.values())):
            nodes = [n for n in placement.nodes if where[n] == key]
            stages.append(self._stage(nodes, key[1]))
        work = sum(math.prod(n.domain) * max(1.0, lookup(n.op.name).cpi) for n in placement.nodes)
        part = self.view.part or RowsPart(0, group.rows, 0, group.programs)
        share = (part.high - part.low) / group.rows
        shape = part.high - part.low, group.step, part.programs
        said = group.threads, group.exact, group.counted
        block = max((block_of_rows(n.op, group) for n in placement.nodes if n.is_partial), default=0)
        lane = Lane(*shape, tuple(stages), group.flat, int(work * share), *said)
        return replace(lane, owns=group.columns, block=block)

    def _accumulator(self, n: Node, v: Value) -> Place | None:
        """The memory that a reduction's result goes to anyway, when it can accumulate there."""
        place = self.stores.get(v)
        grows = self._read_modify_write(n) or ROWS in n.op.attrs
        if v not in self.view.stored or place is None or not grows:
            return None
        return place if place.buffer.type.dtype is v.tensor.dtype.compute else None

    # -- stages ---------------------------------------------------------------------------------------

    def _stage(self, nodes: list[Node], by_columns: bool) -> Stage:
        nests = [nest for group in self._by_domain(nodes) for nest in self._nests(group, by_columns)]
        if self.view.group.profile.seams:
            nests = [*map(merge_loops, nests)]
        note = ", ".join(dict.fromkeys(_label(n) for n in nodes))
        return Stage(tuple(nests), note, lines=self._lines(nodes))

    def _by_domain(self, nodes: list[Node]) -> list[list[Node]]:
        """Nodes that share loops; none stands before what it reads."""
        keys: list[tuple[object, ...]] = []
        groups: list[list[Node]] = []
        made: dict[Value, int] = {}
        for n in nodes:
            key = () if self.view.group.flat else (n.domain, self._partly_reduced(n))
            first = max((made[v] for v in self._read(n, made)), default=0) if len(groups) > 1 else 0
            place = next((k for k in range(first, len(keys)) if keys[k] == key), len(keys))
            if place == len(keys):
                keys.append(key)
                groups.append([])
            groups[place].append(n)
            made |= dict.fromkeys(n.op.results, place)
        return groups

    def _read(self, n: Node, made: Container[Value]) -> set[Value]:
        """What the node reads of these values, by way of what its loops compute again."""
        found, seen = set[Value](), set[Value]()
        todo = [*n.op.operands]
        while todo:
            v = todo.pop()
            if v in made:
                found.add(v)
            elif v not in seen and v not in self.view.places and v in self.view.producers:
                seen.add(v)
                todo += self.view.producers[v].operands
        return found

    def _lines(self, nodes: list[Node]) -> tuple[str, ...]:
        """Of the user's code: what the nodes compute, up to what was reduced or kept, or is in memory."""
        reduced = {v for n in self.placement.nodes if n.is_reduction for v in n.op.results}
        known = (reduced, self.placement.kept, self.view.places)
        return quote_lines((n.op for n in nodes), known, self.view.producers, self.view.order)

    def _nests(self, nodes: list[Node], by_columns: bool) -> list[Nest]:
        nests = self._collapsed(nodes, by_columns) or self._split(nodes, by_columns)
        updated = [n for n in nodes if self._read_modify_write(n) and n not in self.at_once]
        fills = [self._first_fill(n) for n in updated]
        return [nest for first in fills for nest in first] + nests

    def _collapsed(self, nodes: list[Node], by_columns: bool) -> list[Nest]:
        """One loop over all of a row; nothing where its number would have to be divided."""
        if not self._collapsible(nodes):
            return []
        writer = NestWriter(self, nodes, by_columns, collapse=True, runs=self._blocks(nodes, -1))
        nest = writer.write()
        return [] if writer.builder.modular else [nest]

    def _split(self, nodes: list[Node], by_columns: bool) -> list[Nest]:
        """One nest, or several where a loop is better cut at the seams of a concatenate or pad."""
        writer, nest, blocks = self._whole(nodes, by_columns)
        if (order := self._order_of_memory(nodes, nest)) is not None:
            self.orders |= dict.fromkeys(nodes, order)
            writer, nest, blocks = self._whole(nodes, by_columns)
        seams = self.view.group.profile.seams
        runs = self._runs(writer, by_columns) if seams else {}
        if runs:
            writer = NestWriter(self, nodes, by_columns, collapse=False, runs=runs)
            return write_out_turns(writer, writer.write())
        cuts = self._cuts(writer, by_columns) if seams and self._may_go_on(nodes) else None
        if cuts is not None:
            return self._in_pieces(nodes, by_columns, cuts, len(nest.body))
        if blocks or writer.builder.conditions or not all(map(self._read_modify_write, nodes)):
            return write_out_turns(writer, nest) if seams else [nest]
        return self._jammed(writer, nest)

    def _runs(self, writer: NestWriter, by_columns: bool) -> dict[int, int]:
        """Loops that are better in runs; one in blocks is looked at without them: runs are blocks, too."""
        if writer.cut_runs and writer.builder.divided:
            writer = NestWriter(self, writer.nodes, by_columns, collapse=False)
            writer.write()
        sums = any(n.roots and sums_floats(n.op) for n in writer.nodes)
        return {d: block_in(n) or n if sums and n > LONG else n for d, n in writer.runs().items()}

    def _jammed(self, writer: NestWriter, nest: Nest) -> list[Nest]:
        """Sums into tiles, a few elements or all of them in a turn."""
        turns = jammed_turns(writer, nest) if self.view.group.profile.jams else {}
        if not turns:
            return [nest]
        summed = {d for n in writer.nodes for d in n.op.attrs["dimensions"] if d in writer.inner}
        if all(turns.get(d) == writer.shape[d] for d in summed):
            self.at_once |= {*writer.nodes}
        return [again.write() for again in jam(writer, turns)]

    def _cuts(self, writer: NestWriter, by_columns: bool) -> tuple[str, list[int]] | None:
        """Where the nest is better cut; a loop in blocks is looked at without them: a piece has its own."""
        if writer.cut_runs and writer.builder.conditions:
            writer = NestWriter(self, writer.nodes, by_columns, collapse=False)
            writer.write()
        return _cuts(writer)

    def _whole(self, nodes: list[Node], by_columns: bool) -> tuple[NestWriter, Nest, dict[int, int]]:
        """One nest, what wrote it, and the blocks of its loops."""
        inner = self._inner(nodes)
        blocks = self._blocks(nodes, inner[-1]) if inner else {}
        writer = NestWriter(self, nodes, by_columns, collapse=False, runs=blocks)
        return writer, writer.write(), blocks

    def _inner(self, nodes: list[Node]) -> Sequence[int]:
        """Dimensions inside a row, in the order of the nest's loops."""
        return self.orders.get(nodes[0]) or inner_dims(nodes[0].domain, self.view.group.rows)

    def _order_of_memory(self, nodes: list[Node], nest: Nest) -> Order | None:
        """Another order of a nest's loops, where they add up rows that lie in another one."""
        group, inner = self.view.group, self._inner(nodes)
        if not group.profile.follows_memory or group.flat or len(inner) < 2:
            return None
        if any(ROWS in n.op.attrs for n in nodes) or not any(n.roots for n in nodes):
            return None  # products go by tiles of registers
        if not self._may_go_on(nodes):
            return None
        return follow_memory(nest, {d: nodes[0].domain[d] for d in inner})

    def _in_pieces(
        self, nodes: list[Node], by_columns: bool, cuts: tuple[str, list[int]], whole: int
    ) -> list[Nest]:
        """Nests for all pieces, or for fewer; where these still are much code, the longest alone is apart."""
        name, points = cuts
        few = without_edges(points)
        for most in POINTS if few != points else ():
            found = self._pieces(nodes, by_columns, {}, (name, fewer_points(points, most)))
            much = sum(len(nest.body) for nest in found) > max(MOST_CODE, whole)
            if not much and sum(map(unrolled, found)) <= MOST_UNROLLED:
                return found
        return self._pieces(nodes, by_columns, {}, (name, few or [points[0], points[-1]]))

    def _pieces(
        self,
        nodes: list[Node],
        by_columns: bool,
        ranges: Mapping[str, tuple[int, int]],
        cuts: tuple[str, list[int]],
    ) -> list[Nest]:
        """A nest for each piece of a loop, inside the ranges of those that are cut already."""
        name, points = cuts
        last = self._inner(nodes)[-1]
        found: list[Nest] = []
        for lo, hi in itertools.pairwise(points):
            own = {**ranges, name: (lo, hi)}
            first, end = own.get(f"i{last}", (0, 0))
            blocks = self._blocks(nodes, last, end - first)
            writer = NestWriter(self, nodes, by_columns, collapse=False, ranges=own, runs=blocks)
            nest, more = writer.write(), _cuts(writer)
            if more and not ranges and (len(points) - 1) * (len(more[1]) - 1) <= MOST_PIECES:
                found += self._pieces(nodes, by_columns, own, more)
            else:
                found += write_out_turns(writer, nest)
        return found

    def _may_go_on(self, nodes: list[Node]) -> bool:
        """Whether sums may be left and taken up again: what they are kept in rounds nothing."""
        sums = [v for n in nodes if n.is_reduction and not n.is_partial for v in n.op.results]
        return all(self.tiles[v].buffer.type.dtype is v.tensor.dtype.compute for v in sums)

    def _blocks(self, nodes: list[Node], dim: int, part: int = 0) -> dict[int, int]:
        """The nest's innermost dimension (-1: all in one) in blocks, when one of its nodes is a long sum.

        part: of a dimension that is cut.
        """
        group = self.view.group
        found = (
            0 if group.flat else max(block_of(n, group, dim < 0, part, self.orders.get(n, ())) for n in nodes)
        )
        return {dim: found} if found else {}

    def _collapsible(self, nodes: list[Node]) -> bool:
        """Whether the tile's loops may be one: everything inner is kept, or everything is reduced."""
        if self.view.group.flat:
            return False
        inner = inner_dims(nodes[0].domain, self.view.group.rows)
        if len(inner) < 2:
            return False
        for n in nodes:
            if n.roots:
                dims = set(n.op.attrs["dimensions"])
                reduced = [d for d in inner if d in dims]
                if reduced and len(reduced) != len(inner):
                    return False
        return True

    def _partly_reduced(self, n: Node) -> frozenset[int]:
        """Inner dimensions that a node reduces, where it keeps others and these must be the outer loops."""
        inner = set(inner_dims(n.domain, self.view.group.rows))
        if not (n.roots and self.view.group.profile.kept_first) or inner == {-1}:
            return frozenset()
        reduced = frozenset(inner.intersection(n.op.attrs["dimensions"]))
        return frozenset() if reduced == inner else reduced

    def _read_modify_write(self, n: Node) -> bool:
        """An inner reduction whose accumulators are in the tile, not only in scalars."""
        return n.is_reduction and self.loop_order(n).outer

    def _first_fill(self, n: Node) -> list[Nest]:
        """Set the tile of accumulators to the reduction's initial value."""
        writer = NestWriter(self, [n], False, collapse=False)
        return [writer.fill(v, init) for v, init in zip(n.op.results, inits(n.op), strict=True)]

    def _zero(self, n: Node) -> list[Nest]:
        """Set a program's partial results to the monoid's identity."""
        writer = NestWriter(self, [n], False, collapse=False)
        return [writer.zero(v) for v in n.op.results]


def _cuts(writer: NestWriter) -> tuple[str, list[int]] | None:
    """A loop variable and the points at which conditions on it change, the innermost loop's first.

    Of the nest's own loops: others (the step's number, the turn's) are not here to be cut.
    """
    own = [loop.var.name for loop in writer.loops if loop.var.name != ROW]
    return seams_of(writer.builder.conditions, [name for name in own if name not in writer.ranges])


def _label(n: Node) -> str:
    kind = n.op.name.rpartition(".")[2]
    if n.op.attrs.get("monoid"):
        return f"{kind} {n.op.attrs['monoid'].rpartition('.')[2]}"
    return kind
