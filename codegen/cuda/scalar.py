"""What a name or an expression of kernel text stands for while it is being lowered.

    Operand    a scalar: its kind, its LLVM value, and its number where it is known at compile time
    Slot       a variable that is assigned again: memory that LLVM turns into registers
    Registers  an array whose elements live in registers; only compile-time numbers index it

Kinds are the kernel dtypes that computations use (narrow floats are f32 there) and `index`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.convert import NARROW, Narrow
from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda.builder import Builder


@dataclass(frozen=True)
class Kind:
    """The type of a scalar in registers."""

    name: str
    llvm: Any
    signed: bool = False

    @property
    def is_float(self) -> bool:
        return isinstance(self.llvm, ir.FloatType | ir.DoubleType)

    @property
    def is_integral(self) -> bool:
        """An integer, an index or a bool."""
        return isinstance(self.llvm, ir.IntType)

    @property
    def bits(self) -> int:
        return (
            int(self.llvm.width) if self.is_integral else 64 if isinstance(self.llvm, ir.DoubleType) else 32
        )


BOOL = Kind("bool", ir.IntType(1))
F32 = Kind("f32", ir.FloatType())
F64 = Kind("f64", ir.DoubleType())
S64 = Kind("s64", ir.IntType(64), signed=True)
INTEGERS = {
    f"{letter}{width}": Kind(f"{letter}{width}", ir.IntType(width), letter == "s")
    for letter in "su"
    for width in (8, 16, 32, 64)
}
GLOBAL = 1
ADDRESS = Kind("address", ir.IntType(8).as_pointer(GLOBAL))  # of bytes in global memory
KINDS: dict[str, Kind] = {"bool": BOOL, **INTEGERS, "f32": F32, "f64": F64}
_INDEX = {bits: Kind("index", ir.IntType(bits), signed=True) for bits in (32, 64)}


def index_kind(builder: Builder) -> Kind:
    """The kind of plain integers, loop variables and thread numbers."""
    return _INDEX[builder.index.width]


@dataclass(frozen=True)
class Storage:
    """A dtype in memory: its bits, and what it is in registers."""

    name: str
    bits: int
    kind: Kind
    narrow: Narrow | None = None

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def llvm(self) -> Any:
        """The type of one element in memory; bits for a narrow float."""
        return ir.IntType(self.bits) if self.narrow or self.kind == BOOL else self.kind.llvm


STORAGE: dict[str, Storage] = {
    **{name: Storage(name, max(kind.bits, 8), kind) for name, kind in KINDS.items()},
    **{name: Storage(name, form.width, F32, form) for name, form in NARROW.items()},
}


@dataclass(frozen=True)
class Operand:
    """A scalar. number: its value where it is known at compile time."""

    kind: Kind
    raw: Any
    number: bool | int | float | None = None

    def value(self, builder: Builder) -> Value:
        return Value(builder, self.raw)


def constant(kind: Kind, number: bool | int | float) -> Operand:
    return Operand(kind, ir.Constant(kind.llvm, int(number) if kind.is_integral else float(number)), number)


@dataclass(frozen=True)
class Slot:
    """A mutable variable."""

    kind: Kind
    pointer: Any


@dataclass(frozen=True)
class Registers:
    """An array of scalars of one kind. Elements are slots where the text assigns them."""

    kind: Kind
    elements: tuple[Slot | Operand, ...]


Argument = Operand | Registers


def describe(argument: Argument) -> str:
    """For messages: f32, an array of f32, an address."""
    match argument:
        case Operand(kind):
            return kind.name
        case Registers(kind):
            return f"an array of {kind.name}"
