"""Lowering of a stitched call: XLA's own operations first, then the pipeline's in their place.

    %1 = stablehlo.exponential %arg0                 %1 = stablehlo.custom_call @kernel(%arg0)
    %2 = stablehlo.add %1, %arg1          ==>

Anything that the pipeline cannot do, or fails at, leaves XLA's operations as they are; the report says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from jstitch import _jax
from jstitch.codegen.backend import Backend
from jstitch.errors import CannotFuseError, JstitchWarning
from jstitch.frontend.call import StitchedName
from jstitch.frontend.custom_call import emit_stand_in, part_results
from jstitch.frontend.divide import rewrite_divided
from jstitch.frontend.divide_part import divide_part
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import enclosing, is_enclosed, needs_stand_in
from jstitch.frontend.op_times import with_times
from jstitch.frontend.rewrite import rewrite
from jstitch.frontend.shardings import UnknownShardingError
from jstitch.frontend.target import PLATFORMS, find_target
from jstitch.ir.visible import LONGEST_NAME, visible
from jstitch.passes.base.context import Context
from jstitch.runtime.collector import collector_paused
from jstitch.runtime.report import note, recording

FUNCTION = "func.func"
EXPORTED = "exported as portable operations: CompileOptions(export_kernels=True) keeps the kernels"


def around_lowering(own: _jax.Rule) -> _jax.Rule:
    """The lowering of `jit`: `own`, which is JAX's, but for stitched calls."""

    def lower_jit(ctx: Any, *args: Any, name: str, **params: Any) -> Any:
        if not isinstance(name, StitchedName):
            return own(ctx, *args, name=name, **params)
        plain = partial(_lower_plain, own)
        if _jax.is_exported(ctx) and not name.options.export_kernels:
            return plain(ctx, *args, name=name, reason=_why_plain(ctx, args) or EXPORTED, **params)
        rules = {platform: partial(_lower_stitched, own, platform) for platform in PLATFORMS}
        return _jax.lower_per_platform(ctx, rules, plain, *args, name=name, **params)

    return lower_jit


def _lower_plain(
    own: _jax.Rule, ctx: Any, *args: Any, name: StitchedName, reason: str | None = None, **params: Any
) -> Sequence[Any]:
    """The call as JAX lowers its own; on platforms without a backend, too."""
    with recording(_label(ctx, name)):
        note(
            reason=reason or f"no backend for {', '.join(ctx.module_context.platforms)}",
            where=_place(params["jaxpr"]),
        )
        return _leave(own, ctx, args, name, params)


def _lower_stitched(
    own: _jax.Rule, platform: str, ctx: Any, *args: Any, name: StitchedName, **params: Any
) -> Sequence[Any]:
    """The call as kernels where they pay, as XLA's operations where not. Never fails to lower.

    With `options.strict`, what the pipeline raises is raised.
    """
    label, options = _label(ctx, name), name.options
    with recording(label):
        note(**{"where": _place(params["jaxpr"]), **name.about})
        reason = _why_plain(ctx, args) or _why_undivided(ctx, args, name)
        target = find_target(platform, options) if reason is None else reason
        if isinstance(target, str):
            note(reason=target)
            return _leave(own, ctx, args, name, params)
        # Measuring makes large arrays, for a long time.
        pause = nullcontext() if options.tune == "measure" else collector_paused()
        context = with_times(Context(options, target.profile))
        with pause:
            return _Call(ctx, args, context, name, label, target.backend, platform).lower(params["jaxpr"])


def _leave(
    own: _jax.Rule, ctx: Any, args: Sequence[Any], name: str, params: Mapping[str, Any]
) -> Sequence[Any]:
    """The call as JAX lowers its own; the whole of a program as that program."""
    if not _jax.is_program(ctx, name):
        return own(ctx, *args, name=name, **params)
    outs, tokens = _jax.lower_inline(ctx, params["jaxpr"], args, name)
    ctx.set_tokens_out(tokens)
    return outs


def _label(ctx: Any, name: str) -> str:
    """The call with the transformations around it: `transpose(jvp(f))`."""
    shown = visible(str(name), LONGEST_NAME)
    for transform in reversed(_jax.transforms_of(ctx)):
        shown = f"{transform}({shown})"
    return shown


