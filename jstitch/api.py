"""`jit`: jax.jit with stitched kernels. Everything about the call itself is JAX's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

import jax
from jax.export import DisabledSafetyCheck
from jax.stages import Wrapped

from jstitch.codegen.cuda import build
from jstitch.frontend.custom_call import UNSET_TARGET
from jstitch.frontend.stitch import jit_stitched
from jstitch.frontend.swap import SwappingJit
from jstitch.options import CompileOptions
from jstitch.runtime.cpu_handler import TARGET

if TYPE_CHECKING:
    from jstitch.inspection.explanation import Explanation
    from jstitch.inspection.program_plan import ProgramPlan


class Jit(Wrapped, Protocol):
    """JAX's jit object, and what it would do with arguments. options: that it was made with."""

    options: CompileOptions

    def plan(self, *args: Any, **kwargs: Any) -> ProgramPlan:
        """`jstitch.plan(self)(*args, **kwargs)`."""
        ...

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """`jstitch.explain(self)(*args, **kwargs)`."""
        ...


@overload
def jit(f: Callable[..., Any], *, options: CompileOptions | None = None, **jax_jit_kwargs: Any) -> Jit: ...
@overload
def jit(
    f: None = None, *, options: CompileOptions | None = None, **jax_jit_kwargs: Any
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    f: Callable[..., Any] | None = None, *, options: CompileOptions | None = None, **jax_jit_kwargs: Any
) -> Jit | Callable[[Callable[..., Any]], Jit]:
    """`jax.jit(f, **jax_jit_kwargs)` that runs memory-intensive code in stitched kernels.

        @jstitch.jit
        @jstitch.jit(static_argnames="axis", options=CompileOptions(tune="off"))
        step = jstitch.jit(step, donate_argnums=0)

    The result is JAX's own jit object: `.trace`, `.lower`, `.eval_shape`, `.clear_cache`, its call overhead,
    its caches and its errors; and `.plan`, `.explain` and `.options` (see `Jit`). With
    `CompileOptions(async_compile=True)` it is an object with the same methods whose first calls run XLA's own
    version (`jstitch.frontend.swap`), and `.wait()`. In other jitted functions it is one call, whatever
    `inline` says.
    Raises what `jax.jit` raises, and OptionError for bad JSTITCH_* variables.
    """
    if f is None:
        return lambda g: jit(g, options=options, **jax_jit_kwargs)
    chosen = CompileOptions() if options is None else options
    make = SwappingJit if chosen.async_compile else jit_stitched
    jitted: Any = make(f, chosen, **jax_jit_kwargs)
    return _with_twins(jitted, f, jax_jit_kwargs, chosen)


def _with_twins(
    jitted: Any, f: Callable[..., Any], settings: Mapping[str, Any], options: CompileOptions
) -> Jit:
    """With `options`, `plan` and `explain`, which do not keep the object alive."""
    jitted.options = options
    jitted.plan = lambda *args, **kwargs: plan(jax.jit(f, **settings), options)(*args, **kwargs)
    jitted.explain = lambda *args, **kwargs: explain(jax.jit(f, **settings), options)(*args, **kwargs)
    return cast(Jit, jitted)


def plan(f: Callable[..., Any], options: CompileOptions | None = None) -> Callable[..., ProgramPlan]:
    """What `jit(f)` would stitch, in numbers; nothing is compiled or run.

        print(jstitch.plan(step, CompileOptions(target="h200"))(params, batch))

    f: a plain function, or a `jax.jit` or `jstitch.jit` object. options: None = those of the `jstitch.jit`
    object, else `CompileOptions()`. Arguments are arrays, or `jax.ShapeDtypeStruct`s in their place.
    Raises what tracing raises, and OptionError for a target that is not to be had.
    """

    def planned(*args: Any, **kwargs: Any) -> ProgramPlan:
        from jstitch.inspection.twin import plan_function

        return plan_function(f, args, kwargs, _options(f, options))

    return planned


def explain(f: Callable[..., Any], options: CompileOptions | None = None) -> Callable[..., Explanation]:
    """Why `jit(f)` would be stitched as it is: the reason, and a remedy, for every edge between two kernels.

        print(jstitch.explain(step)(params, batch))
        jstitch.explain(step)(params, batch).edge("exponential", "reduce")

    Arguments and errors as for `plan`.
    """

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        from jstitch.inspection.twin import explain_function

        return explain_function(f, args, kwargs, _options(f, options))

    return explained


def _options(f: Callable[..., Any], options: CompileOptions | None) -> CompileOptions:
    own = getattr(f, "options", None)
    return options or (own if isinstance(own, CompileOptions) else CompileOptions())


def export_checks() -> list[DisabledSafetyCheck]:
    """What to pass as `jax.export.export(..., disabled_checks=...)` for programs with stitched kernels.

    Those of `CompileOptions(export_kernels=True)`; by default programs are exported without, and need none.
    JAX asks the exporter to vouch for custom calls: ours carry their kernels' source, so that a process that
    has imported jstitch can run the program whatever version of the kernel cache it has.
    """
    return [DisabledSafetyCheck.custom_call(name) for name in (TARGET, build.TARGET, UNSET_TARGET)]
