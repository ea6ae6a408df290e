"""A saved plan as TOML that a person can read, and review by its diffs: a source line of a kernel in a line.

save_plan(plan, Path("plan.txt"), "step")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Array, Table

from jstitch.plan_file import FORMAT, Line, PinnedCall, PinnedKernel, PlanFile
from jstitch.runtime.whole_file import write_text

ABOUT = """\
The kernels that jstitch makes of {name}, by `jstitch plan --save`. To build these, whatever models
and clocks say: CompileOptions(plan="THIS FILE"), or JSTITCH_PLAN. docs/pinning.md explains what is here."""


def save_plan(plan: PlanFile, path: Path, name: str) -> None:
    """Write the file, whole or not at all. name: of the program. Raises OSError."""
    write_text(path, plan_text(plan, name))


def plan_text(plan: PlanFile, name: str) -> str:
    """What `read_plan` reads."""
    found = tomlkit.document()
    for line in ABOUT.format(name=name).splitlines():
        found.add(tomlkit.comment(line))
    for key, value in (
        ("format", FORMAT),
        ("jstitch", plan.jstitch),
        ("jax", plan.jax),
        ("target", plan.target),
    ):
        found.add(key, tomlkit.item(value))
    if plan.options:
        found.add("options", _inline(plan.options))
    if plan.calls:
        found.add("calls", _tables(map(_call, plan.calls)))
    return tomlkit.dumps(found)


def _call(call: PinnedCall) -> Table:
    found = tomlkit.table()
    for key in ("name", "program", "graph"):
        found.add(key, getattr(call, key))
    order = tomlkit.array()
    order.extend(list(run) for run in call.order)
    found.add("order", order)
    if call.kernels:
        found.add("kernels", _tables(_kernels(call.kernels)))
    if call.left:
        found.add("left", _tables(_table({"why": left.why, "ops": _lines(left.ops)}) for left in call.left))
    return found


def _kernels(kernels: Sequence[PinnedKernel]) -> Iterator[Table]:
    """Those that are like an earlier one by its name."""
    known: dict[PinnedKernel, str] = {}
    for kernel in kernels:
        nameless = replace(kernel, name="")
        like = known.setdefault(nameless, kernel.name)
        yield _kernel(kernel) if like == kernel.name else _table({"name": kernel.name, "like": like})


def _kernel(kernel: PinnedKernel) -> Table:
    made = {key: getattr(kernel, key) for key in ("id", "origin", "loops")}
    shares = kernel.xla, kernel.ours
    return _table(
        {
            "name": kernel.name,
            "made": _inline({**made, "schemes": list(kernel.schemes)}),
            "cost": _inline({"launches": [x.launches for x in shares], "mb": [x.mb for x in shares]}),
            **({"schedule": _array(kernel.schedule, lines=True)} if kernel.schedule else {}),
            "ops": _lines(kernel.ops),
        }
    )


def _lines(lines: Sequence[Line]) -> Array:
    return _array([_inline({"at": line.at, "ops": list(line.ops)}) for line in lines], lines=True)


def _array(items: Sequence[Any], lines: bool = False) -> Array:
    found = tomlkit.array()
    found.extend(items)
    return found.multiline(lines and bool(items))


def _inline(fields: Any) -> Any:
    found = tomlkit.inline_table()
    found.update(fields)
    return found


def _table(fields: Any) -> Table:
    found = tomlkit.table()
    for key, value in fields.items():
        found.add(key, value)
    return found


def _tables(tables: Iterable[Table]) -> AoT:
    found = tomlkit.aot()
    for table in tables:
        found.append(table)
    return found
