"""Transformation rules of the `stitched` primitive: each gives stitched calls again.

    jvp         f        ->  jvp(f) of the primals, linear(f) of residuals and tangents
    transpose   linear   ->  transpose(linear) of residuals and cotangents
    vmap        f        ->  vmap(f)
    dce, remat  f        ->  f without unused outputs; f cut where the checkpoint policy says

The jvp rule makes *two* calls, so that JAX's generic linearization sees a call of known values and a call
that is linear in the unknown ones, and needs no rule of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.interpreters import ad

from jstitch import _jax
from jstitch.frontend.primitive import bind, stitched_p
from jstitch.options import CompileOptions


@dataclass(frozen=True)
class _Jvp:
    """A jvp in two parts: `known` maps primals to outputs + residuals, `linear` residuals + tangents."""

    known: _jax.ClosedJaxpr
    linear: _jax.ClosedJaxpr
    unknown_outputs: tuple[bool, ...]
    num_residuals: int
    nonzero_outputs: tuple[bool, ...]


@_jax.weak_cache(maxsize=2048)
def _split_jvp(closed: _jax.ClosedJaxpr, nonzeros: tuple[bool, ...]) -> _Jvp:
    num_outputs = len(closed.jaxpr.outvars)
    both, nonzero_outputs = _jax.jvp_jaxpr(closed, nonzeros)
    known, linear, unknown, residuals = _jax.partial_eval(
        both,
        [False] * len(nonzeros) + [True] * sum(nonzeros),
        [False] * num_outputs + [True] * sum(nonzero_outputs),
    )
    return _Jvp(known, linear, tuple(unknown), len(residuals), tuple(nonzero_outputs))


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, options: CompileOptions, name: str
) -> tuple[list[Any], list[Any]]:
    split = _split_jvp(jaxpr, tuple(type(t) is not ad.Zero for t in tangents))
    known = bind(split.known, primals, options, f"jvp({name})")
    cut = len(known) - split.num_residuals
    live = [t for t in tangents if type(t) is not ad.Zero]
    linear = bind(split.linear, [*known[cut:], *live], options, f"linear({name})")
    outs = _merge(split.unknown_outputs, known[:cut], linear)
    num_primals = len(jaxpr.jaxpr.outvars)
    zeros = (ad.Zero(v.aval.to_tangent_aval()) for v in jaxpr.jaxpr.outvars)
    nonzero = iter(outs[num_primals:])
    return outs[:num_primals], [
        next(nonzero) if live else zero for live, zero in zip(split.nonzero_outputs, zeros, strict=True)
    ]


def _merge(which: Iterable[bool], if_false: Sequence[Any], if_true: Sequence[Any]) -> list[Any]:
    left, right = iter(if_false), iter(if_true)
    return [next(right) if flag else next(left) for flag in which]


@_jax.weak_cache(maxsize=2048)
def _transposed(closed: _jax.ClosedJaxpr, linear: tuple[bool, ...], live: tuple[bool, ...]) -> Any:
    """jit object: (non-linear arguments, live cotangents) -> a cotangent or None per linear argument."""
    # A strong reference would keep the cache's own weak key alive for ever.
    closed_ref = weakref.ref(closed)

    def transposed(known: list[Any], cotangents: list[Any]) -> list[Any]:
        target = closed_ref()
        assert target is not None
        undefined = [_undefined(v.aval) for v, lin in zip(target.jaxpr.invars, linear, strict=True) if lin]
        zeros = [
            ad.Zero(v.aval.to_ct_aval()) for v, ct in zip(target.jaxpr.outvars, live, strict=True) if not ct
        ]
        args = _merge(linear, known, undefined)
        outs = _jax.backward_pass(target, args, _merge(live, zeros, cotangents))
        return [_live(ct) for ct, lin in zip(outs, linear, strict=True) if lin]

    return jax.jit(transposed)


def _undefined(aval: Any) -> Any:
    return ad.UndefinedPrimal(aval)  # type: ignore[no-untyped-call]


def _live(cotangent: Any) -> Any:
    """None (an empty pytree) for a symbolic zero, so that the output tree says which ones are zero."""
    return None if type(cotangent) is ad.Zero else cotangent


def _transpose(
    cotangents: Sequence[Any], *args: Any, jaxpr: Any, options: CompileOptions, name: str
) -> list[Any]:
    linear = tuple(isinstance(x, ad.UndefinedPrimal) for x in args)
    live = tuple(type(ct) is not ad.Zero for ct in cotangents)
    known = [x for x, lin in zip(args, linear, strict=True) if not lin]
    nonzero = [ct for ct, is_live in zip(cotangents, live, strict=True) if is_live]
    closed, tree, flat = _jax.trace_flat(_transposed(jaxpr, linear, live), (known, nonzero), {})
    outs = jax.tree.unflatten(tree, bind(closed, flat, options, f"transpose({name})"))
    found = iter(outs)
    return [_cotangent(x, next(found)) if lin else None for x, lin in zip(args, linear, strict=True)]


def _cotangent(arg: Any, cotangent: Any) -> Any:
    return ad.Zero(arg.aval.to_ct_aval()) if cotangent is None else cotangent


def _batch(
    axis: Any, args: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, options: CompileOptions, name: str
) -> tuple[list[Any], list[int | None]]:
    batched, out_batched = _jax.batch_jaxpr(jaxpr, axis, dims)
    outs = bind(batched, args, options, f"vmap({name})")
    return outs, [0 if batched else None for batched in out_batched]


def _dce(used: list[bool], eqn: Any) -> tuple[list[bool], Any]:
    if not any(used) and not _jax.has_effects(eqn):
        return [False] * len(eqn.invars), None
    closed, used_inputs = _jax.dce(eqn.params["jaxpr"], used)
    if all(used) and all(used_inputs):
        return used_inputs, eqn  # the same jaxpr object: what was planned stays planned
    return used_inputs, _jax.replace_eqn(eqn, closed, used_inputs, used)


def register_rules() -> None:
    """Tell JAX how the primitive transforms. Idempotent."""
    jvps: dict[Any, Callable[..., Any]] = ad.primitive_jvps
    transposes: dict[Any, Callable[..., Any]] = ad.primitive_transposes
    jvps[stitched_p] = _jvp
    transposes[stitched_p] = _transpose
    _jax.register_batching(stitched_p, _batch)
    _jax.register_dce(stitched_p, _dce)
    _jax.register_remat(stitched_p, "jaxpr")
