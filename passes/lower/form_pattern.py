"""What lowering a pattern begins with: sums in their best form, groups of ops that share rows, names.

{x, sum(x * s), ...}  ->  ops rewritten, groups and levels, reduce_0, multiply_0, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.plan import Update
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import (
    asked_columns,
    fix_groups,
    label_ops,
    label_partials,
    shared_values,
)
from jstitch.passes.lower.choose_columns import in_best_shape
from jstitch.passes.lower.fill_places import fill_places
from jstitch.passes.lower.form_groups import Grouping, form_groups
from jstitch.passes.lower.own_columns import Owned
from jstitch.passes.lower.rewrite_sums import rewrite_sums
from jstitch.passes.lower.split_reductions import split_reductions
from jstitch.template import Template


@dataclass(frozen=True, eq=False)
class FormedPattern:
    """labels: result -> the name of its op in templates.

    shared: values to keep on chip; None: to be chosen. owned: outputs that are made in strips of columns.
    """

    grouping: Grouping
    labels: Mapping[Value, str]
    shared: frozenset[Value] | None
    owned: Owned


def form_pattern(
    ops: Sequence[Op],
    outputs: Sequence[Value],
    profile: Profile,
    updates: Sequence[Update] = (),
    template: Template | None = None,
) -> FormedPattern:
    """The ops (in program order) in groups, as the template says. Raises TemplateError."""
    owned = Owned(ops) if updates else in_best_shape(ops, outputs, profile, asked_columns(template))
    outputs = [owned.made(v) for v in outputs]
    needed = _needed(owned.ops, outputs, updates)
    ops = fill_places(split_reductions(rewrite_sums(owned.ops, needed, profile)))
    fix = None if template is None else partial(fix_groups, template)
    grouping = form_groups(ops, outputs, profile, fix, owned.strips)
    labels = label_partials(grouping.ops, label_ops(ops))
    shared = None if template is None else shared_values(template, labels)
    return FormedPattern(grouping, labels, shared, owned)


def _needed(ops: Sequence[Op], outputs: Sequence[Value], updates: Sequence[Update]) -> tuple[Value, ...]:
    """What the ops must make: outputs that are not updates' results, and what updates write, and where."""
    made = {v for op in ops for v in op.results}
    used = (v for u in updates for v in (u.value, *u.starts))
    return tuple(dict.fromkeys(v for v in (*outputs, *used) if v in made))
