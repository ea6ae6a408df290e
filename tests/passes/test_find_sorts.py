"""Sorts by keys of single items are kernels on CPUs, with the same results in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Sorting
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.reason import Reason
from jstitch.passes.base.plan import make_pattern, with_constants
from jstitch.passes.base.profile import CPU as CPU_PROFILE
from jstitch.passes.base.sort_order import SORT, Key, order_of
from jstitch.passes.fuse.find_sorts import find_sorts
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of
from tests.passes.test_write_sorts import TYPES as TYPES_OF_FEW
from tests.passes.test_write_sorts import check_same, drawn

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
TYPES = (*TYPES_OF_FEW, np.uint32, np.bool_)


def kernels(f: Callable[..., Any], args: Sequence[np.ndarray]) -> list[Kernel]:
    graph = graph_of(f, args)
    made = [
        make_pattern(graph, with_constants([op], graph.producers()), "")
        for op in graph.ops
        if op.name == SORT
    ]
    return [lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE) for p in made]


@pytest.mark.parametrize(
    "seed", [*range(24), *(pytest.param(n, marks=pytest.mark.slow) for n in range(24, 600))]
)
def test_drawn_kernels(seed: int) -> None:
    """Rows that are ranked, rows that go by digits, and the lengths around."""
    random = Random(seed)
    f, args = drawn(random, (10, 33, 64, 79, 80, 81, 200, 1025, 5000), 6, TYPES)
    check_same(jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args))
    assert jstitch.last_report()[-1].kernels >= 1


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 200))]
)
def test_the_kernels_loops_say_what_is_called(seed: int) -> None:
    """The interpreter exchanges neighbours; what is built calls a function."""
    f, args = drawn(Random(5000 + seed), (2, 3, 10, 17), 6, TYPES)
    wanted = jax.tree.leaves(jax.jit(f)(*args))
    made = kernels(f, args)
    assert all(check_kernel(kernel) == () for kernel in made)
    if len(made) == 1 and len(made[0].args) == len(args) and len(made[0].results) == len(wanted):
        check_same(interpret_kernel(made[0], args, Random(seed)), wanted)


def test_long_rows_and_wide_keys() -> None:
    made = np.random.default_rng(0)
    x = made.standard_normal(300_001).astype(np.float32)
    check_same(jstitch.jit(jnp.argsort, options=OPTIONS)(x), jax.jit(jnp.argsort)(x))
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.uint64):
            y = made.integers(0, 1 << 62, (7, 300)).astype(dtype) * made.choice(
                np.array([1, 3], dtype), (7, 300)
            )
            check_same(jstitch.jit(jnp.sort, options=OPTIONS)(y), jax.jit(jnp.sort)(y))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.median(x, 0),
        lambda x: jnp.quantile(x, jnp.array([0.1, 0.5]), axis=1),
        lambda x: jax.random.permutation(jax.random.key(0), x, axis=1, independent=True),
        lambda x: jnp.unique(jnp.round(x), size=40, return_inverse=True, return_counts=True),
        lambda x: jnp.lexsort((jnp.round(x), jnp.round(x[:, ::-1]))),
        jax.grad(lambda x: jnp.sum(jnp.sort(x, 0) * jnp.arange(100.0)[:, None])),
        jax.vmap(jnp.sort, in_axes=1, out_axes=1),
        lambda x: lax.scan(lambda c, _: (jnp.sort(c[:, ::-1] * 1.5), None), x, None, length=3)[0],
    ],
)
def test_what_is_made_of_sorts(f: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(1).standard_normal((100, 30)).astype(np.float32)
    for a, b in zip(
        jax.tree.leaves(jstitch.jit(f, options=OPTIONS)(x)), jax.tree.leaves(jax.jit(f)(x)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert jstitch.last_report()[-1].kernels >= 1


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_sort_stays(size: int) -> None:
    x = np.zeros((3, size, 2), np.float32)
    assert jstitch.jit(lambda x: jnp.sort(x, 1))(x).shape == x.shape
    assert find_sorts(graph_of(lambda x: jnp.sort(x, 1), [x]), CPU).patterns == ()


def test_the_part_can_be_switched_off() -> None:
    x = np.random.default_rng(2).standard_normal((50, 500)).astype(np.float32)
    without = jstitch.CompileOptions(without=("sorts",))
    check_same(jstitch.jit(jnp.sort, options=without)(x), jax.jit(jnp.sort)(x))
    graph = graph_of(jnp.sort, [x])
    assert find_sorts(graph, CPU).patterns
    for context in (H200, type(CPU)(without, CPU.profile)):
        assert find_sorts(graph, context).patterns == ()


# -- comparisons -----------------------------------------------------------------------------------------

HEAD = """func.func @main(%x: tensor<64xf32>, %y: tensor<64xi32>) -> (tensor<64xf32>, tensor<64xi32>) {
  %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):"""
TAIL = """
    stablehlo.return %r : tensor<i1>
  }) : (tensor<64xf32>, tensor<64xi32>) -> (tensor<64xf32>, tensor<64xi32>)
  return %0#0, %0#1 : tensor<64xf32>, tensor<64xi32>
}"""
F, S, B = "(tensor<f32>, tensor<f32>) -> tensor<i1>", "(tensor<i32>, tensor<i32>) -> tensor<i1>", "tensor<i1>"


def order(body: str) -> Sequence[Key] | Reason:
    graph = import_module(parse_module(HEAD + body + TAIL))
    (op,) = (op for op in graph.ops if op.name == SORT)
    return order_of(op)


ORDERS = {
    "greater": (f"%r = stablehlo.compare GT, %a, %b, TOTALORDER : {F}", [True]),
    "turned round": (f"%r = stablehlo.compare LT, %d, %c, SIGNED : {S}", [True]),
    "two keys, the first one decides": (
        f"""%p = stablehlo.compare LT, %a, %b, TOTALORDER : {F}
        %e = stablehlo.compare EQ, %b, %a, TOTALORDER : {F}
        %q = stablehlo.compare GT, %c, %d, SIGNED : {S}
        %n = stablehlo.and %q, %e : {B}
        %r = stablehlo.or %n, %p : {B}""",
        [False, True],
    ),
    "of what is made of an item": (
        f"""%p = stablehlo.negate %a : tensor<f32>
        %q = stablehlo.negate %b : tensor<f32>
        %r = stablehlo.compare LT, %p, %q, TOTALORDER : {F}""",
        [False],
    ),
}
NONE = {
    "NaN has no place": f"%r = stablehlo.compare LT, %a, %b, FLOAT : {F}",
    "equal ones come first": f"%r = stablehlo.compare LE, %c, %d, SIGNED : {S}",
    "not the same of both": f"""%p = stablehlo.negate %a : tensor<f32>
        %r = stablehlo.compare LT, %p, %b, TOTALORDER : {F}""",
    "two items of one side": f"""%p = stablehlo.convert %c : (tensor<i32>) -> tensor<f32>
        %r = stablehlo.compare LT, %a, %p, TOTALORDER : {F}""",
    "another key's equality": f"""%p = stablehlo.compare LT, %a, %b, TOTALORDER : {F}
        %e = stablehlo.compare EQ, %c, %d, SIGNED : {S}
        %n = stablehlo.and %e, %p : {B}
        %q = stablehlo.compare LT, %c, %d, SIGNED : {S}
        %m = stablehlo.not %q : {B}
        %r = stablehlo.or %n, %m : {B}""",
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    body, wanted = ORDERS[name]
    found = order(body)
    assert not isinstance(found, Reason)
    assert [key.descends for key in found] == wanted


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_order(name: str) -> None:
    found = order(NONE[name])
    assert isinstance(found, Reason)
    assert found.rule == "sort"


def test_a_sort_is_told() -> None:
    x = np.zeros((64, 64), np.float32)
    made = jstitch.explain(lambda x: jnp.exp(jnp.sort(x)), jstitch.CompileOptions(target="cpu"))(x)
    (edge,) = made.edge("sort", "exponential")
    assert edge.why is not None
    assert edge.why.rule == "sort"
    (kernel,) = kernels(jnp.sort, [x])
    assert any(isinstance(n, Sorting) for s in kernel.phases[0].lanes[0].stages for n in s.nests)


def test_items_that_no_kernel_holds_stay() -> None:
    x = np.random.default_rng(3).standard_normal((8, 300)).astype(np.float32)
    z = (x + 1j * x[::-1]).astype(np.complex64)

    def f(x: Any, z: Any) -> Any:
        return lax.sort((x, z), num_keys=1)

    check_same(jstitch.jit(f, options=OPTIONS)(x, z)[0], jax.jit(f)(x, z)[0])
    (why,) = find_sorts(graph_of(f, [x, z]), CPU).refused.values()
    assert "complex" in str(why)
