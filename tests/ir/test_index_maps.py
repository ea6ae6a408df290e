"""Index maps of the op table: `cases` and `position` name the element that the reference puts there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jstitch.ir.graph import Graph, Op
from jstitch.ir.index import Atom, Case, Clamp, Dynamic, FloorDiv, Index, Mod, Var, bounds, var
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS
from jstitch.ir.verify import check
from tests.ir import movers
from tests.ir.running import run_with_xla
from tests.ir.test_elementwise import merge


def evaluate(e: Index, at: dict[str, int], operands: list[np.ndarray]) -> int:
    return e.const + sum(k * _atom(a, at, operands) for a, k in e.terms)


def _atom(atom: Atom, at: dict[str, int], operands: list[np.ndarray]) -> int:
    match atom:
        case Var(name, _):
            return at[name]
        case FloorDiv(of, by):
            return evaluate(of, at, operands) // by
        case Mod(of, by):
            return evaluate(of, at, operands) % by
        case Clamp(of, lo, hi):
            return min(max(evaluate(of, at, operands), lo), hi)
        case Dynamic(operand, index):
            assert isinstance(operand, int)
            return int(operands[operand][tuple(evaluate(i, at, operands) for i in index)])


def chosen(cases: tuple[Case, ...], at: dict[str, int], operands: list[np.ndarray]) -> Case:
    for case in cases:
        values = [(evaluate(c.of, at, operands), c) for c in case.conditions]
        if all(c.lo <= v < c.hi and (v - c.lo) % c.step == 0 for v, c in values):
            return case
    raise AssertionError("the last case has conditions")


def through_map(op: Op, args: list[np.ndarray]) -> np.ndarray:
    """The op's result, element by element through its index map."""
    definition, shape = OPS[op.name], op.result.shape
    result = np.empty(shape, op.result.tensor.dtype.numpy)
    index = tuple(var(Var(f"i{d}", n)) for d, n in enumerate(shape))
    if 0 in shape:
        return result
    cases = definition.cases(op, index) if definition.cases else ()
    assert not cases or not cases[-1].conditions
    for position in np.ndindex(shape):
        at = {f"i{d}": i for d, i in enumerate(position)}
        if definition.position is not None:
            result[position] = evaluate(definition.position(op, index), at, args)
            continue
        case = chosen(cases, at, args)
        source = tuple(evaluate(i, at, args) for i in case.index)
        assert all(0 <= i < n for i, n in zip(source, args[case.operand].shape, strict=True)), (case, at)
        result[position] = args[case.operand][source]
    return result


def test_every_mapped_op_has_a_generator() -> None:
    assert set(movers.MOVERS) == set(movers.mapped_names())


@pytest.mark.parametrize("name", sorted(movers.MOVERS))
def test_map_equals_reference(name: str) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        graph, args = movers.instance(name, np.random.default_rng(seed))
        check(graph)
        np.testing.assert_array_equal(through_map(graph.ops[0], args), interpret(graph, args)[0])

    run()


@pytest.mark.parametrize("name", sorted(movers.MOVERS))
def test_reference_equals_xla(name: str) -> None:
    instances = [movers.instance(name, np.random.default_rng(seed)) for seed in range(12)]
    graph: Graph = check(merge([g for g, _ in instances]))
    args = [a for _, arguments in instances for a in arguments]
    for mine, xla in zip(interpret(graph, args), run_with_xla(graph, args), strict=True):
        np.testing.assert_array_equal(mine, xla)


def test_a_clamped_start_is_bounded() -> None:
    """Kernels rely on it to read in bounds."""
    graph, _ = movers.dynamic_slice(np.random.default_rng(5))
    (op,) = graph.ops
    index = tuple(var(Var(f"i{d}", n)) for d, n in enumerate(op.result.shape))
    definition = OPS[op.name]
    assert definition.cases is not None
    for i, n, k in zip(
        definition.cases(op, index)[0].index, graph.inputs[0].shape, op.result.shape, strict=True
    ):
        assert k == 0 or (bounds(i)[0] >= 0 and bounds(i)[1] < n)
