"""What goes wrong while PTX runs: `Fault` inside an instruction, `PtxError` for the caller.

PTX line 41, thread 7 of CTA 3: reads 4 bytes at buffer 1 + 4096, past its end (4096 bytes)
    ld.global.f32 %f1, [%rd4]
"""

from __future__ import annotations


class PtxError(Exception):
    """A defect of the PTX text, or of the launch. Fields that do not apply are None.

    line: of the text, from 1. thread, cta: who did it. address: the fake 64-bit address. buffer: its name.
    """

    def __init__(
        self,
        reason: str,
        line: int | None = None,
        thread: int | None = None,
        cta: int | None = None,
        address: int | None = None,
        buffer: str | None = None,
        text: str = "",
    ) -> None:
        where = "PTX" if line is None else f"PTX line {line}"
        who = "" if thread is None else f", thread {thread} of CTA {cta}"
        super().__init__(f"{where}{who}: {reason}" + (f"\n    {text}" if text else ""))
        self.reason, self.line, self.thread, self.cta = reason, line, thread, cta
        self.address, self.buffer = address, buffer


class Fault(Exception):
    """A defect that one lane of the running frame meets. position: of the lane in the frame."""

    def __init__(
        self, reason: str, position: int, address: int | None = None, buffer: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.position, self.address, self.buffer = reason, position, address, buffer
