"""Make plan-*.svg anew: what the papers' planners make of the program in docs/presets.md.

    pip install -e '.[docs]' && python -m docs.images.draw_plans

A box is an op, in the row of its span layer; its colour is its kernel's. Constants are not drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jstitch.frontend.graph_picture import COLOURS
from jstitch.inspection.report.layout import columns
from jstitch.inspection.subject import observe_function
from jstitch.ir.graph import Graph, Op
from jstitch.options import CompileOptions
from jstitch.passes.base.plan import FusionPlan, is_free
from jstitch.passes.fuse.layer_work_span import layer_work_span

PAGE = Path(__file__).resolve().parents[1] / "presets.md"
DRAWN = ("fs2018", "fs2019", "fs2021", "layers")
WIDE, HIGH = 0.9, 0.62  # of a box, in columns and rows
SETTINGS = {"svg.hashsalt": "jstitch", "svg.fonttype": "none", "font.size": 7, "font.family": "monospace"}


@cache
def program() -> tuple[Callable[..., Any], Sequence[Any]]:
    """The page's function, and its arguments' shapes."""
    block = re.search(r"^```python\n(.*?)^for planner in", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None, f"{PAGE} has no program"
    names: dict[str, Any] = {}
    exec(compile(block[1], PAGE.name, "exec"), names)
    return names["heads"], names["arguments"]


def plan(planner: str) -> FusionPlan:
    """What the page's `plan` plans."""
    options = CompileOptions(planner=planner, target="h200", tune="off")
    function, arguments = program()
    (call,) = observe_function(function, tuple(arguments), {}, options, kernels=False)
    return call.plans[-1]


def drawn(plan: FusionPlan) -> dict[Op, str]:
    """A name for each op that is drawn: its number, what it is, and its kernel, '-' without one."""
    kernels = {op: n for n, pattern in enumerate(plan.patterns) for op in pattern.ops}
    ops = [op for op in plan.frame.ops if not is_free(op)]
    return {
        op: f"{number}:{op.name.rpartition('.')[2]}:{kernels.get(op, '-')}" for number, op in enumerate(ops)
    }


def draw(plan: FusionPlan, path: Path) -> None:
    # Here, because the pictures are compared with the plans where matplotlib is not installed.
    import matplotlib
    from matplotlib import pyplot

    names = drawn(plan)
    places = _places(plan.frame, list(names))
    with matplotlib.rc_context(SETTINGS):
        right, top = (max(place[axis] for place in places.values()) for axis in (0, 1))
        figure, axes = pyplot.subplots(figsize=(1.05 * (right + 1), 0.42 * (top + 1)))
        axes.set(xlim=(-0.6, right + 0.6), ylim=(-0.6, top + 0.6))
        axes.axis("off")
        for op, maker in _edges(plan.frame, names):
            _arrow(axes, places[maker], places[op])
        for op, name in names.items():
            _box(axes, places[op], name)
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)


def _places(frame: Graph, ops: Sequence[Op]) -> dict[Op, tuple[float, float]]:
    """The last op at the bottom, in rows of equal distance from the results."""
    spans = layer_work_span(frame)
    number = {op: n for n, op in enumerate(ops)}
    edges = [(number[maker], number[op]) for op, maker in _edges(frame, number)]
    found = columns([spans[op] for op in ops], sorted(set(edges)))
    return {op: (found[n], float(spans[op])) for op, n in number.items()}


def _edges(frame: Graph, ops: Any) -> list[tuple[Op, Op]]:
    makers = frame.producers()
    return [(op, makers[v]) for op in ops for v in op.uses if makers.get(v) in ops]


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    from matplotlib.patches import FancyArrowPatch

    above, below = (start[0], start[1] - HIGH / 2), (end[0], end[1] + HIGH / 2)
    axes.add_patch(
        FancyArrowPatch(above, below, arrowstyle="-|>", mutation_scale=6, linewidth=0.6, color="#777777")
    )


def _box(axes: Any, place: tuple[float, float], name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    _, kind, kernel = name.split(":")
    colour = "white" if kernel == "-" else COLOURS[int(kernel) % len(COLOURS)]
    corner = (place[0] - WIDE / 2, place[1] - HIGH / 2)
    box = FancyBboxPatch(corner, WIDE, HIGH, boxstyle="round,pad=0,rounding_size=0.1", linewidth=0.8)
    box.set(facecolor=colour, edgecolor="#333333", gid=name)
    axes.add_patch(box)
    label = {"broadcast_in_dim": "broadcast", "dot_general": "dot"}.get(kind, kind)
    axes.text(*place, label, ha="center", va="center", color="black")


def main() -> None:
    for planner in DRAWN:
        path = Path(__file__).with_name(f"plan-{planner}.svg")
        draw(plan(planner), path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
