"""Dumps, read back: stages, kernels, memory maps, and what is said of broken ones."""

from __future__ import annotations

import io
import json
import re
import shutil
from importlib import util
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from jstitch.codegen.cpu.build import assembly
from jstitch.codegen.memory_map import Area, LaneMap, memory_fields, memory_of
from jstitch.errors import ParseError
from jstitch.inspection.dump_pairs import pair_calls
from jstitch.inspection.dumps import Call, find_call, read_dump
from jstitch.inspection.memory_picture import draw_memory, memory_svg
from jstitch.inspection.subject import observe_function
from jstitch.options import CompileOptions
from jstitch.passes.pipeline import PIPELINE

SHAPE = jax.ShapeDtypeStruct((256, 512), jnp.float32)
needs_numba_cuda = pytest.mark.skipif(util.find_spec("numba_cuda") is None, reason="there is no PTX")


def normalize(x: jax.Array) -> jax.Array:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dump(folder: Path, target: str) -> Call:
    options = CompileOptions(target=target, dump_dir=str(folder), tune="off", strict=True)
    observe_function(jax.grad(lambda x: jnp.sum(normalize(x) ** 3)), (SHAPE,), {}, options)
    (call,) = read_dump(folder)
    return call


def drawn(name: str, memory: tuple[LaneMap, ...]) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(draw_memory(name, memory))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Call:
    return dump(tmp_path_factory.mktemp("cpu"), "cpu")


@pytest.fixture
def copied(cpu: Call, tmp_path: Path) -> Path:
    """A dump that may be broken."""
    shutil.copytree(cpu.folder, tmp_path / "dump" / cpu.folder.name)
    return tmp_path / "dump"


def test_stages_are_those_of_the_pipeline(cpu: Call) -> None:
    assert [s.stem for s in cpu.graphs] == ["input", *(p.name for p in PIPELINE)]
    assert not cpu.missing
    assert (
        cpu.stage("cse") is cpu.stage(str(cpu.stage("cse").number)) is cpu.stage(cpu.stage("cse").path.name)
    )
    assert "stablehlo.exponential" in cpu.stage("cse").ops
    assert "stablehlo.exponential" in cpu.stage("input").ops
    assert read_dump(cpu.folder)[0].folder == cpu.folder


def test_the_map_of_a_cpu_kernel_is_the_printed_arena(cpu: Call) -> None:
    (kernel,) = cpu.kernels.values()
    printed = re.findall(r"arena (\w+): .* bytes \[(\d+), (\d+)\)", kernel.read("kernel.txt"))
    (lane,) = kernel.memory
    assert sorted((a.name, str(a.offset), str((a.offset or 0) + a.nbytes)) for a in lane.areas) == sorted(
        printed
    )
    lines = kernel.read("kernel.txt").partition("  phase 0\n")[2].split("      stage ")[1:]
    for area in lane.areas:
        touched = [n for n, text in enumerate(lines) if f"{area.name}[" in text]
        assert (area.first, area.last) == (touched[0], touched[-1])


@needs_numba_cuda
def test_the_map_of_a_gpu_kernel_is_its_shared_memory(tmp_path: Path) -> None:
    (kernel,) = dump(tmp_path, "h200").kernels.values()
    launches = {launch["function"]: launch for launch in kernel.described["source"]["launches"]}
    assert kernel.target == "h200"
    assert kernel.ptx.keys() == launches.keys()
    assert all(".entry" in text for text in kernel.ptx.values())
    for n, launch in enumerate(launches.values()):
        assert (
            max((lane.nbytes for lane in kernel.memory if lane.phase == n), default=0)
            == launch["shared_bytes"]
        )
    assert any(a.offset is None for lane in kernel.memory for a in lane.areas), "rows are kept in registers"


def test_pictures(cpu: Call) -> None:
    (kernel,) = cpu.kernels.values()
    text = drawn(kernel.name, kernel.memory)
    (lane,) = kernel.memory
    assert all(f"{a.name} █" in text for a in lane.areas)
    svg = memory_svg(kernel.name, kernel.memory)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "url(http" not in svg.replace('"', "")
    assert not re.findall(r"""(?:src|href)\s*[:=]\s*\W*(?:url\()?\W*https?:""", svg)


