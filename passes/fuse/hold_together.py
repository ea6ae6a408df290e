"""What the user wants in one kernel is one pattern before anybody plans, and stays one.

    %1 = exp %0; %2 = reduce %1; %3 = divide %1, %2        // all in one call of fuse_together
->  %3 = jstitch.fuse_together(%0)                         // what planners see: an op that is not theirs
->  pattern {exp; reduce; divide}                          // once they have planned

Planners, and the passes that finish their plans, so need not know of it. The refusals of edges at boundaries
that the user put (`no_fuse`) say so, whoever planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.errors import CannotFuseError
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import BOUNDARIES, NO_FUSE, TURN_END, TURNED
from jstitch.ir.scope import Together, together
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import (
    FusionPattern,
    FusionPlan,
    NoFuse,
    Reason,
    is_free,
    make_pattern,
    make_patterns,
    with_constants,
)
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.fuse.convexity import has_cycle, waits_for_itself
from jstitch.passes.fuse.find_chains import CHAIN, find_chains
from jstitch.passes.fuse.find_recurrences import RECURRENCE, find_recurrences
from jstitch.passes.fuse.find_sorts import SORTS, find_sorts
from jstitch.passes.fuse.follow_pins import PinnedFrame
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.fuse.stand_ins import TOGETHER, first_of, put_stand_ins, stand_in
from jstitch.passes.fuse.trim_patterns import trim
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel

USER = "user"
PINNED = "pinned"
TURNS = "turns"
OWN = {
    CHAIN: Reason("chain", "a chain of products is a kernel of its own"),
    RECURRENCE: Reason("recurrence", "a loop is a kernel of its own"),
    SORTS: Reason("sort", "a sort is a kernel of its own"),
}
"""Origins of patterns that are held together -> why others are apart from them."""
LONG_SIDE = "XLA's library multiplies with the long side last, and a kernel reads that transposed"
BOTH_TURNS = "a kernel of two turns would leave what it makes where XLA has to copy it back from"


@dataclass(frozen=True, eq=False)
class Held:
    """A frame with stand-ins for what is held together.

    place: of the frame's values, and of ops without any, before ops were held. refused: group of an op -> why
    it is not held. apart: product -> why it is in no chain. left: what a saved plan leaves to XLA, and why.
    """

    frame: Graph
    place: Mapping[Value | Op, int] = field(default_factory=dict)
    patterns: Mapping[Op, FusionPattern] = field(default_factory=dict)
    refused: Mapping[Together, str] = field(default_factory=dict)
    apart: Mapping[Op, Reason] = field(default_factory=dict)
    left: Mapping[Op, tuple[Op, str]] = field(default_factory=dict)


def demanded(pattern: FusionPattern) -> Together | None:
    """The call of `fuse_together` that the pattern is, if it is one."""
    return together(first_of(pattern).scope) if pattern.origin == TOGETHER else None


def nothing_held(frame: Graph) -> Held:
    return Held(frame, {v: n for n, op in enumerate(frame.ops) for v in op.results or (op,)})


def is_fixed(pattern: FusionPattern) -> bool:
    """Whether it is a kernel whatever the models say: the user demands it, or a saved plan has it."""
    return pattern.pinned is not None or demanded(pattern) is not None


def hold_pinned(pinned: PinnedFrame) -> Held:
    """A saved plan's kernels, and what it leaves to XLA, are nobody's to plan."""
    held = _hold(nothing_held(pinned.frame), *pinned.patterns)
    ops = [(stand_in(op, op.uses, op.results) if op in pinned.left else op, op) for op in held.frame.ops]
    left = {new: (old, pinned.left[old]) for new, old in ops if new is not old}
    return replace(held, frame=replace(held.frame, ops=tuple(new for new, _ in ops)), left=left)


def hold_together(held: Held, context: Context) -> Held:
    """The frame that planners are to see. Raises CannotFuseError for a strict group that no kernel holds."""
    frame, producers = held.frame, held.frame.producers()
    for group, ops in _groups(frame).items():
        pattern = trim(FusionPlan(frame, ()), make_pattern(frame, with_constants(ops, producers), TOGETHER))
        why = None if pattern is None else _why_not(held.frame, pattern, context)
        if why is not None:
            refuse(group, why, ops[0].loc)
            held = replace(held, refused={**held.refused, group: why})
        elif pattern is not None:
            held = _hold(held, pattern)
    chains = find_chains(held.frame, context)
    held, unheld = _hold_chains(held, chains.patterns, context)
    apart = {**chains.refused, **unheld}
    loops = find_recurrences(held.frame, context)
    for pattern in loops.patterns:
        held = _hold(held, pattern)
    sorts = find_sorts(held.frame, context)
    held = _hold(held, *sorts.patterns)
    return replace(held, apart={**apart, **loops.refused, **sorts.refused})


def _hold_chains(
    held: Held, chains: Sequence[FusionPattern], context: Context
) -> tuple[Held, dict[Op, Reason]]:
    """All that are legal at once; one by one where they wait for each other. And why others are not held."""
    why = {chain: _why_not(held.frame, chain, context) for chain in chains}
    legal = [chain for chain in chains if why[chain] is None]
    if has_cycle(put_stand_ins(held.frame, legal)[1]):
        for chain in legal:
            why[chain] = _why_not(held.frame, chain, context)
            held = _hold(held, chain) if why[chain] is None else held
    else:
        held = _hold(held, *legal)
    refused = [(chain, said) for chain, said in why.items() if said is not None]
    products = ((op, said) for chain, said in refused for op in chain.ops if op.name == PRODUCT)
    return held, {op: Reason("not emitable", said) for op, said in products}


def refuse(group: Together, why: str, where: str) -> None:
    """Raises CannotFuseError if the user insists."""
    if group.strict:
        raise CannotFuseError(
            f"{group} to be one kernel",
            why,
            where=where,
            hint="take strict=True away to have it planned in several kernels",
        )


def _groups(frame: Graph) -> dict[Together, list[Op]]:
    """Ops of each call that kernels can hold, where there are at least two."""
    found: dict[Together, list[Op]] = {}
    for op in frame.ops:
        group = together(op.scope)
        if group is not None and not is_free(op) and partition_reason(op) is None:
            found.setdefault(group, []).append(op)
    return {group: ops for group, ops in found.items() if len(ops) > 1}


# -- legality --------------------------------------------------------------------------------------------


def _why_not(held: Graph, pattern: FusionPattern, context: Context) -> str | None:
    between = waits_for_itself(held, pattern)
    if between is not None:
        where = f" at {between.loc}" if between.loc else ""
        return f"{between.name}{where}, which is not in it, needs one of its values and makes another"
    buffers, most = len(pattern.inputs) + len(pattern.outputs), context.profile.max_buffers
    if buffers > most:
        return f"its {buffers} inputs and outputs are more than a kernel's {most}"
    return _why_not_lowered(pattern, (context.profile, context.options.arena_bytes)) or None


@per_structure
def _why_not_lowered(pattern: FusionPattern, target: tuple[Profile, int | None]) -> str:
    """Why no kernel expresses it; empty, if one does."""
    try:
        lower_kernel("together", pattern.ops, pattern.inputs, pattern.outputs, *target)
    except CannotLowerError as error:
        return f"no kernel expresses it: {error}"
    return ""


# -- stand-ins -------------------------------------------------------------------------------------------


def _hold(held: Held, *patterns: FusionPattern) -> Held:
    made, ops = put_stand_ins(held.frame, patterns)
    frame = replace(held.frame, ops=sort_ops(ops))
    return replace(held, frame=frame, patterns={**held.patterns, **made})


def release(plan: FusionPlan, held: Held) -> FusionPlan:
    """The plan of the whole frame: stand-ins are patterns, and the user's reasons are the first to name."""
    said = held.patterns or held.refused or held.apart or held.left
    if not said and all(op.name not in BOUNDARIES for op in plan.frame.ops):
        return plan
    patterns = (*plan.patterns, *held.patterns.values())
    if held.patterns or held.left:
        ops = [member for op in plan.frame.ops for member in _members(op, held)]
        frame = replace(plan.frame, ops=sort_ops(_in_order(ops, patterns, held)))
        made = make_patterns(frame, [p.ops for p in patterns], TOGETHER)
        patterns = tuple(
            replace(old, ops=p.ops, inputs=p.inputs, outputs=p.outputs)
            for p, old in zip(made, patterns, strict=True)
        )
        plan = replace(plan, frame=frame)
    return FusionPlan(plan.frame, patterns, tuple(_refusals(plan, patterns, held)))


