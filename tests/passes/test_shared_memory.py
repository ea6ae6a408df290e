"""A9: shared-memory plans against an oracle that runs them on bytes.

The oracle knows nothing of dominators or live ranges. It emits the stages in order over an arena of bytes:
a stage writes its name into its bytes; before that, it looks whether every buffer it reads (through inlined
operands too) still holds the name of the value it wants, and while it writes it may only overwrite an operand
that it reads in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from random import Random

import jax
import jax.numpy as jnp
import pytest

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Op
from jstitch.ir.schedule import SchedType, Schedule
from jstitch.passes.base.plan import is_free
from jstitch.passes.lower import plan_shared_memory as module
from jstitch.passes.lower.plan_shared_memory import (
    DoesNotFit,
    Priority,
    Request,
    SharedMemoryPlan,
    Stages,
    plan_shared_memory,
)
from jstitch.passes.lower.propagate_schedule import op_class, resolve
from jstitch.passes.lower.size_requirements import size_requirements
from jstitch.passes.pipeline import run
from tests.contexts import CPU

Plan = SharedMemoryPlan[int]


def random_pattern(random: Random) -> tuple[Stages[int], dict[int, Request]]:
    count = random.randint(1, 14)
    edges = set()
    for b in range(1, count):
        for a in random.sample(range(b), min(b, random.choice((0, 1, 1, 2, 3)))):
            edges.add((a, b))
    outputs = frozenset(n for n in range(count) if random.random() < 0.15)
    in_place = frozenset(e for e in edges if random.random() < 0.5)
    requests = {
        n: Request(random.choice((1, 4, 16, 64, 100, 500)), random.choice(list(Priority)))
        for n in range(count)
        if random.random() < 0.6
    }
    return Stages(tuple(range(count)), tuple(sorted(edges)), outputs, in_place), requests


def complaint(stages: Stages[int], requests: Mapping[int, Request], plan: Plan) -> str | None:
    """What goes wrong when the plan is run, or None."""
    arena: list[int | None] = [None] * plan.nbytes
    operands = {n: [a for a, b in stages.edges if b == n] for n in stages.order}

    def cells(n: int) -> range:
        return range(plan.offsets[n], plan.offsets[n] + requests[n].nbytes)

    def reads(n: int) -> list[tuple[int, bool]]:
        """(buffer, read directly) for everything that evaluating n looks at."""
        found = []
        for a in operands[n]:
            found += [(a, True)] if a in plan.offsets else [(b, False) for b, _ in reads(a)]
        return found

    for n in stages.order:
        is_output = n in stages.outputs or not any(a == n for a, _ in stages.edges)
        if n not in plan.offsets and not is_output:
            continue
        for a, direct in reads(n):
            if any(arena[c] != a for c in cells(a)):
                return f"{n} reads {a}, which is gone"
            overlap = n in plan.offsets and not set(cells(a)).isdisjoint(cells(n))
            if overlap and not (direct and (a, n) in stages.in_place):
                return f"{n} overwrites {a} while it reads it"
        for c in cells(n) if n in plan.offsets else ():
            arena[c] = n
    return None


def test_random_patterns_never_lose_a_live_value() -> None:
    """Whatever the budget; sharing never changes who is computed from what."""
    shared = 0
    for seed in range(4000):
        random = Random(seed)
        stages, requests = random_pattern(random)
        budget = random.choice((100_000, 1200, 300, 64))
        plan = plan_shared_memory(stages, requests, budget, alignment=random.choice((1, 16)))
        if isinstance(plan, DoesNotFit):
            assert plan.nbytes > budget
            assert all(requests[n].priority is Priority.MUST for n in plan.remaining)
            continue
        assert plan.nbytes <= budget
        assert set(plan.offsets) == set(requests) - set(plan.dropped)
        assert complaint(stages, requests, plan) is None, seed
        shared += len(plan.shares)
    assert shared > 300


def test_offsets_are_aligned_and_sharing_can_be_switched_off() -> None:
    for seed in range(300):
        stages, requests = random_pattern(Random(seed))
        apart = plan_shared_memory(stages, requests, 1 << 20, share=False, alignment=64)
        together = plan_shared_memory(stages, requests, 1 << 20, alignment=64)
        assert isinstance(apart, SharedMemoryPlan)
        assert isinstance(together, SharedMemoryPlan)
        assert apart.shares == {}
        assert apart.nbytes == sum(-(-r.nbytes // 64) * 64 for r in requests.values())
        assert together.nbytes <= apart.nbytes
        assert all(offset % 64 == 0 for offset in together.offsets.values())


def _next_one(stages: Stages[int]) -> dict[int, int]:
    return {n: n + 1 for n in stages.order[:-1]}


def _always(*args: object) -> bool:
    return True


@pytest.mark.parametrize("defect", ["the next node dominates", "every operand may be overwritten"])
def test_the_oracle_catches_a_defect(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if defect.startswith("the next"):
        monkeypatch.setattr(module, "_post_dominators", _next_one)
    else:
        monkeypatch.setattr(module, "_overwrites", _always)
    complaints = []
    for seed in range(500):
        stages, requests = random_pattern(Random(seed))
        plan = plan_shared_memory(stages, requests, 1 << 20)
        assert isinstance(plan, SharedMemoryPlan)
        complaints.append(complaint(stages, requests, plan))
    assert any(complaints)


def test_shrinking_follows_the_priorities_nearest_to_the_outputs_first() -> None:
    """A chain: two light values, an expensive one, one into a dot, one that must stay."""
    stages = Stages((0, 1, 2, 3, 4), ((0, 1), (1, 2), (2, 3), (3, 4)))
    order = (
        Priority.LIGHT_SHARED,
        Priority.LIGHT_SHARED,
        Priority.EXPENSIVE_SHARED,
        Priority.EXPENSIVE_INTO_DOT,
    )
    requests = {n: Request(64, p) for n, p in enumerate(order)}
    requests[4] = Request(64, Priority.MUST)
    expected = {320: (), 256: (1,), 192: (1, 0), 128: (1, 0, 2), 64: (1, 0, 2, 3)}
    for budget, dropped in expected.items():
        plan = plan_shared_memory(stages, requests, budget, share=False)
        assert isinstance(plan, SharedMemoryPlan)
        assert plan.dropped == dropped
    refused = plan_shared_memory(stages, requests, 63, share=False)
    assert isinstance(refused, DoesNotFit)
    assert str(refused) == "shared memory: 64 B needed, 63 B allowed, after shrinking (4: 64 B)"


def test_bad_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="before its consumer"):
        plan_shared_memory(Stages((1, 0), ((0, 1),)), {}, 64)
    with pytest.raises(ValueError, match="not in the emission order"):
        plan_shared_memory(Stages((0,), ()), {7: Request(4, Priority.MUST)}, 64)


def test_nothing_needs_nothing() -> None:
    assert plan_shared_memory(Stages[int]((), ()), {}, 0) == SharedMemoryPlan({}, 0, (), {})


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) * 0.1), v)


def attention_ops() -> list[Op]:
    shape = jnp.zeros((8, 16, 16))
    graph = run(import_module(jax.jit(attention).lower(shape, shape, shape).compiler_ir("stablehlo")), CPU)
    return [op for op in graph.ops if not is_free(op)]


def stages_of(ops: Sequence[Op], outputs: Collection[Op] = ()) -> Stages[Op]:
    """The pattern as `plan_shared_memory` sees it: elementwise ops may overwrite operands of their shape."""
    made = {v: op for op in ops for v in op.results}
    edges = dict.fromkeys((made[v], op) for op in ops for v in op.operands if v in made)
    in_place = frozenset((a, b) for a, b in edges if op_class(b).is_elementwise and _fits(a, b))
    return Stages(tuple(ops), tuple(edges), frozenset(outputs), in_place)


def _fits(operand: Op, op: Op) -> bool:
    return all(v.type == op.results[0].type for v in operand.results)


def test_figure_3_shares_as_in_the_paper() -> None:
    """The second reduction takes the first one's bytes, the division the exponential's, in place."""
    ops = attention_ops()
    names = [op.name.removeprefix("stablehlo.") for op in ops]
    schedules = resolve(ops, {ops[-1]: Schedule(0, 8, SchedType.ROW)})
    assert isinstance(schedules, dict)
    requests = size_requirements(ops, schedules)
    plan = plan_shared_memory(stages_of(ops), requests, 1 << 16)
    assert isinstance(plan, SharedMemoryPlan)
    shares = {names[ops.index(a)]: ops.index(b) for a, b in plan.shares.items()}
    highest, total = (i for i, name in enumerate(names) if name == "reduce")
    assert shares["divide"] == names.index("exponential")
    assert plan.offsets[ops[total]] == plan.offsets[ops[highest]]
    assert plan.shares[ops[total]] is ops[highest]
    must = {names[ops.index(op)] for op, r in requests.items() if r.priority is Priority.MUST}
    assert must == {"reduce", "dot_general"}
    assert requests[ops[names.index("divide")]].priority is Priority.EXPENSIVE_INTO_DOT
    assert requests[ops[names.index("exponential")]] == Request(16 * 16 * 4, Priority.EXPENSIVE_SHARED)


def test_a_request_is_one_blocks_share() -> None:
    ops = attention_ops()
    one = size_requirements(ops, dict.fromkeys(ops, Schedule(0, 1, SchedType.ROW)))
    eight = size_requirements(ops, dict.fromkeys(ops, Schedule(0, 8, SchedType.ROW)))
    assert all(dataclasses.replace(r, nbytes=r.nbytes // 8) == eight[op] for op, r in one.items())
