"""From a tile to memory past the caches: whole lines by non-temporal vector stores.

    stream(b5, r * 3072, b6, 3072)   # 3072 bytes from the tile b6 to byte r * 3072 of b5
    end_streams()                    # what was streamed is in memory before anything that follows

A line that is written whole this way is not read first, and pushes nothing out of the caches. LLVM makes no
such stores from a loop over scalars, so the vectors are spelled out here. Bytes before the first whole line
and after the last one are written as usual, so no line is written both ways by two threads. Processors other
than x86 get ordinary vector stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from jstitch.codegen.cpu.declare import declare
from jstitch.codegen.cpu.processor import is_x86

LINE = 64  # bytes
_PIECES = (1, 2, 4, 8, 16, 32)  # every number below LINE is the sum of some
_BYTE, _WORD, _VOID = ir.IntType(8), ir.IntType(64), ir.VoidType()
_ADDRESS = _BYTE.as_pointer()
_FLUSH = "jstitch_flush"


@dataclass(frozen=True)
class _Writer:
    """Writes the function `void flush(target, source, count)`, of addresses and a number of bytes."""

    builder: Any
    target: Any
    source: Any

    def copy(self, kind: Any, offset: Any, align: int, line: bool = False) -> None:
        """One value of this type, `offset` bytes on; align: of its target."""
        b = self.builder
        source, target = (
            b.bitcast(b.gep(base, [offset], source_etype=_BYTE), kind.as_pointer())
            for base in (self.source, self.target)
        )
        store = b.store(b.load(source, align=1, typ=kind), target, align=align)
        if line:
            past_caches(store)

    def rest(self, sizes: Sequence[int], start: Any, count: Any) -> None:
        """Less than a line: the pieces that `count` consists of, from `start` on."""
        b = self.builder
        for size in sizes:
            with b.if_then(b.icmp_unsigned("!=", b.and_(count, _WORD(size)), _WORD(0))):
                self.copy(ir.VectorType(_BYTE, size), start, 1)
            start = b.add(start, b.and_(count, _WORD(size)))

    def lines(self, start: Any, count: Any) -> None:
        """`count` whole lines from `start` on, which is the beginning of one."""
        b = self.builder
        before = b.block
        head, body, after = (b.append_basic_block(name) for name in ("head", "line", "after"))
        b.branch(head)
        b.position_at_end(head)
        number = b.phi(_WORD)
        number.add_incoming(_WORD(0), before)
        b.cbranch(b.icmp_unsigned("<", number, count), body, after)
        b.position_at_end(body)
        offset = b.add(start, b.mul(number, _WORD(LINE)))
        self.copy(ir.VectorType(ir.IntType(32), LINE // 4), offset, LINE, line=True)
        number.add_incoming(b.add(number, _WORD(1)), body)
        b.branch(head)
        b.position_at_end(after)


def _flush(module: Any) -> Any:
    """The module's own function for it; written once."""
    found = module.globals.get(_FLUSH)
    if found is None:
        found = ir.Function(module, ir.FunctionType(_VOID, [_ADDRESS, _ADDRESS, _WORD]), _FLUSH)
        found.linkage = "internal"
        found.attributes.add("noinline")
        _write_flush(found)
    return found


def _write_flush(function: Any) -> None:
    target, source, count = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    writer = _Writer(b, target, source)
    first = b.and_(b.neg(b.ptrtoint(target, _WORD)), _WORD(LINE - 1))
    first = b.select(b.icmp_unsigned("<", count, first), count, first)
    writer.rest(_PIECES, _WORD(0), first)
    whole = b.lshr(b.sub(count, first), _WORD(LINE.bit_length() - 1))
    writer.lines(first, whole)
    done = b.add(first, b.mul(whole, _WORD(LINE)))
    writer.rest(_PIECES[::-1], done, b.sub(count, done))
    b.ret_void()


def _stream(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    base, offset, tile, count = arguments
    target, source = (builder.inttoptr(a, _ADDRESS) for a in (builder.add(base, offset), tile))
    builder.call(_flush(builder.module), [target, source, count])
    return context.get_dummy_value()


def stream() -> Any:
    """stream(base, byte_offset, tile, count): write `count` bytes at address `tile` past the caches."""
    typing = types.none(*[types.int64] * 4), _stream
    return declare("stream", 4, lambda *_: typing, stream.__doc__)


def past_caches(store: Any) -> None:
    """Have a store of a whole line go to memory, where the processor has such ones."""
    if is_x86():
        store.set_metadata("nontemporal", store.module.add_metadata([ir.IntType(32)(1)]))


def fence(builder: Any) -> None:
    """What went past the caches is in memory before anything that follows."""
    if is_x86():
        kind = ir.FunctionType(_VOID, [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", [], kind), [])


def _end_streams(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    fence(builder)
    return context.get_dummy_value()


def end_streams() -> Any:
    """end_streams(): what this thread streamed is visible to all before anything that follows."""
    return declare("end_streams", 0, lambda: (types.none(), _end_streams), end_streams.__doc__)
