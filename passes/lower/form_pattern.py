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
from jstitch.passes.lower.apply_template import asked_columns, fix_groups, label_partials, shared_values
from jstitch.passes.lower.form_groups import Grouping, form_groups
from jstitch.passes.lower.own_columns import Turned
from jstitch.passes.lower.rewrite_ops import rewrite_ops
from jstitch.template import Template


@dataclass(frozen=True, eq=False)
class FormedPattern:
    """labels: result -> the name of its op in templates.

    shared: values to keep on chip; None: to be chosen. turned: outputs that are made in strips of columns.
    """

    grouping: Grouping
    labels: Mapping[Value, str]
    shared: frozenset[Value] | None
    turned: Mapping[Value, Sequence[Turned]]


def form_pattern(
    ops: Sequence[Op],
    outputs: Sequence[Value],
    profile: Profile,
    updates: Sequence[Update] = (),
    template: Template | None = None,
    longer: bool = True,
) -> FormedPattern:
    """The ops (in program order) in groups, as the template says. longer: see form_groups.

    Raises TemplateError.
    """
    found = rewrite_ops(ops, outputs, profile, updates, asked_columns(template))
    fix = None if template is None else partial(fix_groups, template, found.labels)
    grouping = form_groups(found.ops, found.outputs, profile, fix, found.strips, longer)
    labels = label_partials(grouping.ops, found.labels)
    shared = None if template is None else shared_values(template, labels)
    return FormedPattern(grouping, labels, shared, found.turned)
