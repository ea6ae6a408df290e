"""The verifier names each broken rule in place, and the printer's text is stable."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS
from jstitch.ir.printer import print_graph
from jstitch.ir.types import DType, OpaqueType, TensorType
from jstitch.ir.verify import InvalidGraph, check, verify
from tests.ir import movers
from tests.ir.programs import build

F = TensorType((4, 8), DType.F32)
ROW = TensorType((4,), DType.F32)
SCALAR = TensorType((), DType.F32)


def softmax_graph() -> Graph:
    return import_module(jax.jit(jax.nn.softmax).lower(np.ones((4, 8), np.float32)).compiler_ir("stablehlo"))


def messages(graph: Graph) -> str:
    return "\n".join(d.message for d in verify(graph))


def test_printed_graph() -> None:
    x, y, z = Value(F), Value(F), Value(F)
    tanh = Op("stablehlo.tanh", (x,), (y,), loc="model.py:3 (f)")
    two = Value(SCALAR)
    constant = Op("stablehlo.constant", (), (two,), {"value": np.full((), 2, np.float32)})
    wide = Value(F)
    broadcast = Op("stablehlo.broadcast_in_dim", (two,), (wide,), {"broadcast_dimensions": ()})
    graph = Graph((x,), (tanh, constant, broadcast, Op("stablehlo.multiply", (y, wide), (z,))), (z,))
    expected = """graph(%arg0: tensor<4x8xf32>) -> (%3) {
  %0 = stablehlo.tanh %arg0 : tensor<4x8xf32>  // model.py:3 (f)
  %1 = stablehlo.constant {value = dense<2.0>} : tensor<f32>
  %2 = stablehlo.broadcast_in_dim %1 {broadcast_dimensions = ()} : tensor<4x8xf32>
  %3 = stablehlo.multiply %0, %2 : tensor<4x8xf32>
}"""
    assert print_graph(graph) == expected
    assert print_graph(graph, {tanh: ["too slow"]}).splitlines()[2] == "  ^ too slow"


def test_printed_regions_and_big_constants() -> None:
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + np.arange(800, dtype=np.float32), x))
    text = print_graph(import_module(f.lower(jnp.ones(800)).compiler_ir("stablehlo")))
    assert "region 1(%arg" in text
    assert "dense<...800 elements>" in text
    assert len(text) < 5000


def test_valid_graphs_have_no_complaints() -> None:
    assert verify(softmax_graph()) == ()
    graph = softmax_graph()
    assert check(graph) is graph


def test_complaints_stand_under_their_op() -> None:
    graph = softmax_graph()
    subtract = next(op for op in graph.ops if op.name == "stablehlo.subtract")
    broken = replace(subtract, results=(Value(TensorType((4, 9), DType.F32)),))
    ops = tuple(broken if op is subtract else op for op in graph.ops)
    with pytest.raises(InvalidGraph, match="after fusion") as caught:
        check(Graph(graph.inputs, ops, graph.outputs), "fusion")
    lines = str(caught.value).splitlines()
    at = next(k for k, line in enumerate(lines) if "stablehlo.subtract" in line)
    assert "expected operands of shape (4, 9)" in lines[at + 1]


def test_ssa_form() -> None:
    graph = softmax_graph()
    assert "used before it is defined" in messages(Graph(graph.inputs, graph.ops[::-1], graph.outputs))
    assert "is not defined" in messages(Graph(graph.inputs, (), graph.outputs))
    assert "defined twice" in messages(Graph(graph.inputs, (*graph.ops, graph.ops[0]), graph.outputs))
    assert "defined twice" in messages(Graph(graph.inputs * 2, graph.ops, graph.outputs))


def test_values_of_a_region_end_with_it() -> None:
    graph = import_module(
        jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + 1, x)).lower(1.0).compiler_ir("stablehlo")
    )
    (loop,) = (op for op in graph.ops if op.regions)
    inner = loop.regions[1].ops[-1].result
    assert "is not defined" in messages(Graph(graph.inputs, graph.ops, (inner,)))
    swapped = replace(loop, regions=loop.regions[::-1])
    ops = tuple(swapped if op is loop else op for op in graph.ops)
    assert "outputs of region" in messages(Graph(graph.inputs, ops, graph.outputs))


BROKEN: dict[str, tuple[Graph, str]] = {
    "shape": (build("stablehlo.add", [F, ROW], F), "expected operands of shape"),
    "dtype": (build("stablehlo.add", [F, TensorType((4, 8), DType.F64)], F), "of one dtype"),
    "result": (build("stablehlo.add", [F, F], TensorType((4, 8), DType.S32)), "result of f32, found i32"),
    "predicate": (build("stablehlo.select", [F, F, F], F), "predicate of i1"),
    "arity": (build("stablehlo.select", [TensorType((4, 8), DType.BOOL), F], F), "expected 3 operands"),
    "bool": (
        build("stablehlo.compare", [F, F], F, comparison_direction="EQ", compare_type="FLOAT"),
        "expected a result of i1",
    ),
    "attribute": (build("stablehlo.transpose", [F], F), "'permutation' is missing"),
    "broadcast": (
        build("stablehlo.broadcast_in_dim", [ROW], F, broadcast_dimensions=(1,)),
        "size 4 does not broadcast",
    ),
    "reshape": (build("stablehlo.reshape", [F], ROW), "differ in size"),
    "transpose": (build("stablehlo.transpose", [F], F, permutation=(1, 0)), "expected result 0"),
    "permutation": (build("stablehlo.transpose", [F], F, permutation=(0, 0)), "not a permutation"),
    "slice": (
        build("stablehlo.slice", [ROW], ROW, start_indices=(2,), limit_indices=(9,), strides=(1,)),
        "is not a range",
    ),
    "concatenate": (build("stablehlo.concatenate", [F, F], F, dimension=0), "tensor<8x8xf32>"),
    "pad": (
        build(
            "stablehlo.pad",
            [ROW, SCALAR],
            ROW,
            edge_padding_low=(1,),
            edge_padding_high=(0,),
            interior_padding=(0,),
        ),
        "tensor<5xf32>",
    ),
    "reduce": (build("stablehlo.reduce", [F, SCALAR], ROW, dimensions=(1,)), "expected one combiner"),
    "iota": (build("stablehlo.iota", [], ROW, iota_dimension=1), "has no dimension 1"),
    "constant": (build("stablehlo.constant", [], ROW, value=np.ones(4)), "tensor<4xf64>"),
    "token": (build("stablehlo.tanh", [ROW], ROW), "another type"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_rules(name: str) -> None:
    graph, message = BROKEN[name]
    if name == "token":
        token = Value(OpaqueType("!stablehlo.token"))
        graph = Graph((token,), (replace(graph.ops[0], operands=(token,)),), graph.outputs)
    assert message in messages(graph)


@pytest.mark.parametrize("name", sorted(movers.MOVERS))
def test_a_wrong_result_type_is_caught(name: str) -> None:
    """A seeded defect for every op that moves elements: one dimension too large, or another dtype."""
    graph, _ = movers.instance(name, np.random.default_rng(7))
    (op,) = graph.ops
    grown = TensorType((*op.result.shape, 3), op.result.tensor.dtype)
    other = TensorType(op.result.shape, DType.U8)
    for type_ in (grown, other):
        result = Value(type_)
        wrong = Graph(graph.inputs, (replace(op, results=(result,)),), (result,))
        free = name == "stablehlo.iota" or (type_ is grown and name == "stablehlo.broadcast_in_dim")
        assert free or verify(wrong), type_


def test_interpreter_checks_its_arguments() -> None:
    graph = softmax_graph()
    with pytest.raises(ValueError, match="Expected 1 arguments, found 0"):
        interpret(graph, [])
    with pytest.raises(
        ValueError, match=r"tensor<4x8xf32>, found an array of shape \(4, 8\) and dtype float64"
    ):
        interpret(graph, [np.ones((4, 8))])


def test_the_table_is_consistent() -> None:
    for name, definition in OPS.items():
        assert definition.name == name
        assert definition.flops >= 0
        assert definition.domain[0] < definition.domain[1]
        if definition.op_class.is_elementwise:
            assert definition.reference is not None
            assert definition.scalar is not None or definition.is_of_complex
        if definition.cases is not None or definition.position is not None:
            assert definition.scalar is None