def _members(op: Op, held: Held) -> Iterator[Op]:
    if op not in held.patterns:
        yield held.left[op][0] if op in held.left else op
    else:
        yield from (member for member in held.patterns[op].ops if not is_free(member))


def _in_order(ops: Sequence[Op], patterns: Sequence[FusionPattern], held: Held) -> list[Op]:
    """As they stood before any was held; copies of ops before the first op of whoever computes them again."""
    first: dict[Op, float] = {}
    for p in patterns:
        inside = [op for op in p.ops if not is_free(op)]
        own = (held.place[op.results[0]] for op in inside if op.results[0] in held.place)
        first |= dict.fromkeys(inside, min(own, default=0) - 0.5)

    def place(entry: tuple[int, Op]) -> tuple[float, int]:
        n, op = entry
        known = held.place.get(op.results[0]) if op.results else held.place.get(op, n)
        return (first.get(op, -1) if known is None else known), n

    return [op for _, op in sorted(enumerate(ops), key=place)]


def _refusals(plan: FusionPlan, patterns: Sequence[FusionPattern], held: Held) -> Iterator[NoFuse]:
    known = {(r.producer, r.consumer): r for r in plan.refusals}
    owner = {op: n for n, p in enumerate(patterns) for op in p.ops if not is_free(op)}
    kept = {n: p.origin for n, p in enumerate(patterns) if p.origin in (TOGETHER, *OWN)}
    kept |= {n: PINNED for n, p in enumerate(patterns) if p.pinned is not None}
    left = dict(held.left.values())
    producers = plan.frame.producers()
    for consumer in plan.frame.ops:
        for producer in dict.fromkeys(producers.get(v) for v in consumer.uses):
            if producer is None or is_free(producer) or is_free(consumer):
                continue
            if producer in owner and owner[producer] == owner.get(consumer):
                continue
            both = producer, consumer
            why = _boundary(*both) or _left(*both, left) or _refused(*both, held) or _unchained(*both, held)
            why = why or _apart(*both, owner, kept)
            yield known[both] if why is None else NoFuse(*both, why)


