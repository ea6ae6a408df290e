"""Ask XLA:GPU's compiler what it makes of a program: launches and bytes, matrix products included.

    Asker(spec, 20.0).costs(question)   ->   {"own": Cost(14, 41.1e6), "library": Cost(13, 25.8e6)}

Which kernels multiply the matrices is found out on the device, when XLA tries them; here each program is
compiled twice, once with XLA's own kernels wherever it has some, once with its library's.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.stages import Lowered

from jstitch.device_spec import DeviceSpec
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.measure import apart
from jstitch.frontend.probe import Program, as_function, make_program
from jstitch.ir.graph import Graph
from jstitch.ir.ops import KERNEL, OpClass, lookup
from jstitch.xla.compile import AnalysisError, compile_lowered, device_sharding
from jstitch.xla.launches import launches
from jstitch.xla.traffic import Traffic

WAYS: Mapping[str, bool] = {"own": False, "library": True}
"""Who multiplies matrices -> whether that is the library alone."""
OP_SECONDS = 0.005  # what XLA:GPU's compiler takes for an op, roughly: 3 to 8 ms in blocks of transformers


class UnansweredError(Exception):
    """XLA could not be asked; the message says why."""


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    launches: int
    nbytes: int

    def excess(self, other: Cost) -> float:
        """By what part it has more launches, and by what part more bytes, than the other."""
        pairs = (self.launches, other.launches), (self.nbytes, other.nbytes)
        return sum(max(0.0, mine / max(1, theirs) - 1.0) for mine, theirs in pairs)

    def seconds(self, spec: DeviceSpec) -> float:
        return self.launches * spec.launch_seconds + self.nbytes / spec.bandwidth

    def __str__(self) -> str:
        return f"{self.launches} launches and {self.nbytes / 1e6:.2f} MB"


@dataclass(frozen=True)
class Question:
    """A program. donated: argument -> the result in its memory. known: bytes of our kernels by entry.

    seconds: what compiling it takes, as estimated by its ops.
    """

    program: Program
    donated: Mapping[int, int]
    known: Mapping[str, Traffic]
    seconds: float

    @classmethod
    def of(cls, graph: Graph, donated: Mapping[int, int]) -> Question:
        program = make_program(graph, emit_kernel)
        return cls(program, donated, kernel_traffic(graph), compile_seconds(graph))


def compile_seconds(graph: Graph) -> float:
    """Of a graph; its constants take none."""
    return OP_SECONDS * sum(lookup(op.name).op_class is not OpClass.CONSTANT for op in graph.walk())


def kernel_traffic(graph: Graph) -> Mapping[str, Traffic]:
    kernels = (op for op in graph.walk() if op.name == KERNEL)
    return {entry: Traffic(*moved) for op in kernels for entry, moved in op.attrs["traffic"].items()}


class Asker:
    """For programs on a device like `spec`, until they would have taken `seconds` to compile.

    No clock is read: what is decided must not depend on what else the machine is doing.
    """

    def __init__(self, spec: DeviceSpec, seconds: float) -> None:
        self.spec = spec
        self.asked = 0
        self._left = seconds
        self._known: dict[Hashable, Cost | None] = {}

    def costs(self, question: Question, ways: Sequence[str] = tuple(WAYS)) -> Mapping[str, Cost]:
        """By each of the ways in which XLA compiles it. Raises UnansweredError when there is none in time."""
        if any(_key(question, way) not in self._known for way in ways):
            if self._left <= 0:
                raise UnansweredError("the time for asking XLA's compiler is over")
            self._left -= question.seconds  # of all ways: they are compiled beside one another
        with ThreadPoolExecutor(len(ways)) as pool:
            costs = pool.map(lambda way: self._cost(question, way), ways)
            found = {way: cost for way, cost in zip(ways, costs, strict=True) if cost is not None}
        if not found:
            raise UnansweredError("XLA's compiler refuses the program")
        return found

    def _cost(self, question: Question, way: str) -> Cost | None:
        key = _key(question, way)
        if key not in self._known:
            self._known[key] = self._compiled(question, way)
        return self._known[key]

    def _compiled(self, question: Question, way: str) -> Cost | None:
        self.asked += 1
        try:
            return apart(lambda _: _compiled(question, self.spec, way))
        except AnalysisError as error:
            if error.hint:  # nothing that another program would be spared
                raise UnansweredError(str(error)) from error
            return None


def _key(question: Question, way: str) -> Hashable:
    return question.program, tuple(question.donated.items()), way


def _compiled(question: Question, spec: DeviceSpec, way: str) -> Cost:
    program, sharding = question.program, device_sharding(spec)
    jitted: Any = jax.jit(as_function(program), donate_argnums=tuple(question.donated), keep_unused=True)
    avals = [
        jax.ShapeDtypeStruct(t.shape, t.dtype.numpy, sharding=sharding)  # type: ignore[no-untyped-call]
        for t in program.arguments
    ]
    return cost_of(jitted.trace(*avals).lower(lowering_platforms=("cuda",)), spec, way, question.known)


def cost_of(lowered: Lowered, spec: DeviceSpec, way: str, known: Mapping[str, Traffic]) -> Cost:
    """By XLA's compiler. known: bytes of our kernels by entry. Raises AnalysisError when it refuses."""
    made = compile_lowered(lowered, spec, library_gemms=WAYS[way])
    found, _ = launches(replace(made, known=known))
    moved = sum((launch.traffic * launch.times for launch in found), Traffic())
    return Cost(sum(launch.times for launch in found), moved.total)
