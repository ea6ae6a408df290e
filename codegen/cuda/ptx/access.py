"""ld, st, mov and cvta: instructions that move values between registers, parameters and memory."""

from __future__ import annotations

import re

import numpy as np

from jstitch.codegen.cuda.ptx.flatten import Instruction
from jstitch.codegen.cuda.ptx.frame import Frame, Run
from jstitch.codegen.cuda.ptx.memory import Access
from jstitch.codegen.cuda.ptx.operand import Operands, elements
from jstitch.codegen.cuda.ptx.scalar import DTYPES, UNSIGNED, width

_HINT = r"(?:\.(?:ca|cg|cs|lu|cv|wb|wt|L[12]::\w+))*"
_ACCESS = re.compile(
    r"(?P<name>ld|st)(?:\.volatile|\.weak)?(?:\.(?P<space>param|global|shared|local|const)(?:::\w+)?)?"
    rf"{_HINT}(?P<nc>\.nc)?{_HINT}(?:\.v(?P<count>[248]))?\.(?P<t>[busf](?:8|16|32|64))"
)
_MOVE = re.compile(
    r"(?:mov|cvta(?:\.to)?(?:\.(?:global|shared|local|const|param))?)\.(?P<t>pred|[busf](?:16|32|64))"
)


def move(step: Instruction, operands: Operands) -> Run | None:
    """What a ld, st, mov or cvta does, None for another instruction. Raises ValueError."""
    if found := _MOVE.fullmatch(step.opcode):
        return _move(step, operands, found["t"])
    if (found := _ACCESS.fullmatch(step.opcode)) is None:
        return None
    place, values = step.operands if found["name"] == "st" else step.operands[::-1]
    if found["space"] == "param" and not operands.is_indirect(place):
        return _parameters(found["name"], place, elements(values), operands, found["t"])
    space = found["space"] or "generic"
    count = int(found["count"] or 1)
    if count != len(elements(values)):
        raise ValueError(f"expected {count} registers")
    verb = "reads" if found["name"] == "ld" else "writes"
    access = Access(DTYPES[found["t"]], count, space, verb, found["nc"] is not None or space == "const")
    return (_load if verb == "reads" else _store)(place, elements(values), operands, found["t"], access)


def _load(place: str, registers: list[str], operands: Operands, type_name: str, access: Access) -> Run:
    address = operands.address(place)
    writes = [operands.target(register, type_name) for register in registers]

    def run(frame: Frame) -> None:
        for write, value in zip(writes, frame.memory.load(frame, address(frame), access), strict=True):
            write(frame, value)

    return run


def _store(place: str, values: list[str], operands: Operands, type_name: str, access: Access) -> Run:
    address = operands.address(place)
    reads = [operands.source(value, type_name) for value in values]
    return lambda frame: frame.memory.store(frame, address(frame), [read(frame) for read in reads], access)


def _parameters(name: str, place: str, values: list[str], operands: Operands, type_name: str) -> Run:
    moves = []
    for n, value in enumerate(values):
        pair = (operands.parameter(place, n, type_name), value)
        to, source = pair if name == "st" else pair[::-1]
        moves.append((operands.source(source, type_name), operands.target(to, type_name)))

    def run(frame: Frame) -> None:
        for read, write in moves:
            write(frame, read(frame))

    return run


def _move(step: Instruction, operands: Operands, type_name: str) -> Run:
    to, source = step.operands
    if to.startswith("{"):
        return _unpack(elements(to), source, operands, type_name)
    if source.startswith("{"):
        return _pack(to, elements(source), operands, type_name)
    read, write = operands.source(source, type_name), operands.target(to, type_name)
    return lambda frame: write(frame, read(frame))


def _part(type_name: str, count: int) -> str:
    return f"b{width(type_name) // count}"


def _unpack(targets: list[str], source: str, operands: Operands, type_name: str) -> Run:
    part = _part(type_name, len(targets))
    read, whole = operands.source(source, type_name), UNSIGNED[width(type_name)]
    writes = [operands.target(target, part) for target in targets]

    def run(frame: Frame) -> None:
        value = read(frame).view(whole)
        for n, write in enumerate(writes):
            write(frame, (value >> whole.type(n * width(part))).astype(DTYPES[part]))

    return run


def _pack(target: str, sources: list[str], operands: Operands, type_name: str) -> Run:
    part, whole = _part(type_name, len(sources)), UNSIGNED[width(type_name)]
    reads = [operands.source(source, part) for source in sources]
    write = operands.target(target, type_name)

    def run(frame: Frame) -> None:
        value = np.zeros(1, whole)
        for n, read in enumerate(reads):
            value = value | (read(frame).astype(whole) << whole.type(n * width(part)))
        write(frame, value.view(DTYPES[type_name]))

    return run
