"""The composition matrix: functions x transformations, stitched against plain JAX.

Every function maps x (4, 16) and w (16,) to an array; every transformation takes such a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from matrix_functions import NESTED, PLAIN, W, X, norm, with_custom_vjp
from transform_support import assert_same, assert_stitched, stitch

import jstitch
from tests.shares import one_in, one_tuple_in

Function = Callable[[jax.Array, jax.Array], Any]


def _total(f: Function) -> Function:
    """A scalar of everything inexact that f returns, with unequal cotangents."""

    def total(x: jax.Array, w: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(f(x, w))
        return sum(jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))) for y in leaves)

    return total


def _grad(f: Function) -> Function:
    return jax.grad(_total(f), (0, 1))


def _jvp(f: Function) -> Function:
    return lambda x, w: jax.jvp(f, (x, w), (jnp.cos(x), w))


def _vjp(f: Function) -> Function:
    def run(x: jax.Array, w: jax.Array) -> Any:
        out, pull = jax.vjp(f, x, w)
        return out, pull(jax.tree.map(jnp.ones_like, out))

    return run


def _linearize(f: Function) -> Function:
    def run(x: jax.Array, w: jax.Array) -> Any:
        out, push = jax.linearize(f, x, w)
        return out, push(x, w), jax.jit(push)(w * x, w)

    return run


def _partial_grad(f: Function) -> Function:
    return lambda x, w: jax.grad(lambda y: _total(f)(y, w))(x)


def _hessian(f: Function) -> Function:
    return lambda x, w: jax.hessian(lambda y: _total(f)(y, w))(x[:1])


def _vmap(f: Function, *axes: Any, **kwargs: Any) -> Function:
    def run(x: jax.Array, w: jax.Array) -> Any:
        return jax.vmap(f, axes or (0, None), **kwargs)(jnp.stack([x, x + 1, -x]), w)

    return run


def _vmap_last(f: Function) -> Function:
    return lambda x, w: jax.vmap(f, (2, 1), out_axes=1)(jnp.stack([x, -x], 2), jnp.stack([w, 2 * w], 1))


def _vmap_twice(f: Function) -> Function:
    inner = jax.vmap(f, (None, 0))
    return lambda x, w: jax.vmap(inner, (0, None))(jnp.stack([x, -x]), jnp.stack([w, w + 1]))


def _in_scan(f: Function) -> Function:
    def body(carry: jax.Array, row: jax.Array) -> Any:
        return jnp.sin(carry) + _total(f)(carry, row), carry.sum()

    return lambda x, w: lax.scan(body, x, jnp.stack([w, w * 0.5]))


def _in_while(f: Function) -> Function:
    def run(x: jax.Array, w: jax.Array) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + _total(f)(s[1], w)), (0, x))

    return run


def _in_fori(f: Function) -> Function:
    return lambda x, w: lax.fori_loop(0, 2, lambda i, y: y + _total(f)(y, w) * 0.1 + i, x)


def _in_cond(f: Function) -> Function:
    return lambda x, w: lax.cond(x[0, 0] > 0, _total(f), lambda y, v: y.sum(), x, w)


def _checkpoint(policy: str | None = None) -> Callable[[Function], Function]:
    chosen = getattr(jax.checkpoint_policies, policy) if policy else None
    return lambda f: _grad(jax.checkpoint(f, policy=chosen))


def _jitted(transform: Callable[[Function], Function]) -> Callable[[Function], Function]:
    return lambda f: jax.jit(transform(f))


BACKWARD = True
TRANSFORMS: dict[str, tuple[Callable[[Function], Function], bool]] = {
    "eager": (lambda f: f, False),
    "jit": (jax.jit, False),
    "jit of jit": (lambda f: jax.jit(jax.jit(f)), False),
    "jvp": (_jvp, False),
    "jit jvp": (lambda f: jax.jit(_jvp(f)), False),
    "vjp": (_vjp, BACKWARD),
    "linearize": (_linearize, False),
    "grad": (_grad, BACKWARD),
    "grad of one": (_partial_grad, BACKWARD),
    "value and grad": (lambda f: jax.value_and_grad(_total(f), 1), BACKWARD),
    "jit grad jit": (lambda f: jax.jit(_grad(jax.jit(f))), BACKWARD),
    "hessian": (_jitted(_hessian), BACKWARD),
    "grad of grad": (_jitted(lambda f: _grad(_grad(f))), BACKWARD),
    "jvp of grad": (_jitted(lambda f: _jvp(_grad(f))), BACKWARD),
    "vmap": (_vmap, False),
    "vmap in_axes out_axes": (_vmap_last, False),
    "vmap of vmap": (_vmap_twice, False),
    "vmap named": (lambda f: _vmap(lambda x, w: lax.psum(_total(f)(x, w), "b"), axis_name="b"), False),
    "vmap of grad": (_jitted(lambda f: _vmap(_grad(f))), BACKWARD),
    "grad of vmap": (_jitted(lambda f: _grad(_vmap(f))), BACKWARD),
    "in scan": (_in_scan, False),
    "grad of scan": (lambda f: _grad(_in_scan(f)), BACKWARD),
    "vmap of scan": (_jitted(lambda f: _vmap(_in_scan(f))), False),
    "in while": (_in_while, False),
    "in fori": (_in_fori, False),
    "grad of fori": (_jitted(lambda f: _grad(_in_fori(f))), BACKWARD),
    "in cond": (_in_cond, False),
    "grad of cond": (_jitted(lambda f: _grad(_in_cond(f))), BACKWARD),
    "vmap of cond": (_jitted(lambda f: _vmap(_in_cond(f))), False),
    "remat": (_checkpoint(), BACKWARD),
    "remat everything": (_checkpoint("everything_saveable"), BACKWARD),
    "remat dots": (_checkpoint("dots_saveable"), BACKWARD),
    "jit remat": (lambda f: jax.jit(_checkpoint("nothing_saveable")(f)), BACKWARD),
}
FUNCTIONS: dict[str, Function] = {f.__name__: f for f in (*PLAIN, *NESTED)}
# The rest of the table is test_whole_matrix: run it with `-m slow`.
CHOSEN = [(f.__name__, "jit grad jit") for f in (*PLAIN[1:], *NESTED)]
CHOSEN += [(f.__name__, "vmap of grad") for f in NESTED] + [("dropout", "jit"), ("several", "jit")]


# Forward mode of a custom_vjp: JAX refuses it.
REFUSED = {("with_custom_vjp", t) for t in ("jvp", "jit jvp", "linearize", "hessian")}
# The derivative is a constant: the transformed function has no backward call.
CONSTANT = {("old_keys", t) for t in ("grad of one", "grad of grad", "hessian")} | {("dropout", "hessian")}


def _check(function: str, transform: str) -> None:
    f = FUNCTIONS[function]
    apply, backward = TRANSFORMS[transform]
    if (function, transform) in REFUSED:
        return _check_refused(f, apply)

    def exact() -> Any:
        with jax.enable_x64(True):
            return jax.jit(apply(f))(X.astype(np.float64), W.astype(np.float64))

    since = jstitch.record_count()
    found = apply(stitch(f))(X, W)
    assert_same(found, jax.jit(apply(f))(X, W), exact=exact)
    if (function, transform) in CONSTANT:
        assert not any(r.backward for r in jstitch.last_report(since))
    else:
        assert_stitched(since, backward=backward)
    return None


def _check_refused(f: Function, apply: Callable[[Function], Function]) -> None:
    for g in (f, stitch(f)):
        with pytest.raises(TypeError, match="forward-mode"):
            apply(g)(X, W)


@pytest.mark.parametrize("transform", one_in(2, TRANSFORMS))
def test_each_transformation(transform: str) -> None:
    _check("norm", transform)


@pytest.mark.parametrize(("function", "transform"), one_tuple_in(2, CHOSEN))
def test_each_function(function: str, transform: str) -> None:
    _check(function, transform)


@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_whole_matrix(function: str, transform: str) -> None:
    _check(function, transform)


@pytest.mark.parametrize("function", ["norm", "with_scan", "with_custom_vjp"])
def test_transformed_inside_one_stitched_call(function: str) -> None:
    f = FUNCTIONS[function]
    since = jstitch.record_count()
    found = jax.jit(stitch(jax.vmap(_grad(f), (0, None))))(X[None], W)
    assert_same(found, jax.vmap(_grad(f), (0, None))(X[None], W))
    assert_stitched(since)


def test_spmd_axis_name() -> None:
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        found = jax.jit(jax.vmap(stitch(norm), (0, None), spmd_axis_name="d"))(np.stack([X] * 4), W)
    assert_same(np.asarray(found), np.asarray(jax.vmap(norm, (0, None))(np.stack([X] * 4), W)))


def test_reverse_mode_of_while_is_refused_as_by_jax() -> None:
    def f(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda y: y.sum() < 9, lambda y: y * 2, x).sum()

    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(f)(jnp.ones(3))
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(stitch(f))(jnp.ones(3))


def test_forward_mode_of_custom_vjp_is_refused_as_by_jax() -> None:
    _check_refused(with_custom_vjp, _jvp)
