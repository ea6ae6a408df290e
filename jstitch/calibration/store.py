"""Where a machine's measurements are kept: one small JSON file per machine, in the cache folder.

<cache>/calibration-<key>.json      {"schema": 1, "key": ..., "machine": {"lane_cycle": 1e-11, ...}}

The key is made of the processor, the cores that this process may use, and the versions that kernels depend
on; a file of another key, or one that others may have written (trusted.py), is never read. A file is written
under a temporary name and renamed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jstitch.errors import JstitchWarning
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine
from jstitch.runtime.cache import default_directory
from jstitch.runtime.native_object import host_processor
from jstitch.runtime.process_block import available_threads
from jstitch.runtime.trusted import open_folder
from jstitch.runtime.versions import measured_with

SCHEMA = 1
CURVES = ("bandwidths", "lone_bandwidths")
NUMBERS = (
    *("launch", "call_seconds", "lane_cycle", "cores", "vector_bytes", "near_bytes", "fork", "operand"),
)
"""The fields of Machine that are measured; the others describe XLA's and our code, on any machine."""

_MACHINE_KEYS = frozenset({*CURVES, *NUMBERS})
_remembered: dict[Path, Machine | None] = {}
_warned: set[Path] = set()


@dataclass(frozen=True)
class Place:
    """The file of this machine in a cache folder. description: what its key is made of."""

    path: Path
    description: str


def place(folder: str | None = None) -> Place:
    """folder: CompileOptions.cache_dir, None = the default."""
    parts = f"{host_processor()}; {available_threads()} cores; {measured_with()}"
    key = hashlib.sha256(parts.encode()).hexdigest()[:16]
    root = default_directory().parent if folder is None else Path(folder)
    return Place(root / f"calibration-{key}.json", parts)


def save(machine: Machine, where: Place) -> None:
    """Write the measured fields, all or nothing. Raises OSError."""
    text = json.dumps({"schema": SCHEMA, "key": where.description, "machine": _fields(machine)}, indent=1)
    with open_folder(where.path.parent, make=True, follow=True) as folder:
        folder.write(where.path.name, f"{text}\n".encode())
    _remembered[where.path] = machine


def load(where: Place) -> Machine | None:
    """The machine as measured, None when it was not; read once per process.

    A file that cannot be read, or says what no machine can be, is one warning and as if there were none.
    """
    if where.path not in _remembered:
        _remembered[where.path] = _load(where)
    return _remembered[where.path]


def clear(where: Place) -> bool:
    """Forget the measurements; whether there were any."""
    _remembered.pop(where.path, None)
    there = where.path.exists()
    where.path.unlink(missing_ok=True)
    return there


def _load(where: Place) -> Machine | None:
    try:
        with open_folder(where.path.parent, follow=True) as folder:
            text = folder.read(where.path.name).data
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse(where, str(error))
        return None
    try:
        return _machine(json.loads(text), where)
    except (ValueError, TypeError, KeyError) as error:
        _refuse(where, f"{type(error).__name__}: {error}")
        return None


def _machine(read: Any, where: Place) -> Machine | None:
    """Raises ValueError, TypeError or KeyError for what is not a calibration of this machine."""
    if read["schema"] != SCHEMA or read["key"] != where.description:
        raise ValueError(f"expected schema {SCHEMA} and the key of this machine")
    fields = dict(read["machine"])
    if fields.keys() != _MACHINE_KEYS:
        raise ValueError(f"expected the fields {sorted(_MACHINE_KEYS)}, found {sorted(fields)}")
    known: dict[str, Any] = {name: _number(name, fields[name]) for name in NUMBERS}
    known |= {name: BandwidthCurve(tuple((float(a), float(b)) for a, b in fields[name])) for name in CURVES}
    return replace(Machine(), **known)


def _number(name: str, value: Any) -> Any:
    """A positive number of the field's own type."""
    wanted = type(getattr(Machine(), name))
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"expected a positive number for {name}, found {value!r}")
    return wanted(value)


def _fields(machine: Machine) -> dict[str, Any]:
    found = dataclasses.asdict(machine)
    return {name: found[name] for name in NUMBERS} | {name: found[name]["points"] for name in CURVES}


def _refuse(where: Place, problem: str) -> None:
    if where.path not in _warned:
        _warned.add(where.path)
        warnings.warn(
            f"jstitch cannot use the calibration {where.path}: {problem}. The cost models use their defaults;"
            " run `python -m jstitch calibrate` again, or with --clear.",
            JstitchWarning,
            stacklevel=5,
        )
