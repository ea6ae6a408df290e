"""One planned frame as the page draws it: ops in columns of equal length, edges by number.

{"ops": {"name": ["stablehlo.exp", ...], "span": [2, ...], "column": [0.5, ...]}, "edges": [[0, 1, 0], ...]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jstitch.inspection.labels import Frame
from jstitch.inspection.report.layout import columns
from jstitch.inspection.report.texts import Strings, shorten
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.printer import print_op
from jstitch.ir.scope import plain_scope
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import FusionPlan, NoFuse, is_free
from jstitch.passes.fuse.layer_work_span import layer_work_span

NONE = -1


def frame_data(
    frame: Frame,
    plan: FusionPlan,
    kernels: Mapping[Op, int],
    schedules: Mapping[Op, str],
    why: Mapping[NoFuse, int],
    strings: Strings,
) -> dict[str, Any]:
    """kernels: number of the kernel that makes an op. why: number of a reason. In the ops, written: bytes of
    results that leave the kernel.

    Free ops (constants, iota) are not drawn; each kernel has its own copies.
    """
    ops = [op for op in plan.frame.ops if not is_free(op)]
    place = {op: n for n, op in enumerate(ops)}
    all_spans = layer_work_span(plan.frame)
    spans = [all_spans[op] for op in ops]
    edges = sorted(set(_edges(plan, place)))
    reasons = {(place[r.producer], place[r.consumer]): why[r] for r in _drawn(plan, place)}
    names, written = frame.names, _written(plan.frame, kernels)
    return {
        "title": shorten(frame.title),
        "layers": max(spans, default=NONE) + 1,
        "free": len(plan.frame.ops) - len(ops),
        "ops": {
            "name": [strings.number(op.name) for op in ops],
            "value": [" ".join(names[v] for v in op.results if v in names) for op in ops],
            "type": [strings.number(shorten(", ".join(str(v.type) for v in op.results))) for op in ops],
            "line": [shorten(_line(op, names)) for op in ops],
            "loc": [strings.number(shorten(op.loc)) for op in ops],
            "scope": [strings.number(shorten(plain_scope(op.scope))) for op in ops],
            "schedule": [strings.number(schedules.get(op, "")) for op in ops],
            "kernel": [kernels.get(op, NONE) for op in ops],
            "written": [written[op] for op in ops],
            "span": spans,
            "column": columns(spans, edges),
        },
        "edges": [[a, b, reasons.get((a, b), NONE)] for a, b in edges],
    }


def _edges(plan: FusionPlan, place: Mapping[Op, int]) -> Iterator[tuple[int, int]]:
    makers = plan.frame.producers()
    for op, number in place.items():
        for value in op.uses:
            maker = makers.get(value)
            if maker is not None and maker in place:
                yield place[maker], number


def _written(frame: Graph, kernels: Mapping[Op, int]) -> Mapping[Op, int]:
    """Bytes of each op's results that leave its kernel; an op in no kernel is as one of its own."""
    kernel = {op: kernels.get(op, NONE - n) for n, op in enumerate(frame.ops, 1)}
    leave = set(frame.outputs)
    for maker, value, user in _uses(frame):
        if kernel[maker] != kernel[user]:
            leave.add(value)
    return {op: sum(_nbytes(v) for v in op.results if v in leave) for op in frame.ops}


def _uses(frame: Graph) -> Iterator[tuple[Op, Value, Op]]:
    makers = frame.producers()
    for user in frame.ops:
        yield from ((makers[v], v, user) for v in user.uses if v in makers)


def _nbytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def _drawn(plan: FusionPlan, place: Mapping[Op, int]) -> Sequence[NoFuse]:
    return [r for r in plan.refusals if r.producer in place and r.consumer in place]


def _line(op: Op, names: Mapping[Any, str]) -> str:
    """Without the place, which is shown beside it."""
    return print_op(op, names).removesuffix(f"  // {op.loc}")
