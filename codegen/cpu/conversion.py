"""Kernel dtypes as Numba and LLVM see them, and the conversions between them.

convert_s32(x)   # any scalar; floats truncate and saturate, NaN gives 0
convert_bf16(x)  # rounds to the bf16 grid, stays f32
bitcast_u32(x)   # the bits of an f32 or s32
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError

from jstitch.codegen.cpu import convert
from jstitch.codegen.cpu.declare import Build, declare, emitter, is_float, is_integral, plain
from jstitch.codegen.cpu.expression import Value


@dataclass(frozen=True)
class Storage:
    """A dtype as kernels see it: its name in function names, its storage, and what it is in registers."""

    name: str
    storage: ir.Type
    numba: Any
    narrow: convert.Narrow | None = None

    @property
    def itemsize(self) -> int:
        return Value(None, ir.Constant(self.storage, 0)).width // 8


def _integer(width: int, signed: bool) -> Storage:
    name = f"{'s' if signed else 'u'}{width}"
    return Storage(name, ir.IntType(width), getattr(types, f"{'' if signed else 'u'}int{width}"))


STORAGE: dict[str, Storage] = {
    kernel.name: kernel
    for kernel in (
        Storage("bool", ir.IntType(8), types.boolean),
        *(_integer(width, signed) for signed in (True, False) for width in (8, 16, 32, 64)),
        *(
            Storage(name, ir.IntType(form.width), types.float32, form)
            for name, form in convert.NARROW.items()
        ),
        Storage("f32", ir.FloatType(), types.float32),
        Storage("f64", ir.DoubleType(), types.float64),
    )
}


def conversion(dtype_name: str) -> Any:
    """convert_<dtype>(x): x as that dtype, with XLA's rules."""
    target, name = STORAGE[dtype_name], f"convert_{dtype_name}"

    def typing(operand: Any) -> tuple[Any, Any]:
        source = plain(operand)
        if not is_float(source) and not is_integral(source):
            raise TypingError(f"{name}: expected a kernel scalar, found {operand}.")
        signed = bool(getattr(source, "signed", False))

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _convert(Value(builder, arguments[0]), target, signed).raw

        return target.numba(source), codegen

    return declare(name, 1, typing, conversion.__doc__)


def _convert(x: Value, target: Storage, signed: bool) -> Value:
    if target.narrow is not None:
        return convert.to_narrow(x, target.narrow, signed)
    if is_float(target.numba):
        return convert.to_floating(x, target.storage, signed)
    if target.numba == types.boolean:
        return convert.to_bool(x, signed)
    return convert.to_integer(x, target.storage.width, signed, target.numba.signed)


def bitcast(dtype_name: str) -> Any:
    """bitcast_<dtype>(x): the bits of x, a scalar of the same width, as that dtype."""
    target, name = STORAGE[dtype_name], f"bitcast_{dtype_name}"

    def typing(operand: Any) -> tuple[Any, Any]:
        source = plain(operand)
        if getattr(source, "bitwidth", None) != target.itemsize * 8:
            raise TypingError(f"{name}: expected a scalar of {target.itemsize * 8} bits, found {operand}.")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], target.storage)

        return target.numba(source), codegen

    return declare(name, 1, typing, bitcast.__doc__)


def of_singles(name: str, build: Build) -> Any:
    """A function of an f32 whose result is one, too."""
    return declare(name, 1, lambda _: (types.float32(types.float32), emitter(build)), build.__doc__)


def of_words(name: str, build: Build) -> Any:
    """A function of a u32 that holds two narrow floats; its result is an f32."""
    return declare(name, 1, lambda _: (types.float32(types.uint32), emitter(build)), build.__doc__)


def to_words(name: str, build: Build) -> Any:
    """A function of two f32 whose result is the u32 that holds both as narrow floats."""
    kind = types.uint32(types.float32, types.float32)
    return declare(name, 2, lambda *_: (kind, emitter(build)), build.__doc__)
