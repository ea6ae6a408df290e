"""Orders in which an assembler may lay the instructions of a block, from the leanest to the most eager.

    ld a; ld b; f a; g b        late: ld a; f a; ld b; g b        early: ld a; ld b; f a; g b

Both keep every instruction behind what it waits for.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jstitch.codegen.cuda.ptx.flatten import Flat, Instruction, Label

_NAME = re.compile(r"[%$A-Za-z_][\w$]*#\d+")
_NO_RESULT = re.compile(r"(?:st|red|bar|barrier|bra|ret|exit|membar|fence|prefetch|cp|trap|griddepcontrol)\b")
_ENDS = re.compile(r"(?:bra|ret|exit)\b")
_EFFECT = "effect"
_ORDERED = ("ld.shared", "shfl", "atom", "vote")


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other. successors: numbers of the blocks that may come next."""

    code: tuple[Instruction, ...]
    successors: tuple[int, ...]


def blocks_of(flat: Flat) -> list[Block]:
    """Cut at labels and after branches."""
    runs: list[list[Instruction]] = [[]]
    starts: dict[str, int] = {}
    for step in flat.code:
        if isinstance(step, Label):
            if runs[-1]:
                runs.append([])
            starts[step.name] = len(runs) - 1
        else:
            runs[-1].append(step)
            if _ENDS.match(step.opcode):
                runs.append([])
    return [Block(tuple(run), tuple(_next(run, i, len(runs), starts))) for i, run in enumerate(runs)]


def _next(run: list[Instruction], position: int, count: int, starts: dict[str, int]) -> Iterator[int]:
    last = run[-1] if run else None
    ends = last is not None and _ENDS.match(last.opcode)
    if last is not None and last.opcode.startswith("bra"):
        yield starts[last.operands[0]]
    if (not ends or (last is not None and last.guard is not None)) and position + 1 < count:
        yield position + 1


def names(operands: Iterable[str]) -> list[str]:
    """The registers in these operands."""
    return [name for operand in operands for name in _NAME.findall(operand)]


def results(step: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    return [] if _NO_RESULT.match(step.opcode) else names(step.operands[:1])


def sources(step: Instruction) -> list[str]:
    """The registers that an instruction reads. Where a guard may skip it, the old result is one."""
    read = step.operands if _NO_RESULT.match(step.opcode) else step.operands[1:]
    guard = [] if step.guard is None else [step.guard, *results(step)]
    return [*names(read), *guard]


def is_load(step: Instruction) -> bool:
    return step.opcode.startswith("ld.global")


def early(block: Block) -> Block:
    """All that is ready goes at once: as many results are begun side by side as there are."""
    missing, users = _dependences(block.code)
    depth = [0] * len(block.code)
    ready = [n for n, count in enumerate(missing) if not count]
    for number in ready:
        for user in users[number]:
            depth[user] = max(depth[user], depth[number] + 1)
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    order = sorted(range(len(depth)), key=lambda n: (depth[n], n))
    return Block(tuple(block.code[n] for n in order), block.successors)


def late(block: Block) -> Block:
    """The block in an order that needs few registers.

    What became ready last goes first, so that one result is finished before the next is begun; loads go only
    when nothing else can.
    """
    missing, users = _dependences(block.code)
    now = [n for n, step in enumerate(block.code) if not missing[n] and not is_load(step)][::-1]
    later = [n for n, step in enumerate(block.code) if not missing[n] and is_load(step)]
    code: list[Instruction] = []
    while now or later:
        number = now.pop() if now else heapq.heappop(later)
        code.append(block.code[number])
        for user in reversed(users[number]):
            missing[user] -= 1
            if missing[user]:
                continue
            if is_load(block.code[user]):
                heapq.heappush(later, user)
            else:
                now.append(user)
    return Block(tuple(code), block.successors)


def _dependences(code: tuple[Instruction, ...]) -> tuple[list[int], list[list[int]]]:
    """How many instructions each one waits for, and which ones wait for it.

    An instruction waits for its sources; one with an effect (a store, a barrier) for the effect before it.
    """
    missing = [0] * len(code)
    users: list[list[int]] = [[] for _ in code]
    made: dict[str, int] = {}
    for number, step in enumerate(code):
        effect = [_EFFECT] if not results(step) or step.opcode.startswith(_ORDERED) else []
        for before in {made[name] for name in (*sources(step), *effect) if name in made}:
            users[before].append(number)
            missing[number] += 1
        made |= dict.fromkeys((*results(step), *effect), number)
    return missing, users
