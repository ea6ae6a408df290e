"""Flat code -> program: basic blocks of Python functions, each with its end.

@%p1 st.global.f32 [%rd1], %f1      ->  a block of its own, jumped over where %p1 is false
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jstitch.codegen.cuda.ptx.access import move
from jstitch.codegen.cuda.ptx.carry import CarryForm, find_carry_form
from jstitch.codegen.cuda.ptx.copies import copy
from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.ptx.flatten import Flat, Instruction, Label
from jstitch.codegen.cuda.ptx.form import Form, find_form
from jstitch.codegen.cuda.ptx.frame import Frame, Read, Run
from jstitch.codegen.cuda.ptx.matrices import is_of_warp, multiply
from jstitch.codegen.cuda.ptx.operand import Operands
from jstitch.codegen.cuda.ptx.warp import is_meeting, meet

_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync", "barrier.sync.aligned")
_NOTHING = ("membar.cta", "membar.gl", "fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.proxy.async")


@dataclass(frozen=True)
class Barrier:
    """bar.sync number, count. count None: the whole CTA."""

    number: Read
    count: Read | None


@dataclass
class Block:
    """Runs `steps`, then the barrier, then goes to `target` where the guard holds, else to the next block.

    meets: the first step waits for other lanes of the warp. cost: instructions of the text. needed: registers
    read before they are written. written: those that some block needs.
    """

    steps: list[tuple[Instruction, Run]] = field(default_factory=list)
    last: Instruction | None = None
    barrier: Barrier | None = None
    target: int | str | None = None
    guard: Read | None = None
    negated: bool = False
    meets: bool = False
    cost: int = 0
    needed: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """Blocks; a lane that leaves the last one, or goes to block len(blocks), has ended."""

    blocks: tuple[Block, ...]
    operands: Operands
    flat: Flat


def build(flat: Flat) -> Program:
    """The program. Raises PtxError at an instruction that is not supported."""
    operands = Operands(flat.registers, flat.symbols)
    for formal in flat.entry.formals:
        operands.parameter(formal, 0, "u64")
    blocks, labels = [Block()], {}
    for step in _single(flat):
        if isinstance(step, Label):
            _new_block(blocks, operands, bool(blocks[-1].steps or blocks[-1].last))
            labels[step.name] = len(blocks) - 1
            continue
        if is_meeting(step) or is_of_warp(step.opcode):
            _new_block(blocks, operands, bool(blocks[-1].steps))
            blocks[-1].meets = True
        try:
            ended = _add(blocks[-1], step, operands)
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise PtxError(f"instruction not understood: {error}", step.line, text=str(step)) from error
        if ended:
            _new_block(blocks, operands, True)
    _new_block(blocks, operands, True)
    blocks.pop()
    outlive = {number for block in blocks for number in block.needed}
    for block in blocks:
        block.written = tuple(number for number in block.written if number in outlive)
        if isinstance(block.target, str):
            block.target = _find(labels, block.target, len(blocks), block.last)
    return Program(tuple(blocks), operands, flat)


def _find(labels: dict[str, int], name: str, end: int, step: Instruction | None) -> int:
    if name == "exit":
        return end
    if name not in labels:
        raise PtxError(f"branches to {name}, which is no label", step.line if step else None, text=str(step))
    return labels[name]


def _new_block(blocks: list[Block], operands: Operands, wanted: bool) -> None:
    if wanted:
        blocks[-1].needed = tuple(operands.read_first)
        blocks[-1].written = tuple(operands.written)
        operands.new_block()
        blocks.append(Block())


def _single(flat: Flat) -> Iterator[Instruction | Label]:
    """The code with guards on branches and returns only."""
    for number, step in enumerate(flat.code):
        jumps = isinstance(step, Label) or step.opcode in ("bra", "bra.uni", "ret", "ret.uni", "exit")
        if isinstance(step, Label) or jumps or step.guard is None:
            yield step
            continue
        over = f"over {number}"
        yield Instruction(0, "bra", (over,), step.guard, not step.negated)
        yield Instruction(step.line, step.opcode, step.operands)
        yield Label(over)


def _add(block: Block, step: Instruction, operands: Operands) -> bool:
    """Append to the block; whether the instruction ends it. Raises ValueError."""
    block.cost += step.line > 0
    if step.opcode in ("bra", "bra.uni", "ret", "ret.uni", "exit"):
        block.last = step
        block.target = step.operands[0] if step.opcode.startswith("bra") else "exit"
        if step.guard is not None:
            block.guard, block.negated = operands.source(step.guard, "pred"), step.negated
        return True
    if step.opcode in _BARRIERS:
        block.last = step
        number, *count = (operands.source(text, "u32") for text in step.operands)
        block.barrier = Barrier(number, count[0] if count else None)
        return True
    if step.opcode not in _NOTHING:
        block.steps.append((step, _compile(step, operands)))
    return False


def _compile(step: Instruction, operands: Operands) -> Run:
    for find in (move, meet, multiply, copy):
        if run := find(step, operands):
            return run
    if found := find_form(step.opcode):
        return _pure(found, step, operands)
    if carry := find_carry_form(step.opcode):
        return _carry(carry, step, operands)
    raise PtxError(f"unknown instruction {step.opcode}", step.line, text=str(step))


def _pure(found: Form, step: Instruction, operands: Operands) -> Run:
    target, *texts = step.operands
    reads = [operands.source(text, name) for text, name in zip(texts, found.sources, strict=True)]
    first, _, second = target.partition("|")
    write, apply = operands.target(first.strip(), found.result), found.apply
    if second:
        write_second = operands.target(second.strip(), found.result)

        def run(frame: Frame) -> None:
            value = apply(*[read(frame) for read in reads])
            write(frame, value)
            write_second(frame, ~value)

        return run
    if len(reads) == 2:
        left, right = reads
        return lambda frame: write(frame, apply(left(frame), right(frame)))
    return lambda frame: write(frame, apply(*[read(frame) for read in reads]))


def _carry(found: CarryForm, step: Instruction, operands: Operands) -> Run:
    target, *texts = step.operands
    if len(texts) != found.arity:
        raise ValueError(f"expected {found.arity} sources")
    reads = [operands.source(text, found.type_name) for text in texts]
    operands.number("%cc", 32)
    reads.append(operands.source("%cc" if found.uses else "0", "u32"))
    write = operands.target(target, found.type_name)
    write_flag = operands.target("%cc" if found.sets else "_", "u32")

    def run(frame: Frame) -> None:
        result, flag = found.apply(*[read(frame) for read in reads])
        write(frame, result)
        write_flag(frame, flag)

    return run
