"""What lowering a pattern, and asking what it costs, begin with: its ops as they are grouped.

in rows or in strips of columns  ->  few columns made many, or one by one  ->  sums in their best form  ->
reductions cut in two  ->  products  ->  places

A strip stays near its program, so that its sums need not be made in one reading of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.plan import Update
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import label_ops, names_of
from jstitch.passes.lower.choose_columns import in_best_shape
from jstitch.passes.lower.divide_products import divide_products
from jstitch.passes.lower.fill_places import fill_places
from jstitch.passes.lower.form_groups import Strips
from jstitch.passes.lower.lead_with_rows import lead_with_rows
from jstitch.passes.lower.own_columns import Part, Turned
from jstitch.passes.lower.rewrite_sums import rewrite_sums
from jstitch.passes.lower.split_reductions import split_reductions
from jstitch.passes.lower.split_rows import split_rows
from jstitch.passes.lower.store_turned import store_turned
from jstitch.passes.lower.sum_in_blocks import sum_in_blocks
from jstitch.passes.lower.take_components import take_components
from jstitch.passes.lower.widen_columns import widen_columns
from jstitch.passes.lower.write_products import write_products
from jstitch.template import Template


@dataclass(frozen=True, eq=False)
class RewrittenOps:
    """ops: in program order. outputs: what they make of the pattern's. strips: that ops are in.

    turned: outputs of the pattern that are made in strips. labels: results -> the names of their ops in
    templates; columns left over behind the strips have those of the strips.
    """

    ops: Sequence[Op]
    outputs: Sequence[Value]
    strips: Mapping[Op, Strips]
    turned: Mapping[Value, Sequence[Turned]]
    labels: Mapping[Value, str]


def rewrite_ops(
    ops: Sequence[Op],
    outputs: Sequence[Value],
    profile: Profile,
    updates: Sequence[Update] = (),
    columns: int | None = None,
    carried: Sequence[Value] = (),
) -> RewrittenOps:
    """columns: of a strip, that a template asks for; 0: rows; None: what is best. Raises TemplateError.

    carried: inputs whose rows are to be the kernel's, in a loop.
    """
    on_cpu = profile.machine.device is None
    if updates:
        parts: Sequence[Part] = [Part(ops)]
    elif any(op.name == PRODUCT for op in ops):
        whole = _products_in_rows(ops, outputs, carried)
        parts = split_rows(whole, outputs, on_gpu=not on_cpu)
    else:
        parts = in_best_shape(ops, outputs, profile, columns)
        if parts[0].strips is None and on_cpu:
            taken = take_components(ops, outputs) if profile.components else None
            parts = taken or widen_columns(ops, outputs) or parts
    old = {v for op in ops for v in op.results}
    made: dict[Op, Strips | None] = {}
    done: set[Value] = set()
    labels: dict[Value, str] = {}
    for part in parts:
        needed = _needed(part.ops, (*part.made(outputs), *part.handed), updates)
        wanted = profile if part.strips is None else replace(profile, one_pass=False, variance_block=0)
        summed = split_reductions(rewrite_sums(part.ops, needed, wanted))
        if on_cpu:
            summed = sum_in_blocks(summed)
        own = fill_places(write_products(summed, profile.machine.device))
        for op in own:
            if done.isdisjoint(op.results):  # what all parts share is in the first
                made[op] = part.strips if old.isdisjoint(op.results) else None
                done.update(op.results)
        labels = {**label_ops(own), **labels}
    return RewrittenOps(
        list(made),
        _made_by(parts, outputs),
        {op: strips for op, strips in made.items() if strips is not None},
        _stand_ins(parts),
        labels,
    )


def _stand_ins(parts: Sequence[Part]) -> dict[Value, list[Turned]]:
    """Old values -> what stands for them, in all parts."""
    turned: dict[Value, list[Turned]] = {}
    for part in parts:
        for v, new in part.turned.items():
            turned.setdefault(v, []).append(new)
    return turned


def _made_by(parts: Sequence[Part], outputs: Sequence[Value]) -> list[Value]:
    """What stands for the outputs, each once: themselves only where nothing else does."""
    others = {v for part in parts for v in part.turned}
    stands = {new.value for part in parts for new in part.turned.values()}
    made = dict.fromkeys(v for part in parts for v in part.made(outputs))
    return [v for v in made if v in stands or v not in others]


def speaks_of(
    template: Template,
    ops: Sequence[Op],
    outputs: Sequence[Value],
    profile: Profile,
    updates: Sequence[Update] = (),
) -> bool:
    """Whether the pattern has all of the ops that the template names: its own, or those of its products."""
    names = names_of(template)
    if names <= set(label_ops(ops).values()):
        return True
    if all(op.name != PRODUCT for op in ops):
        return False
    return names <= set(rewrite_ops(ops, outputs, profile, updates).labels.values())


def _products_in_rows(ops: Sequence[Op], outputs: Sequence[Value], carried: Sequence[Value]) -> Part:
    """What the pattern makes on the left of its products, rows undivided, and results stored in any order."""
    led = divide_products(lead_with_rows(ops, carried), outputs)
    turned = store_turned(led, outputs)
    wanted = {turned[v].value if v in turned else v for v in outputs}
    return Part(_reached(led, wanted), None, turned)


def _reached(ops: Sequence[Op], wanted: Iterable[Value]) -> list[Op]:
    """The ops that these values are made of, in order."""
    needed, found = set(wanted), list[Op]()
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            needed.update(op.operands)
            found.append(op)
    return found[::-1]


def _needed(ops: Sequence[Op], outputs: Sequence[Value], updates: Sequence[Update]) -> tuple[Value, ...]:
    """What the ops must make: outputs that are not updates' results, and what updates write, and where."""
    made = {v for op in ops for v in op.results}
    used = (v for u in updates for v in (u.value, *u.starts))
    return tuple(dict.fromkeys(v for v in (*outputs, *used) if v in made))
