"""No function calls itself as deep as a program is long: what calls itself is listed, with what bounds it.

Calls are found in the source, by name: of functions, of a class's own methods through `self`, and of methods
of classes of the same module through anything else. What `unwind` calls (jstitch/ir/unwind.py), the functions
that return a `Deep`, does not call itself, unless it takes its own place by `yield from f(...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import networkx as nx
import pytest

from tests.test_structure import modules, own, tree

REGIONS = "regions of control ops, as deep as the user's loops and branches are nested"
INDEX = "an index, of at most MOST_ATOMS atoms (passes/lower/build_nest.py) before it is named"
LOOPS = "the loops of one nest, at most one for each dimension of a tensor and two more"
TEXT = "one line of a kernel's text, a call in which only an index is nested"
EXPR = "the expression of one op: its operands have names"
BLOCKS = "blocks of a kernel's text, as deep as its loops, and the branches that choose a part by halving"
HALVES = "halves of a list"
PYTREE = "the nesting of one value: of a pytree, of JSON, of an attribute"
ONCE = "calls itself once, with other arguments"
OTHER = "another function of the same name: of another object, or inside this one"

LOOPS = "two loops of a nest"
LOCATION = "one location of the user's code, as JAX nests it"
HLO = "computations of XLA's that call computations: loops and branches, and fusions in them"

PASSES = "passes that run inside passes"

BOUNDED: Mapping[str, str] = {
    "jstitch.cli.pass_times:Part.to_json": PASSES,
    "jstitch.cli.pass_times:_alike": PASSES,
    "jstitch.cli.pass_times:_walk": PASSES,
    "jstitch.codegen.cuda.timeline.count_lines:_Memory.prefetch": OTHER,
    "jstitch.inspection.op_owners:_Search._around": REGIONS,
    "jstitch.passes.lower.lower_lane:LaneLowering._pieces": LOOPS,
    "jstitch.passes.base.op_keys:_about": REGIONS,
    "jstitch.passes.base.op_keys:ops_in_order": REGIONS,
    "jstitch.passes.cost.kernel_work:_flops": REGIONS,
    "jstitch.passes.cost.kernel_work:ops_outside": REGIONS,
    "jstitch.passes.cost.leave_thread:library_seconds": REGIONS,
    "jstitch.passes.fuse.follow_pins:Pins._held": REGIONS,
    "jstitch.passes.fuse.follow_pins:_frames": REGIONS,
    "jstitch.runtime.trusted:Folder.read": OTHER,
    "jstitch.runtime.trusted:Folder.write": OTHER,
    "jstitch.analysis.least:_loop": HLO,
    "jstitch.api:jit": ONCE,
    "jstitch.calibration.streams:_kernel": OTHER,
    "jstitch.cli.differences:_plain": ONCE,
    "jstitch.codegen.bound_integers:_Walk.block": BLOCKS,
    "jstitch.codegen.bound_integers:_Walk.call": TEXT,
    "jstitch.frontend.ask_xla:_Answers.get": OTHER,
    "jstitch.frontend.asked_gate:_Search.answer": OTHER,
    "jstitch.frontend.asked_gate:_Search.costs": OTHER,
    "jstitch.frontend.asked_gate:_Search.seconds": OTHER,
    "jstitch.frontend.loop_gate:_Gate.frame": REGIONS,
    "jstitch.passes.cost.program_seconds:ProgramSeconds._control": HLO,
    "jstitch.passes.fuse.leave_lost:leave_lost": REGIONS,
    "jstitch.passes.fuse.plan_tree:Planned.walk": REGIONS,
    "jstitch.passes.fuse.plan_tree:_contracted": REGIONS,
    "jstitch.passes.fuse.plan_tree:leave_all": REGIONS,
    "jstitch.passes.fuse.plan_tree:plan_tree": REGIONS,
    "jstitch.xla.cpu_thunks:_bodies": HLO,
    "jstitch.xla.launches:_loop": HLO,
    "jstitch.cli.run_passes:State.after": OTHER,
    "jstitch.codegen.branches:choose_branch": HALVES,
    "jstitch.passes.schedule.bound_exponents:_Values.number": EXPR,
    "jstitch.passes.schedule.distribute_loops:_is_float": EXPR,
    "jstitch.passes.lower.column_values:ColumnValues.of": EXPR,
    "jstitch.codegen.interpret_expr:Formulas._atom": INDEX,
    "jstitch.codegen.interpret_expr:Formulas._function": EXPR,
    "jstitch.codegen.print_expr:_call": EXPR,
    "jstitch.ir.expr:index_operations": INDEX,
    "jstitch.ir.expr:move_numbers": EXPR,
    "jstitch.ir.expr:numbers": EXPR,
    "jstitch.ir.expr:refs": EXPR,
    "jstitch.ir.expr:replace_refs": EXPR,
    "jstitch.passes.lower.build_nest:NestBuilder._inside": EXPR,
    "jstitch.passes.schedule.nest_work:expr_cycles": EXPR,
    "jstitch.codegen.cpu.conversion:bitcast": OTHER,
    "jstitch.codegen.cpu.conversion:conversion": OTHER,
    "jstitch.codegen.cpu.launch_lane:LaneWriter._nest": LOOPS,
    "jstitch.codegen.cpu.exponential:_narrow_exp": "one lowering by way of another: of two widths of numbers",
    "jstitch.codegen.cpu.expression:Value.call": OTHER,
    "jstitch.codegen.cpu.flush:end_streams": OTHER,
    "jstitch.codegen.cpu.flush:stream": OTHER,
    "jstitch.codegen.cpu.lower_text:_Function.block": BLOCKS,
    "jstitch.codegen.cpu.lower_text:_Function.call": TEXT,
    "jstitch.codegen.cpu.backend:_built": ONCE,
    "jstitch.codegen.cpu.lower_text:_Function.cast": OTHER,
    "jstitch.codegen.cpu.lower_text:_Function.number": ONCE,
    "jstitch.codegen.cpu.memory:load": OTHER,
    "jstitch.codegen.cpu.memory:prefetch": OTHER,
    "jstitch.codegen.cpu.memory:store": OTHER,
    "jstitch.codegen.cuda.backend:_built": ONCE,
    "jstitch.codegen.cuda.builder:_Module.declare_intrinsic": OTHER,
    "jstitch.codegen.check_body:BodyCheck.atom": INDEX,
    "jstitch.codegen.check_body:BodyCheck.body": BLOCKS,
    "jstitch.codegen.cuda.launch_nest:NestCode._inside": LOOPS,
    "jstitch.codegen.cuda.launch_nest:NestCode._thread_loops": LOOPS,
    "jstitch.codegen.cuda.expressions:Expressions.call": TEXT,
    "jstitch.codegen.cuda.expressions:_literal": ONCE,
    "jstitch.codegen.cuda.lower_text:Statements.block": BLOCKS,
    "jstitch.codegen.cuda.names:Names.store": OTHER,
    "jstitch.codegen.cuda.names:_escaping.walk": BLOCKS,
    "jstitch.codegen.cuda.names:_targets": BLOCKS,
    "jstitch.codegen.cuda.ptx.flatten:_append": "PTX functions that call functions: math routines, two deep",
    "jstitch.codegen.cuda.ptx.integer:_length": ONCE,
    "jstitch.codegen.cuda.ptx.operand:Operands.source": OTHER,
    "jstitch.codegen.cuda.ptx.order:Order.tick": OTHER,
    "jstitch.codegen.cuda.registers:_innermost_loops": LOOPS,
    "jstitch.codegen.cuda.simulate_cells:_put_element": "the elements of one value",
    "jstitch.codegen.cuda.simulate_cells:take": "the elements of one value",
    "jstitch.codegen.cuda.simulate_expressions:Expressions._call": TEXT,
    "jstitch.codegen.cuda.simulate_expressions:literal": ONCE,
    "jstitch.codegen.cuda.simulate_scopes:_block": BLOCKS,
    "jstitch.codegen.cuda.simulate_text:Walker._branch": BLOCKS,
    "jstitch.codegen.cuda.simulate_threads:Threads.team": OTHER,
    "jstitch.codegen.cuda.simulate_threads:Threads.warp": OTHER,
    "jstitch.codegen.cuda.tile_axes:_part": INDEX,
    "jstitch.codegen.interpret_kernel:_Program._loop": LOOPS,
    "jstitch.codegen.print_index:_print_atom": INDEX,
    "jstitch.codegen.print_kernel:_nest": LOOPS,
    "jstitch.demo.hlo:_kernels": HLO,
    "jstitch.frontend.constants:_parse_elements": "the dimensions of a constant",
    "jstitch.frontend.control:fuse_together": ONCE,
    "jstitch.frontend.exporter:_Exporter.export": REGIONS,
    "jstitch.frontend.exporter:_symbols": REGIONS,
    "jstitch.frontend.exporter:_symbols_in": REGIONS,
    "jstitch.frontend.kept_call:_things": REGIONS,
    "jstitch.frontend.importer:_Importer.import_all": "regions and calls, nested as the user's functions are",
    "jstitch.frontend.locations:_describe_named": LOCATION,
    "jstitch.frontend.measurable:_open_loops": REGIONS,
    "jstitch.frontend.probe_inputs:_clamped": INDEX,
    "jstitch.frontend.kernel_builder:KernelBuilder._build": OTHER,
    "jstitch.frontend.source:_replace_captured": REGIONS,
    "jstitch.frontend.source:_scan": REGIONS,
    "jstitch.frontend.swap:SwappingJit.clear_cache": OTHER,
    "jstitch.frontend.swap:SwappingJit.eval_shape": OTHER,
    "jstitch.frontend.swap:SwappingJit.lower": OTHER,
    "jstitch.frontend.swap:SwappingJit.trace": OTHER,
    "jstitch.frontend.swap:SwappingJit.wait": OTHER,
    "jstitch.inspection.bisect:_Bisection.compare": OTHER,
    "jstitch.inspection.bisect:describe_frames": REGIONS,
    "jstitch.inspection.bisect:frame_of": REGIONS,
    "jstitch.inspection.dump_changes:OpChanges.total": OTHER,
    "jstitch.inspection.dump_pairs:CallPair.fields": OTHER,
    "jstitch.inspection.dumps:DumpedKernel.read": OTHER,
    "jstitch.inspection.evidence:_lift": REGIONS,
    "jstitch.inspection.json_fields:json_fields": PYTREE,
    "jstitch.inspection.labels:_titles": REGIONS,
    "jstitch.inspection.reference:_Widening.graph": REGIONS,
    "jstitch.inspection.reference:_seconds": REGIONS,
    "jstitch.inspection.report.data:finite": PYTREE,
    "jstitch.ir.graph:Graph.walk": REGIONS,
    "jstitch.ir.index:_atom_bounds": INDEX,
    "jstitch.ir.index:_divided": INDEX,
    "jstitch.ir.index:_substitute_atom": INDEX,
    "jstitch.ir.index:mod": INDEX,
    "jstitch.codegen.step_places:_atom_in_steps": INDEX,
    "jstitch.ir.ops.effects:has_effects": REGIONS,
    "jstitch.ir.printer:_Printer.graph": REGIONS,
    "jstitch.ir.verify:_verify": REGIONS,
    "jstitch.options:CompileOptions.replace": OTHER,
    "jstitch.passes.base.rewrite:_Rewriter._op": REGIONS,
    "jstitch.passes.graph.split_complex:_ops": REGIONS,
    "jstitch.passes.graph.split_complex:_Splitter._branches": REGIONS,
    "jstitch.passes.base.rewrite:_mapped": REGIONS,
    "jstitch.passes.explore.contracted_cycles:Contraction.cycles": OTHER,
    "jstitch.passes.explore.explore_patterns:_Explorer._reduce": HALVES,
    "jstitch.passes.fuse.copy_returned:_in_loops": REGIONS,
    "jstitch.passes.fuse.plan_layers:_Planner._grow": "the roots of one pattern, at most MAX_ROOTS",
    "jstitch.passes.fuse.tune_schedule:_Search._choose": "the roots of one pattern, at most MAX_ROOTS",
    "jstitch.passes.graph.clone_broadcasts:_Cloner.visit": REGIONS,
    "jstitch.passes.graph.clone_indices:_Cloner.visit": REGIONS,
    "jstitch.passes.graph.cse:_Seen._number": REGIONS,
    "jstitch.passes.graph.cse:_region_key": REGIONS,
    "jstitch.passes.graph.dce:_inside": REGIONS,
    "jstitch.passes.graph.dce:is_pure": REGIONS,
    "jstitch.passes.graph.keep_counters:_mark": REGIONS,
    "jstitch.passes.graph.leave_unset:_Loop._evaluated": "DEPTH ops",
    "jstitch.passes.graph.merge_products:_Merger.merged": REGIONS,
    "jstitch.passes.pipeline:frames": REGIONS,
    "jstitch.passes.lower.check_flow:evaluate_index": INDEX,
    "jstitch.passes.lower.check_names:_visit": LOOPS,
    "jstitch.passes.lower.joint_monoids:_Body.compare": OTHER,
    "jstitch.passes.lower.joint_monoids:_Body.select": OTHER,
    "jstitch.runtime.performance_library:PerformanceLibrary.close": OTHER,
}


def definitions(module: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods, inner ones too, as a, Class.a or a.inner."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield f"{prefix}{child.name}", child
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            yield from inside(child, f"{prefix}{child.name}." if named else prefix)

    return inside(tree(module), "")


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function that are not of a function inside it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef):
            yield from own_nodes(child)  # type: ignore[arg-type]


def imports(module: str) -> dict[str, str]:
    """Names of other modules' functions: local name -> module:name."""
    found = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                source = own(node.module)
                if source is not None:
                    found[alias.asname or alias.name] = f"{source}:{alias.name}"
    return found


