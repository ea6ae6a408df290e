"""`jit`: jax.jit with stitched kernels. Everything about the call itself is JAX's."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, cast, overload

import jax
from jax.export import DisabledSafetyCheck
from jax.stages import Wrapped

from jstitch.frontend.stitch import stitch_static
from jstitch.frontend.swap import SwappingJit
from jstitch.options import CompileOptions
from jstitch.runtime.cpu_handler import TARGET

_STATIC = ("static_argnums", "static_argnames")


@overload
def jit(
    f: Callable[..., Any], *, options: CompileOptions | None = None, **jax_jit_kwargs: Any
) -> Wrapped: ...
@overload
def jit(
    f: None = None, *, options: CompileOptions | None = None, **jax_jit_kwargs: Any
) -> Callable[[Callable[..., Any]], Wrapped]: ...
def jit(
    f: Callable[..., Any] | None = None, *, options: CompileOptions | None = None, **jax_jit_kwargs: Any
) -> Wrapped | Callable[[Callable[..., Any]], Wrapped]:
    """`jax.jit(f, **jax_jit_kwargs)` that runs memory-intensive code in stitched kernels.

        @jstitch.jit
        @jstitch.jit(static_argnames="axis", options=CompileOptions(tune="off"))
        step = jstitch.jit(step, donate_argnums=0)

    The result is JAX's own jit object: `.trace`, `.lower`, `.eval_shape`, `.clear_cache`, its call overhead,
    its caches and its errors. With `CompileOptions(async_compile=True)` it is an object with the same methods
    whose first calls run XLA's own version (`jstitch.frontend.swap`), and `.wait()`.
    Raises what `jax.jit` raises, and OptionError for bad JSTITCH_* variables.
    """
    if f is None:
        return lambda g: jit(g, options=options, **jax_jit_kwargs)
    static = {key: jax_jit_kwargs[key] for key in _STATIC if key in jax_jit_kwargs}
    chosen = CompileOptions() if options is None else options
    stitched: Any = stitch_static(f, chosen, static, whole=True)
    if chosen.async_compile:
        swapping: Any = SwappingJit(stitched, jax_jit_kwargs)
        swapping.__wrapped__ = f
        return cast(Wrapped, swapping)
    jitted: Any = jax.jit(stitched, **jax_jit_kwargs)
    jitted.__wrapped__ = f
    jitted.clear_cache = functools.partial(_clear, weakref.ref(jitted), stitched)
    return cast(Wrapped, jitted)


def _clear(jitted_ref: weakref.ref[Any], stitched: Any) -> None:
    """Forget compiled programs, and the trace that the stitched function keeps of the user's."""
    jitted = jitted_ref()
    if jitted is not None:
        type(jitted).clear_cache(jitted)
    stitched.clear_cache()


def export_checks() -> list[DisabledSafetyCheck]:
    """What to pass as `jax.export.export(..., disabled_checks=...)` for programs with stitched kernels.

    JAX asks the exporter to vouch for custom calls: ours carry their kernels' source, so that a process
    that has imported jstitch can run the program whatever version of the kernel cache it has.
    """
    return [DisabledSafetyCheck.custom_call(TARGET)]
