"""`jstitch inspect DUMP_DIR`: browse what dump_dir (JSTITCH_DUMP_DIR) wrote.

jstitch inspect dump                              calls and their stages
jstitch inspect dump show loss cse                one stage
jstitch inspect dump diff loss dce clone_broadcasts
jstitch inspect dump compare other_dump           the same program under two versions or options
jstitch inspect dump kernel loss_0 --show memory  (ir, source, memory, ptx, asm, resources, timeline)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from jstitch.cli.completion import complete_calls, complete_kernels, complete_stages
from jstitch.cli.console import plain_console
from jstitch.cli.files import InputError, bad_input
from jstitch.cli.progress import progress
from jstitch.codegen.cpu.build import assembly
from jstitch.codegen.cuda.resources import assemble
from jstitch.device_spec import find_spec
from jstitch.inspection.dump_changes import Changes, compare
from jstitch.inspection.dump_pairs import CallPair, pair_calls
from jstitch.inspection.dumps import Call, DumpedKernel, Stage, find_call, read_dump
from jstitch.inspection.memory_picture import draw_memory, memory_svg
from jstitch.ir.visible import visible
from jstitch.runtime.native_object import host_processor

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON value on standard output.")
EXACT = click.option("--exact", is_flag=True, help="Names of values count: they change with every pass.")
STAT = click.option("--stat", is_flag=True, help="Only which ops came, went and changed.")
WIDTH = 200
SHOWN = ("ir", "source", "memory", "ptx", "asm", "resources", "timeline")
_LEXERS = {".py": "python", ".ptx": "ptx", ".json": "json"}


class _Browse(click.Group):
    """Options of the list may follow the folder: `inspect dump --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = next((n for n, a in enumerate(args) if n and a in self.commands), len(args))
        own = sorted(args[:named], key=lambda a: not a.startswith("-"))
        return super().parse_args(ctx, [*own, *args[named:]])


@click.group("inspect", cls=_Browse, invoke_without_command=True)
@click.argument("dump", metavar="DUMP_DIR", type=click.Path(path_type=Path))
@JSON
@click.pass_context
def inspect_dump(context: click.Context, dump: Path, as_json: bool) -> None:
    """Browse what dump_dir (JSTITCH_DUMP_DIR) wrote; without a command, list its calls and stages."""
    with bad_input("inspect"):
        context.obj = read_dump(dump)
        if context.invoked_subcommand is None:
            _list(context.obj, as_json)


def _list(calls: tuple[Call, ...], as_json: bool) -> None:
    rows = []
    with progress(len(calls)) as begin:
        for call in calls:
            begin(call.folder.name)
            rows.append({"call": call.folder.name, "missing": call.missing, "stages": list(_stages(call))})
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for call, row in zip(calls, rows, strict=True):
        plain_console(WIDTH).print(_stage_table(call.folder.name, row["stages"]))
        if call.missing:
            numbers = ", ".join(f"{n:02d}" for n in call.missing)
            click.echo(f"jstitch: {call.folder.name}: the files with numbers {numbers} are missing", err=True)


def _stage_table(title: str, stages: Any) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "stage", "lines", "ops", "changed"):
        table.add_column(name, justify="left" if name in ("stage", "changed") else "right")
    for s in stages:
        ops = str(s["ops"]) if s["ops"] else ""
        table.add_row(f"{s['number']:02d}", s["name"], str(s["lines"]), ops, s["changed"] or "")
    return table


def _stages(call: Call) -> Iterator[dict[str, Any]]:
    before: Stage | None = None
    for stage in call.stages:
        row = {"number": stage.number, "name": stage.name, "lines": stage.lines, "ops": len(stage.ops)}
        changed = None
        if stage.is_graph and stage.name != "input.mlir":
            changed = str(compare(before.read(), stage.read()).ops) if before else None
            before = stage
        yield {**row, "changed": changed}


@inspect_dump.command("show")
@click.argument("call", shell_complete=complete_calls)
@click.argument("stage", shell_complete=complete_stages)
@click.pass_obj
def show_command(calls: tuple[Call, ...], call: str, stage: str) -> None:
    """Print a stage of CALL: by number, by name (cse) or by file."""
    with bad_input(call):
        found = find_call(calls, call).stage(stage)
        _print(found.read(), found.path.suffix)


@inspect_dump.command("diff")
@click.argument("call", shell_complete=complete_calls)
@click.argument("before", shell_complete=complete_stages)
@click.argument("after", shell_complete=complete_stages)
@EXACT
@STAT
@JSON
@click.pass_obj
def diff_command(
    calls: tuple[Call, ...], call: str, before: str, after: str, exact: bool, stat: bool, as_json: bool
) -> None:
    """Compare two stages of CALL. Status 1 when they differ."""
    with bad_input(call):
        found = find_call(calls, call)
        old, new = found.stage(before), found.stage(after)
        changes = compare(old.read(), new.read(), exact)
    names = f"{found.folder.name}/{old.path.name}", f"{found.folder.name}/{new.path.name}"
    if as_json:
        click.echo(json.dumps(_fields(changes, *names), indent=1))
    else:
        _print_changes(changes, *names, stat)
    _end(changes.is_empty)


@inspect_dump.command("compare")
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--call", help="Only this call.")
@click.option("--stage", help="Print the differences of this stage.")
@click.option("--kernel", help="Print the differences of this kernel and its partner.")
@EXACT
@STAT
@JSON
@click.pass_obj
def compare_command(
    calls: tuple[Call, ...],
    other: Path,
    call: str | None,
    stage: str | None,
    kernel: str | None,
    exact: bool,
    stat: bool,
    as_json: bool,
) -> None:
    """Compare with another dump: calls and stages are matched by name, kernels by what they do.

    Status 1 when they differ.
    """
    with bad_input("inspect"):
        theirs = read_dump(other)
        if call is not None:
            calls = (find_call(calls, call),)
            theirs = tuple(c for c in theirs if c.name == calls[0].name)
        pairs = pair_calls(calls, theirs, exact)
    if as_json:
        click.echo(json.dumps([p.fields() for p in pairs], indent=1))
    elif stage is None and kernel is None:
        for pair in pairs:
            plain_console(WIDTH).print(_pair_table(pair))
    else:
        _print_chosen(pairs, stage, kernel, stat)
    _end(all(p.is_same for p in pairs))


def _print_chosen(pairs: list[CallPair], stage: str | None, kernel: str | None, stat: bool) -> None:
    rows = [r for p in pairs for r in p.stages if stage is not None and stage in r.titles]
    rows += [r for p in pairs for r in p.kernels if kernel is not None and kernel in r.titles]
    if not rows:
        raise InputError(f"expected a stage or kernel of both dumps, found '{stage or kernel}'")
    for row in rows:
        if row.changes is None:
            click.echo(f"only in {'the first' if row.after is None else 'the second'}: {row.title}")
        else:
            _print_changes(row.changes, str(row.before), str(row.after), stat)


def _pair_table(pair: CallPair) -> Table:
    table = Table(title=pair.title, title_justify="left")
    for name in ("first", "second", "ops", "lines"):
        table.add_column(name)
    for row in (*pair.stages, *pair.kernels):
        changes = row.changes
        if changes is None:
            table.add_row(row.before or "", row.after or "", "", Text("only here", "yellow"))
            continue
        lines = Text("" if changes.is_empty else "differ", "yellow")
        table.add_row(row.before, row.after, str(changes.ops), lines or "same")
    return table


# -- one kernel --------------------------------------------------------------------------------------------


@inspect_dump.command("kernel")
@click.argument("name", shell_complete=complete_kernels)
@click.option(
    "--call", shell_complete=complete_calls, help="Of this call, where several have a kernel of that name."
)
@click.option("--show", "shown", multiple=True, type=click.Choice(SHOWN), help="Default: ir and memory.")
@click.option("--svg", type=click.File("w", lazy=True, atomic=True), help="Write the memory map's picture.")
@click.pass_obj
def kernel_command(
    calls: tuple[Call, ...], name: str, call: str | None, shown: tuple[str, ...], svg: TextIO | None
) -> None:
    """Show a kernel: its Kernel IR, its source, where it keeps values, and what was compiled.

    asm compiles it again, for this processor. resources asks ptxas. timeline estimates each launch's time,
    what bounds it and where its warps wait, from its machine code (ptxas, nvdisasm); no GPU is needed.
    """
    with bad_input(name):
        kernel = _find_kernel(calls if call is None else (find_call(calls, call),), name)
        if svg is not None:
            svg.write(memory_svg(name, kernel.memory))
        for what in shown or (() if svg else ("ir", "memory")):
            _SHOW[what](kernel)


def _find_kernel(calls: tuple[Call, ...], name: str) -> DumpedKernel:
    found = [(c, c.kernels[name]) for c in calls if name in c.kernels]
    if not found:
        known = ", ".join(k for c in calls for k in c.kernels)
        raise InputError(f"expected a kernel of the dump, found '{name}': it has {known or 'none'}")
    if len(found) > 1:
        raise InputError(f"{name} is in {', '.join(c.folder.name for c, _ in found)}: say which with --call")
    kernel = found[0][1]
    if "refused.txt" in kernel.files and "py" not in kernel.files:
        raise InputError(f"{name} is no kernel; its pattern stays XLA's: {kernel.read('refused.txt')}")
    return kernel


def _show_ptx(kernel: DumpedKernel) -> None:
    if not kernel.ptx:
        raise InputError(
            f"{kernel.name} is for {kernel.target}: there is no PTX; --show asm has its assembly"
        )
    for text in kernel.ptx.values():
        _print(text, ".ptx")


def _show_asm(kernel: DumpedKernel) -> None:
    """The dump has no machine code, and the kernel may have come from the cache: it is compiled again."""
    text = assembly(kernel.source)
    processor = " ".join(host_processor().split()[:2])
    click.echo(f"# {kernel.name}: compiled again from the dump's source, for {processor}")
    _print(text, ".s")


def _show_resources(kernel: DumpedKernel) -> None:
    if not kernel.ptx:
        raise InputError(f"{kernel.name} is for {kernel.target}: only kernels for GPUs have resources")
    launches = {launch["function"]: launch for launch in kernel.described["source"]["launches"]}
    table = Table(title=f"{kernel.name}, {kernel.target}", title_justify="left")
    for column in ("launch", "grid", "block", "shared", "read", "written", "registers", "spills"):
        table.add_column(column, justify="left" if column == "launch" else "right")
    for function, ptx in kernel.ptx.items():
        made, launch = assemble(ptx, find_spec(kernel.target).arch), launches[function]
        names = ("grid", "block", "shared_bytes", "bytes_read", "bytes_written")
        counts = (*(launch[name] for name in names), made.registers, made.spills)
        table.add_row(function, *(f"{count:,}" for count in counts))
    plain_console(WIDTH).print(table)


def _show_timeline(kernel: DumpedKernel) -> None:
    # Imported here because Numba compiles it, and the other commands work without Numba.
    from jstitch.cli.show_timeline import timeline_table

    plain_console(WIDTH).print(timeline_table(kernel))


_SHOW: dict[str, Callable[[DumpedKernel], None]] = {
    "ir": lambda kernel: _print(kernel.read("kernel.txt"), ".txt"),
    "source": lambda kernel: _print(kernel.read("py"), ".py"),
    "memory": lambda kernel: plain_console(WIDTH).print(draw_memory(kernel.name, kernel.memory)),
    "ptx": _show_ptx,
    "asm": _show_asm,
    "resources": _show_resources,
    "timeline": _show_timeline,
}


# -- how it is printed -------------------------------------------------------------------------------------


def _print(text: str, suffix: str) -> None:
    """Coloured on a terminal, as it is elsewhere."""
    text = "\n".join(map(_shown, text.splitlines()))
    console = plain_console()
    if console.is_terminal and suffix in _LEXERS:
        console.print(Syntax(text, _LEXERS[suffix], theme="ansi_dark", word_wrap=True))
    else:
        click.echo(text)


def _shown(line: str) -> str:
    """A dump may be anybody's: what does not print, but for tabs, is shown as an escape."""
    return "\t".join(visible(part, len(part)) for part in line.split("\t"))


def _print_changes(changes: Changes, before: str, after: str, stat: bool) -> None:
    colors = {"-": "red", "+": "green", "@": "cyan"}
    for line in () if stat else changes.unified(before, after):
        click.echo(click.style(_shown(line), fg=colors.get(line[:1])))
    ops = changes.ops
    for what, counts in (("came", ops.came), ("went", ops.went), ("changed", ops.changed)):
        for name, count in counts.most_common():
            click.echo(f"# {what}: {count} {name}")


def _fields(changes: Changes, before: str, after: str) -> dict[str, Any]:
    ops = changes.ops
    found: dict[str, Any] = {"before": before, "after": after, "same": changes.is_empty}
    found |= {"came": dict(ops.came), "went": dict(ops.went), "changed": dict(ops.changed)}
    return {**found, "diff": list(changes.unified(before, after))}


def _end(same: bool) -> None:
    if not same:
        raise SystemExit(1)
