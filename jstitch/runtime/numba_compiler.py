"""From Python functions to one relocatable object, through Numba's front end and one LLVM pass pipeline.

    (symbol, function, number of int64 arguments, returns a value)+  ->  ELF/Mach-O object bytes

`numba.cfunc` costs more than it needs here: it adds wrappers, checks and rewrites for Python features that
generated kernels never use, and runs LLVM's passes twice. This module lowers all functions into one LLVM
module, links what they call, exports each under its C signature, optimises once and emits the object. The
object refers to no address of this process, so it can be cached and loaded elsewhere. Importing this module
imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from numba.core import typed_passes, types, untyped_passes
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu_options import FastMathOptions, ParallelOptions
from numba.core.registry import cpu_target

from jstitch.runtime.machine_code import machine_code


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


def flags() -> Any:
    """Numba's compiler flags for all of our code."""
    found = Flags()
    found.no_cpython_wrapper = True
    found.no_cfunc_wrapper = True
    found.no_compile = True
    found.no_rewrites = True
    found.enable_pyobject = False
    found.enable_ssa = True
    found.nrt = False
    found.error_model = "numpy"
    found.fastmath = FastMathOptions({"contract"})
    found.auto_parallel = ParallelOptions(False)
    return found


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """A library in an LLVM context of its own.

    LLVM keeps types, constants and metadata until their context goes: in the global context, where Numba
    compiles, for ever.
    """

    def __init__(self, codegen: Any) -> None:
        super().__init__(codegen, "jstitch")
        self.context = llvm.create_context()
        self.module = llvm.parse_assembly(str(codegen._create_empty_module("jstitch")), self.context)

    def add_ir_module(self, ir_module: Any) -> None:
        module = llvm.parse_assembly(normalize_ir_text(str(ir_module)), self.context)
        module.data_layout = self._codegen._data_layout
        self.module.link_in(module)

    def link_callees(self) -> None:
        """Bring what the functions call into this context."""
        for callee in dict.fromkeys(self._linking_libraries):
            bitcode = callee._get_module_for_linking().as_bitcode()
            self.module.link_in(llvm.parse_bitcode(bitcode, self.context))


@contextmanager
def _new_library() -> Iterator[_Library]:
    """A library that is freed at the end."""
    library = _Library(cpu_target.target_context.codegen())
    try:
        yield library
    except BaseException:
        library.context.detach()  # a traceback may hold modules, which must not outlive their context
        raise
    library.module.close()
    library.context.close()


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


def _wrapper(item: NativeFunction, native: str, context: Any) -> Any:
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
    return llvm.parse_assembly(text, context)


def _lower(library: _Library, items: Sequence[NativeFunction], exported: Collection[str]) -> None:
    """All functions, their callees and wrappers in the library's module, not yet optimised."""
    natives = []
    for item in items:
        returns = types.int64 if item.returns else types.void
        args = (types.int64,) * item.arity
        result = compile_extra(
            cpu_target.typing_context, cpu_target.target_context, item.function, args, returns, flags(), {},
            library=library, pipeline_class=_Pipeline,
        )  # fmt: skip
        natives.append(result.fndesc.llvm_func_name)
    library.link_callees()
    for item, native in zip(items, natives, strict=True):
        library.module.link_in(_wrapper(item, native, library.context))
    _internalise(library.module, exported)


def _internalise(module: Any, exported: Collection[str]) -> None:
    """Only the wrappers stay visible: everything else is inlined away or dropped."""
    for function in module.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"


def compile_functions(
    items: Sequence[NativeFunction], exported: Collection[str], as_text: bool = False
) -> bytes:
    """Compile for this processor; only the symbols in `exported` are visible in the object.

    as_text: LLVM's assembly instead of the object.
    Raises numba.core.errors.NumbaError for code that Numba rejects.
    """
    with global_compiler_lock, _new_library() as library:
        _lower(library, items, exported)
        return machine_code(library.module, as_text)
