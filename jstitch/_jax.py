"""Every non-public JAX name the project uses, each with the reason it is needed.

Works with jax 0.10.2 to 0.12: the names below have the same meaning on both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import jax
from jax._src import api_util as _api_util
from jax._src import config as _config
from jax._src import core as _core
from jax._src import custom_partitioning as _custom_partitioning
from jax._src import lib as _lib
from jax._src import pjit as _pjit
from jax._src import source_info_util as _source_info_util
from jax._src import traceback_util as _traceback_util
from jax._src import util as _util
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _pe
from jax._src.lib import hlo as _hlo  # type: ignore[attr-defined]
from jax._src.lib import xla_client as _xla_client  # type: ignore[attr-defined]
from jax._src.named_sharding import UNSPECIFIED
from jax._src.sharding_impls import ShardingContext, SPMDAxisContext, parse_flatten_op_sharding
from jax._src.source_info_util import Scope, Transform
from jax.extend import linear_util as _lu
from jax.extend.core import ClosedJaxpr
from jax.extend.core.primitives import jit_p
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Rule = Callable[..., Sequence[Any]]

# What XLA:CPU's version decides of a Machine.
XLA_CPU: Mapping[str, Any] = (
    {"reads_vectors": True, "library_threads": 65_536.0, "library_narrow": 0.45}
    if jax.__version_info__ >= (0, 12)
    else {"reads_vectors": False, "library_threads": 16_384.0, "library_narrow": 1.2}
)

# `jax.jit(inline=...)`: while tracing, or not by JAX. An enum from 0.12 on, a bool before.
INLINE_EARLY: Any = jax.Inline.JAX_EARLY if hasattr(jax, "Inline") else True
INLINE_NEVER: Any = jax.Inline.AUTO if hasattr(jax, "Inline") else False


@dataclass(frozen=True)
class Traced:
    """closed: without tracers among its constants. inputs: what it is called with. tree: of its outputs."""

    closed: ClosedJaxpr
    inputs: Sequence[Any]
    tree: Any


def trace(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static_numbers: Collection[int],
    static_names: Collection[str],
) -> Traced | None:
    """f's jaxpr, for a caller that `jax.jit` is tracing; None where arguments are of mutable user types.

    Why private: a nested `jax.jit`, and `jax.make_jaxpr`, count and explain one more trace, which is the
    caller's already.
    """
    positional = tuple(arg for n, arg in enumerate(args) if n not in static_numbers)
    named = {name: arg for name, arg in kwargs.items() if name not in static_names}
    leaves, tree = jax.tree.flatten((positional, named))
    avals = [_core.typeof(leaf) for leaf in leaves]
    if any(getattr(aval, "has_qdd", False) for aval in avals):
        return None
    answered: list[Any] = []

    def flat(*tracers: Any) -> list[Any]:
        given, keywords = jax.tree.unflatten(tree, tracers)
        rest = iter(given)
        whole = [arg if n in static_numbers else next(rest) for n, arg in enumerate(args)]
        answer = f(*whole, **{name: keywords.get(name, arg) for name, arg in kwargs.items()})
        # Not the answer itself, which holds tracers.
        paths = debug.set_result_paths(answer).result_paths  # type: ignore[no-untyped-call]
        answered[:] = [jax.tree.structure(answer), paths]
        return jax.tree.leaves(answer)

    debug = _api_util.debug_info(
        "jit",
        f,
        args,
        kwargs,
        static_argnums=tuple(static_numbers),
        static_argnames=tuple(static_names),
    )
    function = _lu.wrap_init(flat, debug_info=debug)
    function.debug_info = debug._replace(result_paths=lambda: answered[1])
    jaxpr, _, consts = _pe.trace_to_jaxpr_dynamic(function, avals)
    inputs = leaves
    if any(isinstance(const, _core.Tracer) for const in consts):
        jaxpr, consts, inputs = _pe.convert_constvars_jaxpr(jaxpr), [], [*consts, *leaves]
    return Traced(ClosedJaxpr(jaxpr, consts), inputs, answered[0])


def has_effects(closed: ClosedJaxpr) -> bool:
    """Whether a call stays although nobody reads its results. Why private: such calls are JAX's to drop."""
    return bool(_pe.has_effects(closed.jaxpr))


def bind_jit(closed: ClosedJaxpr, inputs: Sequence[Any], name: str) -> list[Any]:
    """Call a jaxpr by JAX's own `jit`, with nothing specified, under a name of ours.

    Why private: `jax.jit` takes functions, and the primitive's parameters are its own.
    """
    ins, outs = len(inputs), len(closed.jaxpr.outvars)
    return list(
        jit_p.bind(  # type: ignore[no-untyped-call]
            *inputs,
            jaxpr=closed,
            in_shardings=(UNSPECIFIED,) * ins,
            out_shardings=(UNSPECIFIED,) * outs,
            in_layouts=(None,) * ins,
            out_layouts=(None,) * outs,
            donated_invars=(False,) * ins,
            ctx_mesh=_pjit.get_ctx_mesh(False),  # type: ignore[no-untyped-call]
            name=name,
            keep_unused=False,
            inline=INLINE_NEVER,
            compiler_options_kvs=(),
        )
    )


