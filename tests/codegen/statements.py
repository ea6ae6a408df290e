"""Statements of the Launch IR, all of a body's, and bodies with one of them broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from jstitch.codegen.launch_ir import For, If, Statement, Unroll

Change = Callable[[Statement], Statement | None]


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, the ones inside others after them."""
    for s in body:
        yield s
        match s:
            case For() | Unroll():
                yield from statements(s.body)
            case If():
                yield from statements((*s.body, *s.orelse))


def changed(body: tuple[Statement, ...], change: Change) -> tuple[Statement, ...]:
    """The statements, each as `change` makes it; None leaves it out."""
    found = []
    for s in body:
        match s:
            case For() | Unroll():
                s = replace(s, body=changed(s.body, change))
            case If():
                s = replace(s, body=changed(s.body, change), orelse=changed(s.orelse, change))
        if (new := change(s)) is not None:
            found.append(new)
    return tuple(found)


def first(kind: type, change: Callable[[Any], Statement | None], when: Callable[[Any], bool]) -> Change:
    """Changes the first statement of that kind for which `when` holds."""
    done: list[bool] = []

    def one(s: Statement) -> Statement | None:
        if done or not isinstance(s, kind) or not when(s):
            return s
        done.append(True)
        return change(s)

    return one