def test_two_areas_of_one_place_are_both_drawn() -> None:
    areas = (Area("a", "", 0, 64, 0, 1), Area("b", "", 32, 64, 1, 2), Area("r", "", None, 4, 0, 0))
    lane = LaneMap(0, 0, ("x", "y", "z"), areas, 96)
    assert memory_of(json.loads(json.dumps(memory_fields((lane,))))) == (lane,)
    rows = {line.split(")")[0].strip(): line for line in drawn("k", (lane,)).splitlines() if line.strip()}
    assert "a █" in rows["[32, 64"]
    assert "b █" in rows["[32, 64"]
    assert "b" not in rows["[0, 32"]
    assert any(line.split()[:2] == ["registers,", "4"] for line in rows.values())


def test_assembly_is_compiled_from_the_dump(cpu: Call) -> None:
    (kernel,) = cpu.kernels.values()
    text = assembly(kernel.source)
    assert f"jstitch_{kernel.source.digest}_0:" in text
    assert "ret" in text


def test_missing_and_foreign_files(copied: Path) -> None:
    (call,) = read_dump(copied)
    for name in ("cse", "dce"):
        call.stage(name).path.unlink()
    (copied / "notes.txt").write_text("mine")
    (copied / "folder").mkdir()
    (call.folder / "core").write_bytes(b"\xff")
    (again,) = read_dump(copied)
    assert len(again.missing) == 2
    assert len(again.stages) == len(call.stages) - 2


def test_what_is_no_dump(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("")
    for name, found in (
        ("none", "nothing"),
        ("file", "a file"),
        ("empty", "empty folder"),
        ("other", "1 other"),
    ):
        with pytest.raises(ParseError, match=found):
            read_dump(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 99}', '{"schema": 1}', '{"schema": 1, "memory": [{}]}']
)
def test_broken_descriptions(copied: Path, text: str) -> None:
    (call,) = read_dump(copied)
    (kernel,) = call.kernels.values()
    kernel.files["json"].path.write_text(text)
    (again,) = read_dump(copied)
    with pytest.raises(ParseError, match="dump again"):
        _ = again.kernels[kernel.name].memory


def test_broken_text(copied: Path) -> None:
    (call,) = read_dump(copied)
    call.stage("cse").path.write_bytes(b"graph\xff\xff")
    (again,) = read_dump(copied)
    with pytest.raises(ParseError, match="byte 5"):
        again.stage("cse").read()
    with pytest.raises(ParseError, match="one of input, canonicalize"):
        again.stage("nope")
    with pytest.raises(ParseError, match="found 'nope'"):
        find_call((again,), "nope")


KERNEL = """kernel {name}
  argument a0: tensor<{n}xf32>
  result o0: tensor<{n}xf32>
  phase 0
    lane: 1 rows, {n} per step, 1 programs, work 1
      stage 0: {what}
        for i in [0, {n}):
          v0 = a0[i]
          v1 = {what}(v0)
          o0[i] = v1
"""


def fake(folder: Path, kernels: list[tuple[str, int]]) -> tuple[Call, ...]:
    """A dump with kernels f_0, f_1, ... that do these things to so many elements."""
    call = folder / "f_0"
    call.mkdir(parents=True)
    (call / "00_plan.txt").write_text("plan\n")
    for n, (what, size) in enumerate(kernels):
        (call / f"{n + 1:02d}_f_{n}.kernel.txt").write_text(KERNEL.format(name=f"f_{n}", what=what, n=size))
    return read_dump(folder)


def test_kernels_of_two_dumps_are_matched_by_what_they_do(tmp_path: Path) -> None:
    before = fake(tmp_path / "a", [("exp", 8), ("tanh", 8), ("sin", 4)])
    after = fake(tmp_path / "b", [("tanh", 8), ("sin", 16), ("exp", 8)])
    (pair,) = pair_calls(before, after, exact=False)
    rows = {row.before: (row.after, row.is_same) for row in pair.kernels}
    assert rows == {"f_0": ("f_2", True), "f_1": ("f_0", True), "f_2": ("f_1", False)}
    assert not pair.is_same
    (same,) = pair_calls(before, before, exact=False)
    assert same.is_same


def test_calls_without_partner(tmp_path: Path) -> None:
    before = fake(tmp_path / "a", [("exp", 8)])
    (tmp_path / "a" / "f_0").rename(tmp_path / "a" / "g_0")
    (first, second) = pair_calls(read_dump(tmp_path / "a"), fake(tmp_path / "b", [("exp", 8)]), exact=False)
    assert first.alone
    assert second.alone
    assert first.title == "g_0 <-> (none)"
    assert before
