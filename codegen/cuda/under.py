"""Statements that only some threads run.

under(Less(THREAD, const(32)), body)     ->     if thread() < 32: ...
"""

from __future__ import annotations

from collections.abc import Iterable

from jstitch.codegen.launch_ir import Body, If, Statement
from jstitch.codegen.launch_places import Test


def under(test: Test | None, body: Iterable[Statement]) -> Body:
    """The statements under a test; None always holds."""
    found = tuple(body)
    return [If(test, found)] if test is not None and found else list(found)
