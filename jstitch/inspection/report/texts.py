"""Texts of a report: strings that many ops share, lines of the user's source, generated source in colours.

"for i in range(8):"    ->    "kfor", " i ", "kin", "brange", "(", "n8", "):"
"""

from __future__ import annotations

import linecache
import re
from itertools import groupby
from operator import itemgetter

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Literal, Name, Operator, _TokenType

LONGEST = 4000  # characters of one line
AROUND = 2  # lines of source before and after an op's own
PLAIN = " "
_CLASSES = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Literal.String, "s"),
    (Literal.Number, "n"),
    (Name.Builtin, "b"),
    (Name.Function, "f"),
)
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?: \(.*\))?", re.S)


class Strings:
    """Every string once, by number; number 0 is the empty one."""

    def __init__(self) -> None:
        self.all: list[str] = [""]
        self._number = {"": 0}

    def number(self, text: str) -> int:
        if text not in self._number:
            self._number[text] = len(self.all)
            self.all.append(text)
        return self._number[text]


def shorten(text: str) -> str:
    """At most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... {len(text) - LONGEST:,} more characters"


def source_lines(loc: str) -> list[tuple[int, str]]:
    """The user's lines around `file:line (function)` with their numbers; none where there is no such file."""
    found = _PLACE.fullmatch(loc)
    if found is None:
        return []
    line = int(found["line"])
    numbers = range(max(1, line - AROUND), line + AROUND + 1)
    lines = ((n, linecache.getline(found["file"], n)) for n in numbers)
    return [(n, shorten(text.rstrip())) for n, text in lines if text]


def coloured(source: str) -> list[str]:
    """Python source in pieces: the letter of a class, PLAIN for none, and the text."""
    pieces = ((_class(kind), text) for kind, text in PythonLexer(stripnl=False).get_tokens(source))
    return [letter + "".join(text for _, text in same) for letter, same in groupby(pieces, itemgetter(0))]


def _class(kind: _TokenType) -> str:
    return next((letter for parent, letter in _CLASSES if kind in parent), PLAIN)
