"""What the nests of one lane share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Value
from jstitch.passes.lower.follow_memory import Order
from jstitch.passes.lower.loop_order import LoopOrder, loop_order
from jstitch.passes.lower.place_values import LaneView
from jstitch.passes.lower.trace_lane import Node
from jstitch.passes.lower.written import Place, Written


@dataclass(eq=False, kw_only=True)
class LaneContext:
    """What the nests of one lane share. stores: memory of outputs and spills. tiles: memory in the arena.

    written: memory of other tensors that values are written into. orders: of the loops of nodes' nests, by
    dimension, where they are not the dimensions'. at_once: reductions of which one turn takes all elements.
    """

    view: LaneView
    stores: Mapping[Value, Place]
    written: Mapping[Value, Sequence[Written]] = field(default_factory=dict)
    names: Callable[[], str]
    tiles: dict[Value, Place] = field(default_factory=dict)
    orders: dict[Node, Order] = field(default_factory=dict)
    at_once: set[Node] = field(default_factory=set)

    def loop_order(self, n: Node) -> LoopOrder:
        """How the loops of a reduction's nest are nested."""
        return loop_order(n, self.view.group, self.orders.get(n, ()))
