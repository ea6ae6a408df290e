"""The source of one CUDA kernel: what the emitter hands to the builder and to the simulator.

    CudaSource ::= name, text, Launch+
    Launch     ::= function of the text, grid, block, shared bytes, index width, Parameter*

A launch's function takes the addresses of its parameters in global memory. Launches run in order, each one
after all threads of the one before: that is a kernel's barrier between phases.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from jstitch.codegen.comments import strip_comments
from jstitch.codegen.launch_ir import Parameter

MOST_PARAMETERS = 1024  # of a launch: more, and XLA built for a CUDA before 12.1 refuses it when it runs


@dataclass(frozen=True)
class Launch:
    """`function(*addresses)` on grid x block threads, one dimension each.

    shared_bytes: the dynamic arena. index_bits: 32 when every index fits, else 64. work: elements of light
    work, roughly. bytes_read, bytes_written: of memory, counted from the code (traffic.py).
    """

    function: str
    grid: int
    block: int
    shared_bytes: int
    index_bits: Literal[32, 64]
    parameters: tuple[Parameter, ...]
    work: int
    bytes_read: int = 0
    bytes_written: int = 0

    def __post_init__(self) -> None:
        if len(self.parameters) > MOST_PARAMETERS:
            raise ValueError(
                f"Expected at most {MOST_PARAMETERS} parameters of a launch, found {len(self.parameters)} of"
                f" {self.function}. `divide_phases` makes several launches of a phase that has more."
            )


@dataclass(frozen=True)
class CudaSource:
    """Python source of a module (`text`) with one function per launch."""

    name: str
    text: str
    launches: tuple[Launch, ...]

    @cached_property
    def payload(self) -> str:
        """This source as JSON, without its comments; `from_payload` reads it back."""
        bare = replace(self, text=strip_comments(self.text))
        return json.dumps(asdict(bare), separators=(",", ":"), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """Content hash of all but the name and comments: 32 hexadecimal digits, the same in every process."""
        return hashlib.sha256(replace(self, name="").payload.encode()).hexdigest()[:32]

    @staticmethod
    def from_payload(payload: str) -> CudaSource:
        """The source that `payload` was made from. Raises ValueError for anything else."""
        try:
            fields: dict[str, Any] = json.loads(payload)
            launches = tuple(
                Launch(**{**launch, "parameters": tuple(Parameter(**p) for p in launch["parameters"])})
                for launch in fields.pop("launches")
            )
            return CudaSource(launches=launches, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"expected the JSON of a CudaSource, found {payload[:80]!r}") from error
