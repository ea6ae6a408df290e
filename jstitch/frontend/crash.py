"""What is left of a call that a pass fails on: one file that fails the same way, in any process.

// jstitch reproducer 1: jstitch opt --run-reproducer THIS_FILE
// {"via": "pipeline", "failed": "cse", "error": "VerifyError: ...", "pipeline": "canonicalize,cse", ...}
module { func.func public @main(...) }

The module is the one that the pipeline was given; to other tools the file is a module like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from jstitch.device_spec import DeviceSpec, find_spec
from jstitch.errors import CannotFuseError, OptionError, ParseError
from jstitch.frontend.exporter import export_module
from jstitch.frontend.mlir import ir
from jstitch.ir.graph import Graph
from jstitch.options import ELSEWHERE, CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import blamed
from jstitch.passes.named_passes import default_passes
from jstitch.passes.schedule.kernel_passes import kernel_passes
from jstitch.runtime.versions import measured_with
from jstitch.runtime.whole_file import write_text

SCHEMA = 1
_FIRST = f"// jstitch reproducer {SCHEMA}: jstitch opt --run-reproducer THIS_FILE"
_COMMENT = "// "
_EXPECTED = "a file that JSTITCH_REPRODUCER_DIR or --reproducer wrote"


@dataclass(frozen=True)
class Crash:
    """via: 'opt' for the command's passes, 'pipeline' for all that `jit` does. name: of the call.

    pipeline: passes as `jstitch opt --passes` takes them. failed: the pass, "" when it was none. error: type
    and message. options: of `CompileOptions`, with the target that was found. versions: of what took part.
    kernels: whether plans became kernels. emit: of `opt`. donated: inputs whose memory may be written, and
    the outputs that take it. arguments: which inputs are the program's own, None for a part of a program.
    """

    via: str
    name: str
    pipeline: str
    failed: str
    error: str
    options: Mapping[str, Any]
    versions: str
    kernels: bool = True
    emit: str | None = None
    donated: tuple[tuple[int, int | None], ...] = ()
    arguments: tuple[int, ...] | None = None

    def compile_options(self) -> CompileOptions:
        """Raises OptionError for options that there are not."""
        known = {f.name for f in fields(CompileOptions)} - ELSEWHERE
        if unknown := sorted(set(self.options) - known):
            raise OptionError(f"options among {', '.join(sorted(known))}", ", ".join(unknown))
        read: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in self.options.items()
        }
        if isinstance(target := read.get("target"), dict):
            read["target"] = DeviceSpec(**{**target, "capability": tuple(target["capability"])})
        return CompileOptions(**read)


# -- writing one ------------------------------------------------------------------------------------------


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def crash_of(error: Exception, context: Context, **more: Any) -> Crash:
    """more: fields that are not as `jit` has them."""
    found: dict[str, Any] = {
        "via": "pipeline",
        "name": "main",
        "pipeline": _pipeline(context),
        "failed": blamed(error),
        "error": describe(error),
        "options": kept_options(context),
        "versions": measured_with(),
    }
    return Crash(**{**found, **more})


def _pipeline(context: Context) -> str:
    passes = (*default_passes(context.options.planner), *kernel_passes(context.machine))
    return ",".join(str(p) for p in passes if p.name not in context.options.without)


def kept_options(context: Context) -> dict[str, Any]:
    """As JSON has them."""
    device = context.machine.device
    kept = {
        f.name: getattr(context.options, f.name) for f in fields(CompileOptions) if f.name not in ELSEWHERE
    }
    known = device is not None and find_spec(device.name) == device
    return {**kept, "target": "cpu" if device is None else device.name if known else asdict(device)}


@contextmanager
def leaving_crash(
    folder: str | None, crash: Callable[[Exception], Crash], module: Callable[[], str]
) -> Iterator[None]:
    """Write a file of what is raised inside, into the folder, and say in a note of the error where it is.

    What cannot be written costs the file; the note says why. What the user asked for in vain is no crash.
    """
    try:
        yield
    except CannotFuseError:
        raise
    except Exception as error:
        if folder is not None:
            error.add_note(_leave(Path(folder), crash, module, error))
        raise


def leaving(
    graph: Graph,
    context: Context,
    name: str,
    kernels: bool,
    donated: Mapping[int, int | None],
    arguments: Collection[int] | None,
) -> AbstractContextManager[None]:
    """Around the pipeline of one call, where the options ask for it. graph: as it was imported."""
    crash = partial(
        crash_of,
        context=context,
        name=name,
        kernels=kernels,
        donated=tuple(donated.items()),
        arguments=None if arguments is None else tuple(sorted(arguments)),
    )
    return leaving_crash(context.options.reproducer_dir, crash, partial(graph_text, graph))


def _leave(
    folder: Path, crash: Callable[[Exception], Crash], module: Callable[[], str], error: Exception
) -> str:
    try:
        path = write_crash(folder, crash(error), module())
        return f"  again: jstitch opt --run-reproducer {path}"
    except Exception as why:
        return f"  again: no reproducer could be written to {folder}: {describe(why)}"


def write_crash(folder: Path, crash: Crash, module: str) -> Path:
    """Named by its content: the same failure is one file. Raises OSError."""
    about = json.dumps(asdict(crash), indent=1).splitlines()
    text = "\n".join([_FIRST, *(f"{_COMMENT}{line}" for line in about), module]) + "\n"
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in crash.name)[:100]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.mlir"
    write_text(path, text)
    return path


def module_text(module: ir.Module) -> str:
    """With the places in the user's source."""
    return str(module.operation.get_asm(enable_debug_info=True))


def graph_text(graph: Graph) -> str:
    """The graph as a module of its own."""
    return module_text(export_module(graph))


# -- reading one ------------------------------------------------------------------------------------------


def read_crash(data: bytes) -> Crash:
    """What the head of the file says. Raises ParseError for what is no such file."""
    first, *lines = data.decode("utf-8", "replace").split("\n")
    if first != _FIRST:
        raise ParseError(f"{_EXPECTED}, which begins {_FIRST!r}", repr(first[:80]))
    head: list[str] = []
    for line in lines:
        if not line.startswith(_COMMENT):
            break
        head.append(line.removeprefix(_COMMENT))
    try:
        found = json.loads("\n".join(head))
        return _checked(Crash(**found))
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError(_EXPECTED, str(error)) from None


def _checked(crash: Crash) -> Crash:
    """With tuples for JSON's lists. Raises TypeError or ValueError for what no field can be."""
    texts = (crash.via, crash.name, crash.pipeline, crash.failed, crash.error, crash.versions)
    if not all(isinstance(text, str) for text in texts) or not isinstance(crash.options, dict):
        raise TypeError("a field of another type")
    donated = tuple((int(k), None if out is None else int(out)) for k, out in crash.donated)
    arguments = None if crash.arguments is None else tuple(map(int, crash.arguments))
    return replace(crash, donated=donated, arguments=arguments)
