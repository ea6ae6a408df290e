"""What NVIDIA's assembler makes of PTX, without a GPU: registers, spills, shared memory, wide accesses.

assemble(ptx, "sm_90")  == Resources(registers=32, spill_stores=0, ...)     by ptxas
disassemble(ptx, "sm_90") == Sass(instructions=120, wide_loads=4, ...)      by ptxas and nvdisasm

The tools come from the wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm, or from the PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jstitch.errors import JstitchError

_WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
_SECONDS = 120
_REPORT = {
    "registers": re.compile(r"Used (\d+) registers"),
    "barriers": re.compile(r"used (\d+) barriers"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
_WIDE = re.compile(r"\.(?:128|ENL2\.256)\b")


class ToolError(JstitchError):
    """A CUDA tool is missing, or refuses what it is given."""


@dataclass(frozen=True)
class Resources:
    """What one thread, or one CTA, of a kernel takes. Bytes; shared_bytes without the dynamic arena."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack_bytes: int
    shared_bytes: int
    barriers: int

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Sass:
    """Counts in the machine code. wide_*: global accesses of 128 bits or more. calls: of subroutines."""

    instructions: int
    global_loads: int
    wide_loads: int
    global_stores: int
    wide_stores: int
    local_accesses: int
    calls: int


def find_tool(name: str) -> Path | None:
    """'ptxas' or 'nvdisasm' from its wheel, else from the PATH; None where there is none."""
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    for folder in folders:
        for found in sorted(folder.glob(f"*/bin/{name}"), reverse=True):
            return found
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def assemble(ptx: str, arch: str) -> Resources:
    """The resources of the one kernel in `ptx` on `arch`, such as "sm_90"; `.target` is set to it.

    Raises ToolError when ptxas is missing or refuses the text.
    """
    with tempfile.TemporaryDirectory(prefix="jstitch-ptxas-") as folder:
        return assemble_cubin(ptx, arch, Path(folder) / "kernel.cubin")


def assemble_cubin(ptx: str, arch: str, cubin: Path, *options: str) -> Resources:
    """`assemble`, with more options of ptxas; what it makes is left in `cubin`."""
    text = re.sub(r"^\.target \w+", f".target {arch}", ptx, count=1, flags=re.M)
    source = cubin.with_suffix(".ptx")
    source.write_text(text)
    report = run_tool("ptxas", "-v", f"-arch={arch}", *options, str(source), "-o", str(cubin))
    found = {name: pattern.search(report) for name, pattern in _REPORT.items()}
    return Resources(**{name: int(match[1]) if match else 0 for name, match in found.items()})


def disassemble(ptx: str, arch: str) -> Sass:
    """Counts in the machine code of `ptx` on `arch`. Raises ToolError as `assemble`, and without nvdisasm."""
    with tempfile.TemporaryDirectory(prefix="jstitch-ptxas-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        assemble_cubin(ptx, arch, cubin)
        text = run_tool("nvdisasm", "-c", str(cubin))
    return _count(_INSTRUCTION.findall(text))


def _count(opcodes: list[str]) -> Sass:
    kinds = Counter(opcode.split(".")[0] for opcode in opcodes)
    wide = Counter(opcode.split(".")[0] for opcode in opcodes if _WIDE.search(opcode))
    return Sass(
        instructions=len(opcodes) - kinds["NOP"],
        global_loads=kinds["LDG"],
        wide_loads=wide["LDG"],
        global_stores=kinds["STG"],
        wide_stores=wide["STG"],
        local_accesses=kinds["LDL"] + kinds["STL"],
        calls=kinds["CALL"],
    )


def run_tool(name: str, *args: str) -> str:
    """Everything that 'ptxas' or 'nvdisasm' prints. Raises ToolError when it is missing or fails."""
    tool = find_tool(name)
    if tool is None:
        wheel = _WHEELS[name]
        raise ToolError(f"the CUDA tool {name}", "none", hint=f"pip install {wheel}")
    done = subprocess.run([str(tool), *args], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        message = (done.stderr or done.stdout).strip()
        raise ToolError(f"code that {name} accepts", message[:2000] or f"exit status {done.returncode}")
    return done.stdout + done.stderr
