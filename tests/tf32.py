"""What XLA:GPU's library makes of products of f32: of operands that are rounded to tf32.

as_tf32(f)(*args)    what f(*args) is there, up to the order of sums
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

HALF, KEPT = 1 << 12, 0xFFFFE000  # of the 13 bits that tf32 does not have; all others


def as_tf32(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose products of f32 are of tf32 unless they ask for the highest precision."""

    def run(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
        found = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return run


def rounded(x: Any) -> Any:
    """To nearest, the larger of two; what is no number stays."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    near = jax.lax.bitcast_convert_type((bits + jnp.uint32(HALF)) & jnp.uint32(KEPT), jnp.float32)
    return jnp.where(jnp.isfinite(x), near, x)


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        found = _apply(eqn, [value(v) for v in eqn.invars])
        known |= dict(zip(eqn.outvars, found, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _apply(eqn: Any, operands: list[Any]) -> Sequence[Any]:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    if inner is not None:
        closed = inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ())
        return _evaluate(closed.jaxpr, closed.consts, operands)
    if eqn.primitive.name == "dot_general" and "HIGHEST" not in str(eqn.params["precision"]):
        operands = [rounded(x) if x.dtype == jnp.float32 else x for x in operands]
    found = eqn.primitive.bind(*operands, **eqn.params)
    return found if eqn.primitive.multiple_results else [found]
