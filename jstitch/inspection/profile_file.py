"""A profile that `jax.profiler` wrote: what ran when, and of which program it is which instruction.

jax.profiler.trace("folder")   ->   folder/plugins/profile/2026_11_26_12_00_00/host.xplane.pb

What ran is read with JAX's own reader; the programs, which that does not give, with `profile_schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from jstitch.errors import ParseError

ENDING = ".xplane.pb"
_IDENTITY = "jstitch."  # see jstitch.frontend.custom_call
_HOST, _DEVICE, _STREAM = "/host:CPU", "/device:", "Stream"


@dataclass(frozen=True)
class Instruction:
    """Of a program's HLO. scope: the names around it, and its own. lines: `file:line (function)`.

    identity: what a call of ours says of itself, {} of XLA's own.
    """

    name: str
    opcode: str
    scope: str
    lines: tuple[str, ...]
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A compiled program, and its instructions by name."""

    name: str
    number: int
    instructions: Mapping[str, Instruction]

    @cached_property
    def entries(self) -> Mapping[str, Instruction]:
        """Of GPU kernels of ours, by their own names."""
        ours = self.instructions.values()
        return {i.identity["entry"]: i for i in ours if "entry" in i.identity}


@dataclass(frozen=True)
class Ran:
    """One event. start: in seconds, as are its own. program, module: number and name, where it has them.

    run: tells executions of a program apart. instruction: its name in HLO, "" where nobody knows.
    """

    name: str
    start: float
    seconds: float
    program: int | None
    module: str
    run: tuple[Any, ...]
    instruction: str
    on_device: bool

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class Profile:
    """One file. programs: by number."""

    programs: Mapping[int, Program]
    ran: tuple[Ran, ...]

    def instruction(self, ran: Ran) -> tuple[Program, Instruction] | None:
        """What ran; None where the profile does not hold it. Kernels in a CUDA graph have only their name."""
        known = None if ran.program is None else self._numbered.get((ran.program, ran.module))
        for program in self.programs.values() if known is None else (known,):
            found = program.entries.get(ran.name)
            if found is None and known is not None:
                found = program.instructions.get(ran.instruction)
            if found is not None:
                return program, found
        return None

    @cached_property
    def _numbered(self) -> Mapping[tuple[int, str], Program]:
        """By the numbers and names that events have.

        Of a program from JAX's compilation cache, the number in HLO is a later one than that of its events.
        """
        events = {(ran.program, ran.module) for ran in self.ran if ran.program is not None}
        taken, found = {number for number, _ in events}, {}
        for number, module in events:
            later = (
                n for n, p in self.programs.items() if n > number and n not in taken and p.name == module
            )
            chosen = number if number in self.programs else min(later, default=None)
            if chosen is not None:
                found[number, module] = self.programs[chosen]
        return found


def find_profiles(path: Path) -> list[Path]:
    """The file, or those of the newest profile in a folder, one of each host.

    Raises ParseError where there is none.
    """
    if path.is_file():
        return [path]
    found = sorted(path.rglob(f"*{ENDING}"))
    if not found:
        raise ParseError(
            f"a profile (*{ENDING}) or a folder with one",
            f"{path}, which holds none" if path.exists() else f"no {path}",
            hint="with jax.profiler.trace(folder): call the program, and wait for its results",
        )
    newest = max(found, key=lambda file: file.stat().st_mtime).parent
    return [file for file in found if file.parent == newest]


def read_profile(path: Path) -> Profile:
    """Raises ParseError for a file that is none, OSError for one that cannot be read."""
    # Imported here because it takes a twentieth of a second, and only `jstitch trace` needs it.
    from jstitch.inspection.profile_schema import modules

    content = path.read_bytes()
    try:
        space = ProfileData.from_serialized_xspace(content)
        programs = {module.id: _program(module) for module in modules(content)}
    except (RuntimeError, ValueError) as error:
        raise ParseError(
            "a profile as jax.profiler writes it", f"{len(content)} bytes that are none", where=str(path)
        ) from error
    return Profile(programs, tuple(_once(list(_events(space)))))


def _program(module: Any) -> Program:
    found = (i for computation in module.computations for i in computation.instructions)
    made = (_instruction(i, module.frames) for i in found)
    return Program(module.name, module.id, {i.name: i for i in made})


def _instruction(found: Any, index: Any) -> Instruction:
    attributes = {entry.key: entry.value for entry in found.frontend_attributes.map}
    own = {k.removeprefix(_IDENTITY): v for k, v in attributes.items() if k.startswith(_IDENTITY)}
    lines = tuple(_lines(index, found.metadata.stack_frame_id))
    return Instruction(found.name, found.opcode, found.metadata.op_name, lines, own)


def _lines(index: Any, number: int) -> Iterator[str]:
    """Of the frame and its callers, up to the first line that comes again. Numbers begin with 1."""
    seen: set[str] = set()
    while 0 < number <= len(index.frames):
        frame = index.frames[number - 1]
        place = index.locations[frame.location_id - 1]
        function = index.functions[place.function_id - 1] if place.function_id else ""
        line = f"{index.files[place.file_id - 1]}:{place.line}" + (f" ({function})" if function else "")
        if line in seen:
            return
        seen.add(line)
        yield line
        number = frame.parent_id


def _events(space: Any) -> Iterator[Ran]:
    """Instructions that ran on the CPU, and all that ran in a GPU's streams."""
    for plane in space.planes:
        on_device = plane.name.startswith(_DEVICE)
        if not on_device and plane.name != _HOST:
            continue
        for line in plane.lines:
            if on_device and not line.name.startswith(_STREAM):
                continue
            for event in line.events:
                stats = dict(iter(event.stats))
                if on_device or "hlo_op" in stats:
                    yield _ran(event, stats, on_device, plane.name)


def _ran(event: Any, stats: Mapping[str, Any], on_device: bool, plane: str) -> Ran:
    number = stats.get("program_id")
    run = (plane, number, stats.get("run_id"), stats.get("device_ordinal"))
    program, name = None if number is None else int(number), stats.get("hlo_op", "")
    return Ran(
        event.name,
        event.start_ns / 1e9,
        event.duration_ns / 1e9,
        program,
        stats.get("hlo_module", ""),
        run,
        name,
        on_device,
    )


def _once(events: list[Ran]) -> Iterator[Ran]:
    """Without the host's part in what ran on a device."""
    devices = {ran.program for ran in events if ran.on_device}
    return (ran for ran in events if ran.on_device or ran.program not in devices)