def _place(jaxpr: Any) -> str:
    """Where the function is defined, `file:line`; "" where nobody knows."""
    about = jaxpr.jaxpr.debug_info
    return f"{about.func_filename}:{about.func_lineno}" if about.func_filename else ""


def _why_plain(ctx: Any, args: Sequence[Any]) -> str | None:
    if not all(map(_jax.is_static_shape, (*ctx.avals_in, *ctx.avals_out))):
        return "symbolic shapes"
    if not all(isinstance(arg, ir.Value) for arg in args):
        return "an argument that is not one MLIR value"
    if ir.InsertionPoint.current.ref_operation is not None:
        return "lowered into the middle of a block"
    return _jax.partitioned(ctx.module_context.axis_context)


def _why_undivided(ctx: Any, args: Sequence[Any], name: str) -> str | None:
    """Why the call stays XLA's where the program is for several devices."""
    count = _jax.count_devices(ctx.module_context.axis_context)
    if count <= 1:
        return None
    if not _jax.uses_shardy():
        return f"automatic SPMD partitioning over {count} devices, by GSPMD: only Shardy's is known"
    if is_enclosed():
        return "a part of a stitched call over several devices"
    if _jax.is_exported(ctx) and not _is_whole(ctx, args, name):
        return f"exported over {count} devices as a part of a program: jit all of it with jstitch.jit"
    return None


class _Call:
    """One stitched call at the end of one block."""

    def __init__(
        self,
        ctx: Any,
        args: Sequence[Any],
        context: Context,
        function: str,
        name: str,
        backend: Backend,
        platform: str,
    ) -> None:
        """function: what is called. name: the same, with the transformations around it."""
        self.ctx = ctx
        self.args = args
        self.context = context
        self.function = function
        self.name = name
        self.backend = backend
        self.platform = platform
        self.block = ir.InsertionPoint.current.block

    def lower(self, jaxpr: Any) -> list[Any]:
        self.where = _place(jaxpr)
        start = len(self.block.operations)
        with enclosing():
            outs, token_set = _jax.lower_inline(self.ctx, jaxpr, self.args, self.function)
        old = list(self.block.operations)[start:]
        before, after = _jax.tokens_of(self.ctx.tokens_in), _jax.tokens_of(token_set)
        # Ordered effects thread a token through the operations: to the pipeline it is one more value.
        moved = [effect for effect, token in after.items() if before.get(effect) != token]
        args = [*self.args, *(before[effect] for effect in moved if effect in before)]
        results = self._rewrite(old, args, [*outs, *(after[effect] for effect in moved)])
        if results is None:
            self.ctx.set_tokens_out(token_set)
            return list(outs)
        _erase(old, keep=results)
        renewed = dict(zip(moved, results[len(outs) :], strict=True))
        self.ctx.set_tokens_out(_jax.make_tokens(after | renewed))
        return results[: len(outs)]

    def _rewrite(self, old: list[Any], args: list[Any], results: list[Any]) -> list[Any] | None:
        """The pipeline's results, or None with the block exactly as it was."""
        if not old or any(map(_is_dynamic, old)):
            note(reason="symbolic shapes" if old else "nothing to compute")
            return None
        size = len(self.block.operations)
        try:
            return self._pipeline(old, args, results)
        except Exception as error:
            if self.context.options.strict or isinstance(error, CannotFuseError):
                raise
            _erase(list(self.block.operations)[size:])
            reason = f"{type(error).__name__}: {error}"
            note(reason=reason)
            said = "".join(f"{line}\n" for line in getattr(error, "__notes__", ()))
            warnings.warn(
                f"{self.name} runs on XLA's own kernels: stitching raised {reason}\n{said}"
                "  next: set JSTITCH_STRICT=1 for the traceback, JSTITCH_DUMP_DIR=<folder> for the stages,"
                " JSTITCH_REPRODUCER_DIR=<folder> for a file that shows it again.",
                JstitchWarning,
                stacklevel=2,
            )
            return None

    def _pipeline(self, old: list[Any], args: list[Any], results: list[Any]) -> list[Any] | None:
        module = self.ctx.module_context.module
        donated = donation_map(args)
        arguments = program_arguments(args, results) if _jax.is_program(self.ctx, self.function) else None
        if _jax.count_devices(self.ctx.module_context.axis_context) > 1:
            if not _is_whole(self.ctx, self.args, self.function):
                return self._part(old, args, results)
            return rewrite_divided(
                old,
                args,
                results,
                module,
                self.context,
                self.name,
                self.backend,
                platform=self.platform,
                arguments=[_argument_attributes(value) for value in args],
                returned=_result_attributes(results),
                donated=donated,
                own=arguments,
            )
        new = rewrite(
            old,
            args,
            results,
            module,
            self.context,
            self.name,
            self.backend,
            donated=donated,
            arguments=arguments,
        )
        if new is None:
            return emit_stand_in(args, results) if needs_stand_in() else None
        if _in_program():
            return list(new)
        # In a loop of the caller's, or in a function that may be called there.
        loop = self.block.owner.operation.name != FUNCTION
        return part_results(new, len(self.block.arguments) if loop else None)

    def _part(self, old: list[Any], args: list[Any], results: list[Any]) -> list[Any] | None:
        """One call that is stitched once XLA divides it; its record is written then."""
        try:
            return divide_part(
                old, args, results, self.ctx, self.context, self.name, self.where, self.platform
            )
        except UnknownShardingError as error:
            note(reason=f"automatic SPMD partitioning: {error}")
            return None