def dispatch_anew(jitted: Any) -> None:
    """Forget how a `jax.jit` object's calls are dispatched, not what they traced or compiled.

    Why private: after a trace that raised, calls with those arguments go through Python for good; the public
    `clear_cache` forgets the traces too.
    """
    jitted._clear_cache()


def name_of(f: Callable[..., Any]) -> str:
    """What JAX calls a function where people read it. Why private: so that ours is called the same."""
    return str(_util.fun_name(f))


def wrap_jit_evaluation(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around the one that evaluates calls of `jit` outside other programs.

    Why private: `jax.jit` knows no other.
    """
    jit_p.def_impl(wrap(jit_p.impl))  # type: ignore[no-untyped-call]


def program_of(params: Mapping[str, Any]) -> ClosedJaxpr:
    """A program that does nothing but such a call of `jit`. Why private: as `bind_jit`."""

    def program(*args: Any) -> list[Any]:
        return list(jit_p.bind(*args, **params))  # type: ignore[no-untyped-call]

    called = params["jaxpr"]
    debug = called.jaxpr.debug_info.with_unknown_names()
    avals = [v.aval for v in called.jaxpr.invars]
    jaxpr, _, consts = _pe.trace_to_jaxpr_dynamic(_lu.wrap_init(program, debug_info=debug), avals)
    return ClosedJaxpr(jaxpr, consts)


def trace_context() -> Any:
    """All that changes what a trace gives (x64, mesh, axis names, ...), hashable.

    Why private: no public reader.
    """
    return _config.trace_context()


def wrap_jit_lowering(wrap: Callable[[Rule], Rule]) -> None:
    """Put a rule around the one by which calls of `jit` are lowered.

    Why private: the public registration does not say what was registered before.
    """
    own = _mlir._lowerings[jit_p].rule
    _mlir.register_lowering(jit_p, wrap(own), cacheable=False)


def lower_per_platform(ctx: Any, rules: Mapping[str, Rule], other: Rule, *args: Any, **params: Any) -> Any:
    """By the rule of the platform, or of each of several. Why private: as `wrap_jit_lowering`."""
    effects = params["jaxpr"].effects
    listed = ctx.replace(avals_out=list(ctx.avals_out))  # it adds a list to them
    outs = _mlir.lower_per_platform(listed, "jit", dict(rules), other, effects, *args, **params)
    if listed.tokens_out is not None:
        ctx.set_tokens_out(listed.tokens_out)
    return outs


def lower_inline(ctx: Any, closed: ClosedJaxpr, args: Sequence[Any], name: str) -> tuple[Sequence[Any], Any]:
    """Emit a called jaxpr's own operations at the insertion point: the results, and the output tokens.

    Why private: the public `lower_fun` traces again and loses the user's source lines.
    """
    jaxpr = closed.jaxpr
    consts = [
        _mlir.ir_constants(value, const_lowering=ctx.const_lowering, aval=var.aval)
        for value, var in zip(closed.consts, jaxpr.constvars, strict=True)
    ]
    outs, tokens = _mlir.jaxpr_subcomp(
        ctx.module_context,
        jaxpr,
        ctx.name_stack if is_program(ctx, name) else ctx.name_stack.extend(_util.wrap_name("jit", name)),
        ctx.tokens_in,
        [values if len(values) > 1 else values[0] for values in consts],
        *args,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=ctx.traceback,
    )
    return outs, tokens


def is_program(ctx: Any, name: str) -> bool:
    """Whether a call is all that a program, or a function, of its own name does.

    Why private: as `transforms_of`.
    """
    return bool(ctx.name_stack.stack[-1:] == (Scope(_util.wrap_name("jit", name)),))


def transforms_of(ctx: Any) -> list[str]:
    """The transformations around what is being lowered, the outermost first: `['transpose', 'jvp']`.

    Why private: the lowering context is the only place that knows.
    """
    return [part.name for part in ctx.name_stack.stack if isinstance(part, Transform)]


def is_exported(ctx: Any) -> bool:
    """Whether `jax.export` lowers the module. Why private: as `transforms_of`."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def tokens_of(tokens: Any) -> dict[Any, Any]:
    """The effect -> MLIR value map of a TokenSet. Why private: TokenSet is."""
    return dict(tokens.items())


def make_tokens(tokens: dict[Any, Any]) -> Any:
    """The TokenSet of an effect -> MLIR value map. Why private: TokenSet is."""
    return _mlir.TokenSet(tokens)


def partitioned(axis_context: Any) -> str | None:
    """Why XLA's SPMD partitioner will cut a part of this module, or None if shapes are per-device already,
    or none are.

    Why private: the lowering context is the only place that knows.
    """
    if isinstance(axis_context, SPMDAxisContext):
        automatic = set(axis_context.mesh.axis_names) - set(axis_context.manual_axes)
        if any(axis_context.mesh.shape[name] > 1 for name in automatic):
            return f"shard_map leaves mesh axes {sorted(map(str, automatic))} to automatic partitioning"
    return None


def count_devices(axis_context: Any) -> int:
    """How many devices XLA's partitioner will divide all of this module over; 0 where it will not.

    Why private: as `partitioned`.
    """
    return axis_context.num_devices if isinstance(axis_context, ShardingContext) else 0


def add_partitioner(
    ctx: Any, identity: str, partition: Callable[..., Any], mesh: Mesh, counts: Sequence[int]
) -> str:
    """The target of custom calls that XLA's partitioner asks `partition` about, as it does for
    `jax.experimental.custom_partitioning`. identity: their configuration; those of one are
    one. counts: of arguments and results.

    Why private: the public function has to stand in the program that is traced, where its devices are looked
    for; what is lowered later has none.
    """

    def named(sharding: Any, rank: int) -> NamedSharding:
        try:
            spec = parse_flatten_op_sharding(sharding, mesh)[0]
        except Exception:  # of several kinds, for parts of axes: such an array is made whole
            spec = PartitionSpec()  # type: ignore[no-untyped-call]
        return NamedSharding(mesh, PartitionSpec(*spec, *[None] * (rank - len(spec))))  # type: ignore[no-untyped-call]

    trees, module = [jax.tree.structure((0,) * count) for count in counts], ctx.module_context
    made = _custom_partitioning._ShardingCallbackInfo(  # type: ignore[no-untyped-call,call-arg]
        None, partition, named, *trees, None, module, mesh, ()
    )
    module.add_keepalive(_custom_partitioning._sharding_callbacks.setdefault(identity.encode(), made))
    return _custom_partitioning._CUSTOM_PARTITIONING_CALL_NAME


def uses_shardy() -> bool:
    """Whether shardings are written in Shardy's words. Why private: the setting has no public reader."""
    return bool(_config.use_shardy_partitioner.value)


def stablehlo_of_hlo(text: str) -> bytes:
    """HLO, as XLA prints it, as MLIR bytecode.

    Why private: JAX gives programs to XLA and takes none back.
    """
    module = _hlo.hlo_module_from_text(text)
    return bytes(_xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))


