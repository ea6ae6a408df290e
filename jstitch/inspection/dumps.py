"""Read what `dump_dir` (JSTITCH_DUMP_DIR) writes: calls, their numbered stages, their kernels.

read_dump(Path("dump"))[0].stage("cse").read()
read_dump(Path("dump"))[0].kernels["loss_0"].texts["phase0.ptx"]

Files that are none of ours are passed over; files of ours that are missing are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.memory_map import LaneMap, memory_of
from jstitch.errors import ParseError
from jstitch.frontend.dump import SCHEMA

LARGEST = 1 << 30  # bytes of a file that is read
_FILE = re.compile(r"(\d{2,})_(.+)\.(txt|mlir|py|ptx|json)")
_CALL = re.compile(r"(.*)_(\d+)")
_KERNEL = re.compile(r"(.+?)\.((?:kernel|refused|after_\w+)\.txt|py|json|\w+\.ptx)")
_OP = re.compile(r'^\s*(?:%[^=]* = )?"?([a-z_]+\.[a-z_][\w.]*)"?(?=[ (])', re.M)
WRITTEN = "a folder that dump_dir (JSTITCH_DUMP_DIR) wrote"


@dataclass(frozen=True)
class Stage:
    """One file of a call. name: without its number, such as `cse.txt`. stem: without its ending."""

    number: int
    name: str
    path: Path

    @property
    def stem(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_graph(self) -> bool:
        """Whether it is the program after a pass, or before all of them."""
        return self.name == "input.mlir" or (self.name.count(".") == 1 and self.first_word == "graph")

    @cached_property
    def first_word(self) -> str:
        return self.read()[:6].partition("(")[0]

    def read(self) -> str:
        """Raises ParseError for a file that cannot be one of ours, OSError for one that cannot be read."""
        if self.path.stat().st_size > LARGEST:
            raise ParseError(f"at most {LARGEST} bytes", f"{self.path.stat().st_size}", where=str(self.path))
        try:
            return self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ParseError("text", f"byte {error.start} is none", where=str(self.path)) from None

    @property
    def ops(self) -> list[str]:
        """Names of ops, in order, in files that hold a program."""
        return [] if self.name.endswith((".py", ".ptx", ".json")) else _OP.findall(self.read())

    @property
    def lines(self) -> int:
        return len(self.read().splitlines())


@dataclass(frozen=True)
class DumpedKernel:
    """Files of one kernel by ending: `kernel.txt`, `py`, `json`, `phase0.ptx`, or only `refused.txt`.

    `after_<pass>.txt`: as a pass on kernels changed it.
    """

    name: str
    files: Mapping[str, Stage]

    def read(self, ending: str) -> str:
        """Raises ParseError without such a file."""
        if ending not in self.files:
            have = ", ".join(self.files)
            raise ParseError(f"{self.name}.{ending} in the dump", f"only {have}", hint="dump again")
        return self.files[ending].read().rstrip("\n") + "\n"

    @property
    def ptx(self) -> dict[str, str]:
        """Launch -> PTX."""
        return {end.removesuffix(".ptx"): self.read(end) for end in self.files if end.endswith(".ptx")}

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The .json file. Raises ParseError when it is not one of this version's."""
        where = str(self.files["json"].path) if "json" in self.files else ""
        try:
            found = json.loads(self.read("json"))
        except ValueError as error:
            raise error if isinstance(error, ParseError) else _broken(where, str(error)) from None
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise _broken(where, "something else")
        return found

    @property
    def target(self) -> str:
        return str(self.described.get("target", "unknown"))

    @property
    def memory(self) -> tuple[LaneMap, ...]:
        """Where its values are kept. Raises ParseError."""
        try:
            return memory_of(self.described["memory"])
        except (KeyError, TypeError, AttributeError):
            raise _broken(str(self.files["json"].path), "no memory map") from None

    @property
    def source(self) -> KernelSource:
        """What the CPU's compiler was given. Raises ParseError for other targets' kernels."""
        if self.target != "cpu":
            raise ParseError("a kernel for the CPU", f"one for {self.target}", hint="its PTX is in the dump")
        fields = {**self.described["source"], "text": self.read("py")}
        try:
            return KernelSource.from_payload(json.dumps(fields))
        except ValueError:
            raise _broken(str(self.files["json"].path), "no source") from None


