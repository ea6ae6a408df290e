"""Let a kernel write a result in the memory of an argument that the caller, or a loop's last turn, gave away.

    p_new = p - lr * m, p donated   ->   one buffer: each element is loaded, then stored, at one index

Only when every load of the argument is in an earlier phase, or in the loop nest that stores the result, at
the same offsets and before the store: then no element is read after it was overwritten, whatever other
programs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jstitch.codegen.kernel_ir import Buffer, Kernel, Load, Nest, Store
from jstitch.ir.graph import Graph, Value
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.fuse.absorb_updates import contracted


@dataclass(frozen=True)
class _Touch:
    """A nest that loads or stores a buffer, and its phase."""

    phase: int
    nest: Nest
    stores: bool


def carried_by_loops(graph: Graph) -> dict[Value, Value]:
    """What each turn of a loop is given -> what it hands to the next turn in the same memory."""
    bodies = (op.regions[-1] for op in graph.walk() if is_control(op) and op.regions)
    return {v: new for body in bodies for v, new in zip(body.inputs, body.outputs, strict=False)}


def alias_donated(kernel: Kernel, pattern: FusionPattern, donated: Mapping[Value, Value]) -> Kernel:
    """The kernel with `aliases` for those donated inputs whose output it computes safely in place.

    An argument that an update takes already stays the update's.
    """
    aliases: dict[int, int] = {}
    touching = _nests_by_buffer(kernel)
    inputs, _, outputs = contracted(pattern)
    for number, value in enumerate(inputs):
        output = None if number in kernel.aliases.values() else donated.get(value)
        if output in outputs and output is not None and output.type == value.type:
            result = list(outputs).index(output)
            if _is_safe(touching, kernel.args[number], kernel.results[result]):
                aliases[result] = number
    return replace(kernel, aliases={**kernel.aliases, **aliases})


def _is_safe(nests: Mapping[Buffer, list[_Touch]], arg: Buffer, result: Buffer) -> bool:
    storing = [touch for touch in nests.get(result, ()) if touch.stores]
    if len(storing) != 1:
        return False
    phase, nest = storing[0].phase, storing[0].nest
    late = [touch for touch in nests.get(arg, ()) if touch.phase >= phase]
    early = [touch for touch in nests[result] if touch.phase <= phase]
    return all(touch.nest is nest for touch in (*late, *early)) and _overwrites(nest, arg, result)


def _overwrites(nest: Nest, arg: Buffer, result: Buffer) -> bool:
    """Whether the nest loads no element of the argument but the one that it stores next."""
    stored: set[object] = set()
    loaded: set[object] = set()
    for instr in nest.instructions:
        match instr:
            case Load(_, buffer, offset, _) if buffer is arg:
                if offset in stored:
                    return False
                loaded.add(offset)
            case Load(_, buffer, _, _) if buffer is result:
                return False
            case Store(buffer, offset, _, _) if buffer is result:
                stored.add(offset)
    return not loaded or loaded == stored


def _nests_by_buffer(kernel: Kernel) -> dict[Buffer, list[_Touch]]:
    """The nests that load or store each buffer."""
    found: dict[Buffer, list[_Touch]] = {}
    for number, phase in enumerate(kernel.phases):
        for nest in (nest for lane in phase.lanes for stage in lane.stages for nest in stage.nests):
            stored = {i.buffer for i in nest.instructions if isinstance(i, Store)}
            loaded = {i.buffer for i in nest.instructions if isinstance(i, Load)}
            for buffer in stored | loaded:
                found.setdefault(buffer, []).append(_Touch(number, nest, buffer in stored))
    return found
