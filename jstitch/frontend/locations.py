"""Source lines and scopes: from MLIR locations to `file:line (function)`, `jit(f)/jvp(g)`, and back."""

from __future__ import annotations

import re

from jstitch.frontend.mlir import ir
from jstitch.ir.visible import LONGEST_NAME, visible

_LINE = re.compile(r"^(?P<file>.*):(?P<line>\d+)(?: \((?P<function>.*)\))?$")


def describe_location(location: ir.Location) -> str:
    """The innermost user frame as `file:line (function)`, or "" when the location has none.

    JAX nests them as name(callsite(frame at caller)), where a frame is function(file:line:column).
    """
    match location:
        case ir.FileLineColLoc():
            return f"{visible(location.filename)}:{location.start_line}"
        case ir.CallSiteLoc():
            return describe_location(location.callee) or describe_location(location.caller)
        case ir.NameLoc():
            return _describe_named(location)
        case ir.FusedLoc():
            return next(filter(None, map(describe_location, location.locations)), "")
        case _:
            return ""


def describe_scope(location: ir.Location) -> str:
    """The names around an op, as JAX writes them before the op's own: `jit(step)/jvp(norm)`; or ""."""
    if not isinstance(location, ir.NameLoc) or isinstance(location.child_loc, ir.FileLineColLoc):
        return ""
    names = str(location.name_str).rpartition("/")[0]
    return "/".join(visible(name, LONGEST_NAME) for name in names.split("/"))


def _describe_named(location: ir.NameLoc) -> str:
    child = location.child_loc
    if isinstance(child, ir.FileLineColLoc):
        function = visible(location.name_str, LONGEST_NAME)
        return f"{visible(child.filename)}:{child.start_line} ({function})"
    return describe_location(child)


def make_location(text: str) -> ir.Location:
    """The MLIR location of a described one, in the current context."""
    match = _LINE.match(text)
    if not match:
        return ir.Location.name(text) if text else ir.Location.unknown()
    frame = ir.Location.file(match["file"], int(match["line"]), 0)
    return ir.Location.name(match["function"], frame) if match["function"] else frame
