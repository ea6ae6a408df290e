"""What a check of `jstitch doctor` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import util
from typing import Literal

Status = Literal["ok", "warn", "fail", "none"]


@dataclass(frozen=True)
class Finding:
    """status: `none` is something optional that is not here. hint: what to do next."""

    name: str
    status: Status
    text: str
    hint: str = ""

    def fields(self) -> dict[str, str]:
        return asdict(self)


Check = Callable[[str], Finding]


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


def is_installed(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
