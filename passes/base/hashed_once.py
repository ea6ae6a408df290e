"""A frozen dataclass whose hash is worked out once: what is part of many keys, such as a target's profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=type)
KEPT = "_hash"


def hashed_once(cls: T) -> T:
    """The class, whose instances remember their hash; copies in other processes work it out anew."""
    work_out: Callable[[Any], int] = vars(cls)["__hash__"]

    def __hash__(self: Any) -> int:
        found: int | None = self.__dict__.get(KEPT)
        if found is None:
            found = self.__dict__[KEPT] = work_out(self)
        return found

    def __getstate__(self: Any) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != KEPT}

    for method in (__hash__, __getstate__):
        setattr(cls, method.__name__, method)
    return cls
