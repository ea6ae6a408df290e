"""What a target's backend gives: from a Kernel to the calls that run it.

CPU    one call of the typed-FFI handler
CUDA   one native PTX launch for each phase; scratch goes from call to call
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jstitch.codegen.kernel_ir import Buffer, Kernel
from jstitch.ir.reason import Reason


class CannotBuildError(Exception):
    """The backend has no form for a kernel; the message, and `reason`, say why. The pattern stays XLA's."""

    def __init__(self, reason: str | Reason) -> None:
        self.reason = Reason("form", reason) if isinstance(reason, str) else reason
        super().__init__(str(reason))


@dataclass(frozen=True)
class KernelCall:
    """One custom call. config: its attributes. aliases: position in results -> in operands.

    beside: whether the program's caller is to go on while the call runs.
    """

    target: str
    config: Mapping[str, Any]
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    aliases: Mapping[int, int]
    beside: bool = False


@dataclass(frozen=True)
class Built:
    """A kernel ready to run. text: its generated source.

    traffic: entry in a profiler's timeline -> bytes read and written, where the backend counts them.
    compiled: launch -> what was compiled, where it is text. describe: more of it for a dump, as JSON has it.
    renamed: the same kernel under another name; None: it has to be built for that. ready: waits until it is
    built, where that goes on beside the caller, and raises what was wrong with it.
    """

    text: str
    calls: tuple[KernelCall, ...]
    traffic: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    compiled: Mapping[str, str] = field(default_factory=dict)
    describe: Callable[[], dict[str, Any]] = dict
    renamed: Callable[[str], Built] | None = None
    ready: Callable[[], object] = lambda: None


class Backend(Protocol):
    """One target."""

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        """Write the kernel out, and compile it by when `ready` returns. Raises CannotBuildError."""
        ...

    def resume(self, call: KernelCall, cache_dir: str | None) -> Callable[[], object]:
        """`ready` of a call that an earlier process wrote out."""
        ...

    def environment(self) -> str:
        """What its texts and calls depend on besides the kernel and the package."""
        ...
