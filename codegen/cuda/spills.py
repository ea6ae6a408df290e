"""Ask the assembler what spills where a kernel needs many registers, and let it have more of them.

ptxas saves registers so that more CTAs are there at once; with 40 of them for what needs 55 it spills. Where
it is installed, it is asked about such kernels, and told how many CTAs will do.
"""

from __future__ import annotations

from jstitch.codegen.cuda.ptx import PtxError
from jstitch.codegen.cuda.ptx_text import with_resident
from jstitch.codegen.cuda.registers import needed_registers
from jstitch.codegen.cuda.resources import ToolError, assemble, find_tool
from jstitch.device_spec import DeviceSpec

MANY_REGISTERS = 48  # of a thread: fewer are hardly ever saved
CHOICES = (64, 128)  # of a thread, that CTAs are to have room for


def without_spills(text: str, block: int, capability: tuple[int, int]) -> str:
    """The PTX, told to be content with fewer CTAs of `block` threads, where it spills and that helps."""
    if _needed(text) <= MANY_REGISTERS or find_tool("ptxas") is None:
        return text
    arch = f"sm_{capability[0]}{capability[1]}"
    ctas = (DeviceSpec.registers_per_sm // (block * each) for each in CHOICES)
    tried = (text, *(with_resident(text, n) for n in ctas if n))
    return next((one for one in tried if not _spills(one, arch)), text)


def _needed(text: str) -> int:
    """Registers of a thread; 0 where the text is none that we can read."""
    try:
        return needed_registers(text)
    except PtxError:
        return 0


def _spills(text: str, arch: str) -> bool:
    try:
        return assemble(text, arch).spills > 0
    except ToolError:  # of an architecture that it does not know
        return False
