"""Bytes of global memory that one HLO instruction must read and write, at least.

fusion of x[4096,4096] -> row sums:  reads 64 MiB + writes 16 KiB
fusion that updates 1 row in place:  reads the row's new values, writes the row, not the whole array

Every operand counts once, however often the kernel reads it, and only the elements that the result needs:
what is sliced or gathered counts by the slices. An update of an operand (dynamic-update-slice, scatter) at
the end of a kernel is taken to happen in place, as XLA arranges where it can. Workspaces of library calls are
free.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from jstitch.xla.hlo import Array, Computation, Instruction, Module, Operand

_VIEWS = frozenset(("bitcast", "reshape"))
_PROPORTIONAL = frozenset(("reduce", "concatenate", "pad", "reduce-window", "broadcast", "get-tuple-element"))
_IN_PLACE = frozenset(("dynamic-update-slice", "scatter"))
# These need all of every operand: of `gather` and its like, of the positions and of the new values.
_WHOLE = frozenset(
    "dot convolution sort custom-call fft triangular-solve cholesky scatter gather dynamic-slice "
    "dynamic-update-slice".split()
)


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written in global memory."""

    read: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        return self.read + self.written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.written + other.written)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.read * times, self.written * times)


def traffic(module: Module, scope: Computation, instruction: Instruction) -> Traffic:
    """What `instruction` of computation `scope` moves, as a kernel of its own."""
    read = reads(module, scope, instruction)
    return Traffic(round(sum(read.values())), sum(writes(module, scope, instruction)))


def reads(module: Module, scope: Computation, instruction: Instruction) -> dict[Operand, float]:
    """The bytes that `instruction` reads of each operand."""
    kernel = _body(module, scope, instruction)
    read: dict[Operand, float] = {}
    for operand, parameter in zip(instruction.operands, kernel.computation.parameters, strict=True):
        share = kernel.needed[parameter.name] / max(1, parameter.elements)
        size = sum(array.nbytes for array in _arrays_of(scope, operand))
        read[operand] = max(read.get(operand, 0.0), share * size)
    return read


def writes(module: Module, scope: Computation, instruction: Instruction) -> tuple[int, ...]:
    """The bytes that `instruction` writes of each array of its result."""
    return _body(module, scope, instruction).written


def computed(module: Module, scope: Computation, instruction: Instruction) -> dict[Instruction, float]:
    """What `instruction` computes on its way, itself where it is no fusion: elements of each result."""
    kernel = _body(module, scope, instruction)
    return {i: kernel.needed[i.name] for i in kernel.computation.instructions.values()}


def _body(module: Module, scope: Computation, instruction: Instruction) -> _Body:
    if instruction.opcode == "fusion" and instruction.called:
        return _Body(module, module.computations[instruction.called[0]])
    sources = [_arrays_of(scope, operand) for operand in instruction.operands]
    return _Body(module, _alone(instruction, sources))


def _arrays_of(scope: Computation, operand: Operand) -> tuple[Array, ...]:
    arrays = scope.instructions[operand.name].arrays
    return arrays if operand.leaf is None else (arrays[operand.leaf],)


def _alone(instruction: Instruction, sources: list[tuple[Array, ...]]) -> Computation:
    """A computation that holds nothing but `instruction`: its own kernel."""
    names = [f"parameter.{i}" for i in range(len(sources))]
    parameters = [
        Instruction(name, "parameter", arrays, (), str(i), "", False)
        for i, (name, arrays) in enumerate(zip(names, sources, strict=True))
    ]
    body = Instruction(
        instruction.name,
        instruction.opcode,
        _results(instruction),
        tuple(Operand(name) for name in names),
        "",
        instruction.rest,
        True,
    )
    return Computation(instruction.name, {i.name: i for i in (*parameters, body)})


def _results(instruction: Instruction) -> tuple[Array, ...]:
    """The result's arrays without the workspace of a matrix product or a convolution, the last one: bytes."""
    arrays = instruction.arrays
    library = instruction.target.startswith(("__cublas", "__cudnn"))
    if library and len(arrays) > 1 and arrays[-1].dtype in ("s8", "u8"):
        return arrays[:-1]
    return arrays


@dataclass(frozen=True)
class _Body:
    """What one kernel computes."""

    module: Module
    computation: Computation

    def source(self, operand: Operand) -> Instruction:
        return self.computation.instructions[operand.name]

    @cached_property
    def leaves(self) -> tuple[Instruction, ...]:
        """The instructions whose results leave the kernel."""
        root = self.computation.root
        return tuple(map(self.source, root.operands)) if root.opcode == "tuple" else (root,)

    @property
    def written(self) -> tuple[int, ...]:
        """Bytes of each array of the result."""
        return tuple(n for leaf in self.leaves for n in self.sizes(leaf))

    def sizes(self, leaf: Instruction) -> tuple[int, ...]:
        return tuple(a.nbytes for a in (self.update(leaf) if self.in_place(leaf) else leaf).arrays)

    def in_place(self, leaf: Instruction) -> bool:
        """Whether a result is an operand of the kernel with a part of it replaced."""
        if leaf.opcode not in _IN_PLACE or len(leaf.arrays) > 1:
            return False
        source = self.source(leaf.operands[0])
        while source.opcode in _VIEWS:
            source = self.source(source.operands[0])
        return source.opcode == "parameter"

    def update(self, user: Instruction) -> Instruction:
        """The new values of a dynamic-update-slice or a scatter."""
        return self.source(user.operands[1 if user.opcode == "dynamic-update-slice" else -1])

    @cached_property
    def needed(self) -> dict[str, float]:
        """Elements of each instruction's result that the kernel's results need, at most all of them."""
        needed: dict[str, float] = defaultdict(float)
        needed |= {leaf.name: float(leaf.elements) for leaf in self.leaves}
        for user in reversed(self.computation.instructions.values()):
            if user.root and user.opcode == "tuple":
                continue
            for position, operand in enumerate(user.operands):
                source = self.source(operand)
                amount = self.demand(user, position, source, needed[user.name])
                needed[source.name] = min(source.elements, needed[source.name] + amount)
        return needed

    def demand(self, user: Instruction, position: int, source: Instruction, wanted: float) -> float:
        """Elements of operand number `position` that `wanted` elements of `user` need."""
        everything = float(source.elements) if wanted else 0.0
        match user.opcode:
            case "dynamic-update-slice" | "scatter" if position == 0:
                return self.demand_of_base(user, wanted)
            case "slice" | "dynamic-slice" | "gather" if position == 0:
                return wanted
            case opcode if opcode in _PROPORTIONAL or len(source.arrays) > 1:
                return source.elements * wanted / max(1, user.elements)
            case opcode if opcode in _WHOLE:
                return everything
            case _:
                return min(wanted, everything)

    def demand_of_base(self, user: Instruction, wanted: float) -> float:
        """Of the array that is updated: in place, what the update is combined with, else what is wanted."""
        if not (user in self.leaves and self.in_place(user)):
            return wanted
        combiner = self.module.computations.get(user.attribute("to_apply"))
        combines = combiner is not None and combiner.root.opcode != "parameter"
        return self.update(user).elements if combines else 0
