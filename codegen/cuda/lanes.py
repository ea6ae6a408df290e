"""Threads: their numbers, barriers, and shuffles within a warp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, scalar, widen
from jstitch.codegen.cuda.exchange import TEAM_BARRIERS
from jstitch.codegen.cuda.scalar import F32, Argument, Operand, index_kind

WORD = ir.IntType(32)
ALL = ir.Constant(WORD, -1)  # the lanes of a warp
WARP = 32


def _register(name: str, register: str) -> Function:
    """The special register as an index."""

    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        raw = builder.external(f"llvm.nvvm.read.ptx.sreg.{register}", WORD)
        kind = index_kind(builder)
        return Operand(kind, Value(builder, raw).resize(kind.bits, signed=True).raw)

    return Function(name, 0, emit)


def _barrier(builder: Builder, arguments: Sequence[Argument]) -> None:
    builder.external("llvm.nvvm.barrier0", ir.VoidType())


def _barrier_warp(builder: Builder, arguments: Sequence[Argument]) -> None:
    builder.external("llvm.nvvm.bar.warp.sync", ir.VoidType(), ALL)


def _barrier_team(builder: Builder, arguments: Sequence[Argument]) -> None:
    team, threads = (scalar("barrier_team", a) for a in arguments)
    if not isinstance(threads.number, int) or threads.number % WARP or threads.number <= 0:
        raise Misuse("a constant multiple of 32 threads in barrier_team", str(threads.number))
    if isinstance(team.number, int) and not 1 <= team.number <= TEAM_BARRIERS:
        raise Misuse(f"a barrier number from 1 to {TEAM_BARRIERS}", str(team.number))
    number = _word(builder, "barrier_team", team)
    builder.external("llvm.nvvm.barrier.sync.cnt", ir.VoidType(), number, ir.Constant(WORD, threads.number))


def _word(builder: Builder, name: str, argument: Argument) -> Any:
    index = widen(builder, name, argument, index_kind(builder))
    return Value(builder, index.raw).resize(32, signed=True).raw


def _exchange(builder: Builder, mode: str, x: Operand, lane: Any) -> Operand:
    """x of another lane: words of 32 bits travel."""
    value = x.value(builder)
    if x.kind == F32:
        return Operand(x.kind, _move(value, mode, lane).raw)
    bits = value.bits() if x.kind.is_float else value
    if bits.width <= 32:
        moved = _move(bits.resize(32, signed=False), mode, lane).resize(bits.width, signed=False)
    else:
        low = _move(bits.resize(32, signed=False), mode, lane).resize(64, signed=False)
        high = _move(bits.shift_down(32).resize(32, signed=False), mode, lane).resize(64, signed=False)
        moved = low | (high << 32)
    return Operand(x.kind, (moved.as_float() if x.kind.is_float else moved).raw)


def _move(word: Value, mode: str, lane: Any) -> Value:
    name = f"llvm.nvvm.shfl.sync.{mode}.{'f32' if word.is_float else 'i32'}"
    last = ir.Constant(WORD, WARP - 1)
    return Value(word.builder, word.builder.external(name, word.type, ALL, word.raw, lane, last))


def _shuffle_xor(builder: Builder, arguments: Sequence[Argument]) -> Operand:
    x, mask = (scalar("shuffle_xor", a) for a in arguments)
    if mask.number not in (1, 2, 4, 8, 16):
        raise Misuse("shuffle_xor(x, m) with a constant m of 1, 2, 4, 8 or 16", str(mask.number))
    return _exchange(builder, "bfly", x, ir.Constant(WORD, mask.number))


def _shuffle(builder: Builder, arguments: Sequence[Argument]) -> Operand:
    x = scalar("shuffle", arguments[0])
    return _exchange(builder, "idx", x, _word(builder, "shuffle", arguments[1]))


_EMITTERS: dict[str, tuple[int, Callable[[Builder, Sequence[Any]], Argument | None]]] = {
    "barrier": (0, _barrier),
    "barrier_warp": (0, _barrier_warp),
    "barrier_team": (2, _barrier_team),
    "shuffle_xor": (2, _shuffle_xor),
    "shuffle": (2, _shuffle),
}
FUNCTIONS = {
    "thread": _register("thread", "tid.x"),
    "block": _register("block", "ctaid.x"),
    **{name: Function(name, arity, emit) for name, (arity, emit) in _EMITTERS.items()},
}
