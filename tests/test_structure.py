"""The shape of the code: who imports whom, where JAX's private names and op names may stand, file sizes."""

from __future__ import annotations

import ast
import functools
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400

# Each room may import the ones before it. `errors` and `options` are the ground floor that every room stands
# on; `_jax` is a leaf that only names JAX.
ROOMS = (
    "jstitch.errors",
    "jstitch.device_spec",  # names and numbers of GPUs, which options check
    "jstitch.template",  # what options check, too
    "jstitch.plan_file",  # a saved plan, which they check as well
    "jstitch.options",
    "jstitch._jax",
    "jstitch.ir",
    "jstitch.xla",
    "jstitch.runtime",
    "jstitch.codegen",
    "jstitch.passes.base",
    "jstitch.passes.graph",
    "jstitch.passes.schedule",
    "jstitch.passes.tile",
    "jstitch.passes.lower",
    "jstitch.passes.cost",
    "jstitch.passes.fuse",
    "jstitch.passes.chunk",
    "jstitch.passes.explore",
    "jstitch.passes",
    "jstitch.calibration",
    "jstitch.frontend",
    "jstitch.inspection",
    "jstitch.api",
    "jstitch.analysis",
    "jstitch",  # the facade
    "jstitch.demo",
    "jstitch.cli",
    "jstitch.__main__",
)

# (importing module, imported module): why not at the top
LAZY = {
    ("jstitch.ir.ops.special", "scipy.special"): "a third of `import jstitch`, only for the interpreter",
    ("jstitch.ir.node_graph", "networkx"): "a quarter of `import jstitch`, only to plan",
    ("jstitch.codegen.cpu.build", "jstitch.codegen.cpu.compile_kernel"): "numba, only for a cold build",
    ("jstitch.codegen.cuda.build", "jstitch.codegen.cuda.compile_kernel"): "numba, only for a cold build",
    ("jstitch.runtime.cpu_handler", "jstitch.runtime.native_handler"): "numba, only for a cold build",
    ("jstitch.runtime.cpu_handler", "jstitch.runtime.numba_compiler"): "numba, only for a cold build",
    ("jstitch.analysis.report", "jstitch.inspection.table"): "rich, only for printing",
    ("jstitch.api", "jstitch.inspection.twin"): "a twentieth of `import jstitch`, only to look",
    ("jstitch.inspection.program_plan", "jstitch.inspection.write_plan"): "tomlkit, only for saving",
    ("jstitch.inspection.explanation", "jstitch.inspection.table"): "rich, only for printing",
    ("jstitch.inspection.profile_file", "jstitch.inspection.profile_schema"): "protobuf, only for a profile",
    ("jstitch.inspection.trace_summary", "jstitch.inspection.table"): "rich, only for printing",
    ("jstitch.inspection.program_plan", "jstitch.inspection.table"): "rich, only for printing",
    ("jstitch.inspection.shown", "jstitch.inspection.table"): "rich, only for printing",
    ("jstitch", "jstitch.inspection.magic"): "IPython, which jstitch does not need",
    ("jstitch.runtime.tuning_session", "jstitch.runtime.progress"): "rich, only for showing a bar",
    ("jstitch.inspection.report.layout", "scipy.optimize"): "a third of a command's start, only for a report",
    ("jstitch.passes.planners", "jstitch.passes.explore.plan_ilp"): "SciPy's solver, only for planner='ilp'",
    ("jstitch.cli.inspect_dump", "jstitch.cli.show_timeline"): "numba, only for a timeline",
}

