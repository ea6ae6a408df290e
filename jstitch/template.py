"""Implementation templates: how people read and write a kernel's schedules (FS-2019 section 5.2).

    reduce_0[GRID_64-THREAD_4, WARP]S;          results stay on chip: a sub-root
    divide_0[GRID_64-THREAD_4, WARP];           results go to memory, or into its consumers: a root

    template ::= schedule+            schedule ::= op "[" attr ("," attr)* "]" "S"? ";"
    attr     ::= tile ("-" tile)*     tile     ::= ("GRID" | "CTA" | "WARP" | "THREAD") ("_" integer)?

One attribute for each dimension that the op's loops run over. GRID_64: 64 programs share it; THREAD_4: each
takes 4 rows at a time; CTA_256, WARP, THREAD: that many threads share what is inside a row.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lark import Lark, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from jstitch.errors import ParseError

LONGEST = 1 << 20  # characters


class Scope(enum.Enum):
    """Who shares a dimension."""

    GRID = "GRID"
    CTA = "CTA"
    WARP = "WARP"
    THREAD = "THREAD"


@dataclass(frozen=True)
class Tile:
    """One level of a dimension's tiling. count: parts, or None where the code generator chooses."""

    scope: Scope
    count: int | None = None

    def __str__(self) -> str:
        return self.scope.value if self.count is None else f"{self.scope.value}_{self.count}"


Attr = tuple[Tile, ...]


@dataclass(frozen=True)
class OpSchedule:
    """The loops of one op. op: its name and number in the pattern. shared: its result stays on chip."""

    op: str
    attrs: tuple[Attr, ...]
    shared: bool = False

    def __str__(self) -> str:
        attrs = ", ".join("-".join(map(str, attr)) for attr in self.attrs)
        return f"{self.op}[{attrs}]{'S' if self.shared else ''};"

    def count(self, scope: Scope) -> int | None:
        """Of the first tile of this scope that has a count."""
        found = (t.count for attr in self.attrs for t in attr if t.scope is scope and t.count is not None)
        return next(found, None)


@dataclass(frozen=True)
class Template:
    """Schedules in program order, one for each op that has loops of its own."""

    schedules: tuple[OpSchedule, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.schedules))


def parse_template(text: str) -> Template:
    """The template that `text` writes down; `str` of it is the same text, but for spaces.

    Raises ParseError, with line and column, for anything else.
    """
    if len(text) > LONGEST:
        raise ParseError(f"a template of at most {LONGEST} characters", f"{len(text)} characters")
    try:
        template: Template = _Build().transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise _error(text, error) from None
    return template


_GRAMMAR = r"""
    template: schedule+
    schedule: OP "[" attr ("," attr)* "]" [SHARED] ";"
    attr: TILE ("-" TILE)*
    TILE: /(GRID|CTA|WARP|THREAD)(_[1-9][0-9]{0,17})?(?![A-Za-z0-9_.])/
    SHARED: "S"
    OP: /[A-Za-z_][A-Za-z0-9_.]*/
    COMMENT: /#[^\n]*/
    %import common.WS
    %ignore WS
    %ignore COMMENT
"""


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="template", parser="lalr")


_NAMES = {
    "OP": "an op",
    "LSQB": "'['",
    "RSQB": "']'",
    "TILE": "GRID, CTA, WARP or THREAD with an optional _count",
    "COMMA": "','",
    "MINUS": "'-'",
    "SEMICOLON": "';'",
    "SHARED": "'S'",
    "$END": "the end",
}


class _Build(Transformer[Any, Template]):
    """Lark's tree, from the leaves up."""

    def template(self, schedules: Sequence[OpSchedule]) -> Template:
        return Template(tuple(schedules))

    def schedule(self, parts: Sequence[Any]) -> OpSchedule:
        op, *attrs, shared = parts
        return OpSchedule(str(op), tuple(attrs), shared is not None)

    def attr(self, tiles: Sequence[str]) -> Attr:
        return tuple(_tile(text) for text in tiles)


def _tile(text: str) -> Tile:
    scope, _, count = text.partition("_")
    return Tile(Scope(scope), int(count) if count else None)


def _error(text: str, error: UnexpectedInput) -> ParseError:
    match error:
        case UnexpectedToken(expected=names, token=token):
            found = "the end" if token.type == "$END" else repr(str(token))
        case UnexpectedCharacters(allowed=names):
            found = repr(text[error.pos_in_stream or 0])
        case _:
            names, found = set(), "the end"
    wanted = " or ".join(sorted(_NAMES.get(name, name) for name in names or ())) or "a schedule"
    where = f"template, line {error.line}, column {error.column}"
    return ParseError(wanted, found, where=where, hint="write op[GRID_64, WARP]S; for every op with loops")