def calls(module: str) -> Iterator[tuple[str, str]]:
    """(who, whom) of the module's functions."""
    functions = dict(definitions(module))
    methods: dict[str, list[str]] = {}
    for name in functions:
        methods.setdefault(name.rpartition(".")[2], []).append(name)
    foreign = imports(module)
    for name, function in functions.items():
        arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        for node in own_nodes(function):
            for callee in _callees(node, name, functions, methods, foreign, arguments):
                yield f"{module}:{name}", callee if ":" in callee else f"{module}:{callee}"


def _is_deep(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns).startswith("Deep[")


def delegations(module: str) -> Iterator[tuple[str, str]]:
    """(who, whom) of every `yield from whom(...)`."""
    functions = dict(definitions(module))
    for name, function in functions.items():
        for node in own_nodes(function):
            match node:
                case ast.YieldFrom(ast.Call(ast.Attribute(ast.Name("self"), called) | ast.Name(called))):
                    scopes = name.split(".")
                    inner = [".".join([*scopes[:k], called]) for k in range(len(scopes), -1, -1)]
                    yield from ((f"{module}:{name}", f"{module}:{n}") for n in inner if n in functions)


def _callees(
    node: ast.AST,
    name: str,
    functions: Mapping[str, ast.FunctionDef],
    methods: Mapping[str, list[str]],
    foreign: Mapping[str, str],
    arguments: set[str],
) -> Iterator[str]:
    match node:
        case ast.Name(called, ast.Load()) if called not in arguments:
            scopes = name.split(".")
            inner = [".".join([*scopes[:k], called]) for k in range(len(scopes), -1, -1)]
            found = next((n for n in inner if n in functions), None)
            if found is not None and not _is_method(found, functions):
                yield found
            elif called in foreign:
                yield foreign[called]
        case ast.Attribute(ast.Name("self" | "cls"), called):
            scopes = name.split(".")
            yield from (n for k in range(len(scopes)) if (n := ".".join([*scopes[:k], called])) in functions)
        case ast.Call(ast.Attribute(_, called)) if not isinstance(node.func.value, ast.Call):  # type: ignore[attr-defined]
            yield from (n for n in methods.get(called, ()) if _is_method(n, functions))


