"""The functions that CPU kernels call, as Numba intrinsics: `codegen.intrinsics`, memory, and words of bf16.

Each one writes straight-line LLVM IR, so that the loop around it vectorises; how is in the sibling modules.
They run inside compiled code only.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from numba.core import types

from jstitch.codegen.cpu import (
    conversion,
    convert,
    declare,
    flush,
    integer,
    memory,
    micro_kernel,
    radix_sort,
    vector_writer,
)
from jstitch.codegen.cpu.declare import common, emitter, indices
from jstitch.codegen.cpu.expression import select as _select
from jstitch.codegen.intrinsics import INTRINSICS, Intrinsic, declared


def _type_select(condition: Any, yes: Any, no: Any) -> tuple[Any, Any]:
    """select(p, a, b): a where p, else b; both are computed."""
    result = common("select", yes, no)
    return result(types.boolean, result, result), emitter(_select)


_OWN = {
    "select": declare.declare("select", 3, _type_select, _type_select.__doc__),
    "quotient": indices("quotient", 2, integer.quotient),
    "remainder_pos": indices("remainder_pos", 2, integer.remainder_of_index),
    "clamp_index": indices("clamp_index", 3, integer.clamp_index),
    **{f"load_{name}": memory.load(name) for name in conversion.STORAGE},
    **{f"store_{name}": memory.store(name) for name in conversion.STORAGE},
    "prefetch": memory.prefetch(),
    "stream": flush.stream(),
    "end_streams": flush.end_streams(),
    "sort_items": radix_sort.sort(),
    **{
        f"multiply_{left}_{right}": micro_kernel.multiply(left, right)
        for left, right in itertools.product(vector_writer.ELEMENTS, repeat=2)
    },
    **{f"convert_{name}": conversion.conversion(name) for name in conversion.STORAGE},
    **{
        f"bitcast_{name}": conversion.bitcast(name)
        for name, form in conversion.STORAGE.items()
        if form.narrow is None and name != "bool"
    },
    "convert_tf32": conversion.of_singles("convert_tf32", convert.convert_tf32),
    "low_bf16": conversion.of_words("low_bf16", convert.low_bf16),
    "high_bf16": conversion.of_words("high_bf16", convert.high_bf16),
    "pack_bf16": conversion.to_words("pack_bf16", convert.pack_bf16),
}


def __getattr__(name: str) -> Any:
    """What `import` finds. Raises AttributeError for what is no function of CPU kernels."""
    if name in _OWN:
        return _OWN[name]
    row = INTRINSICS.get(name)
    if row is None or row.cpu is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _typed(row)


def functions() -> dict[str, Any]:
    """All of them, by name."""
    return {**_OWN, **{name: _typed(row) for name, row in INTRINSICS.items() if row.cpu is not None}}


@cache
def _typed(row: Intrinsic) -> Any:
    """The row as a Numba intrinsic."""
    assert row.cpu is not None
    return declared(row, row.cpu, declare)
