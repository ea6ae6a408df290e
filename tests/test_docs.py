"""The documentation's code runs, and does what the page says; an op is added in one place."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import ir, make_context
from jstitch.ir.graph import Graph, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS, OpClass, build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context
from jstitch.passes.pipeline import run, verify_after
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE
from tests.ir.running import as_function
from tests.pages import DOCS, PAGES, ROOT, blocks, compare_output, is_program, missing_libraries, run_page

SHOWN_WITH = "0.10."  # plans, and so what programs print, differ between jax releases
EVERYTHING = jstitch.CompileOptions(tune="off", strict=True)
NEW_OP = "chlo.is_pos_inf"
MODULE = """
func.func @main(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<64x300xf32>
  %e = stablehlo.exponential %x : tensor<64x300xf32>
  %inf = chlo.is_pos_inf %e : tensor<64x300xf32> -> tensor<64x300xi1>
  %y = stablehlo.select %inf, %zero, %e : tensor<64x300xi1>, tensor<64x300xf32>
  return %y : tensor<64x300xf32>
}
"""


@pytest.fixture
def new_op() -> Any:
    """The op of add-an-op.md, in the table while the test runs."""
    assert NEW_OP not in OPS, "the page's example has become part of the table: pick another"
    run_page(DOCS / "add-an-op.md")
    yield OPS[NEW_OP]
    del OPS[NEW_OP]


def sample() -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(64, 300)).astype(np.float32)
    x[3, 5], x[9, 0], x[10, 10] = np.inf, -np.inf, 200.0
    return x


def parse() -> tuple[ir.Module, Graph]:
    with make_context():
        module = ir.Module.parse(MODULE)
    return module, import_module(module)


def kernels_of(module: ir.Module, graph: Graph) -> tuple[np.ndarray, int]:
    """The result of the module under `jstitch.jit`, and how many kernels it was stitched into."""
    since = jstitch.record_count()
    with jax.enable_x64(True):
        result = np.asarray(jstitch.jit(as_function(module, graph), options=EVERYTHING)(sample())[0])
    return result, jstitch.stitch_count(since)


def test_an_unknown_op_is_opaque() -> None:
    module, graph = parse()
    assert lookup(NEW_OP).op_class is OpClass.OPAQUE
    assert not [
        op
        for p in plan_frame(graph, Context(EVERYTHING, CPU_PROFILE)).patterns
        for op in p.ops
        if op.name == NEW_OP
    ]
    result, _ = kernels_of(module, graph)
    assert result[3, 5] == result[10, 10] == result[9, 0] == 0


@pytest.mark.usefixtures("new_op")
def test_one_entry_adds_an_op_everywhere() -> None:
    module, graph = parse()
    check(graph)
    (expected,) = interpret(graph, [sample()])
    assert expected[3, 5] == expected[10, 10] == 0
    (pattern,) = plan_frame(graph, Context(EVERYTHING, CPU_PROFILE)).patterns
    assert NEW_OP in {op.name for op in pattern.ops}
    result, kernels = kernels_of(module, graph)
    assert kernels == 1
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_example_pass_works_in_the_pipeline() -> None:
    names = run_page(DOCS / "add-a-pass.md")
    x = Value(TensorType((4,), DType.F32))
    once = build.elementwise("stablehlo.negate", x)
    twice = build.elementwise("stablehlo.negate", once.result)
    last = build.add(twice.result, once.result)
    graph = Graph((x,), (once, twice, last), (last.result,))
    (same,) = [op for op in names["drop_double_negation"](graph, CPU).ops if op.name == last.name]
    assert same.operands == (x, once.result)
    after = run(graph, CPU, names["with_mine"], after=verify_after)
    argument = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(interpret(after, [argument])[0], interpret(graph, [argument])[0])


OWN_TESTS = {"add-an-op.md", "add-a-pass.md", "walk.md", "README.md"}
OTHERS = [page for page in PAGES if is_program(page) and page.name not in OWN_TESTS]


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := missing_libraries(page):
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    monkeypatch.chdir(tmp_path)  # for those that write files
    run_page(page, compare=jax.__version__.startswith(SHOWN_WITH))


def test_fragments_are_python_that_jstitch_has() -> None:
    """What is not run is code all the same, and every `jstitch.name` in it is one."""
    for page in PAGES:
        for block in (b for b in blocks(page) if b.language == "py" and not b.mark):
            for node in ast.walk(ast.parse(block.text)):
                match node:
                    case ast.Attribute(value=ast.Name("jstitch"), attr=name):
                        importable = importlib.util.find_spec(f"jstitch.{name}") is not None
                        assert importable or hasattr(jstitch, name), f"{page.name}:{block.line}: {name}"


def test_a_page_that_says_something_else_is_noticed() -> None:
    compare_output("a 1 b\nc\n", "a ... b\n...", "here")
    for shown in ("b\na ...\n", "a 1 b\nd\n", "a 1 b\n"):
        with pytest.raises(AssertionError, match="here"):
            compare_output("a 1 b\nc\n", shown, "here")
