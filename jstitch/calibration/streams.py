"""The kernels that calibration times, and how: their calls in a loop of one program.

stream(n)     y = x + x, n elements          as much memory as arithmetic can be had for
chain(n, k)   k additions, one after the other
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.codegen.backend import KernelCall
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.build import add
from jstitch.ir.types import DType, TensorType
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import CPU
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.runtime.process_block import set_num_threads

FEW = 2
ROUNDS = 5
MOST_TURNS = 1 << 20

Step = Callable[..., Any]


def stream(elements: int, buffers: int = 1) -> KernelCall:
    """y = x + x for each of so many pairs of buffers."""
    return _kernel([[add(x, x)] for x in _inputs(elements, buffers)])


def chain(elements: int, additions: int) -> KernelCall:
    """One buffer, doubled so many times."""
    (x,) = _inputs(elements, 1)
    ops = [add(x, x)]
    while len(ops) < additions:
        ops.append(add(ops[-1].result, ops[-1].result))
    return _kernel([ops])


def _inputs(elements: int, count: int) -> list[Value]:
    return [Value(TensorType((elements,), DType.F32)) for _ in range(count)]


def _kernel(chains: list[list[Op]]) -> KernelCall:
    ops = [op for chain in chains for op in chain]
    inputs = [chain[0].operands[0] for chain in chains]
    kernel = lower_kernel("calibration", ops, inputs, [chain[-1].result for chain in chains], CPU)
    (call,) = CpuBackend().build(schedule_kernel(kernel, Context(CompileOptions(), CPU)), None).calls
    return call


def looped(call: KernelCall) -> Step:
    """(turns, *operands): so many calls, one after the other."""
    results = [
        jax.ShapeDtypeStruct(b.type.shape, b.type.dtype.numpy)  # type: ignore[no-untyped-call]
        for b in call.results
    ]
    target = jax.ffi.ffi_call(call.target, results, has_side_effect=True)

    def turns(count: Any, *operands: Any) -> Any:
        def body(k: Any, carried: Any) -> Any:
            target(*operands, **call.config)
            return carried

        return jax.lax.fori_loop(0, count, body, np.int32(0))

    return jax.jit(turns)


def seconds_per_call(call: KernelCall, budget: float) -> float:
    """Of one call inside a program, measured for about `budget` seconds."""
    operands = [jnp.zeros(b.type.shape, b.type.dtype.numpy) for b in call.operands]
    return seconds_per_turn(looped(call), operands, budget)


def seconds_per_turn(step: Step, operands: list[Any], budget: float) -> float:
    """The least time of many turns less that of few, per turn: no dispatch, no new memory, no other's work.

    Neither is ever half of so long a run; where a busy machine makes them so, that half is what counts.
    """

    def taken(turns: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(step(turns, *operands))  # type: ignore[no-untyped-call]
        return time.perf_counter() - start

    def least(turns: int) -> float:
        return min(taken(turns) for _ in range(ROUNDS))

    few, turns = least(FEW), 2 * FEW
    while (many := least(turns)) < budget / ROUNDS / 2 and turns < MOST_TURNS:
        turns *= 2
    return max((many - few) / (turns - FEW), many / turns / 2)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """At most so many threads per kernel inside the block."""
    old = set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(old)
