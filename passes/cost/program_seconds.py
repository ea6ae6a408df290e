"""How long a program of XLA:CPU's takes, from what XLA made of it: its loops' turns, its kernels' work.

    while, 614 turns: {copy, fusion, fusion, jstitch call}    614 x (four starts, three kernels' work, a call)
    call xla_cpu_small_call: while, 614 turns: {...}          614 x work: all of it is one kernel

Libraries' work (matrix products, sorts, other people's calls) counts nothing: it is the same with our kernels
and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.ir.ops import lookup
from jstitch.passes.base.machine import Machine
from jstitch.passes.cost.call_seconds import work_seconds
from jstitch.xla.cpu_thunks import busy_cores, in_order, is_one_kernel, number_of, thunks_of
from jstitch.xla.hlo import Computation, Instruction, Module
from jstitch.xla.traffic import computed, traffic

_SEAMS = frozenset(("concatenate", "pad"))


@dataclass(frozen=True)
class ProgramSeconds:
    """The times of one program.

    calls: seconds of each call of ours, by number. turns: of loops of which XLA does not say it.
    spread: cores that work on what XLA starts by a queue, of which each keeps one busy.
    """

    module: Module
    machine: Machine
    calls: Sequence[float] = ()
    turns: int = 1
    spread: float = 1.0

    @property
    def whole(self) -> float:
        return self.computation(self.module.entry)

    def computation(self, name: str, one_kernel: bool = False) -> float:
        """Of one run. one_kernel: as part of one, so that nothing need be started."""
        scope = self.module.computations[name]
        thunks = thunks_of(scope)
        parts = [self._control(thunk, one_kernel) for thunk in thunks]
        control = sum(part for part in parts if part is not None)
        own = [thunk for thunk, part in zip(thunks, parts, strict=True) if part is None]
        queues = not one_kernel and not in_order(scope, thunks)
        work = sum(self._work(scope, t, one_kernel) / (self._spread(t) if queues else 1.0) for t in own)
        if one_kernel:
            return control + work
        if queues:
            return self.machine.queue + len(thunks) * self.machine.queued + control + work
        return len(thunks) * self.machine.in_order + control + work

    def _spread(self, thunk: Instruction) -> float:
        """Cores that work on it and on others at once."""
        return self.spread if busy_cores(thunk, self.machine.cores) == 1.0 else 1.0

    def _control(self, thunk: Instruction, one_kernel: bool) -> float | None:
        """Of what runs other computations; None of other thunks."""
        match thunk.opcode:
            case "while":
                trips = self.turns if thunk.trips is None else thunk.trips
                parts = thunk.attribute("body"), thunk.attribute("condition")
                return trips * sum(self.computation(part, one_kernel) for part in parts)
            case "call":
                return self.computation(thunk.attribute("to_apply"), one_kernel or is_one_kernel(thunk))
            case _ if thunk.branches:
                return sum(self.computation(b, one_kernel) for b in thunk.branches) / len(thunk.branches)
            case _:
                return None

    def _work(self, scope: Computation, thunk: Instruction, one_kernel: bool) -> float:
        """Of a kernel, which in one function with others is not divided among cores; or of a call."""
        if thunk.opcode == "custom-call":
            number = number_of(thunk)
            return 0.0 if number is None else self.calls[number]
        machine = self.machine
        cores = 1.0 if one_kernel else busy_cores(thunk, machine.cores)
        seam = 0.0 if one_kernel else machine.seam_cycles
        cycles = sum(_cycles(i, n, seam) for i, n in computed(self.module, scope, thunk).items())
        nbytes = traffic(self.module, scope, thunk).total
        return work_seconds(machine, cycles * machine.xla_cycles, nbytes, cores)


def _cycles(instruction: Instruction, elements: float, seam: float) -> float:
    """Of an instruction's work on so many elements. seam: of one of a concatenate or a pad."""
    if instruction.opcode in _SEAMS:
        return elements * seam
    definition = lookup("stablehlo." + instruction.opcode.replace("-", "_"))
    return elements * cpu_cpi(definition) if definition.op_class.is_elementwise else 0.0
