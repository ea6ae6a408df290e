"""The IR builder of CUDA kernels: LLVM IR in the dialect of libNVVM, for one compute capability.

libNVVM reads LLVM 7 IR for most GPUs. What the shared emitters write and LLVM 7 lacks is translated here:
`fneg`, and the intrinsics that NVVM rejects although it has an instruction for each (it reaches them through
libdevice).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value

_LIBDEVICE = {"llvm.fabs": "fabs", "llvm.rint": "rint", "llvm.trunc": "trunc"}


def function(module: Any, name: str, result: ir.Type, operands: Sequence[ir.Type]) -> Any:
    """The declaration of `name` in the module, made at its first use."""
    found = module.globals.get(name)
    return found or ir.Function(module, ir.FunctionType(result, operands), name)


def libdevice_name(name: str, kind: ir.Type) -> str:
    """exp of f32 -> __nv_expf, of f64 -> __nv_exp."""
    return f"__nv_{name}" if isinstance(kind, ir.DoubleType) else f"__nv_{name}f"


class _Module:
    """A module that declares NVVM's spelling of an intrinsic; otherwise the module itself."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def declare_intrinsic(self, name: str, kinds: Sequence[ir.Type] = (), shape: Any = None) -> Any:
        if name not in _LIBDEVICE:
            return self._module.declare_intrinsic(name, kinds, shape)
        return function(self._module, libdevice_name(_LIBDEVICE[name], kinds[0]), kinds[0], shape.args)


class Builder(ir.IRBuilder):  # type: ignore[misc]
    """capability, ptx_version: (major, minor) of the GPU, of its driver.

    index_bits: the width of the text's plain integers.
    """

    def __init__(
        self, block: Any, capability: tuple[int, int], ptx_version: tuple[int, int], index_bits: int
    ) -> None:
        super().__init__(block)
        self.capability, self.ptx_version = capability, ptx_version
        self.index = ir.IntType(index_bits)

    @property
    def module(self) -> Any:
        return _Module(super().module)

    def fneg(self, arg: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        return self.fsub(ir.Constant(arg.type, -0.0), arg, name, flags)

    def inline(self, text: str, constraints: str, result: ir.Type, *operands: Any) -> Any:
        """Inline PTX without side effects: $0 is the result, $1 and so on are the operands."""
        shape = ir.FunctionType(result, [o.type for o in operands])
        return self.asm(shape, text, constraints, list(operands), False)

    def external(self, name: str, result: ir.Type, *operands: Any) -> Any:
        """A call of an NVVM intrinsic or libdevice function by its full name."""
        callee = function(self.module, name, result, [o.type for o in operands])
        return self.call(callee, list(operands))


def libdevice(name: str, x: Value, *others: Value) -> Value:
    """A libdevice function on floats of one type, with a result of that type."""
    raws = [o.raw for o in (x, *others)]
    return Value(x.builder, x.builder.external(libdevice_name(name, x.type), x.type, *raws))
