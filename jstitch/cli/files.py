"""What the commands read and write: StableHLO from a file or standard input, targets by name.

Bad input ends a command with one line of reason and exit status 2; a finding (such as a difference) with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from jstitch.cli.completion import complete_targets
from jstitch.errors import JstitchError
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import ir
from jstitch.frontend.safe_parse import LARGEST, safe_parse
from jstitch.frontend.target import Target, find_target
from jstitch.ir.graph import Graph
from jstitch.ir.visible import visible
from jstitch.options import PLANNERS, TUNES, CompileOptions
from jstitch.plan_file import PlanFile, read_plan

FILE = click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
OUTPUT = click.option(
    "-o", "--output", type=click.File("w", lazy=True, atomic=True), default="-", help="Default: stdout."
)


class InputError(click.ClickException):
    """Input that the command cannot work with."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        said = " ".join(self.format_message().split())
        click.echo(f"jstitch: {visible(said, len(said))}", err=True)


@contextmanager
def bad_input(where: str) -> Iterator[None]:
    """What our own errors say of the user's input, in one line."""
    try:
        yield
    except (JstitchError, ValueError, OSError) as error:
        raise InputError("\n".join([f"{where}: {error}", *getattr(error, "__notes__", ())])) from None
    except RecursionError:
        raise InputError(f"{where}: expected a module that Python can walk, found nesting too deep") from None
    except MemoryError:
        raise InputError(f"{where}: expected a module that fits into memory, found a larger one") from None


def read_module(file: Path) -> ir.Module:
    """A module in text, MLIR bytecode or a portable artifact, from anybody; '-' is standard input.

    Raises InputError for everything else. The file is parsed in a process of its own, under limits.
    """
    with bad_input(str(file)):
        return safe_parse(read_bytes(file))


def read_graph(file: Path) -> Graph:
    """The graph of a module's entry function. Raises InputError, as `read_module` does."""
    module = read_module(file)
    with bad_input(str(file)):
        return import_module(module)


def read_bytes(file: Path) -> bytes:
    """At most one byte more than a module may have; '-' is standard input. Raises ValueError, OSError."""
    if str(file) == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    if file.stat().st_size > LARGEST:
        raise ValueError(f"expected a module of at most {LARGEST:,} bytes, found {file.stat().st_size:,}")
    with file.open("rb") as opened:
        return opened.read(LARGEST + 1)


def planning_options(command: Any) -> Any:
    """--target, --planner and --tune."""
    command = click.option(
        "--tune", type=click.Choice([t for t in TUNES if t != "measure"]), default="model"
    )(command)
    command = click.option("--planner", type=click.Choice(PLANNERS), default="auto")(command)
    return click.option(
        "--target", default="cpu", shell_complete=complete_targets, help="cpu, h200, sm_90, ... Default: cpu."
    )(command)


PINNED = click.option(
    "--pinned", type=click.Path(dir_okay=False), help="A saved plan, whose kernels are taken as they are."
)
REPRODUCER = click.option(
    "--reproducer",
    type=click.Path(file_okay=False),
    help="Folder for a file with which `opt --run-reproducer` fails the same way, when a pass fails.",
)


def make_options(
    target: str, planner: str, tune: str, pinned: str | None = None, reproducer: str | None = None
) -> CompileOptions:
    with bad_input("--target"):
        options = CompileOptions(target=target, planner=planner, tune=tune)
    with bad_input("--pinned"):
        options = options if pinned is None else options.replace(plan=pinned)
    return options if reproducer is None else options.replace(reproducer_dir=reproducer)


def read_saved(path: Path) -> PlanFile:
    """A plan of `jstitch plan --save`. Raises InputError for everything else."""
    with bad_input(str(path)):
        return read_plan(path)


def target_of(options: CompileOptions) -> Target:
    found = find_target("cpu" if options.target == "cpu" else "cuda", options)
    if isinstance(found, str):
        raise InputError(found)
    return found