def _is_whole(ctx: Any, args: Sequence[Any], name: str) -> bool:
    """Whether the call is all that the program does: of its name, and with the program's own arguments.

    There may be others of that name: a function and what it calls are often both `loss`, or lambdas.
    """
    own = list(ir.InsertionPoint.current.block.arguments)
    return _jax.is_program(ctx, name) and _in_program() and list(args) == own


def _in_program() -> bool:
    """Whether operations stand in the entry function, in no loop that anybody knows of."""
    function = ir.InsertionPoint.current.block.owner.operation
    if function.name != FUNCTION or "sym_visibility" not in function.attributes:
        return False
    return str(ir.StringAttr(function.attributes["sym_visibility"]).value) == "public"


def _is_dynamic(operation: Any) -> bool:
    """Whether it has a size that is not known yet: so are exported programs of symbolic shapes called."""
    types = [result.type for result in operation.results]
    return any(isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape for kind in types)


def donation_map(args: Sequence[Any]) -> Mapping[int, int | None]:
    """Which stitched inputs the caller gives away: input number -> the main output that takes its buffer.

    None when XLA is free to choose the output. Only arguments of the module's own entry function count.
    """
    found: dict[int, int | None] = {}
    for position, value in enumerate(args):
        attributes = _argument_attributes(value)
        if "tf.aliasing_output" in attributes:
            found[position] = ir.IntegerAttr(attributes["tf.aliasing_output"]).value
        elif "jax.buffer_donor" in attributes:
            found[position] = None
    return found


def program_arguments(args: Sequence[Any], results: Sequence[Any]) -> frozenset[int] | None:
    """Which stitched inputs are arguments of the module's entry function; None when that does more.

    Told by its result types, since it returns nothing yet.
    """
    function = ir.InsertionPoint.current.block.owner.operation
    if not _in_program():
        return None
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    if list(kind.results) != [value.type for value in results]:
        return None
    return frozenset(n for n, value in enumerate(args) if isinstance(value, ir.BlockArgument))


def _argument_attributes(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, ir.BlockArgument):
        return {}
    function = value.owner.owner.operation
    if function.name != FUNCTION or "arg_attrs" not in function.attributes:
        return {}
    attributes = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[value.arg_number])
    return {named.name: named.attr for named in attributes}


def _result_attributes(results: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Of the entry function; none where it returns something else than this."""
    function = ir.InsertionPoint.current.block.owner.operation
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    if "res_attrs" not in function.attributes or list(kind.results) != [value.type for value in results]:
        return [{}] * len(results)
    return [
        {named.name: named.attr for named in ir.DictAttr(attributes)}
        for attributes in ir.ArrayAttr(function.attributes["res_attrs"])
    ]


def _erase(operations: Sequence[Any], keep: Sequence[Any] = ()) -> None:
    """Erase operations whose results nobody uses and that are not in `keep`, users before producers."""
    kept = set(keep)
    for operation in reversed(operations):
        if not any(result in kept or any(True for _ in result.uses) for result in operation.results):
            operation.erase()
