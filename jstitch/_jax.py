"""Every non-public JAX name the project uses, each with the reason it is needed.

Works with jax 0.10.2 to 0.12: the names below have the same meaning on both ends. In jax 0.12 a jaxpr and
a closed jaxpr are one class; `ClosedJaxpr` here means "a jaxpr with its constants", whatever the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar, cast

from jax._src import config as _config
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import pjit as _pjit
from jax._src import util as _util
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _pe
from jax._src.lax import lax as _lax
from jax._src.sharding_impls import ShardingContext, SPMDAxisContext

ClosedJaxpr = Any  # core.ClosedJaxpr up to 0.10, core.Jaxpr from 0.12
F = TypeVar("F", bound=Callable[..., Any])


def weak_cache(maxsize: int) -> Callable[[F], F]:
    """A cache keyed weakly on the first argument and on JAX's trace context (x64, mesh, axis names, ...).

    Why private: no public cache knows which of JAX's contexts change what a trace gives. Thread-local.
    """
    return _util.weakref_lru_cache(maxsize=maxsize)  # type: ignore[return-value]


def trace_flat(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """Trace a `jax.jit` object: its closed jaxpr, output tree, and the flat arguments the jaxpr takes.

    Why private: `.trace()` hides closed-over tracers and the flat dynamic arguments, which a call primitive
    must bind. Uses jit's own cache, so equal calls give the same jaxpr object.
    """
    params, flat = _pjit._infer_params(jitted._fun, jitted._jit_info, args, kwargs)
    return params.params["jaxpr"], params.out_tree, flat


def dispatch_anew(jitted: Any) -> None:
    """Forget how a `jax.jit` object's calls are dispatched, not what they traced or compiled.

    Why private: after a trace that raised, calls with those arguments go through Python for good; the public
    `clear_cache` forgets the traces too.
    """
    jitted._clear_cache()


def separate_consts(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, Sequence[Any]]:
    """Constants become leading inputs. Why private: no public way to edit a jaxpr's binders."""
    return _pe.separate_consts(closed) if closed.consts else (closed, ())


