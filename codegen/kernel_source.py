"""The source of one generated kernel: what an emitter hands to a builder.

    KernelSource ::= name, text, buffer counts, scratch and arena sizes, PhaseSource+
    PhaseSource  ::= function of the text, number of programs, nanoseconds on one core

A phase function has the signature `void f(int64 bufs, int64 arena, int64 program)`. `bufs` is the address
of pointers [arguments..., results..., scratch]; `arena` a 64-byte aligned area that belongs to the running
task. Phases run in order with a barrier between them, the programs of one phase in any order and in parallel.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from jstitch.codegen.comments import strip_comments


@dataclass(frozen=True)
class PhaseSource:
    """One parallel loop: `function(bufs, arena, program)` for program in [0, programs).

    alone_ns: nanoseconds that one core takes for all of it, as modelled; short phases run on one thread.
    """

    function: str
    programs: int
    alone_ns: int


@dataclass(frozen=True)
class KernelSource:
    """Python source of a module (`text`) with its phase functions, and the memory that it needs."""

    name: str
    text: str
    num_args: int
    num_results: int
    scratch_bytes: int
    arena_bytes: int
    phases: tuple[PhaseSource, ...]

    @cached_property
    def payload(self) -> str:
        """This source as JSON, without its comments; `from_payload` reads it back."""
        bare = replace(self, text=strip_comments(self.text))
        return json.dumps(asdict(bare), separators=(",", ":"), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """Content hash of all but the name and comments: 32 hexadecimal digits, the same in every process.

        Equal kernels of one program (its repeated layers) are built once.
        """
        return hashlib.sha256(replace(self, name="").payload.encode()).hexdigest()[:32]

    @staticmethod
    def from_payload(payload: str) -> KernelSource:
        """The source that `payload` was made from. Raises ValueError for anything else."""
        try:
            fields: dict[str, Any] = json.loads(payload)
            phases = tuple(PhaseSource(**phase) for phase in fields.pop("phases"))
            return KernelSource(phases=phases, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"expected the JSON of a KernelSource, found {payload[:80]!r}") from error
