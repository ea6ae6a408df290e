"""From a function that writes LLVM IR to a Numba intrinsic: the typing half of every function.

    exp = floats("exp", 1, exponential.exp)

Both operands of a binary function have one type; an integer literal takes the other operand's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.core.errors import TypingError
from numba.core.types.misc import unliteral
from numba.extending import intrinsic

from jstitch.codegen.cpu.expression import Value

Build = Callable[..., Value]
FLOATS = (types.float32, types.float64)


def declare(name: str, arity: int, typing: Callable[..., tuple[Any, Any]], doc: str | None = None) -> Any:
    """A Numba intrinsic `name` of `arity` arguments; typing(*types) -> (signature, codegen)."""

    def zero(typingctx: Any) -> Any:
        return typing()

    def one(typingctx: Any, x: Any) -> Any:
        return typing(x)

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        return typing(x, y)

    def three(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
        return typing(x, y, z)

    def four(typingctx: Any, x: Any, y: Any, z: Any, w: Any) -> Any:
        return typing(x, y, z, w)

    function = (zero, one, two, three, four)[arity]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return intrinsic(prefer_literal=True)(function)


def emitter(build: Build, *extra: Any) -> Callable[..., Any]:
    """Numba's codegen callback that calls build(*values, *extra)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return build(*(Value(builder, argument) for argument in arguments), *extra).raw

    return codegen


def plain(numba_type: Any) -> Any:
    """The type without its literal value."""
    return unliteral(numba_type)


def common(name: str, *operands: Any) -> Any:
    """The one type of the operands, not counting integer literals. Raises TypingError when they differ."""
    firm = {t for t in operands if not isinstance(t, types.IntegerLiteral)}
    found = {plain(t) for t in (firm or operands)}
    if len(found) != 1:
        raise TypingError(f"{name}: expected operands of one type, found {', '.join(map(str, operands))}.")
    return found.pop()


def is_float(numba_type: Any) -> bool:
    return numba_type in FLOATS


def is_integral(numba_type: Any) -> bool:
    """Integer or bool."""
    return isinstance(numba_type, types.Integer) or numba_type == types.boolean


def _check(name: str, numba_type: Any, ok: bool, expected: str) -> None:
    if not ok:
        raise TypingError(f"{name}: expected {expected}, found {numba_type}.")


def floats(name: str, arity: int, build: Build, predicate: bool = False) -> Any:
    """A function of f32 or f64 operands; the result has their type, or is bool for a predicate."""

    def typing(*operands: Any) -> tuple[Any, Any]:
        operand = common(name, *operands)
        _check(name, operand, is_float(operand), "float32 or float64")
        result = types.boolean if predicate else operand
        return result(*[operand] * arity), emitter(build)

    return declare(name, arity, typing, build.__doc__)


def integers(name: str, arity: int, build: Build, booleans: bool = False) -> Any:
    """A function of integers of one type (bool too when `booleans`); build(*values, signed)."""

    def typing(*operands: Any) -> tuple[Any, Any]:
        operand = common(name, *operands)
        ok = isinstance(operand, types.Integer) or (booleans and operand == types.boolean)
        _check(name, operand, ok, "an integer" + (" or bool" if booleans else ""))
        return operand(*[operand] * arity), emitter(build, getattr(operand, "signed", False))

    return declare(name, arity, typing, build.__doc__)


def anything(name: str, arity: int, build: Build) -> Any:
    """A function of any scalars of one type; build(*values, signed)."""

    def typing(*operands: Any) -> tuple[Any, Any]:
        operand = common(name, *operands)
        _check(name, operand, is_float(operand) or is_integral(operand), "a kernel scalar")
        return operand(*[operand] * arity), emitter(build, getattr(operand, "signed", False))

    return declare(name, arity, typing, build.__doc__)


def indices(name: str, arity: int, build: Build) -> Any:
    """A function of 64-bit indices."""

    def typing(*operands: Any) -> tuple[Any, Any]:
        for operand in operands:
            _check(name, operand, isinstance(plain(operand), types.Integer), "an integer")
        return types.int64(*[types.int64] * arity), emitter(build)

    return declare(name, arity, typing, build.__doc__)
