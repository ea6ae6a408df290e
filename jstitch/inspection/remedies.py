"""What would lift each rule that keeps ops out of one kernel: the option to set, or the change to make.

remedy(Reason("arena", ..., found=1048576, bound=4096))  ->  "set arena_bytes to at least 1,048,576, ..."
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jstitch.passes.base.plan import Reason

REMEDIES: Mapping[str, str] = {
    # -- ops that no pattern holds
    "contraction": (
        "none: matrix products and convolutions stay in XLA's library; what is before and after them is"
        " stitched. A product of a few rows may be written as a sum of products instead"
    ),
    "chain": (
        "none: what is made row by row between two products is one kernel; `without=('chains',)` undoes it"
    ),
    "recurrence": (
        "none where other elements' turns are needed; else a number of turns that is known when it is traced"
        " (lax.scan, fori_loop with constant bounds); `without=('recurrences',)` leaves all loops to XLA"
    ),
    "sort": (
        "none where a kernel sorts, and on GPUs; else an order by keys of single items, as `jnp.sort` has it;"
        " `without=('sorts',)` leaves all sorts to XLA"
    ),
    "alone": (
        "none needed: XLA's library is as quick with this product; what is before and after it is stitched"
    ),
    "product": "compute in float32 or bfloat16, without an `algorithm`, on a GPU at tf32's precision at most",
    "tiles": (
        "give the left operands a number of rows that a number from 12 to 64 divides, and rows that fit into"
        " a core's cache; what is before and after the products is stitched"
    ),
    "control": (
        "none: a kernel is not cut by a loop or branch; its regions are planned as frames of their own."
        " Unroll a short loop (jax.lax.scan(..., unroll=n)) to have its turns in one frame"
    ),
    "opaque": (
        "write the op in terms of ops that `jstitch ops` lists, or move it before or after what should be one"
        " kernel"
    ),
    "type": (
        "compute in a type that kernels have (bool, integers of 8 to 64 bits, floats); of complex numbers by"
        " ops that `docs/supported-ops.md` lists, or with the real and imaginary parts"
    ),
    "effect": "move the print, callback, send or unknown call before or after what should be one kernel",
    "counter": "none: XLA counts the turns of a loop, so that it need not ask the device at every turn",
    "library": "none needed: the library adds it up in the memory that a kernel would read",
    "constant": "none needed: the constant is an input of the kernel that reads it",
    "empty": "none needed: there is nothing to compute",
    "expression": (
        "write the op in terms of ops that `jstitch ops` lists, or convert its operands to a type that is"
        " listed for it"
    ),
    "in place": (
        "none: XLA writes the update into the operand's memory; donate the operand (donate_argnums) so that"
        " it is not copied"
    ),
    "turns": "none needed: of two kernels, each writes where the other one has read",
    "user": "take away the jstitch.no_fuse or jstitch.fuse_together that it names",
    "pinned": "plan without CompileOptions(plan=...), and save the plan again (`jstitch plan --save`)",
    # -- schedules
    "schedule": (
        "sum over the same side of the tensor in both ops (transpose one of them), or try planner='ilp' or"
        " 'dp', which also put ops of different rows into one kernel"
    ),
    "blocks": "give the result at least {bound} independent rows, or try planner='dp'",
    "gave up": "try planner='dp' or 'ilp', which look at the whole frame instead of one layer at a time",
    "roof": "none: a matrix product lies between; the ops wait for it",
    "size": "none: {bound} ops is the most; split the function where little data crosses",
    "attempts": "none: no kernel holds both; split the function where little data crosses",
    "not emitable": "none: no kernel holds both",
    # -- plans
    "merge": "none needed by the model; tune='measure' asks a clock, planner='dp' looks at more plans",
    "cycle": "compute the op between them before or after both, so that one kernel need not wait for it",
    "trim": "none needed: the data is in memory without a kernel",
    "recompute": "none needed: reading would take longer than computing again",
    "prologue": "none needed: one small kernel makes such numbers for all that wait for them",
    "gate": (
        "tune='off' keeps every pattern, tune='measure' decides with a clock; more work per launch (larger"
        " arrays, more ops in one function) makes it pay"
    ),
    "loop": (
        "tune='off' keeps every pattern; larger arrays in the loop, or fewer turns that each do more (vmap, a"
        " scan over blocks), make kernels pay in it"
    ),
    "cut": (
        "see why the others around stay XLA's: those of complex numbers can be written with the real and"
        " imaginary parts, so that one kernel holds all; tune='off' keeps every pattern"
    ),
    "small": "none needed: arrays instead of scalars make kernels pay; tune='off' keeps every pattern",
    "measured": "tune='off' keeps every pattern; `jstitch library` shows, and forgets, what was measured",
    "asked": (
        "none needed: XLA makes the same in fewer launches or bytes, while it multiplies matrices;"
        " ask_seconds=0 takes the cost model's word instead"
    ),
    "scheme": "add the scheme that it needs to CompileOptions(schemes=...)",
    "candidates": "try planner='dp', which explores patterns from every op",
    "score": "none needed: by the model the pattern saves nothing",
    "selection": "none needed by the model: what was chosen instead saves more; tune='measure' checks that",
    "search": "none needed by the model; try planner='ilp', or tune='measure' to check it with a clock",
    # -- kernels
    "arena": "set arena_bytes to at least {found}, or None for the target's own; or make rows shorter",
    "shrinking": "take 'shrinking' from CompileOptions(without=...), or set arena_bytes to at least {found}",
    "shared memory": "make rows shorter or their elements narrower (bfloat16), or choose a GPU with more",
    "parameters": "hand over fewer, larger arrays: parts of one that XLA passes as one buffer",
    "template": "write the schedule as `jstitch explain` prints it, or leave the op out of the template",
    "lowering": "write the op that the reason names in another way; `jstitch ops` lists what kernels hold",
    "form": "split the function there, or set schemes without 'packing'",
}
"""By rule: a sentence that may speak of the reason's numbers as {found} and {bound}."""

