"""Kernels are named by the user's names and by what they do: identifiers, bounded, unique, repeatable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.codegen.cuda.ptx_text import entry_name
from jstitch.frontend.observe import observing
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.scope import innermost_name, is_backward, together
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.lower.name_kernel import LONGEST, KernelNames, name_kernel

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X, G = jnp.ones((64, 128)), jnp.ones(128)


def named(*made: Op, call: str = "f", loc: str = "m.py:1 (norm)", scope: str = "jit(f)/f") -> str:
    ops = tuple(op.located(Op("", (), (), loc=loc, scope=scope)) for op in made)
    inputs = tuple(
        dict.fromkeys(v for op in ops for v in op.operands if all(v not in o.results for o in ops))
    )
    return name_kernel(make_pattern(Graph(inputs, ops, ops[-1].results), ops, "test"), call)


def matrix() -> Value:
    return Value(TensorType((8, 16), DType.F32))


ZERO = build.splat(TensorType((), DType.F32), 0.0)


def total(*dims: int) -> Op:
    return build.reduce("stablehlo.add", matrix(), ZERO.result, dims)


@pytest.mark.parametrize(
    ("ops", "what"),
    [
        ((total(1),), "row"),
        ((total(0),), "col"),
        ((total(0, 1),), "total"),
        ((total(0), total(1)), "row_col"),
        ((build.elementwise("stablehlo.exponential", matrix()),), "elementwise"),
        ((build.transpose(matrix(), (1, 0)),), "move"),
    ],
)
def test_what(ops: tuple[Op, ...], what: str) -> None:
    assert named(ZERO, *ops) == f"norm_{what}"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "norm_row"),
        ({"scope": "jit(f)/transpose(jvp(f))"}, "norm_bwd_row"),
        ({"scope": "jit(f)/f/attention"}, "attention_row"),
        ({"scope": "jit(f)/f/transpose(jvp(attention))"}, "attention_bwd_row"),
        ({"scope": "jit(f)/f/jit(_where)#3/while/body/closed_call#1"}, "norm_row"),
        ({"scope": "jit(f)/f/jstitch.fuse_together.12.strict.block/inner/jit(g)"}, "inner_row"),
        ({"scope": "jit(f)/f/jstitch.fuse_together.12.strict.block/jit(g)"}, "block_row"),
        ({"loc": "m.py:1 (Model.<locals>.norm)"}, "norm_row"),
        ({"loc": "m.py:1 (Model.norm.<locals>.<lambda>)"}, "norm_row"),
        ({"loc": "m.py:1 (<lambda>)"}, "f_row"),
        ({"loc": "", "scope": "", "call": "vmap(jvp(<lambda>))"}, "kernel_row"),
        ({"loc": "m.py:1 (größe)"}, "gr_e_row"),
        ({"scope": "jit(f)/f/3 heads, dense"}, "norm_row"),
        ({"loc": "m.py:1 (_1x1)"}, "k1x1_row"),
    ],
)
def test_whose(given: dict[str, str], name: str) -> None:
    assert named(ZERO, total(1), **given) == name


def test_two_functions_of_a_size_are_both_named() -> None:
    first = build.elementwise("stablehlo.exponential", matrix()).located(Op("", (), (), loc="m.py:1 (soft)"))
    second = build.elementwise("stablehlo.tanh", matrix())
    small = build.elementwise("stablehlo.tanh", Value(TensorType((2,), DType.F32)))
    tiny = small.located(Op("", (), (), loc="m.py:1 (tiny)"))
    assert named(first, second) == "soft_norm_elementwise"
    assert named(tiny, second) == "norm_elementwise"


def test_names_are_bounded_and_unique() -> None:
    long = named(ZERO, total(1), loc=f"m.py:1 ({'long_name_' * 20})", scope="transpose(jvp(f))")
    names = KernelNames({f"{long}_1"})
    found = [names.unique(long) for _ in range(1000)]
    assert f"{long}_1" not in found
    assert len(set(found)) == 1000
    assert found[:2] == [f"{long}_0", f"{long}_2"]
    for name in found:
        assert re.fullmatch(r"[A-Za-z]\w*", name)
        assert len(name) <= LONGEST
        assert entry_name(name, "phase0") == f"{name}_phase0"


# -- programs --------------------------------------------------------------------------------------------


def layer_norm(x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale


def net(x: Any, scale: Any) -> Any:
    y = layer_norm(x, scale)
    with jax.named_scope("attention"):
        y = jax.nn.softmax(y @ (x.T @ x))
    return layer_norm(y, scale).sum()


def names_of(f: Callable[..., Any], *args: Any) -> tuple[list[str], str]:
    with observing() as calls:
        text = jax.jit(f).lower(*args).compile().as_text()
    assert isinstance(text, str)
    return [built.name for call in calls for built in call.built], text


def test_kernels_of_a_gradient() -> None:
    """The stitched calls of the forward and the backward pass are one program: its names differ."""
    step = jax.grad(jstitch.stitch(net, options=OPTIONS), (0, 1))
    names, text = names_of(step, X, G)
    assert len(set(names)) == len(names)
    assert any(name.startswith("layer_norm_row") for name in names)
    assert any(name.startswith("layer_norm_bwd_row_col") for name in names)
    assert any("attention" in name for name in names)
    # XLA names its instructions, and so the CPU's timeline, after the kernels
    for name in names:
        assert re.search(rf"%{name}[.\d]* = .*custom-call.*op_name=\"[^\"]*/{name}\"", text), name
    assert names_of(jax.grad(jstitch.stitch(net, options=OPTIONS), (0, 1)), X, G)[0] == names


def test_two_calls_of_a_function_have_different_names() -> None:
    norm = jstitch.stitch(layer_norm, options=OPTIONS)
    names, _ = names_of(lambda x, g: norm(jnp.sin(norm(x, g) @ x.T) @ x, g), X, G)
    assert names == ["layer_norm_row_0", "layer_norm_row_1"]


# -- scopes ----------------------------------------------------------------------------------------------


def test_groups_are_told_apart_by_call_activation_and_direction() -> None:
    scopes = [
        "jit(f)/jstitch.fuse_together.1.g",
        "jit(f)/jstitch.fuse_together.2.g",
        "jit(f)/jit(h)#1/jstitch.fuse_together.1.g",
        "jit(f)/jit(h)#2/jstitch.fuse_together.1.g",
        "jit(f)/transpose(jvp(jstitch.fuse_together.1.g))",
    ]
    assert len({together(scope) for scope in scopes}) == len(scopes)
    inside = "jit(f)/jvp(jstitch.fuse_together.1.g)/jit(h)#3/transpose(jvp())"
    assert together(inside) == together(scopes[0])
    assert together("jit(f)/g") is None
    assert is_backward(inside)
    assert innermost_name(inside) == "g"
