"""The `stitched` primitive: a call that carries its jaxpr, so that its lowering can plan kernels for it.

    bind(closed, args, options, name)
    b c = stitched[jaxpr={ lambda ; a. let ... in (b, c) } name=f options=...] a

Invariants: `jaxpr` has no constants; no output is one of its inputs, and no output appears twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Primitive

from jstitch import _jax
from jstitch.options import CompileOptions

stitched_p: Any = Primitive("stitched")
stitched_p.multiple_results = True


def _impl(*args: Any, **params: Any) -> Any:
    return _jax.eager_primitive(stitched_p, *args, **params)


def _abstract_eval(*_: Any, jaxpr: _jax.ClosedJaxpr, **__: Any) -> tuple[list[Any], Any]:
    return [v.aval for v in jaxpr.jaxpr.outvars], jaxpr.effects


stitched_p.def_impl(_impl)
stitched_p.def_effectful_abstract_eval(_abstract_eval)


@dataclass(frozen=True)
class _Pruned:
    """A jaxpr without trivial outputs: which inputs it still takes, and where each output comes from.

    sources: per original output, ('in', number of the original input) or ('out', number of the new output).
    """

    closed: _jax.ClosedJaxpr
    used_inputs: tuple[bool, ...]
    sources: tuple[tuple[str, int], ...]


@_jax.weak_cache(maxsize=2048)
def _prune(closed: _jax.ClosedJaxpr) -> _Pruned | None:
    """Forward outputs that are inputs or repeated; None when there are none.

    before: { lambda ; a b. let c = sin b in (a, c, c) }
    after:  { lambda ; b. let c = sin b in (c,) }  with sources  in 0, out 0, out 0
    """
    used, sources = _sources(closed)
    if all(used):
        return None
    pruned, used_inputs = _jax.dce(closed, used)
    return _Pruned(pruned, tuple(used_inputs), tuple(sources))


@_jax.weak_cache(maxsize=2048)
def _owned(closed: _jax.ClosedJaxpr) -> _jax.ClosedJaxpr | None:
    """The same call with a copy of every output that `_prune` would forward; None when there are none."""
    # Not `closed` itself: the cache would keep its own weak key alive for ever.
    used, _ = _sources(closed)
    return None if all(used) else _jax.copy_outputs(closed, [not own for own in used])


def _sources(closed: _jax.ClosedJaxpr) -> tuple[list[bool], list[tuple[str, int]]]:
    """Which outputs are neither inputs nor repeated, and the `sources` of all of them."""
    inputs = {var: i for i, var in enumerate(closed.jaxpr.invars)}
    outputs: dict[Any, int] = {}
    used: list[bool] = []
    sources: list[tuple[str, int]] = []
    for atom in closed.jaxpr.outvars:
        key = id(atom) if isinstance(atom, Literal) else atom
        used.append(key not in inputs and key not in outputs)
        if key in inputs:
            sources.append(("in", inputs[key]))
        else:
            sources.append(("out", outputs.setdefault(key, len(outputs))))
    return used, sources


def bind(
    closed: _jax.ClosedJaxpr,
    args: Sequence[Any],
    options: CompileOptions,
    name: str,
    *,
    whole: bool = False,
) -> list[Any]:
    """Call `closed` as one stitched call; constants (tracers too) become arguments of the call.

    args and the result are flat, one per input and output of `closed`. whole: the call is the caller's whole
    program, where each output has memory of its own; those that are inputs or repeated are not forwarded.
    """
    closed, consts = _jax.separate_consts(closed)
    args = [*consts, *args]
    if whole:
        owned = _owned(closed)
        closed = closed if owned is None else owned
    pruned = _prune(closed)
    if pruned is None:
        return list(stitched_p.bind(*args, jaxpr=closed, options=options, name=name))
    kept = [arg for arg, used in zip(args, pruned.used_inputs, strict=True) if used]
    outs: list[Any] = []
    if pruned.closed.jaxpr.outvars or pruned.closed.effects:
        outs = list(stitched_p.bind(*kept, jaxpr=pruned.closed, options=options, name=name))
    return [_as_array(args[i]) if kind == "in" else outs[i] for kind, i in pruned.sources]


def _as_array(x: Any) -> Any:
    return x if isinstance(x, jax.Array) else jnp.asarray(x)