CALL_REMEDIES: Mapping[str, str] = {
    "symbolic shapes": "jit with the shapes that arrive (jax.export without symbolic dimensions)",
    "an argument that is not one MLIR value": "pass plain arrays",
    "lowered into the middle of a block": "call the stitched function from jit, not from a lowering rule",
    "automatic SPMD": (
        "jit the whole step with jstitch.jit, its arrays on one mesh; or stitch what is inside a"
        " jax.shard_map: jax.shard_map(jstitch.jit(f), ...)"
    ),
    "shard_map leaves": "make all mesh axes manual (axis_names= of jax.shard_map)",
    "no backend": "lower for cpu or cuda",
    "the target option": "let the target option name what the program is lowered for, or leave it out",
    "lowered for cuda": "name a GPU: CompileOptions(target='h200')",
    "mutable references": "pass arrays, and return new ones",
    "nothing to compute": "none needed",
    "the background": "JSTITCH_STRICT=1 raises the error where it happens",
    "no pattern": "`jstitch explain` shows the reason of each edge; tune='off' keeps what can be stitched",
    "XLA's own program": "none needed: the record's details have the numbers; ask_seconds=0 asks nobody",
    "there are no ops": "none needed: an elementwise op that stands alone has nothing to be stitched to",
    "raced": "race_seconds=0 keeps what the model decides; `jstitch library` shows, and forgets, races",
    "no kernel": "tune='off' keeps every kernel; `jstitch library` shows what was measured",
}
"""By how the reason of a whole call begins."""

RAISED = "JSTITCH_STRICT=1 shows the traceback, JSTITCH_DUMP_DIR=<folder> the stages; it is a bug of ours"


def remedy(reason: Reason) -> str:
    """What would lift it. Raises KeyError for a rule that no pass has."""
    return str(replace(reason, text=REMEDIES[reason.rule]))


def call_remedy(reason: str) -> str:
    """What would let a whole call be stitched. reason: of its record; else it is what was raised."""
    return next((text for start, text in CALL_REMEDIES.items() if reason.startswith(start)), RAISED)
