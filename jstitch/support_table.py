"""README's table of supported ops, made from the op table.

    python -m jstitch.support_table README.md        rewrites the table between its two marker comments
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from jstitch.errors import ParseError
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OPS, OpClass, OpDef
from jstitch.ir.types import DType, TensorType

BEGIN = "<!-- support table: python -m jstitch.support_table README.md -->"
END = "<!-- end of support table -->"

_WHERE = {
    OpClass.LIGHT: "in kernels",
    OpClass.EXPENSIVE: "in kernels",
    OpClass.REDUCTION: "in kernels",
    OpClass.SHAPE: "in kernels, as index arithmetic: nothing is moved",
    OpClass.INDEX: "in kernels, as index arithmetic: nothing is moved",
    OpClass.CONSTANT: "in kernels when small or uniform, else an input",
    OpClass.CONTRACTION: "left to XLA",
    OpClass.CONTROL: "left to XLA; its regions are stitched",
}


def support_table() -> str:
    """Markdown: one row per class of ops."""
    return "\n".join(["| ops | kind | where they run |", "| --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for kind, where in _WHERE.items():
        ours, others = _split([d for d in OPS.values() if d.op_class is kind])
        for names, place in ((ours, where), (others, "left to XLA")):
            if names:
                yield f"| {', '.join(f'`{n}`' for n in names)} | {kind.value} | {place} |"
    yield "| everything else | opaque | left to XLA |"


def _split(definitions: list[OpDef]) -> tuple[list[str], list[str]]:
    """Names of StableHLO's and CHLO's ops, sorted: those that kernels can hold, and the rest."""
    named = [d for d in definitions if d.name.startswith(("stablehlo.", "chlo."))]
    named.sort(key=lambda d: (d.name.startswith("chlo."), d.name))
    ours = {d.name for d in named if not d.op_class.is_elementwise or _has_kernel_form(d)}
    short = {d.name: d.name.removeprefix("stablehlo.") for d in named}
    return [short[n] for n in short if n in ours], [short[n] for n in short if n not in ours]


def _has_kernel_form(definition: OpDef) -> bool:
    """Whether kernels have an expression for some type; one that depends on attributes is there."""
    if definition.scalar is None:
        return False
    for dtype in (DType.F32, DType.S32, DType.BOOL):
        value = Value(TensorType((), dtype))
        try:
            if definition.scalar(Op(definition.name, (value,), (value,))) is not None:
                return True
        except KeyError:
            return True
    return False


def updated(readme: str) -> str:
    """The text with its table made anew. Raises ParseError when the two markers are not there in order."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ParseError(f"the lines {BEGIN!r} and {END!r}", "a text without them", hint="put them back")
    return f"{before}{BEGIN}\n{support_table()}\n{END}{after}"


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(updated(path.read_text()))


if __name__ == "__main__":
    main()
