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

from jstitch.errors import JstitchError
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import Target, find_target
from jstitch.ir.graph import Graph
from jstitch.options import PLANNERS, TUNES, CompileOptions

LARGEST = 1 << 31  # bytes of a module
FILE = click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
OUTPUT = click.option("-o", "--output", type=click.File("w", lazy=True), default="-", help="Default: stdout.")


class InputError(click.ClickException):
    """Input that the command cannot work with."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"jstitch: {' '.join(self.format_message().split())}", err=True)


@contextmanager
def bad_input(where: str) -> Iterator[None]:
    """What our own errors say of the user's input, in one line."""
    try:
        yield
    except (JstitchError, ValueError, OSError) as error:
        raise InputError(f"{where}: {error}") from None


def read_graph(file: Path) -> Graph:
    """The graph of a module in text, MLIR bytecode or a portable artifact; '-' is standard input."""
    with bad_input(str(file)):
        data = sys.stdin.buffer.read(LARGEST + 1) if str(file) == "-" else _read(file)
        if not data.strip():
            raise InputError(f"{file}: expected a StableHLO module, found nothing")
        return import_module(parse_module(data))


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"expected at most {LARGEST} bytes, found more")
    return data


def planning_options(command: Any) -> Any:
    """--target, --planner and --tune."""
    command = click.option(
        "--tune", type=click.Choice([t for t in TUNES if t != "measure"]), default="model"
    )(command)
    command = click.option("--planner", type=click.Choice(PLANNERS), default="auto")(command)
    return click.option("--target", default="cpu", help="cpu, h200, sm_90, ...; default: cpu.")(command)


def make_options(target: str, planner: str, tune: str) -> CompileOptions:
    with bad_input("--target"):
        return CompileOptions(target=target, planner=planner, tune=tune)


def target_of(options: CompileOptions) -> Target:
    found = find_target("cpu" if options.target == "cpu" else "cuda", options)
    if isinstance(found, str):
        raise InputError(found)
    return found
