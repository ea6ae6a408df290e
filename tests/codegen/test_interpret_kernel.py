"""Graph interpreter == Kernel interpreter == compiled kernel, with programs in any order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import KernelError, interpret_kernel
from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.codegen.kernel_ir import Kernel
from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import reference
from jstitch.ir.expr import Ref, calls
from jstitch.ir.graph import Graph, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL, OPS, build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base import profile
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.fuse.contract_patterns import contract_patterns
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU_PROFILE, on
from tests.ir.programs import DTYPES, FLOATS, elementwise_graph
from tests.passes.random_graphs import Limits, arguments, make_graph

TINY = Limits(ops=8, elements=64)


_MANY = {"program_work": 16, "combine_whole": 8, "partial_rows": 2}
PROFILES = {
    "few": profile.CPU,
    "many": replace(profile.CPU, **_MANY),
    "kept first": replace(profile.CPU, **_MANY, row_step=1, kept_first=True, blocks=False, seams=False),
}


@pytest.fixture(params=PROFILES.values(), ids=PROFILES)
def programs(request: pytest.FixtureRequest) -> Context:
    return on(request.param, tune="off")


def run_kernels(
    graph: Graph, args: list[np.ndarray], order: Random | None, context: Context
) -> tuple[list[np.ndarray], int]:
    """The graph's outputs with every pattern run by the Kernel interpreter, and how many there were."""

    def build_kernel(p: FusionPattern) -> dict[str, Any]:
        return {"kernel": lower_kernel("k", p.ops, p.inputs, p.outputs, context.profile)}

    plan = plan_frame(graph, context)
    contracted = contract_patterns(plan, build_kernel)
    env = dict(zip(graph.inputs, args, strict=True))
    for op in contracted.ops:
        if op.name == KERNEL:
            found = interpret_kernel(op.attrs["kernel"], [env[v] for v in op.operands], order)
        else:
            found = interpret(Graph(op.uses, (op,), op.results), [env[v] for v in op.uses])
        env.update(zip(op.results, found, strict=True))
    return [env[v] for v in graph.outputs], len(plan.patterns)


def test_random_graphs(programs: Context) -> None:
    total = 0
    for seed in range(50):
        graph = run(make_graph(Random(seed), TINY), programs)
        args = arguments(graph, seed)
        found, count = run_kernels(graph, args, Random(seed), programs)
        total += count
        exact, other = reference(graph, args), interpret(graph, args)
        for n, (a, b, c) in enumerate(zip(found, other, exact, strict=True)):
            assert difference(a, b, c, b) is None, (seed, n)
    assert total > 20


def sum_kernel() -> tuple[Graph, Kernel]:
    x = Value(TensorType((12, 5), DType.F32))
    zero = build.splat(TensorType((), DType.F32), 0.0)
    total = build.reduce("stablehlo.add", x, zero.result, (1,))
    graph = Graph((x,), (zero, total), total.results)
    return graph, lower_kernel("sum", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)


def test_reads_of_unwritten_memory_and_unwritten_results_are_errors() -> None:
    graph, kernel = sum_kernel()
    x = np.arange(60, dtype=np.float32).reshape(12, 5)
    np.testing.assert_array_equal(interpret_kernel(kernel, [x])[0], interpret(graph, [x])[0])
    (phase,) = kernel.phases
    lanes = tuple(replace(lane, stages=()) for lane in phase.lanes)
    with pytest.raises(KernelError, match="nobody wrote"):
        interpret_kernel(replace(kernel, phases=(replace(phase, lanes=lanes),)), [x])


@pytest.mark.parametrize("shape", [(196, 33), (3, 5000)])
def test_long_sums_of_positions_leave_none_out(shape: tuple[int, int]) -> None:
    """Loops over two dimensions, because the position is wanted, are not cut like one loop over both."""
    x = Value(TensorType((2,), DType.F32))
    line = build.iota(TensorType(shape, DType.F32), 1)
    zero = build.splat(TensorType((), DType.F32), 0.0)
    total = build.reduce("stablehlo.add", line.result, zero.result, (0, 1))
    graph = Graph((x,), (line, zero, total), total.results)
    found, count = run_kernels(graph, [np.ones(2, np.float32)], None, on(CPU_PROFILE, tune="off"))
    assert count == 1
    np.testing.assert_allclose(found[0], shape[0] * shape[1] * (shape[1] - 1) / 2, rtol=1e-6)


def test_every_function_that_the_op_table_calls_has_a_meaning() -> None:
    called: set[str] = set()
    for name, definition in OPS.items():
        for dtype in DTYPES.get(name, FLOATS):
            if definition.scalar is None:
                continue
            op = elementwise_graph(name, dtype, ()).ops[0]
            formula = definition.scalar(op)
            if formula is not None:
                operands = [Ref(f"v{k}") for k in range(len(op.operands))]
                called.update(c.function for c in calls(formula(*operands)))
            called.update({definition.reassociated} - {None})
    assert len(called) > 50
    assert called - set(INTRINSICS) == set()
