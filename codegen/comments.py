"""Comments of generated source: what a stage does, and the user's lines that it comes from.

    # exponential, reduce add
    #   subtract, exponential: model.py:31 (softmax)

They are for readers only. Builds, caches and verdicts know a source by its text without them, so that a line
that moves in the user's code changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.codegen.kernel_ir import Stage

MOST = 12  # lines that a stage quotes


def strip_comments(text: str) -> str:
    """The text without comments and empty lines. No kernel text has a '#' elsewhere: it has no strings."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def stage_notes(stage: Stage, more: str = "") -> list[str]:
    """What a reader is told before a stage's code. more: a remark on how it is done."""
    return [f"{stage.note}{more}", *(f"  {line}" for line in quoted(stage.lines))]


def quoted(lines: Sequence[str]) -> list[str]:
    """As many as one reads."""
    rest = [f"and {len(lines) - MOST} more lines"] if len(lines) > MOST else []
    return [*lines[:MOST], *rest]
