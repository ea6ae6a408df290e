"""Loads and stores at raw addresses, with alias information.

    load_f32(base, i, 3)          # element i of the f32 array at address base; 3 names the buffer
    store_bf16(base, i, x, 4)     # rounds x to bf16

Accesses with different buffer numbers never alias (see scopes).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError

from jstitch.codegen.cpu import convert
from jstitch.codegen.cpu.conversion import STORAGE, Storage
from jstitch.codegen.cpu.declare import declare, plain
from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cpu.scopes import SCOPES, tag


def _scope_of(name: str, scope: Any) -> int:
    if not isinstance(scope, types.IntegerLiteral):
        raise TypingError(f"{name}: expected a literal buffer number, found {scope}.")
    if not 0 <= scope.literal_value < SCOPES:
        raise TypingError(f"{name}: expected a buffer number below {SCOPES}, found {scope.literal_value}.")
    return int(scope.literal_value)


def _address(base: Value, index: Value, element: ir.Type) -> Any:
    builder = base.builder
    pointer = builder.inttoptr(base.raw, element.as_pointer())
    return builder.gep(pointer, [index.raw], source_etype=element)


def _load(dtype: Storage, scope: int, base: Value, index: Value) -> Value:
    raw = base.builder.load(_address(base, index, dtype.storage), align=dtype.itemsize, typ=dtype.storage)
    tag(raw, base.builder.module, scope)
    value = Value(base.builder, raw)
    if dtype.narrow is not None:
        return convert.decode(value, dtype.narrow)
    return value.compare("!=", 0) if dtype.numba == types.boolean else value


def _store(dtype: Storage, scope: int, base: Value, index: Value, value: Value) -> None:
    if dtype.narrow is not None:
        value = convert.encode(value, dtype.narrow)
    elif dtype.numba == types.boolean:
        value = value.resize(8, signed=False)
    raw = base.builder.store(value.raw, _address(base, index, dtype.storage), align=dtype.itemsize)
    tag(raw, base.builder.module, scope)


def load(dtype_name: str) -> Any:
    """load_<dtype>(base, i, scope): element i of the array at address base."""
    dtype, name = STORAGE[dtype_name], f"load_{dtype_name}"

    def typing(base: Any, index: Any, scope: Any) -> tuple[Any, Any]:
        number = _scope_of(name, scope)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _load(dtype, number, *(Value(builder, a) for a in arguments[:2])).raw

        return dtype.numba(types.int64, types.int64, scope), codegen

    return declare(name, 3, typing, load.__doc__)


def store(dtype_name: str) -> Any:
    """store_<dtype>(base, i, value, scope): element i of the array at address base becomes value, rounded."""
    dtype, name = STORAGE[dtype_name], f"store_{dtype_name}"

    def typing(base: Any, index: Any, value: Any, scope: Any) -> tuple[Any, Any]:
        number = _scope_of(name, scope)
        if not isinstance(value, types.IntegerLiteral) and plain(value) != dtype.numba:
            raise TypingError(f"{name}: expected a value of type {dtype.numba}, found {value}.")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _store(dtype, number, *(Value(builder, a) for a in arguments[:3]))
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, dtype.numba, scope), codegen

    return declare(name, 4, typing, store.__doc__)


def _prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    base, offset = arguments
    pointer = builder.inttoptr(builder.add(base, offset), ir.IntType(8).as_pointer())
    flag = ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], signature)
    builder.call(function, [pointer, *(ir.Constant(flag, n) for n in (0, 3, 1))])
    return context.get_dummy_value()


def prefetch() -> Any:
    """prefetch(base, byte_offset): ask for the cache line of that address, for reading; never faults."""
    typing = types.none(types.int64, types.int64), _prefetch
    return declare("prefetch", 2, lambda base, offset: typing, prefetch.__doc__)
