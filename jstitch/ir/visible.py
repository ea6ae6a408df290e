"""Names of others' choosing, as text that can be shown anywhere: on a terminal, in a comment, in a page.

visible("a\\x1b[31m\\u202e\\n")  ->  "a\\\\x1b[31m\\\\u202e\\\\n"

Functions, scopes and files can be called anything. A terminal obeys escapes, a line break ends a comment of
generated code, a mark of direction turns a line round: what does not print is written as Python writes it.
"""

from __future__ import annotations

LONGEST = 1000  # characters: file names are shorter
LONGEST_NAME = 200  # of a function, or of one scope


def visible(text: str, longest: int = LONGEST) -> str:
    """What prints as it is, the rest as escapes. Of more than `longest` characters, only both ends."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}...{text[-half:]}"
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