@dataclass(frozen=True)
class Call:
    """One stitched call. name: the function's; ordinal: its place in its process."""

    name: str
    ordinal: int
    folder: Path
    stages: tuple[Stage, ...]

    def stage(self, wanted: str) -> Stage:
        """By number (`12`), file (`12_cse.txt`), name (`cse.txt`) or stem (`cse`). Raises ParseError."""
        for match in (
            lambda s: wanted.isdecimal() and s.number == int(wanted),
            lambda s: wanted in (s.path.name, s.name),
            lambda s: wanted in (s.stem, s.name.rpartition(".")[0]),
        ):
            found = [s for s in self.stages if match(s)]
            if found:
                return found[0] if len(found) == 1 or wanted.isdecimal() else _only(found, wanted, self)
        names = ", ".join(s.name.rpartition(".")[0] for s in self.stages)
        raise ParseError(f"a stage of {self.folder.name}", f"'{wanted}'", hint=f"one of {names}")

    @property
    def graphs(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages if s.is_graph)

    @cached_property
    def kernels(self) -> Mapping[str, DumpedKernel]:
        """By name, those that stay XLA's (`refused.txt`) among them."""
        found: dict[str, dict[str, Stage]] = {}
        for stage in self.stages:
            if (match := _KERNEL.fullmatch(stage.name)) is not None:
                found.setdefault(match[1], {})[match[2]] = stage
        return {name: DumpedKernel(name, files) for name, files in found.items()}

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of files that the call must have had."""
        numbers = {s.number for s in self.stages}
        return tuple(sorted(set(range(max(numbers))) - numbers))


def _only(found: list[Stage], wanted: str, call: Call) -> Stage:
    """Of frames' plans, and of kernels' files, several have one name: the first is not what was meant."""
    names = ", ".join(s.path.name for s in found)
    raise ParseError(
        f"one stage of {call.folder.name}", f"'{wanted}' names {len(found)}", hint=f"say {names}"
    )


def read_dump(path: Path) -> tuple[Call, ...]:
    """The calls in a dump's folder, or the one whose folder `path` is, in the order of lowering.

    Raises ParseError where there is none, OSError for what cannot be read.
    """
    if not path.exists():
        raise ParseError(WRITTEN, "nothing", where=str(path))
    if not path.is_dir():
        raise ParseError(WRITTEN, "a file", where=str(path))
    entries = sorted(path.iterdir())
    found = [call for entry in (path, *entries) if entry.is_dir() and (call := _read_call(entry))]
    if not found:
        what = f"{len(entries)} other entries" if entries else "an empty folder"
        raise ParseError(WRITTEN, what, where=str(path), hint="set JSTITCH_DUMP_DIR and run the program")
    return tuple(sorted(found, key=lambda call: call.ordinal))


def _read_call(folder: Path) -> Call | None:
    stages = []
    for entry in folder.iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is not None and entry.is_file():
            stages.append(Stage(int(match[1]), f"{match[2]}.{match[3]}", entry))
    if not stages:
        return None
    name = _CALL.fullmatch(folder.resolve().name)
    ordered = tuple(sorted(stages, key=lambda s: (s.number, s.name)))
    return Call(name[1] if name else folder.name, int(name[2]) if name else 0, folder, ordered)


def find_call(calls: tuple[Call, ...], wanted: str) -> Call:
    """By folder (`loss_1`) or function (`loss`, where it has one call). Raises ParseError."""
    found = [c for c in calls if c.folder.name == wanted] or [c for c in calls if c.name == wanted]
    if len(found) == 1:
        return found[0]
    names = ", ".join(c.folder.name for c in found or calls)
    what = f"'{wanted}', which has {len(found)}" if found else f"'{wanted}'"
    raise ParseError("a call of the dump", what, hint=f"one of {names}")


def _broken(where: str, found: str) -> ParseError:
    return ParseError(
        "a kernel's description of this version", found, where=where, hint="dump again with this version"
    )
