"""Let a kernel write a result in the memory of an argument that the caller, or a loop's last turn, gave away.

    p_new = p - lr * m, p donated   ->   one buffer: each element is loaded, then stored, at one index

Only when every load of the argument is in the loop nest that stores the result, at the same offsets and
before the store: then no element is read after it was overwritten, whatever other programs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jstitch.codegen.kernel_ir import Buffer, Kernel, Load, Nest, Store
from jstitch.ir.graph import Graph, Value
from jstitch.passes.absorb_updates import contracted
from jstitch.passes.plan import FusionPattern
from jstitch.passes.rewrite import is_control


def carried_by_loops(graph: Graph) -> dict[Value, Value]:
    """What each turn of a loop is given -> what it hands to the next turn in the same memory."""
    bodies = (op.regions[-1] for op in graph.walk() if is_control(op) and op.regions)
    return {v: new for body in bodies for v, new in zip(body.inputs, body.outputs, strict=False)}


def alias_donated(kernel: Kernel, pattern: FusionPattern, donated: Mapping[Value, Value]) -> Kernel:
    """The kernel with `aliases` for those donated inputs whose output it computes safely in place."""
    aliases: dict[int, int] = {}
    touching = _nests_by_buffer(kernel)
    inputs, _, outputs = contracted(pattern)
    for number, value in enumerate(inputs):
        output = donated.get(value)
        if output in outputs and output is not None and output.type == value.type:
            result = list(outputs).index(output)
            if _is_safe(touching, kernel.args[number], kernel.results[result]):
                aliases[result] = number
    return replace(kernel, aliases={**kernel.aliases, **aliases})


def _is_safe(nests: Mapping[Buffer, list[Nest]], arg: Buffer, result: Buffer) -> bool:
    touching = [*nests.get(arg, ()), *nests.get(result, ())]
    if not touching or any(nest is not touching[0] for nest in touching):
        return False
    stored: set[object] = set()
    loaded: set[object] = set()
    for instr in (*touching[0].body, *touching[0].after):
        match instr:
            case Load(_, buffer, offset, _) if buffer is arg:
                if offset in stored:
                    return False
                loaded.add(offset)
            case Load(_, buffer, _, _) if buffer is result:
                return False
            case Store(buffer, offset, _, _) if buffer is result:
                stored.add(offset)
    return loaded == stored


def _nests_by_buffer(kernel: Kernel) -> dict[Buffer, list[Nest]]:
    """The nests that load or store each buffer."""
    found: dict[Buffer, list[Nest]] = {}
    for phase in kernel.phases:
        for nest in (nest for lane in phase.lanes for stage in lane.stages for nest in stage.nests):
            instructions = (i for i in (*nest.body, *nest.after) if isinstance(i, Load | Store))
            for buffer in dict.fromkeys(i.buffer for i in instructions):
                found.setdefault(buffer, []).append(nest)
    return found