def is_static_shape(aval: Any) -> bool:
    """Whether every dimension is an int (no symbolic shapes). Why private: `ShapedArray` attributes."""
    return all(isinstance(d, int) for d in getattr(aval, "shape", ()))


def hide_frames(path: str) -> None:
    """Our frames in a folder or file are nobody's: not in locations, not in tracebacks that JAX filters.

    Why private: there is no public way, but every library around JAX needs it.
    """
    _source_info_util.register_exclusion(path)
    _traceback_util.register_exclusion(path)


def disabled_jit() -> bool:
    """Whether `jax.disable_jit()` is active. Why private: the context's value has no public reader."""
    return bool(_config.disable_jit.value)


def is_staging() -> bool:
    """Whether functions called now are being written down as a jaxpr. Why private: as `is_tracing`."""
    return isinstance(_core.trace_ctx.trace, _pe.DynamicJaxprTrace)


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
        told = ("log_compiles", "explain_cache_misses")
        off = ("disable_jit", "debug_nans", "debug_infs", *told, "check_tracer_leaks", "no_tracing")
        for name in off:
            stack.enter_context(getattr(_config, name)(False))
        stack.enter_context(keep_out_of_cache())
        stack.enter_context(_config.transfer_guard("allow"))
        yield


def register_profiler(plugin: object) -> None:
    """Have `jax.profiler` call a plugin's profiler, too. plugin: a capsule of its `PJRT_Api`.

    Raises AttributeError where jaxlib takes none. Why private: plugins of devices register theirs like this,
    and kernels on the CPU are to know when a profile is being taken.
    """
    getattr(_lib, "_profiler").register_plugin_profiler(plugin)  # noqa: B009


def profile_is_taken() -> bool:
    """Whether `jax.profiler` records events now; False where jaxlib does not say.

    Why private: it may have begun before we registered, and nothing public tells.
    """
    events = getattr(getattr(_lib, "_profiler", None), "TraceMe", None)
    return events is not None and bool(events.is_enabled())