def _boundary(producer: Op, consumer: Op) -> Reason | None:
    for op in (producer, consumer):
        if op.name == NO_FUSE:
            return Reason(USER, f"no_fuse at {op.loc or 'an unknown line'}")
        if op.name == TURN_END:
            return Reason(TURNS, BOTH_TURNS)
        if op.name == TURNED:
            return Reason("contraction", LONG_SIDE)
    return None


def _left(producer: Op, consumer: Op, left: Mapping[Op, str]) -> Reason | None:
    """Of an edge of what a saved plan leaves to XLA."""
    op = next((op for op in (consumer, producer) if op in left), None)
    return None if op is None else Reason(PINNED, left[op])


def _refused(producer: Op, consumer: Op, held: Held) -> Reason | None:
    group = together(producer.scope)
    if group is None or group not in held.refused or together(consumer.scope) != group:
        return None
    return Reason(USER, f"{group} cannot be one kernel: {held.refused[group]}")


def _unchained(producer: Op, consumer: Op, held: Held) -> Reason | None:
    """Why a product is in no chain: of two, the one that would have ended it."""
    return held.apart.get(consumer) or held.apart.get(producer)


def _apart(producer: Op, consumer: Op, owner: Mapping[Op, int], kept: Mapping[int, str]) -> Reason | None:
    """Why an edge into or out of a group is not fused."""
    inside = next((op for op in (producer, consumer) if owner.get(op) in kept), None)
    if inside is None:
        return None
    outside = consumer if inside is producer else producer
    if kept[owner[inside]] == PINNED:
        return partition_reason(outside) or Reason(PINNED, "the saved plan has them in different kernels")
    if (own := OWN.get(kept[owner[inside]])) is not None:
        return partition_reason(outside) or own
    return partition_reason(outside) or Reason(USER, f"{together(inside.scope)} is a kernel of its own")
