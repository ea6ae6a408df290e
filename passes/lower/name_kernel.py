"""Name a kernel for what it does: whose code it is, forward or backward, and what kind of work.

reduce over the last and the first dimension in a backward pass of layer_norm   ->   layer_norm_bwd_row_col
maximum, exponential, sum, divide of a named_scope "attention"                  ->   attention_row
gather of a lambda in a call of f                                               ->   f_gather

Names come from the user's code (named scopes, functions) and from the op table, and are C identifiers, so
that profilers' timelines show them as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from jstitch.ir.graph import Op
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.scope import innermost_name, is_backward
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.sort_order import may_sort
from jstitch.passes.graph.find_recurrence import may_recur

LONGEST = 60
_NUMBER = 6  # characters that the number may take
_SHARE = 0.5  # of the largest function's elements, from which on a second one is named too
_KINDS = 3
_FUNCTION = re.compile(r"\((?P<function>.*)\)$")


@dataclass
class KernelNames:
    """Names that a program has; kernels of one kind are numbered."""

    taken: Collection[str] = frozenset()
    _counts: Counter[str] = field(default_factory=Counter)

    def unique(self, name: str) -> str:
        """`name`_n, with the first number that is free."""
        while True:
            found = f"{name}_{self._counts[name]}"
            self._counts[name] += 1
            if found not in self.taken:
                return found


def name_kernel(pattern: FusionPattern, call: str) -> str:
    """The name, without a number, of the pattern's kernel. call: the stitched call, `transpose(jvp(f))`.

    At most LONGEST characters when it gets its number.
    """
    weights = {op: _elements(op) for op in pattern.ops if not is_free(op)}
    function = _identifier(call.rpartition("(")[2].rstrip(")"))
    backward = sum(n for op, n in weights.items() if is_backward(op.scope))
    direction = ("bwd",) if 2 * backward >= sum(weights.values()) and backward else ()
    what = "_".join((*direction, *_kinds(list(weights))))
    whose = _whose(weights, function)[: LONGEST - _NUMBER - len(what) - 1].rstrip("_")
    return f"{whose}_{what}"


def _elements(op: Op) -> int:
    types = (v.type for v in (*op.operands, *op.results))
    return max((t.size for t in types if isinstance(t, TensorType)), default=0)


# -- whose -----------------------------------------------------------------------------------------------


def _whose(weights: Mapping[Op, int], function: str) -> str:
    """The function or scope that most elements belong to, and the second one if it is not much smaller."""
    counts: Counter[str] = Counter()
    for op, weight in weights.items():
        counts[_owner(op, function)] += weight
    first, *others = counts.most_common(2)
    names = [first[0], *(name for name, weight in others if weight >= _SHARE * first[1])]
    return "_".join(names)


def _owner(op: Op, function: str) -> str:
    scope = _identifier(innermost_name(op.scope), "")
    if scope and scope != function:
        return scope
    found = _FUNCTION.search(op.loc)
    return _identifier(found["function"], function) if found is not None else function


def _identifier(name: str, otherwise: str = "kernel") -> str:
    """`Model.<locals>.norm` -> norm; what is left of it as a C identifier."""
    parts = [part for part in name.split(".") if part and not part.startswith("<")]
    text = re.sub(r"[^A-Za-z0-9]+", "_", parts[-1]).strip("_") if parts else ""
    if not text:
        return otherwise
    return text if text[0].isalpha() else f"k{text}"


# -- what ------------------------------------------------------------------------------------------------


def _kinds(ops: Collection[Op]) -> tuple[str, ...]:
    """Kinds of reductions, then ops that look their operands up, at most a few; else what is left."""
    found = dict.fromkeys(kind for op in ops for kind in _kind(op))
    first = {"row": 0, "col": 1, "total": 2}
    order = sorted(found, key=lambda kind: first.get(kind, len(first)))
    if order:
        return tuple(order[:_KINDS])
    return ("elementwise",) if any(lookup(op.name).op_class.is_elementwise for op in ops) else ("move",)


def _kind(op: Op) -> Iterator[str]:
    match lookup(op.name).op_class:
        case OpClass.REDUCTION if "dimensions" in op.attrs:
            yield _direction(op)
        case OpClass.REDUCTION | OpClass.INDEX:
            yield _identifier(op.name)
        case _ if may_sort(op):
            yield "sort"
        case _ if may_recur(op):
            yield "loop" if is_control(op) else "scan"


def _direction(op: Op) -> str:
    """row: along the dimension whose elements are neighbours; total: along all; col: along others."""
    large = [d for d, n in enumerate(op.operands[0].shape) if n > 1]
    reduced = set(op.attrs["dimensions"])
    if reduced.issuperset(large):
        return "total" if len(large) > 1 else "row"
    return "row" if large[-1] in reduced else "col"
