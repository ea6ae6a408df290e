"""Numba intrinsics for the native handler: words of memory, atomics, calls through pointers.

Addresses are int64. Nothing here checks anything. Imported only when the handler is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

I64 = ir.IntType(64)
I32 = ir.IntType(32)
_INT = types.int64
PROCESS_BLOCK = "jstitch_process_block"


def _intrinsic(function: Callable[..., Any]) -> Callable[..., int]:
    made: Callable[..., int] = intrinsic(function)
    return made


def _pointer(builder: Any, address: Any, kind: Any = I64) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _word_pointer(builder: Any, base: Any, index: Any) -> Any:
    return _pointer(builder, builder.add(base, builder.mul(index, I64(8))))


def _define(num_args: int, emit: Callable[[Any, Any], Any], result: Any = _INT) -> Any:
    """The typing and code generation halves of an intrinsic over int64 arguments."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = emit(builder, args)
        return context.get_dummy_value() if result is types.void else value

    return result(*[_INT] * num_args), generate


@_intrinsic
def word(typing: Any, base: Any, index: Any) -> Any:
    """The 64-bit word number `index` at `base`."""
    return _define(2, lambda b, a: b.load(_word_pointer(b, *a)))


@_intrinsic
def put(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Store a 64-bit word."""
    return _define(3, lambda b, a: b.store(a[2], _word_pointer(b, a[0], a[1])), types.void)


@_intrinsic
def half(typing: Any, address: Any) -> Any:
    """The 32-bit integer at a byte address."""
    return _define(1, lambda b, a: b.sext(b.load(_pointer(b, a[0], I32)), I64))


@_intrinsic
def put_half(typing: Any, address: Any, value: Any) -> Any:
    """Store a 32-bit integer at a byte address."""
    return _define(2, lambda b, a: b.store(b.trunc(a[1], I32), _pointer(b, a[0], I32)), types.void)


@_intrinsic
def atomic_add(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Add to a word, sequentially consistent; the value before."""
    return _define(3, lambda b, a: b.atomic_rmw("add", _word_pointer(b, a[0], a[1]), a[2], "seq_cst"))


@_intrinsic
def atomic_swap(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Exchange a word, sequentially consistent; the value before."""
    return _define(3, lambda b, a: b.atomic_rmw("xchg", _word_pointer(b, a[0], a[1]), a[2], "seq_cst"))


@_intrinsic
def atomic_word(typing: Any, base: Any, index: Any) -> Any:
    """Load a word with acquire ordering."""
    return _define(2, lambda b, a: b.load_atomic(_word_pointer(b, *a), "acquire", 8))


def _call(builder: Any, args: Any, result: Any = I64) -> Any:
    kind = ir.FunctionType(result, [I64] * (len(args) - 1))
    return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])


@_intrinsic
def call0(typing: Any, function: Any) -> Any:
    """Call `int32 function()` at an address and forget the result."""
    return _define(1, lambda b, a: _call(b, a, I32), types.void)


@_intrinsic
def ask0(typing: Any, function: Any) -> Any:
    """Call `int64 function()` at an address."""
    return _define(1, _call)


@_intrinsic
def call1(typing: Any, function: Any, x: Any) -> Any:
    """Call `int64 function(int64)` at an address."""
    return _define(2, _call)


@_intrinsic
def ask_clock(typing: Any, function: Any, clock: Any, words: Any) -> Any:
    """Call `int32 function(int32, int64)` at an address: clock_gettime, which writes two words."""

    def emit(builder: Any, args: Any) -> Any:
        kind = ir.FunctionType(I32, [I32, I64])
        at = builder.inttoptr(args[0], kind.as_pointer())
        return builder.sext(builder.call(at, [builder.trunc(args[1], I32), args[2]]), I64)

    return _define(3, emit)


@_intrinsic
def call3(typing: Any, function: Any, x: Any, y: Any, z: Any) -> Any:
    """Call `void function(int64, int64, int64)` at an address."""
    return _define(4, lambda b, a: _call(b, a, ir.VoidType()), types.void)


@_intrinsic
def stack_words(typing: Any) -> Any:
    """The address of 8 words in this function's stack frame."""
    kind = ir.ArrayType(I64, 8)
    return _define(0, lambda b, a: b.ptrtoint(cgutils.alloca_once(b, kind), I64))


def _process_global(builder: Any) -> Any:
    found = builder.module.globals.get(PROCESS_BLOCK)
    if found is None:
        found = ir.GlobalVariable(builder.module, I64, PROCESS_BLOCK)
        found.linkage = "common"
        found.initializer = I64(0)
    return found


@_intrinsic
def process_block(typing: Any) -> Any:
    """The address that `set_process_block` stored."""
    return _define(0, lambda b, a: b.load(_process_global(b)))


@_intrinsic
def set_process_block(typing: Any, address: Any) -> Any:
    """Tell the object where the process block is, once, before anything else."""
    return _define(1, lambda b, a: b.store(a[0], _process_global(b)), types.void)


@_intrinsic
def pause(typing: Any) -> Any:
    """Tell the processor that this is a spin loop (x86 only, elsewhere nothing)."""

    def emit(builder: Any, args: Any) -> None:
        if binding.get_process_triple().startswith(("x86", "i386", "i686")):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])

    return _define(0, emit, types.void)
