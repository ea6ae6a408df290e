"""What differs between two saved plans: kernels that came, went and changed, as unified diffs of their ops.

    net: 3 kernels, 3 launches, 3.15 MB
      the program has changed
    --- norm_row_0
    +++ norm_row_0
     tanh.6d42 f32[256,512]  net.py:9 (net)
    +multiply.f624 f32[256,512]  net.py:9 (net)

Where ops stand in the user's files is shown, and makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from jstitch.inspection.dump_changes import Changes
from jstitch.inspection.dump_pairs import pair_by_content, pair_by_name
from jstitch.plan_file import LeftOps, Line, PinnedCall, PinnedKernel, PlanFile

Shown = tuple[str, str]
"""What is compared, and how it is shown."""


def plan_diff(before: PlanFile, after: PlanFile) -> tuple[str, ...]:
    """Lines; none where both are the same."""
    named = [[(call.name, call) for call in plan.calls] for plan in (before, after)]
    calls = (line for pair in pair_by_name(*named) for line in _call(*pair))
    return (*_heads(before, after), *calls)


def _heads(before: PlanFile, after: PlanFile) -> Iterator[str]:
    for what in ("jstitch", "jax", "target"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            yield f"{what}: {old} -> {new}"
    for name in sorted({*before.options, *after.options}):
        old, new = (plan.options.get(name, "the default") for plan in (before, after))
        if old != new:
            yield f"option {name}: {old} -> {new}"


def _call(before: PinnedCall | None, after: PinnedCall | None) -> Iterator[str]:
    if before is None or after is None:
        call, which = (before, "first") if before is not None else (after, "second")
        assert call is not None
        yield f"{call.name}: only in the {which} plan, with {len(call.kernels)} kernels"
        return
    left = _compare([*_left(before.left)], [*_left(after.left)])
    lines = [*_kernels(before.kernels, after.kernels), *left.unified("left to XLA", "left to XLA")]
    if lines:
        yield f"{before.name}: {', '.join(_counts(before, after))}"
        yield "  the program is the same" if before.program == after.program else "  the program has changed"
    yield from lines


def _counts(before: PinnedCall, after: PinnedCall) -> Iterator[str]:
    for what, old, new in zip(("kernels", "launches", "MB"), _sums(before), _sums(after), strict=True):
        yield f"{old:,.10g} {what}" if old == new else f"{old:,.10g} -> {new:,.10g} {what}"


def _sums(call: PinnedCall) -> tuple[float, ...]:
    ours = [kernel.ours for kernel in call.kernels]
    return len(ours), sum(x.launches for x in ours), round(sum(x.mb for x in ours), 2)


def _kernels(before: Sequence[PinnedKernel], after: Sequence[PinnedKernel]) -> Iterator[str]:
    changed: list[str] = []
    same = 0
    for pair in pair_by_content(before, after, _text):
        changes = _compare(*([*_about(kernel)] if kernel else [] for kernel in pair))
        same += changes.is_empty
        changed += changes.unified(*(kernel.name if kernel else "(no kernel)" for kernel in pair))
    if changed:
        yield f"  {same} kernels are the same"
    yield from changed


def _compare(before: Sequence[Shown], after: Sequence[Shown]) -> Changes:
    """Of what is compared; the lines are those that are shown."""
    old, new = ([key for key, _ in side] for side in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return Changes([line for _, line in before], [line for _, line in after], matcher.get_opcodes())


def _about(kernel: PinnedKernel) -> Iterator[Shown]:
    ours, xla = kernel.ours, kernel.xla
    costs = f"launches {ours.launches}, MB {ours.mb:g}, as XLA's kernels {xla.launches}, {xla.mb:g}"
    for text in (costs, " ".join(kernel.schemes), *kernel.schedule, f"loops {kernel.loops}"):
        yield text, text
    yield from ((op, _at(op, line)) for line in kernel.ops for op in line.ops)


def _left(left: Sequence[LeftOps]) -> Iterator[Shown]:
    """The rule is compared, not the numbers that a model found."""
    for ops in left:
        rule, _, _ = ops.why.partition(":")
        yield from ((f"{op} {rule}", f"{_at(op, line)}: {ops.why}") for line in ops.ops for op in line.ops)


def _at(op: str, line: Line) -> str:
    return f"{op}  {line.at}".rstrip()


def _text(kernel: PinnedKernel) -> str:
    return "\n".join(key for key, _ in _about(kernel))
