"""`stitch(f)`: f as a stitched call wherever it is jitted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import jax

from jstitch import _jax
from jstitch.frontend.call import Call, around_evaluation, call_of
from jstitch.frontend.lowering import around_lowering
from jstitch.options import CompileOptions

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = Path(__file__).parent.parent
for _ours in ("frontend", "inspection", "api.py", "_jax.py"):
    _jax.hide_frames(str(_PACKAGE / _ours))
_jax.wrap_jit_evaluation(around_evaluation)
_jax.wrap_jit_lowering(around_lowering)


def stitch(f: Callable[P, R], options: CompileOptions | None = None) -> Callable[P, R]:
    """`f`, whose memory-intensive parts become stitched kernels wherever it is jitted.

    Use it inside other people's `jax.jit`, `grad`, `vmap`, `scan`, `shard_map`; called outside jit it runs
    as its own jitted program. Arguments and results are pytrees of arrays, as for `jax.jit`.

    options: None = `CompileOptions()`, read now. The result is a `jax.jit` object: `clear_cache()` forgets
    its traces. Raises what `jax.jit(f)` raises while tracing.
    """
    return cast("Callable[P, R]", jit_stitched(f, CompileOptions() if options is None else options))


def jit_stitched(f: Callable[..., Any], options: CompileOptions, **settings: Any) -> Any:
    """`jax.jit` of f as a stitched call. settings: of `jax.jit`.

    Inside other jitted functions nothing but that call is left of it: `inline` has no meaning to it.
    """
    return _jit(call_of(f, options), f, settings)


def jit_observed(f: Callable[..., Any], options: CompileOptions, **settings: Any) -> Any:
    """The same for those who watch it being lowered: traced and lowered again, whatever was so before.

    Nothing of it is found later either: it may have been planned only.
    """
    return _jit(Call(f, options), f, settings)


def _jit(call: Call, f: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    jax.jit(f, **settings)  # raises what it would
    jitted: Any = jax.jit(call, **{**settings, "inline": _jax.INLINE_EARLY})
    # What is jitted may be a `jax.jit` object, whose attributes are the same and mean something else.
    jitted.__dict__.update({**getattr(f, "__dict__", {}), **jitted.__dict__})
    functools.update_wrapper(jitted, f, updated=())
    return jitted
