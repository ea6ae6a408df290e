"""Kernels, and the handler that XLA calls, compiled for 64-bit ARM: whole objects, vectors, no code of x86.

Nothing of it is run: what it computes is for a machine of that kind to say (`jstitch doctor --check`).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import pytest
from numba.core.compiler_lock import global_compiler_lock
from numba.core.llvm_bindings import create_pass_builder

from jstitch.codegen.cpu import processor
from jstitch.codegen.cpu.compile_kernel import load_text
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.cpu.lower_text import lower_text
from jstitch.codegen.cpu.processor import Processor
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.parse_text import functions_of
from jstitch.passes.schedule import stream_results
from jstitch.runtime import cpu_handler, native_ops, numba_compiler
from jstitch.runtime.native_handler import FUNCTIONS
from tests.codegen.test_check_phases import PROGRAMS, kernels, shape

LINUX, MAC = "aarch64-linux-gnu", "arm64-apple-darwin"
TRIPLES = {LINUX: "neoverse-n1", MAC: "apple-m1"}
X86 = "x86_64-unknown-linux-gnu"
EM_AARCH64, MACH_O, CPU_TYPE_ARM64 = 183, 0xFEEDFACF, 0x0100000C
VECTOR = re.compile(r"\bv\d+\.4s|\.4s\t")  # four float32 in a register, in either syntax
HALF = jax.nn.gelu, (shape(64, 300, dtype=jnp.float16),)
LIBRARY = {"memcpy", "memset"}  # every process has them
CALL = re.compile(r"\tbl\t_?([\w.]+)")


@dataclass(frozen=True)
class Compiled:
    data: bytes
    assembly: str

    @property
    def machine(self) -> tuple[int, ...]:
        """Of an ELF file: e_machine; else the first two words of a Mach-O file."""
        return struct.unpack_from("<H", self.data, 18) if self.data[:4] == b"\x7fELF" else self.words

    @property
    def words(self) -> tuple[int, ...]:
        return struct.unpack_from("<II", self.data)

    @property
    def code_bytes(self) -> int:
        sections = llvm.ObjectFileRef.from_data(self.data).sections()
        return sum(s.size() for s in sections if s.is_text())


def compile_for(triple: str, text: str) -> Compiled:
    """As numba_compiler does for this machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=TRIPLES[triple], opt=3, jit=True)
    for name, value in (("triple", triple), ("datalayout", machine.target_data)):
        text = re.sub(rf"^target {name} = .*$", f'target {name} = "{value}"', text, flags=re.MULTILINE)
    with llvm.create_context() as context:
        module = llvm.parse_assembly(text, context)
        builder = create_pass_builder(machine, opt=3, loop_vectorize=True, slp_vectorize=False)
        builder.getModulePassManager().run(module, builder)
        builder.close()
        found = Compiled(machine.emit_object(module), machine.emit_assembly(module))
        module.close()
    return found


def text_for(triple: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel in LLVM's language, as it is written on such a machine."""
    features = frozenset({"fma", "avx2"} if triple == X86 else {"neon", "fp-armv8"})
    monkeypatch.setattr(processor, "processor", lambda: Processor(triple, features))
    source = emit(kernel).source
    functions = {f"phase_{n}": phase.function for n, phase in enumerate(source.phases)}
    return str(lower_text(functions_of(source.text), load_text(source), functions, source.arena_bytes))


def kernel_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Results are past every cache, so that they are streamed where that can be."""
    monkeypatch.setattr(stream_results, "last_level_cache", lambda: 0)
    monkeypatch.setattr(stream_results, "SMALL", 0)
    f, args = {**PROGRAMS, "half": HALF}[name]
    return kernels(f, *args)[0]


def check_object(found: Compiled, triple: str) -> None:
    assert found.machine == ((EM_AARCH64,) if triple == LINUX else (MACH_O, CPU_TYPE_ARM64))
    assert found.code_bytes > 100


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("name", ["rows", "blocks", "words", "products", "sums", "sorted"])
def test_kernels_for_arm(name: str, triple: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_for(triple, kernel_of(name, monkeypatch), monkeypatch)
    found = compile_for(triple, text)
    check_object(found, triple)
    assert "llvm.x86" not in text
    assert VECTOR.search(found.assembly)
    unknown = {call for call in CALL.findall(found.assembly) if not call.startswith("jstitch_")} - LIBRARY
    assert not unknown, "a call that nobody may answer"


def test_streams_are_of_x86_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("blocks", monkeypatch)
    on_x86, on_arm = (text_for(triple, kernel, monkeypatch) for triple in (X86, LINUX))
    assert "llvm.x86.sse.sfence" in on_x86
    assert "!nontemporal" in on_x86
    assert "jstitch_flush" in on_arm
    assert "!nontemporal" not in on_arm


def test_half_floats_are_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("half", monkeypatch)
    assert "fptrunc" in text_for(LINUX, kernel, monkeypatch)
    assert "fptrunc" not in text_for(X86, kernel, monkeypatch)  # f16c is not among its features


def handler_for(triple: str) -> str:
    with (
        pytest.MonkeyPatch.context() as patch,
        global_compiler_lock,
        numba_compiler._new_library() as library,
    ):
        patch.setattr(native_ops, "binding", SimpleNamespace(get_process_triple=lambda: triple))
        numba_compiler._lower(library, FUNCTIONS, cpu_handler._SYMBOLS)
        return str(library.module)


@pytest.fixture(scope="module")
def arm_handler() -> str:
    return handler_for(LINUX)


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_handler_for_arm(triple: str, arm_handler: str) -> None:
    found = compile_for(triple, arm_handler)
    check_object(found, triple)
    assert "llvm.x86" not in arm_handler
    assert all(f"{symbol}:" in found.assembly for symbol in cpu_handler._SYMBOLS)
    assert re.search(r"\tldap?u?r\t", found.assembly), "what is waited for is loaded with acquire"
    assert not {*CALL.findall(found.assembly)} - {s.symbol for s in FUNCTIONS}