def dce(closed: ClosedJaxpr, used: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """Drop unused outputs and what only they need; also tells which inputs are still used.

    `closed` has no constants. Why private: dead code elimination has no public entry.
    """
    pruned, used_inputs = _pe.dce_jaxpr(closed.jaxpr, list(used))
    return _pe.close_jaxpr(pruned), used_inputs


def copy_outputs(closed: ClosedJaxpr, copied: Sequence[bool]) -> ClosedJaxpr:
    """The same function with `jnp.copy` of the marked outputs; no constants. Why private: as `dce`."""
    outputs, copies = [], []
    for v, wanted in zip(closed.jaxpr.outvars, copied, strict=True):
        outputs.append(_core.Var(v.aval) if wanted else v)
        if wanted:
            copies.append(_core.new_jaxpr_eqn([v], [outputs[-1]], _lax.copy_p, {}, set()))
    return _pe.close_jaxpr(closed.jaxpr.replace(eqns=[*closed.jaxpr.eqns, *copies], outvars=outputs))


def has_effects(eqn: Any) -> bool:
    """Whether an equation must stay although nobody reads it. Why private: as `dce`."""
    return bool(_pe.has_effects(eqn))


def replace_eqn(eqn: Any, closed: ClosedJaxpr, used_in: Sequence[bool], used_out: Sequence[bool]) -> Any:
    """`eqn` calling `closed` on the used inputs and outputs only. Why private: as `dce`."""
    return eqn.replace(
        invars=[v for v, used in zip(eqn.invars, used_in, strict=True) if used],
        outvars=[v for v, used in zip(eqn.outvars, used_out, strict=True) if used],
        params={**eqn.params, "jaxpr": closed},
        effects=closed.jaxpr.effects,
    )


def jvp_jaxpr(closed: ClosedJaxpr, nonzeros: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """(primals, nonzero tangents) -> (primals, nonzero tangents), and which output tangents are not zero.

    Why private: `jax.jvp` cannot be told which tangents are symbolically zero.
    """
    return _ad.jvp_jaxpr(closed, list(nonzeros), False)


def partial_eval(
    closed: ClosedJaxpr, unknowns: Sequence[bool], instantiate: Sequence[bool]
) -> tuple[ClosedJaxpr, ClosedJaxpr, list[bool], Sequence[Any]]:
    """(known part, unknown part, which outputs are unknown, residual types).

    Why private: splitting a computation in two by data dependence has no public entry.
    """
    return _pe.partial_eval_jaxpr_nounits(closed, list(unknowns), list(instantiate))


def backward_pass(closed: ClosedJaxpr, args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Transpose a linear jaxpr at these arguments (undefined ones are linear): one cotangent per argument.

    Why private: `jax.linear_transpose` loses varying-manual-axes types and materialises zeros.
    """
    return list(_ad.backward_pass(closed.jaxpr, False, closed.consts, list(args), list(cotangents)))


def batch_jaxpr(closed: ClosedJaxpr, axis: Any, dims: Sequence[Any]) -> tuple[ClosedJaxpr, Sequence[bool]]:
    """Batch over `axis`; batched outputs carry it in front. Why private: vmap of a jaxpr with named axes."""
    dest = [_batching.zero_if_mapped] * len(closed.jaxpr.outvars)
    batched, out_batched = _batching.batch_jaxpr_axes(closed, axis, list(dims), dest)  # type: ignore[no-untyped-call]
    return batched, out_batched


def register_batching(primitive: Any, rule: Callable[..., Any]) -> None:
    """Why private: the public table's rules are not told the axis name and spmd_axis_name."""
    _batching.fancy_primitive_batchers[primitive] = rule


def register_dce(primitive: Any, rule: Callable[[list[bool], Any], Any]) -> None:
    """Why private: no public table; without it jit keeps unused arguments and dead outputs alive."""
    # jax 0.12 passes (used, live_inputs, eqn), 0.10 passes (used, eqn).
    _pe.dce_rules[primitive] = lambda used, *rest: rule(list(used), rest[-1])


def register_remat(primitive: Any, param: str) -> None:
    """Checkpoint policies look into the call. Why private: no public table.

    `param` names the primitive's ClosedJaxpr parameter.
    """

    def unchanged(*args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return args[-2], args[-1]

    def rule(saveable: Any, unknowns: Any, instantiated: Any, eqn: Any) -> Any:
        return _pe.closed_call_partial_eval_custom_rule(
            param, unchanged, saveable, unknowns, instantiated, eqn
        )

    _pe.partial_eval_jaxpr_custom_rules[primitive] = rule


def register_uncached_lowering(primitive: Any, rule: Callable[..., Any], platform: str | None) -> None:
    """Why private: inside JAX's lowering cache the rule would not see which arguments are donated."""
    _mlir.register_lowering(primitive, rule, platform=platform, cacheable=False)


def lower_inline(ctx: Any, closed: ClosedJaxpr, args: Sequence[Any], scope: str) -> tuple[Sequence[Any], Any]:
    """Emit the jaxpr's own operations at the insertion point: the results, and the output tokens.

    Why private: the public `lower_fun` traces again and loses the user's source lines.
    """
    outs, tokens = _mlir.jaxpr_subcomp(
        ctx.module_context,
        closed.jaxpr,
        ctx.name_stack.extend(scope),
        ctx.tokens_in,
        (),
        *args,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=ctx.traceback,
    )
    return outs, tokens


def tokens_of(tokens: Any) -> dict[Any, Any]:
    """The effect -> MLIR value map of a TokenSet. Why private: TokenSet is."""
    return dict(tokens.items())


def make_tokens(tokens: dict[Any, Any]) -> Any:
    """The TokenSet of an effect -> MLIR value map. Why private: TokenSet is."""
    return _mlir.TokenSet(tokens)


def partitioned(axis_context: Any) -> str | None:
    """Why XLA's SPMD partitioner will cut this module, or None if shapes are per-device already.

    Why private: the lowering context is the only place that knows.
    """
    if isinstance(axis_context, ShardingContext) and axis_context.num_devices > 1:
        return f"automatic SPMD partitioning over {axis_context.num_devices} devices"
    if isinstance(axis_context, SPMDAxisContext):
        automatic = set(axis_context.mesh.axis_names) - set(axis_context.manual_axes)
        if any(axis_context.mesh.shape[name] > 1 for name in automatic):
            return f"shard_map leaves mesh axes {sorted(map(str, automatic))} to automatic partitioning"
    return None


def is_plain(aval: Any) -> bool:
    """Whether a type is an array (not a Ref, token or user-defined type). Why private: ShapedArray's home."""
    return type(aval) is _core.ShapedArray


def is_high(closed: ClosedJaxpr) -> bool:
    """Whether a jaxpr uses user-defined types or mutable boxes. Why private: experimental in JAX."""
    return bool(closed.jaxpr.is_high)


def is_static_shape(aval: Any) -> bool:
    """Whether every dimension is an int (no symbolic shapes). Why private: `ShapedArray` attributes."""
    return all(isinstance(d, int) for d in getattr(aval, "shape", ()))


def eager_primitive(primitive: Any, *args: Any, **params: Any) -> Any:
    """Run a primitive outside jit as JAX runs its own. Why private: the cache is JAX's."""
    return _dispatch.apply_primitive(primitive, *args, **params)  # type: ignore[no-untyped-call]


def disabled_jit() -> bool:
    """Whether `jax.disable_jit()` is active. Why private: the context's value has no public reader."""
    return bool(_config.disable_jit.value)


def is_tracing() -> bool:
    """Whether a transformation is under way on this thread. Why private: no public reader of the context."""
    return not _core.trace_state_clean()


def jit_settings(jitted: Any) -> dict[str, Any]:
    """What a `jax.jit` object was told about static and donated arguments, as `jax.jit`'s own parameters.

    Why private: the object does not say.
    """
    info = jitted._jit_info
    names = (
        "static_argnums",
        "static_argnames",
        "donate_argnums",
        "donate_argnames",
        "keep_unused",
        "inline",
    )
    return {name: getattr(info, name) for name in names}


def keep_out_of_cache() -> AbstractContextManager[Any]:
    """Write nothing to JAX's persistent compilation cache, so that nothing of ours is found there.

    Why private: the public setting changes every thread. The cache is not switched off: the first compilation
    of a process decides for all later ones whether there is one.
    """
    return cast("AbstractContextManager[Any]", _config.persistent_cache_min_compile_time_secs(1e9))


@contextmanager
def measuring() -> Iterator[None]:
    """This thread compiles and runs programs of our own, whatever the user's settings: 64-bit types stay,
    NaNs pass, jit is jit, nothing is written to JAX's persistent cache.

    Why private: the public settings change every thread.
    """
    with ExitStack() as stack:
        stack.enter_context(_config.enable_x64(True))
        off = ("disable_jit", "debug_nans", "debug_infs", "log_compiles", "check_tracer_leaks", "no_tracing")
        for name in off:
            stack.enter_context(getattr(_config, name)(False))
        stack.enter_context(keep_out_of_cache())
        stack.enter_context(_config.transfer_guard("allow"))
        yield
