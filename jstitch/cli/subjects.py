"""What a command looks at: a StableHLO file, or a function of the user's with its arguments.

FILE.mlir, -                                        text, MLIR bytecode or a portable artifact
pkg.mod:name, path/to/file.py:name                  name() gives (f, args) or (f, args, kwargs)
pkg.mod:name --args "f32[1024,768] s32[]"           name is f itself
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import jax
import numpy as np

from jstitch.cli.files import InputError, bad_input, read_module
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import Observed
from jstitch.inspection.inspected import Inspected, inspect_function, inspect_module
from jstitch.inspection.subject import observe_function, observe_module
from jstitch.ir.types import DType
from jstitch.options import CompileOptions

SUBJECT = click.argument("subject", metavar="FILE.mlir|MODULE:FUNCTION")
ARGS = click.option(
    "--args", "args", help='Shapes that the function is given, such as "f32[1024,768] s32[]".'
)
_SHAPE = re.compile(r"(?P<dtype>\w+)(?:\[(?P<dims>[\d,]*)\])?")


@dataclass(frozen=True)
class ModuleSubject:
    """A StableHLO module that was read from `name`."""

    name: str
    module: ir.Module


@dataclass(frozen=True)
class FunctionSubject:
    """A function with its arguments: arrays, or `jax.ShapeDtypeStruct`s in their place."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Subject = ModuleSubject | FunctionSubject


def read_subject(text: str, args: str | None = None) -> Subject:
    """What the command line names. args: the --args option. Raises InputError with a line of reason."""
    place, colon, name = text.rpartition(":")
    if colon and name.replace(".", "_").isidentifier() and not Path(text).exists():
        found = _find(place, name)
        return _make(text, found) if args is None else FunctionSubject(text, found, read_shapes(args))
    if args is not None:
        raise InputError(f"{text}: --args is for MODULE:FUNCTION, a module file has its own")
    return ModuleSubject(text, read_module(Path(text)))


def observe(subject: Subject, options: CompileOptions, *, kernels: bool = True) -> tuple[Observed, ...]:
    """Every stitched call in it, taken through the pipeline. Raises InputError for what cannot be.

    kernels: make them of what is planned.
    """
    match subject:
        case ModuleSubject(name, module):
            with bad_input(name):
                return (observe_module(module, options, kernels=kernels),)
        case FunctionSubject(name, f, args, kwargs):
            with their_code(name):
                return observe_function(f, args, kwargs, options, kernels=kernels)


def inspect_subject(subject: Subject, options: CompileOptions) -> Inspected:
    """Every stitched call in it, planned and not compiled. Raises InputError for what cannot be."""
    match subject:
        case ModuleSubject(name, module):
            with bad_input(name):
                return inspect_module(module, options)
        case FunctionSubject(name, f, args, kwargs):
            with their_code(name):
                return inspect_function(f, args, kwargs, options)


def read_shapes(text: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """ "f32[2,3] s32[]" as arguments. Raises InputError for what is not a shape."""
    return tuple(map(_shape, text.split()))


def _shape(word: str) -> jax.ShapeDtypeStruct:
    match = _SHAPE.fullmatch(word)
    dtype = match and _dtype(match["dtype"])
    if not match or dtype is None:
        raise InputError(f"--args: expected dtype[dims] such as f32[1024,768] or s32[], found {word!r}")
    dims = tuple(int(n) for n in (match["dims"] or "").split(",") if n)
    return jax.ShapeDtypeStruct(dims, dtype)  # type: ignore[no-untyped-call]


def _dtype(name: str) -> np.dtype[Any] | None:
    """By StableHLO's name, JAX's short one (s32, u8, bool, c64), or NumPy's."""
    for dtype in DType:
        if name.lower() in (dtype.value.lower(), dtype.name.lower(), dtype.numpy.name):
            return dtype.numpy
    return None


def _make(text: str, maker: Any) -> FunctionSubject:
    """The function and the arguments that a function without parameters gives."""
    wanted = "(f, args) or (f, args, kwargs)"
    needed = [p for p in inspect.signature(maker).parameters.values() if p.default is p.empty]
    if any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed):
        names = ", ".join(p.name for p in needed)
        raise InputError(
            f"{text}: expected a function without parameters that returns {wanted}, found parameters"
            f" {names}; give their shapes with --args"
        )
    with their_code(text):
        made = maker()
    match made:
        case (f, tuple() | list() as args) if callable(f):
            return FunctionSubject(text, f, tuple(args))
        case (f, tuple() | list() as args, Mapping() as kwargs) if callable(f):
            return FunctionSubject(text, f, tuple(args), dict(kwargs))
    raise InputError(f"{text}: expected it to return {wanted}, found {type(made).__name__}")


def _find(place: str, name: str) -> Callable[..., Any]:
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise InputError(f"{place}: expected a function called {name}, found none") from None
    if not callable(found):
        raise InputError(f"{place}:{name}: expected a function, found {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _load_module(name: str) -> ModuleType:
    with their_code(name), _importing_from(Path.cwd()):
        return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: expected a Python file, found none")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    with their_code(str(path)), _importing_from(path.resolve().parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """As `python FILE` and `python -m` do."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def their_code(where: str) -> Iterator[None]:
    """What the user's code raises, in one line: the last of its message."""
    try:
        yield
    except (InputError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        lines = str(error).strip().splitlines()
        said = f": {lines[-1] if isinstance(error, SyntaxError) or not lines else lines[0]}" if lines else ""
        raise InputError(f"{where}: {type(error).__name__}{said}") from error
