"""Plans and explanations as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from jstitch.ir.reason import Reason


def json_fields(value: Any) -> Any:
    """Dataclasses as objects, without fields that are not printed, sequences as arrays.

    A reason with its sentence as one can read it.
    """
    match value:
        case Reason(rule, _, found, bound):
            return {"rule": rule, "reason": str(value), "found": found, "bound": bound}
        case Mapping():
            return {str(key): json_fields(item) for key, item in value.items()}
        case list() | tuple():
            return [json_fields(item) for item in value]
        case _ if is_dataclass(value):
            return {f.name: json_fields(getattr(value, f.name)) for f in fields(value) if f.repr}
        case _:
            return value
