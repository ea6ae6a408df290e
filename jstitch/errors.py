"""Errors and warnings. Messages say what was expected, what was found, where, and what to do next."""

from __future__ import annotations


class JstitchError(Exception):
    """Base of every error the project raises.

    expected, found: one line each. where: the user's source line or the file, "" if unknown.
    hint: what to do next.
    """

    def __init__(self, expected: str, found: str, *, where: str = "", hint: str = "") -> None:
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [f"Expected {self.expected}, found {self.found}."]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return "\n".join(lines)


class OptionError(JstitchError, ValueError):
    """A CompileOptions field or a JSTITCH_* variable has a value it cannot have."""


class ParseError(JstitchError, ValueError):
    """A file or text that should hold an IR does not."""


class VerifyError(JstitchError):
    """A pass produced an IR that breaks its own rules. Always a bug of the pass."""


class UnsupportedError(JstitchError, NotImplementedError):
    """Valid input that a pass or an emitter cannot handle; the caller leaves it to XLA."""


class CannotFuseError(JstitchError):
    """`fuse_together(..., strict=True)` asks for a kernel that cannot be."""


class PlanMismatchError(JstitchError):
    """With `strict`, a program is not the one that `CompileOptions(plan=...)` is a plan of."""


class JstitchWarning(UserWarning):
    """Something fell back to a slower but correct way; the message says what and why."""