# file: op names that it spells although it is not the op table, and why
SPELLS_OPS = {
    "jstitch.codegen.intrinsics": "says which op each function of kernels computes",
    "jstitch.frontend.custom_call": "writes the custom call that a kernel becomes",
    "jstitch.inspection.reference": "keeps the types of two ops, convert and bitcast_convert",
    "jstitch.passes.chunk.write_chunks": "writes a while of slices and updates, and constants of fewer rows",
    "jstitch.passes.base.sort_order": "reads two ops, sort and top_k, and compare, or and and in it",
    "jstitch.passes.lower.sort_words": "writes keys as integers, by six ops of their bits",
    "jstitch.passes.lower.place_values": "looks for one op, gather",
    "jstitch.passes.graph.turn_region": "looks through one op, transpose",
    "jstitch.passes.graph.batch_gathers": "rewrites one op, gather, by an iota that it is given",
    "jstitch.passes.graph.chain_scatters": "rewrites sums, add, of scatters; dot_general is a sum",
    "jstitch.passes.graph.count_turns": "looks at the condition and the counter of one op, while",
    "jstitch.passes.graph.find_recurrence": "reads two ops, while and reduce_window, and sums, add, in it",
    "jstitch.passes.graph.turn_numbers": "knows how five ops of integers, and compare, go on",
    "jstitch.passes.graph.join_sums": "joins products, dot_general, whose sum, add, is in a while",
    "jstitch.passes.graph.keep_counters": "looks at the condition of one op, while",
    "jstitch.passes.graph.lead_products": "turns round sums, add, of products, dot_general",
    "jstitch.passes.graph.leave_sums": "finds sums, add, of products, dot_general, and broadcast_in_dim",
    "jstitch.passes.graph.leave_unset": "follows updates, dynamic_update_slice, in the body of a while",
    "jstitch.passes.graph.linearize_iotas": "knows how four ops of integers, convert among them, go on",
    "jstitch.passes.graph.merge_products": "joins ops of one kind, dot_general, in and around while",
    "jstitch.passes.graph.multiply_products": "writes one op, dot_general, as a multiply",
    "jstitch.passes.graph.narrow_products": "looks for converts, and multiply and divide by a number",
    "jstitch.passes.graph.reduce_products": "writes one op, dot_general, as two",
    "jstitch.passes.graph.rewrite_argmax": "recognises one reduction, and writes it as two",
    "jstitch.passes.graph.rewrite_one_hot_scatter": "recognises one op, scatter, in two forms",
    "jstitch.passes.fuse.find_copies": "reads stacks of a while, and their rows by slice and concatenate",
    "jstitch.passes.fuse.roll_loops": "writes counters, subtract, of a while",
    "jstitch.passes.graph.write_scatters": "recognises one op, scatter",
    "jstitch.passes.base.product_side": "names one op, dot_general",
    "jstitch.passes.base.thin_products": "recognises a sum of a multiply, through convert and transpose",
    "jstitch.passes.lower.divide_products": "moves one op, divide, behind a dot_general",
    "jstitch.passes.lower.split_rows": "gives a slice the limits of fewer rows",
    "jstitch.passes.lower.store_turned": "looks through transpose and reshape, which have no name of a class",
    "jstitch.passes.lower.tame_factors": "knows roots, totals of exponentials, and what is never below 0",
    "jstitch.passes.lower.sum_forms": "recognises the arithmetic under a sum, and means",
    "jstitch.passes.lower.write_products": "writes one op, dot_general, as two",
    "jstitch.passes.graph.sink_products": "looks for add, transpose, and writes dynamic_update_slice",
    "jstitch.passes.graph.turn_stacks": "looks for one op, dynamic_slice",
    "jstitch.passes.graph.sink_sums": "looks for sums, add, in the body of a loop",
    "jstitch.passes.graph.swap_products": "exchanges the operands of one op, dot_general, before a transpose",
    "jstitch.passes.graph.divide_windows": "rewrites one op, reduce_window",
    "jstitch.passes.base.convolution": "names one op, convolution",
    "jstitch.passes.graph.write_selections": "rewrites one op, select_and_scatter",
    "jstitch.passes.graph.write_sorts": "rewrites one op, sort",
    "jstitch.passes.graph.write_top_k": "rewrites one op, top_k, as maxima",
    "jstitch.passes.graph.write_taps": "builds multiplications and sums",
    "jstitch.passes.lower.find_components": "follows dimensions through ops, each in its own way",
    "jstitch.passes.lower.take_components": "writes the same ops of components",
    "jstitch.passes.graph.unstack_reductions": "recognises two ops, reduce of a concatenate",
    "jstitch.passes.graph.unroll_windows": "rewrites one op, reduce_window",
}


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the package by name, symlinked rooms included."""
    found = {}
    for folder, _, files in os.walk(ROOT / "jstitch", followlinks=True):
        for path in (Path(folder, file) for file in files if file.endswith(".py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


def imported(node: ast.AST) -> Iterator[str]:
    """Dotted names that an import statement brings in, `from a import b` as a.b."""
    match node:
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            yield from (f"{module}.{alias.name}" for alias in names)


def own(name: str) -> str | None:
    """The module of the package that an imported name is, or lives in."""
    if name in modules():
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in modules() else None


def own_imports(module: str) -> set[str]:
    names = (name for node in ast.walk(tree(module)) for name in imported(node))
    return {target for name in names if (target := own(name)) is not None}


def room(module: str) -> str:
    return max((r for r in ROOMS if f"{module}.".startswith(f"{r}.")), key=len)


def problems(complain: Callable[[str], Iterator[str]]) -> str:
    return "\n".join(line for module in sorted(modules()) for line in complain(module))


def test_the_walk_sees_every_room() -> None:
    assert {room(m) for m in modules()} == set(ROOMS)
    assert len(modules()) > 80


def test_imports_point_one_way() -> None:
    def upward(module: str) -> Iterator[str]:
        for target in own_imports(module):
            if ROOMS.index(room(target)) > ROOMS.index(room(module)):
                yield f"{module} imports {target}: {room(target)} is above {room(module)}"

    assert not problems(upward)


def test_no_import_cycles() -> None:
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        assert module not in path, f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module in done:
            return
        path.append(module)
        for target in own_imports(module) - {module}:
            visit(target)
        done.add(path.pop())

    for module in modules():
        visit(module)


def test_imports_stand_at_the_top() -> None:
    found = set()
    for module in modules():
        functions = (n for n in ast.walk(tree(module)) if isinstance(n, ast.FunctionDef | ast.Lambda))
        inner = (node for function in functions for node in ast.walk(function))
        found |= {(module, own(name) or name) for node in inner for name in imported(node)}
    assert found == set(LAZY)


def test_private_names_of_jax_live_in_one_module() -> None:
    def private(module: str) -> Iterator[str]:
        mlir = {"jstitch.frontend.mlir": ("jaxlib",), "jstitch.frontend.parse_child": ("jaxlib",)}
        allowed = {"jstitch._jax": ("jax",), **mlir}.get(module, ())
        for node in ast.walk(tree(module)):
            for name in (*imported(node), *attribute(node)):
                package, *rest = name.split(".")
                hidden = package == "jaxlib" or (package == "jax" and any(p.startswith("_") for p in rest))
                if hidden and package not in allowed:
                    yield f"{module}:{getattr(node, 'lineno', 0)} uses {name}"

    assert not problems(private)


def attribute(node: ast.AST) -> Iterator[str]:
    """`jax.a._b`, written out."""
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        if text.startswith("jax.") and text.replace(".", "").isidentifier():
            yield text


def test_every_use_of_a_private_name_of_jax_has_its_reason() -> None:
    """Each function of _jax.py that uses one says "Why private" in its docstring."""
    body = tree("jstitch._jax").body
    private = {
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and "._" in f"{node.module}."
        for alias in node.names
    }
    assert private
    for node in body:
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & private
        if used and isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert "Why private" in (ast.get_docstring(node) or ""), f"{node.name} uses {used}: no reason"


@pytest.mark.parametrize("folder", ["jstitch", "tests", "benchmarks"])
def test_nobody_imports_the_bare_rooms(folder: str) -> None:
    for directory, _, files in os.walk(ROOT / folder, followlinks=True):
        for path in (Path(directory, file) for file in files if file.endswith(".py")):
            for node in ast.walk(ast.parse(path.read_text())):
                for name in imported(node):
                    assert name.split(".")[0] not in ("passes", "codegen"), f"{path}: import {name}"


_OP_NAME = re.compile(r"(stablehlo|chlo)\.\w+")


def op_names(module: str) -> set[str]:
    """Names of StableHLO and CHLO ops that stand in the code as string literals; docstrings are free."""
    texts = {
        id(n.value)
        for n in ast.walk(tree(module))
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    }
    constants = (n for n in ast.walk(tree(module)) if isinstance(n, ast.Constant) and id(n) not in texts)
    return {n.value for n in constants if isinstance(n.value, str) and _OP_NAME.fullmatch(n.value)}


def test_ops_are_named_in_the_table_only() -> None:
    outside = {m for m in modules() if room(m) != "jstitch.ir" and op_names(m)}
    assert outside == set(SPELLS_OPS)
    assert not [m for m in modules() if m.startswith("jstitch.ir") and ".ops" not in m and op_names(m)]


AMBIENT = frozenset(("ContextVar", "contextvars", "current", "using"))
TARGETS = re.compile(r"\b(Profile|Machine|Context)\b")


def test_the_target_is_an_argument() -> None:
    """No pass asks for a target that somebody has set, none has one by default."""

    def ambient(module: str) -> Iterator[str]:
        if not module.startswith(("jstitch.passes", "jstitch.codegen")):
            return
        for node in ast.walk(tree(module)):
            names = {part for name in (*imported(node), *called(node)) for part in name.split(".")}
            where = f"{module}:{getattr(node, 'lineno', 0)}"
            if names & AMBIENT or "jstitch.passes.base.profile.CPU" in imported(node):
                yield f"{where} has a target that is no argument"
            if isinstance(node, ast.FunctionDef) and any(TARGETS.search(text) for text in with_default(node)):
                yield f"{where}: {node.name} has a target by default"

    assert not problems(ambient)


def called(node: ast.AST) -> Iterator[str]:
    """The function that is called, or defined."""
    match node:
        case (
            ast.Call(func=ast.Name(id=name))
            | ast.Call(func=ast.Attribute(attr=name))
            | ast.FunctionDef(name=name)
        ):
            yield name


def with_default(function: ast.FunctionDef) -> list[str]:
    """The types of its arguments that may be left out."""
    given = function.args
    last = [*given.posonlyargs, *given.args][len(given.posonlyargs) + len(given.args) - len(given.defaults) :]
    by_name = [a for a, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None]
    return [ast.unparse(a.annotation) for a in (*last, *by_name) if a.annotation is not None]


def test_every_module_says_what_it_is() -> None:
    def silent(module: str) -> Iterator[str]:
        if not ast.get_docstring(tree(module)):
            yield f"{module} has no docstring"

    assert not problems(silent)


def test_files_stay_readable() -> None:
    def long(module: str) -> Iterator[str]:
        count = len(modules()[module].read_text().splitlines())
        if count > MAX_LINES:
            yield f"{module}: {count} lines, expected at most {MAX_LINES}"

    assert not problems(long)


def test_packages_are_all_in_the_wheel() -> None:
    packages = {m for m, path in modules().items() if path.name == "__init__.py"}
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(config["tool"]["setuptools"]["packages"]) == packages


READS_TEXT = {
    "jstitch.passes.lower.name_kernel": "names of the user's functions",
    "jstitch.codegen.cuda.instruction_order": "PTX",
    "jstitch.codegen.cuda.ptx_text": "PTX",
    "jstitch.codegen.cuda.registers": "PTX",
    "jstitch.codegen.cuda.resources": "what ptxas and the disassembler print",
    "jstitch.codegen.cuda.timeline.machine_code": "what the disassembler prints",
}
"""Modules of passes and codegen with regular expressions, besides the PTX interpreter: what of."""


def test_nobody_searches_kernel_text() -> None:
    """What a kernel computes is in its IR (jstitch.ir.expr); text is parsed where it is lowered or run."""
    rooms = ("jstitch.passes.", "jstitch.codegen.")
    packages = {
        m: {n.partition(".")[0] for node in ast.walk(tree(m)) for n in imported(node)} for m in modules()
    }
    found = {m for m, names in packages.items() if m.startswith(rooms) and "re" in names}
    assert {m for m in found if not m.startswith("jstitch.codegen.cuda.ptx.")} == set(READS_TEXT)
