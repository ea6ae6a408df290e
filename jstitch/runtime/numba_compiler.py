"""From Python functions to one relocatable object, through Numba's front end and one LLVM pass pipeline.

    (symbol, function, number of int64 arguments, returns a value)+  ->  ELF/Mach-O object bytes

`numba.cfunc` costs more than it needs here: it adds wrappers, checks and rewrites for Python features that
generated kernels never use, and runs LLVM's passes twice. This module lowers all functions into one LLVM
module, links what they call, exports each under its C signature, optimises once and emits the object. The
object refers to no address of this process, so it can be cached and loaded elsewhere. Importing this module
imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from numba.core import typed_passes, types, untyped_passes
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu_options import FastMathOptions, ParallelOptions
from numba.core.llvm_bindings import create_pass_builder
from numba.core.registry import cpu_target


@dataclass(frozen=True)
class NativeFunction:
    """`function` over `arity` int64 arguments, exported as `symbol`; it returns an int64 or nothing."""

    symbol: str
    function: Callable[..., Any]
    arity: int
    returns: bool = False


class _Pipeline(CompilerBase):  # type: ignore[misc]
    """The passes that plain scalar code with intrinsics and calls needs, and no others."""

    def define_pipelines(self) -> list[Any]:
        manager = PassManager("jstitch")
        for step in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            untyped_passes.ReconstructSSA,
            typed_passes.NopythonTypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization,
            typed_passes.AnnotateTypes,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


def _flags() -> Any:
    flags = Flags()
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.no_compile = True
    flags.no_rewrites = True
    flags.enable_pyobject = False
    flags.enable_ssa = True
    flags.nrt = False
    flags.error_model = "numpy"
    flags.fastmath = FastMathOptions({"contract"})
    flags.auto_parallel = ParallelOptions(False)
    return flags


_WRAPPER = """
target triple = "{triple}"
declare i32 @"{native}"({kind}*, i8**{types})
define {result} @"{symbol}"({params}) {{
  %value = alloca {kind}
  %error = alloca i8*
  %status = call i32 @"{native}"({kind}* %value, i8** %error{args})
  {end}
}}
"""


def _wrapper(item: NativeFunction, native: str) -> Any:
    """An LLVM module that exports `native` (Numba's convention: status, return slot) as a C function."""
    kind, result, end = "i8*", "void", "ret void"
    if item.returns:
        kind, result, end = "i64", "i64", "%result = load i64, i64* %value\n  ret i64 %result"
    text = _WRAPPER.format(
        triple=llvm.get_process_triple(),
        native=native,
        symbol=item.symbol,
        kind=kind,
        result=result,
        end=end,
        types=", i64" * item.arity,
        params=", ".join(f"i64 %a{i}" for i in range(item.arity)),
        args="".join(f", i64 %a{i}" for i in range(item.arity)),
    )
    return llvm.parse_assembly(text)


def _lower(items: Sequence[NativeFunction], exported: Collection[str]) -> Any:
    """All functions, their callees and wrappers in one LLVM module, not yet optimised."""
    target = cpu_target.target_context
    library = target.codegen().create_library("jstitch")
    natives = []
    for item in items:
        returns = types.int64 if item.returns else types.void
        args = (types.int64,) * item.arity
        result = compile_extra(
            cpu_target.typing_context, target, item.function, args, returns, _flags(), {},
            library=library, pipeline_class=_Pipeline,
        )  # fmt: skip
        natives.append(result.fndesc.llvm_func_name)
    module = library._final_module
    for callee in dict.fromkeys(library._linking_libraries):
        module.link_in(callee._get_module_for_linking(), preserve=True)
    for item, native in zip(items, natives, strict=True):
        module.link_in(_wrapper(item, native))
    _internalise(module, exported)
    return module


def _internalise(module: Any, exported: Collection[str]) -> None:
    """Only the wrappers stay visible: everything else is inlined away or dropped."""
    for function in module.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"


def compile_functions(items: Sequence[NativeFunction], exported: Collection[str]) -> bytes:
    """Compile for this processor; only the symbols in `exported` are visible in the object.

    Raises numba.core.errors.NumbaError for code that Numba rejects.
    """
    with global_compiler_lock:
        module = _lower(items, exported)
        machine = cpu_target.target_context.codegen()._tm
        builder = create_pass_builder(machine, opt=3, loop_vectorize=True, slp_vectorize=False)
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))
