"""The bytes that the memory-intensive part of a program must move: one kernel for each computation.

A computation is the program's entry, a loop's body (as often as the loop turns) or the branch of a
conditional. All memory-intensive kernels that XLA launches in it are taken as a single one, which reads its
inputs and writes its outputs once. Its inputs are the parameters and the results of matrix products, library
calls and inner loops; its outputs are what those, or the computation's result, take. So a tensor that
crosses between the memory-intensive part and a matrix product counts, in either direction, and one that only
passes from kernel to kernel does not. Of an input counts what the kernels need (slices, gathered rows), added
up and at most all of it; of an output that is an operand with a part replaced, the part. Plain copies compute
nothing and are free.

    a = fusion(p)   b = dot(a)   c = fusion(a, b)   d = fusion(c)   result d:   reads p, b   writes a, d

No program with a matrix product in the middle can reach it: what is used on both of the product's sides is
read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from jstitch.xla.hlo import Computation, Instruction, Operand
from jstitch.xla.launches import Program, own
from jstitch.xla.traffic import Traffic, reads, writes

Leaf = tuple[str, int]  # an instruction and the number of one array of its result
_PASSES_ON = frozenset(("bitcast", "copy-done"))


def least(program: Program) -> Traffic:
    """Of one run. A loop whose trips are unknown counts once, as in `launches`."""
    return _walk(program, program.module.entry)


def _walk(program: Program, computation: str) -> Traffic:
    scope = program.module.computations[computation]
    total = _Part(program, scope).traffic
    for instruction in scope.instructions.values():
        if instruction.opcode == "while":
            total += _loop(program, instruction)
        elif instruction.branches:
            total += max((_walk(program, b) for b in instruction.branches), key=lambda t: t.total)
        elif instruction.opcode in ("call", "async-start"):
            for called in (*instruction.called, *filter(None, (instruction.attribute("to_apply"),))):
                total += _walk(program, called)
    return total


def _loop(program: Program, loop: Instruction) -> Traffic:
    body = _walk(program, loop.attribute("body"))
    if loop.trips is None:
        return body + _walk(program, loop.attribute("condition"))
    return body * loop.trips


@dataclass(frozen=True)
class _Part:
    """The memory-intensive kernels of one computation."""

    program: Program
    scope: Computation

    @cached_property
    def kernels(self) -> frozenset[str]:
        """Instructions whose launches are memory-intensive, without plain copies."""
        found = []
        for instruction in self.scope.instructions.values():
            kinds = {launch.kind for launch in own(self.program, self.scope, instruction, 1)}
            if kinds and kinds <= {"memory", "copy"} and not self.is_copy(instruction):
                found.append(instruction.name)
        return frozenset(found)

    def is_copy(self, instruction: Instruction) -> bool:
        """Whether the same bytes are moved elsewhere, not turned."""
        if instruction.opcode not in ("copy", "copy-start"):
            return False
        return {launch.kind for launch in own(self.program, self.scope, instruction, 1)} <= {"copy"}

    @property
    def traffic(self) -> Traffic:
        return Traffic(round(sum(self.read.values())), sum(self.written.values()))

    @property
    def read(self) -> dict[Leaf, float]:
        """Bytes of each input."""
        found: dict[Leaf, float] = defaultdict(float)
        for name in self.kernels:
            needed = reads(self.program.module, self.scope, self.scope.instructions[name])
            for operand, amount in needed.items():
                leaves = [leaf for leaf in self.leaves(operand) if leaf[0] not in self.kernels]
                for leaf in leaves:
                    found[leaf] = min(self.size(leaf), found[leaf] + amount / len(leaves))
        return found

    @property
    def written(self) -> dict[Leaf, int]:
        """Bytes of each output."""
        outputs = {leaf for leaf in self.taken() if leaf[0] in self.kernels}
        parts = {n: writes(self.program.module, self.scope, self.scope.instructions[n]) for n, _ in outputs}
        return {(name, number): parts[name][number] for name, number in outputs}

    def taken(self) -> Iterator[Leaf]:
        """What the computation's result and the instructions outside the part take."""
        yield from self.leaves(Operand(self.scope.root.name))
        for user in self.scope.instructions.values():
            outside = user.name not in self.kernels and not self.is_view(user)
            for operand in user.operands if outside else ():
                yield from self.leaves(operand)

    def is_view(self, instruction: Instruction) -> bool:
        named = instruction.opcode in ("tuple", "get-tuple-element") or instruction.opcode in _PASSES_ON
        return named or self.is_copy(instruction)

    def leaves(self, operand: Operand) -> Iterator[Leaf]:
        """The arrays behind an operand, through tuples, bitcasts and plain copies."""
        todo = [operand]
        while todo:
            part = todo.pop()
            source = self.scope.instructions[part.name]
            if source.opcode == "tuple":
                chosen = source.operands if part.leaf is None else (source.operands[part.leaf],)
                todo += reversed(chosen)
            elif source.opcode == "get-tuple-element":
                todo.append(Operand(source.operands[0].name, source.index))
            elif self.is_view(source):
                todo.append(source.operands[0])
            elif part.leaf is None:
                yield from ((source.name, number) for number in range(len(source.arrays)))
            else:
                yield source.name, part.leaf

    def size(self, leaf: Leaf) -> int:
        return self.scope.instructions[leaf[0]].arrays[leaf[1]].nbytes
