"""Small PTX texts around a body, for tests of the PTX interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jstitch.codegen.cuda.ptx import Counts, run_ptx

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<8>; .reg .b16 %rs<16>; .reg .b32 %r<32>; .reg .f32 %f<16>;
    .reg .b64 %rd<32>; .reg .f64 %fd<8>;
"""
CLASS = {2: "%rs", 4: "%r", 8: "%rd"}


def kernel(body: str, arguments: int, outside: str = "", limits: str = "") -> str:
    """Entry `k`. %rd20.. hold the arguments, %r31 the thread in the CTA, %r30 in the launch, %r29 the CTA."""
    formals = ", ".join(f".param .u64 k_{n}" for n in range(arguments))
    loads = "\n".join(f"    ld.param.u64 %rd{20 + n}, [k_{n}];" for n in range(arguments))
    start = "mov.u32 %r31, %tid.x; mov.u32 %r29, %ctaid.x; mov.u32 %r28, %ntid.x;"
    start += " mad.lo.s32 %r30, %r29, %r28, %r31;"
    head = f"{HEAD}{outside}\n.visible .entry k({formals}) {limits}"
    return f"{head}\n{{{REGISTERS}{loads}\n    {start}\n{body}\nret;\n}}"


def run(
    body: str,
    *arrays: np.ndarray,
    grid: int = 1,
    block: int = 32,
    shared: int = 0,
    outside: str = "",
    limits: str = "",
) -> Counts:
    """Run the body on the arrays, in place."""
    return run_ptx(kernel(body, len(arrays), outside, limits), "k", grid, block, shared, list(arrays))


def apply(step: str, result: str, *inputs: Sequence[Any] | np.ndarray, outside: str = "") -> np.ndarray:
    """Run the instructions on each element; {d} is the result's register, {a} {b} {c} {e} the inputs'."""
    values = [np.asarray(x) for x in inputs]
    out = np.zeros(len(values[0]), result)
    lines, names = [], {}
    for n, value in enumerate(values):
        size = value.itemsize
        names["abce"[n]] = name = f"{CLASS[size]}{n + 1}"
        lines.append(f"mad.wide.u32 %rd10, %r30, {size}, %rd{20 + n}; ld.global.b{size * 8} {name}, [%rd10];")
    names["d"] = target = f"{CLASS[out.itemsize]}9"
    store = f"mad.wide.u32 %rd10, %r30, {out.itemsize}, %rd{20 + len(values)};"
    lines.append(step.format(**names))
    lines.append(f"{store} st.global.b{out.itemsize * 8} [%rd10], {target};")
    run("\n".join(lines), *values, out, block=len(out), outside=outside)
    return out
