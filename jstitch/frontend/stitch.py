"""`stitch(f)`: f as one stitched call, composable with every JAX transformation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import jax

from jstitch import _jax
from jstitch.frontend.lowering import register_lowering
from jstitch.frontend.primitive import bind
from jstitch.frontend.rules import register_rules
from jstitch.options import CompileOptions
from jstitch.runtime.report import note, recording

P = ParamSpec("P")
R = TypeVar("R")

register_rules()
register_lowering()


def stitch(f: Callable[P, R], options: CompileOptions | None = None) -> Callable[P, R]:
    """`f`, whose memory-intensive parts become stitched kernels wherever it is jitted.

    Use it inside other people's `jax.jit`, `grad`, `vmap`, `scan`, `shard_map`; called outside jit it runs
    as its own jitted program. Arguments and results are pytrees of arrays, as for `jax.jit`.

    options: None = `CompileOptions()`, read now. The result's `clear_cache()` forgets its traces.
    Raises what `jax.jit(f)` raises while tracing.
    """
    return stitch_static(f, options, {})


def stitch_static(
    f: Callable[P, R], options: CompileOptions | None, static: Mapping[str, Any], *, whole: bool = False
) -> Callable[P, R]:
    """`stitch` with `static_argnums` and `static_argnames`, which mean what they mean to `jax.jit`.

    whole: the result is all that its caller jits. The result's `unstitched` is f again, sharing its traces.
    """
    # Never called: it owns the trace cache, so that equal calls bind the same jaxpr object.
    traced: Any = jax.jit(f, **static)
    chosen = CompileOptions() if options is None else options
    name = _name(f)

    def stitched(*args: P.args, **kwargs: P.kwargs) -> R:
        if _jax.disabled_jit():
            return f(*args, **kwargs)
        closed, tree, flat = _jax.trace_flat(traced, args, kwargs)
        if not _only_arrays(closed):
            with recording(name):
                note(reason="mutable references or user-defined types")
            return f(*args, **kwargs)
        return cast(R, jax.tree.unflatten(tree, bind(closed, flat, chosen, name, whole=whole)))

    # Not __dict__: of a callable object that would be its state.
    wrapped: Any = functools.wraps(f, updated=())(stitched)
    wrapped.clear_cache = traced.clear_cache
    wrapped.unstitched = traced
    return cast("Callable[P, R]", wrapped)


def _name(f: Callable[..., Any]) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def _only_arrays(closed: _jax.ClosedJaxpr) -> bool:
    variables = (*closed.jaxpr.constvars, *closed.jaxpr.invars, *closed.jaxpr.outvars)
    return not _jax.is_high(closed) and all(_jax.is_plain(v.aval) for v in variables)