def _is_method(name: str, functions: Mapping[str, ast.FunctionDef]) -> bool:
    parent, _, _ = name.rpartition(".")
    return bool(parent) and parent not in functions


def recursions() -> list[frozenset[str]]:
    unwound = {f"{m}:{name}" for m in modules() for name, f in definitions(m) if _is_deep(f)}
    direct = {edge for m in modules() for edge in delegations(m)}
    every = (call for module in modules() for call in calls(module))
    graph = nx.DiGraph(call for call in every if call[1] not in unwound or call in direct)
    parts = map(frozenset, nx.strongly_connected_components(graph))
    return [part for part in parts if len(part) > 1 or any(graph.has_edge(n, n) for n in part)]


def test_what_calls_itself_is_bounded_by_something_other_than_the_program() -> None:
    found = {min(part): part for part in recursions()}
    unknown = "\n".join(" -> ".join(sorted(found[name])) for name in found.keys() - BOUNDED.keys())
    assert not unknown, f"these call themselves: put the calls on a list (jstitch/ir/unwind.py)\n{unknown}"
    assert found.keys() == BOUNDED.keys()


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("def f(x): return f(x)", True),
        ("def f(x): return g(x)\ndef g(x): return [f(y) for y in x]", True),
        ("def f(x):\n    def inner(y): return inner(y)\n    return inner(x)", True),
        ("class A:\n    def f(self): return self.g()\n    def g(self): return self.f()", True),
        ("class A:\n    def f(self, other): return other.f(self)", True),
        ("def f(x): return g(x)\ndef g(x): return h(x)\ndef h(x): return x", False),
        ("def f(x) -> Deep[int]: return 1 + (yield f(x))", False),
        ("def f(x) -> Deep[int]: return (yield from each(f(y) for y in x))", False),
        ("def f(x) -> Deep[int]: return (yield from f(x))", True),
    ],
)
def test_the_search_finds_recursion(text: str, is_found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = ast.parse(text)
    monkeypatch.setattr("tests.test_recursion.modules", lambda: {"m": None})
    monkeypatch.setattr("tests.test_recursion.tree", lambda module: parsed)
    assert bool(recursions()) is is_found
