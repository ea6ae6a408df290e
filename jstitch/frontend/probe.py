"""A graph as a compiled JAX program with arguments of its own, to be timed.

    program = make_program(graph, emit_kernel)              while lowering: StableHLO, in bytes
    step = Step(program, device, donated={0: 0}, turns=1)   compiled
    step.feed(arrays); step()                               one run, to the end

One primitive stands for every such program: its lowering puts the StableHLO into the module around it, so
that all the rest (compiling, calling, donating) is `jax.jit`'s own. Donated arguments are taken, for the next
call, from the results that were written in their memory. With `turns`, a loop runs the program that often per
call: what is too short to be told from a call's own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jstitch.frontend.exporter import EmitKernel, export_module
from jstitch.frontend.mlir import module_bytes, parse_module
from jstitch.frontend.outline import inline
from jstitch.ir.graph import Graph
from jstitch.ir.types import TensorType

JIT = jax.jit  # JAX's own, also where a program puts jstitch.jit in its place later
NAME = "measured"  # of the function of every such program
program_p: Any = Primitive("jstitch_program")
program_p.multiple_results = True


@dataclass(frozen=True)
class Program:
    """StableHLO with one function, and the types of its arguments and results."""

    code: bytes
    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


def make_program(graph: Graph, emit_kernel: EmitKernel | None = None) -> Program:
    """Of a graph of tensors. `jstitch.kernel` ops are written by `emit_kernel`, or else as their bodies."""
    arguments = tuple(v.tensor for v in graph.inputs)
    results = tuple(v.tensor for v in graph.outputs)
    return Program(module_bytes(export_module(graph, NAME, emit_kernel)), arguments, results)


def program_text(graph: Graph) -> str:
    """StableHLO text that depends on ops, types and attributes only: not on names or source lines."""
    return str(export_module(graph, NAME).operation.get_asm(enable_debug_info=False))


def _avals(*_: Any, program: Program) -> list[Any]:
    return [jax.core.ShapedArray(t.shape, t.dtype.numpy) for t in program.results]


def _lower(ctx: Any, *args: Any, program: Program) -> Sequence[Any]:
    module = ctx.module_context.module
    return inline(parse_module(program.code, module.context), NAME, args, module)


program_p.def_abstract_eval(_avals)
mlir.register_lowering(program_p, _lower)


@dataclass(frozen=True)
class Footprint:
    """Bytes that a compiled program holds while it runs: arguments, results, temporaries."""

    arguments: int
    others: int

    @property
    def nbytes(self) -> int:
        return self.arguments + self.others


class Step:
    """A compiled program; calling it runs it once, to the end, on the arguments given to `feed`."""

    def __init__(self, program: Program, device: Any, donated: Mapping[int, int], turns: int = 1) -> None:
        """donated: argument -> the result in its memory; both of one type. Compiles; allocates nothing."""
        self._donated = dict(donated)
        function = _looped(program, self._donated, turns) if turns > 1 else as_function(program)
        self._compiled = _lowered(function, program, device, tuple(self._donated)).compile()
        self._args: list[Any] = []

    @property
    def footprint(self) -> Footprint:
        found = self._compiled.memory_analysis()
        written = found.output_size_in_bytes - found.alias_size_in_bytes
        return Footprint(found.argument_size_in_bytes, written + found.temp_size_in_bytes)

    def feed(self, args: list[Any]) -> None:
        """Arrays of the arguments' types. What a call uses up is replaced in the list by its results."""
        self._args = args

    def __call__(self) -> None:
        results = jax.block_until_ready(self._compiled(*self._args))  # type: ignore[no-untyped-call]
        for argument, result in self._donated.items():
            self._args[argument] = results[result]


def compiled_text(program: Program, device: Any, options: Mapping[str, Any]) -> str:
    """The program after XLA's optimizations. options: of XLA's compiler."""
    lowered = _lowered(as_function(program), program, device, ())
    return str(lowered.compile(compiler_options=dict(options)).as_text())


def _lowered(function: Callable[..., Any], program: Program, device: Any, donated: tuple[int, ...]) -> Any:
    sharding = jax.sharding.SingleDeviceSharding(device)
    avals = [_aval(t, sharding) for t in program.arguments]
    jitted: Any = JIT(function, donate_argnums=donated, keep_unused=True)
    return jitted.lower(*avals)


def _aval(type_: TensorType, sharding: Any) -> Any:
    return jax.ShapeDtypeStruct(type_.shape, type_.dtype.numpy, sharding=sharding)  # type: ignore[no-untyped-call]


def as_function(program: Program) -> Callable[..., Any]:
    """What can be jitted."""
    return lambda *args: program_p.bind(*args, program=program)


def _looped(program: Program, donated: Mapping[int, int], turns: int) -> Callable[..., Any]:
    """`turns` runs in a row; the barrier keeps XLA from taking a run that never changes out of the loop."""

    def turn(state: Any) -> Any:
        count, args, _ = state
        count, args = lax.optimization_barrier((count, args))  # type: ignore[no-untyped-call]
        results = program_p.bind(*args, program=program)
        args = [results[donated[n]] if n in donated else arg for n, arg in enumerate(args)]
        return count + 1, args, results

    def function(*args: Any) -> Any:
        results = [jnp.zeros(t.shape, t.dtype.numpy) for t in program.results]
        start = (jnp.int32(0), list(args), results)
        return lax.while_loop(lambda state: state[0] < turns, turn, start)[2]

    return function
