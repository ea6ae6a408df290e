"""What the shell offers after Tab beyond click's own: passes of a pipeline, targets, what a dump holds.

Switched on by click's own script: eval "$(_JSTITCH_COMPLETE=bash_source jstitch)"
"""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from jstitch.device_spec import SPECS
from jstitch.errors import JstitchError
from jstitch.inspection.dumps import Call, find_call, read_dump
from jstitch.passes.named_passes import NAMES

Items = list[CompletionItem]


def complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """`cpu`, GPUs, architectures."""
    archs = sorted({spec.arch for spec in SPECS.values()}, key=lambda arch: int(arch.removeprefix("sm_")))
    return _starting("", incomplete, ["cpu", *SPECS, *archs])


def complete_passes(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """The last name of `a,b,c`."""
    before, comma, last = incomplete.rpartition(",")
    return _starting(before + comma, last, list(NAMES))


def complete_calls(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    return _starting("", incomplete, [c.folder.name for c in _dumped(context)])


def complete_stages(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Of the call that stands before."""
    try:
        call = find_call(_dumped(context), str(context.params.get("call")))
    except JstitchError:
        return []
    return _starting("", incomplete, [s.name.rpartition(".")[0] for s in call.stages])


def complete_kernels(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    return _starting("", incomplete, [name for call in _dumped(context) for name in call.kernels])


def _starting(prefix: str, incomplete: str, names: list[str]) -> Items:
    return [CompletionItem(prefix + name) for name in names if name.startswith(incomplete)]


def _dumped(context: click.Context) -> tuple[Call, ...]:
    """Of the folder after `inspect`; nothing where it cannot be read: Tab has no error message."""
    folder = context.parent.params.get("dump") if context.parent is not None else None
    try:
        return () if folder is None else read_dump(Path(folder))
    except (JstitchError, OSError):
        return ()
