"""Run a module or a graph once, on this machine, through XLA: NumPy arrays in, NumPy arrays out.

run_program(program_of_module(module), args, device)              XLA's own
run_program(program_of_graph(graph, emit_kernel), args, device)   with kernels
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from jstitch.errors import JstitchError
from jstitch.frontend.exporter import EmitKernel
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.measure import apart
from jstitch.frontend.mlir import ir, module_bytes, parse_module
from jstitch.frontend.probe import NAME, Program, make_program, program_p
from jstitch.frontend.probe_inputs import describe_arguments, make_arguments
from jstitch.ir.graph import Graph
from jstitch.ir.types import TensorType

Arrays = Sequence[np.ndarray]
SETTINGS: Mapping[str, str | bool | int] = {}
"""XLA's debug options for everything that is run here."""


class ExecutionError(JstitchError):
    """XLA does not compile or run a program."""


@dataclass(frozen=True)
class Executable:
    """A program whose outputs may stand in another order. donated: argument -> output in its memory."""

    program: Program
    donated: Mapping[int, int]
    order: tuple[int, ...]


def program_of_module(module: ir.Module) -> Executable:
    """The module as it is. Raises ValueError without an entry function, or when it is not about tensors."""
    graph = import_module(module)
    _check_types(graph)
    copy = parse_module(module_bytes(module))
    with copy.context:
        _rename_functions(copy)
    arguments, results = (tuple(v.tensor for v in vs) for vs in (graph.inputs, graph.outputs))
    order = tuple(range(len(results)))
    return Executable(Program(module_bytes(copy), arguments, results), {}, order)


def program_of_graph(
    graph: Graph, emit_kernel: EmitKernel | None = None, donated: Mapping[int, int | None] | None = None
) -> Executable:
    """The graph's program. donated: inputs whose memory is given away -> the output that takes it.

    Raises ExecutionError when MLIR rejects it, ValueError when it is not about tensors.
    """
    _check_types(graph)
    pairs = [
        (argument, out)
        for argument, out in sorted((donated or {}).items())
        if out is not None and graph.inputs[argument].type == graph.outputs[out].type
    ]
    first = [out for _, out in pairs]
    order = (*first, *(n for n in range(len(graph.outputs)) if n not in first))
    ordered = Graph(graph.inputs, graph.ops, tuple(graph.outputs[n] for n in order))
    given = {argument: n for n, (argument, _) in enumerate(pairs)}
    try:
        return Executable(make_program(ordered, emit_kernel), given, order)
    except ir.MLIRError as error:
        raise ExecutionError("a graph that MLIR accepts", _first_lines(error)) from None


def run_program(
    executable: Executable, args: Arrays, device: Any, *, rounding: bool = False
) -> list[np.ndarray]:
    """Its results. rounding: XLA keeps every conversion to a narrow float, also where it could do without.

    Raises ExecutionError with XLA's reason.
    """
    found = apart(lambda _: _run(executable, args, device, rounding))
    return [found[executable.order.index(n)] for n in range(len(found))]


def _run(executable: Executable, args: Arrays, device: Any, rounding: bool) -> list[np.ndarray]:
    program = executable.program
    options = {**SETTINGS, **({"xla_allow_excess_precision": False} if rounding else {})}
    # Copies: what is given away must not be the caller's.
    arrays = [jax.device_put(np.array(a), device, may_alias=False) for a in args]
    call = partial(program_p.bind, program=program)
    jitted: Any = jax.jit(call, donate_argnums=tuple(executable.donated), keep_unused=True)
    try:
        results = jitted.lower(*arrays).compile(compiler_options=options)(*arrays)
        return [np.array(r) for r in jax.block_until_ready(results)]  # type: ignore[no-untyped-call]
    except (jax.errors.JaxRuntimeError, ir.MLIRError, NotImplementedError, ValueError) as error:
        raise ExecutionError("a program that XLA runs", _first_lines(error)) from None


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {'; '.join(lines[:2])}"


def _check_types(graph: Graph) -> None:
    values = [*graph.inputs, *graph.outputs]
    odd = next((v for v in values if not isinstance(v.type, TensorType)), None)
    if odd is not None:
        raise ValueError(f"Expected arguments and results that are tensors, found one of type {odd.type}.")


def _rename_functions(module: ir.Module) -> None:
    """Names that do not clash with those of the program around it; the entry's is NAME."""
    entry = entry_function(module)
    functions = [op for view in module.body.operations if (op := view.operation).name == entry.name]
    for function in sorted(functions, key=lambda function: function == entry):
        old = function.attributes["sym_name"].value
        new = NAME if function == entry else f"{NAME}_{old}"
        ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
        ir.SymbolTable.set_symbol_name(function, new)
    for name in ("arg_attrs", "res_attrs"):  # about donation and sharding, which are the caller's
        if name in entry.attributes:
            del entry.attributes[name]


def random_arguments(graph: Graph, seed: int, device: Any, *, positive: bool = False) -> list[np.ndarray]:
    """Of the right types: normally distributed floats, or in [0.1, 1); positions inside what they index."""
    random = np.random.default_rng(seed)
    found = []
    for argument in describe_arguments(graph):
        dtype = argument.type.dtype
        if dtype.is_float and not positive:
            found.append(random.standard_normal(argument.type.shape).astype(dtype.numpy))
        else:
            found.append(np.array(make_arguments([argument], device, int(random.integers(1 << 31)))[0]))
    return found
