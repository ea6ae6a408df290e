"""Hostile or damaged input: one line of reason, status 2, little memory and time, and nothing left behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.errors import ParseError
from jstitch.frontend import safe_parse as safe
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import module_bytes, parse_module
from jstitch.frontend.safe_parse import safe_parse
from jstitch.ir.printer import print_graph

DEEP = 1_000_000
SECONDS = 5.0
TEXT = jax.jit(lambda x: jax.numpy.tanh(x) + 1).lower(np.ones(4, np.float32)).as_text()
BYTECODE = module_bytes(parse_module(TEXT))
PORTABLE = bytes(jax.export.export(jax.jit(jax.numpy.tanh))(np.ones(4, np.float32)).mlir_module_serialized)


def main_of(body: str, result: str = "tensor<4xf32>", argument: str = "tensor<4xf32>") -> str:
    return f"func.func @main(%x: {argument}) -> {result} {{\n{body}\n}}"


def nested_ifs(depth: int) -> str:
    opened = '%p = "stablehlo.if"(%c) ({\n' * depth
    closed = "stablehlo.return %x : tensor<4xf32>\n}, {\nstablehlo.return %x : tensor<4xf32>\n"
    end = "}) : (tensor<i1>) -> tensor<4xf32>\nstablehlo.return %p : tensor<4xf32>\n}, {\n" * (depth - 1)
    end = end.replace("}, {\n", "}, {\nstablehlo.return %x : tensor<4xf32>\n")
    last = "}) : (tensor<i1>) -> tensor<4xf32>\nreturn %p : tensor<4xf32>\n}"
    return (
        f"func.func @main(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {{\n{opened}{closed}{end}{last}"
    )


HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "found nothing"),
    "spaces": (" \n\t\n", "found nothing"),
    "deep attribute": (f"module attributes {{a = {'[' * DEEP}{']' * DEEP}}} {{}}", "nested too deeply"),
    "deep modules": ("module {" * DEEP + "}" * DEEP, "nested too deeply"),
    "deep type": (f"func.func private @f({'tuple<' * DEEP}i32{'>' * DEEP})", "nested too deeply"),
    "deep location": (f"module {{}} loc({'callsite(unknown at ' * DEEP}", "nested too deeply"),
    "deep parentheses": ("(" * DEEP, "starting"),
    "deep regions": (nested_ifs(DEEP // 10), "nested too deeply"),
    "regions deeper than Python": (nested_ifs(600), "nest"),
    "no UTF-8": (b"module { \xff\xfe }", "utf-8"),
    "zeros": (b"\0" * 1000, "found 0 public functions"),
    "random bytes": (np.random.default_rng(0).bytes(10_000), "starting"),
    "another format": (b"\x7fELF" + b"\0" * 60, "starting"),
    "cut text": (TEXT[: len(TEXT) // 2], "starting"),
    "cut bytecode": (BYTECODE[: len(BYTECODE) // 2], "starting"),
    "cut artifact": (PORTABLE[: len(PORTABLE) // 2], "starting"),
    "magic alone": (b"ML\xefR", "starting"),
    "no entry": ("module {}", "found 0 public functions"),
    "no body": ("func.func private @main(%x: tensor<4xf32>) -> tensor<4xf32>", "found 0 blocks"),
    "several blocks": (
        main_of("cf.br ^next(%x : tensor<4xf32>)\n^next(%y: tensor<4xf32>):\nreturn %y : tensor<4xf32>"),
        "found 2 blocks",
    ),
    "a dialect of nobody": (
        main_of('%y = "weird.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>'),
        "unregistered dialect",
    ),
    "an op of nobody": (main_of("%y = stablehlo.fuse %x : tensor<4xf32>"), "starting"),
    "an index too large": (main_of("return %x : tensor<99999999999999999999xf32>"), "starting"),
    "types that disagree": (
        main_of("%y = stablehlo.add %x, %x : tensor<5xf32>\nreturn %y : tensor<5xf32>"),
        "type",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the command runs, and where nothing is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir()} <= {"in.mlir"}
    assert not _children()


def _children() -> list[int]:
    """Processes that this one has started and not waited for; none where the system does not say."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):  # a thread that ended meanwhile
            found += map(int, path.read_text().split())
    return found


def run(*arguments: str, given: bytes | None = None) -> Result:
    start = time.perf_counter()
    result = CliRunner().invoke(main, list(arguments), input=given)
    assert time.perf_counter() - start < SECONDS
    return result


def assert_refused(result: Result, reason: str) -> None:
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("jstitch: ")
    assert len(result.stderr) < 6000
    assert reason.lower() in result.stderr.lower()
    assert not result.stdout


@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_and_status_2(name: str, folder: Path) -> None:
    source, reason = HOSTILE[name]
    path = folder / "in.mlir"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    assert_refused(run("opt", str(path)), reason)


@pytest.mark.parametrize("source", [TEXT.encode(), BYTECODE, PORTABLE], ids=["text", "bytecode", "artifact"])
def test_good_ones_pass(source: bytes) -> None:
    assert print_graph(import_module(safe_parse(source))) == print_graph(import_module(parse_module(source)))


@pytest.mark.parametrize("start", ["module { // ", 'module attributes {a = dense<"0x'])
def test_a_file_of_a_gigabyte(start: str, folder: Path) -> None:
    path = folder / "in.mlir"
    with path.open("wb") as file:
        file.write(start.encode())
        file.truncate(1 << 30)
    assert path.stat().st_blocks < 100  # sparse
    for command in ("opt", *READERS):
        assert_refused(run(command, str(path)), "at most 536,870,912 bytes")


def test_a_stream_of_a_gigabyte(folder: Path) -> None:
    """The command stops reading; its memory stays below what it may read, twice, and its own."""
    command = f"head -c 1073741824 /dev/zero | {sys.executable} -m jstitch opt -"
    root = Path(__file__).parents[2]
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=root, env=os.environ, check=False
    )
    assert done.returncode == 2
    assert "at most 536,870,912 bytes" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert time.perf_counter() - start < 4 * SECONDS  # a start of Python and JAX on a machine that is busy


def test_constants_of_a_gigabyte_are_never_made(folder: Path) -> None:
    """A splat, what is computed of it, and what a pad or a gather of it would be."""
    big = "tensor<268435456xf32>"
    body = f"""
      %c = stablehlo.constant dense<2.0> : {big}
      %d = stablehlo.constant dense<4.0> : {big}
      %e = stablehlo.divide %c, %d : {big}
      %f = stablehlo.exponential %e : {big}
      %r = stablehlo.reverse %f, dims = [0] : {big}
      %g = stablehlo.reshape %r : ({big}) -> tensor<16384x16384xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %i = stablehlo.iota dim = 0 : {big}
      %j = stablehlo.add %i, %f : {big}
      %k = stablehlo.reshape %j : ({big}) -> tensor<16384x16384xf32>
      %h = stablehlo.add %g, %k : tensor<16384x16384xf32>
      %s = stablehlo.reduce(%h init: %z) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<16384x16384xf32>, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32>"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for emit in ("graph", "plan", "kernels", "mlir", "stitched"):
        result = run("opt", "-", "--emit", emit, given=main_of(body, "tensor<f32>").encode())
        assert result.exit_code == 0, result.output
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # KiB


OPAQUE = {
    "dynamic": "tensor<?x4xf32>",
    "bounded": "tensor<?x4xf32, #stablehlo.bounds<8, ?>>",
    "unranked": "tensor<*xf32>",
    "quantized": "tensor<4x!quant.uniform<i8:f32, 0.1>>",
    "larger than memory": "tensor<9223372036854775807xf32>",
    "a product beyond 64 bits": "tensor<4294967296x4294967296xf32>",
    "empty": "tensor<0x4xf32>",
}


@pytest.mark.parametrize("name", OPAQUE)
def test_types_that_are_left_to_xla(name: str) -> None:
    kind = OPAQUE[name]
    body = f"%a = stablehlo.add %x, %x : {kind}\n%b = stablehlo.abs %a : {kind}\nreturn %b : {kind}"
    for emit in ("plan", "kernels", "stitched"):
        result = run("opt", "-", "--emit", emit, given=main_of(body, kind, kind).encode())
        assert result.exit_code == 0 or "starting" in result.stderr, result.output
        assert (emit != "kernels") or not result.stdout.strip()


def test_sparse_encodings() -> None:
    text = "#csr = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : compressed) }>\n"
    kind = "tensor<8x8xf32, #csr>"
    body = f"%a = stablehlo.abs %x : {kind}\nreturn %a : {kind}"
    result = run("opt", "-", given=(text + main_of(body, kind, kind)).encode())
    if result.exit_code:  # a JAX without that dialect
        assert_refused(result, "sparse_tensor")
    else:
        assert "opaque.stablehlo.abs" in result.stdout


def test_a_long_message_is_cut() -> None:
    result = run("opt", "-", given=main_of("return " + "%x, " * 100_000).encode())
    assert_refused(result, "starting")


def test_bytecode_with_flipped_bytes() -> None:
    """MLIR ends its process on some of it; never ours."""
    rng = np.random.default_rng(0)
    refused = crashed = 0
    for _ in range(6):
        data = bytearray(BYTECODE)
        for place in rng.integers(0, len(data), 3):
            data[place] ^= int(rng.integers(1, 256))
        try:
            import_module(safe_parse(bytes(data)))
        except ValueError as error:
            refused += 1
            crashed += "crashed" in str(error)
    assert refused > 0


NOT_UTF8 = {
    "a name": ('@"m\\85"', "%x", ""),
    "a location": ("@main", "%x", 'loc("f\\85.py":1:2)'),
    "a name in a location": ("@main", "%x", 'loc("f\\85"("f.py":1:2))'),
}


@pytest.mark.parametrize("case", NOT_UTF8)
def test_names_that_are_not_utf8(case: str) -> None:
    """MLIR's bindings end the process when they are asked for one."""
    name, result, location = NOT_UTF8[case]
    text = (
        f"func.func {name}(%x: tensor<4xf32>) -> tensor<4xf32> {{\n"
        f"%y = stablehlo.tanh %x : tensor<4xf32> {location}\nreturn {result} : tensor<4xf32>\n}}"
    )
    with pytest.raises(ParseError, match="utf-8"):
        safe_parse(text.encode())


def test_other_strings_may_be_anything() -> None:
    """As a custom call's configuration is. So may names, in UTF-8."""
    text = main_of(
        '%y = stablehlo.custom_call @f(%x) {backend_config = "\\85"} : (tensor<4xf32>) -> tensor<4xf32> '
        'loc("C:\\\\85\\C3\\A9.py":1:2)\nreturn %y : tensor<4xf32>'
    )
    assert "custom_call" in print_graph(import_module(safe_parse(text.encode())))


@pytest.mark.slow
def test_much_bytecode_with_flipped_bytes() -> None:
    rng = np.random.default_rng(1)
    for source in (BYTECODE, PORTABLE):
        for _ in range(300):
            data = bytearray(source)
            data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
            try:
                module = safe_parse(bytes(data))
                print_graph(import_module(module))
            except ValueError:
                continue


def test_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that needs more than it may, in memory and in time."""
    many = ", ".join(["1.5"] * 2_000_000)
    text = main_of(
        f"%c = stablehlo.constant dense<[{many}]> : tensor<2000000xf32>\nreturn %x : tensor<4xf32>"
    )
    monkeypatch.setattr(safe, "MEMORY_PER_BYTE", 0)
    with pytest.raises(ParseError, match=r"memory|crashed"):
        safe_parse(text.encode(), memory=450 << 20)
    monkeypatch.setattr(safe, "BYTES_PER_SECOND", 1 << 40)
    large = main_of("\n".join(f"%v{n} = stablehlo.tanh %x : tensor<4xf32>" for n in range(400_000)))
    with pytest.raises(ParseError, match=r"takes more than [12] s"):
        safe_parse(large.encode(), seconds=1)


READERS = {
    "plan": ["plan"],
    "explain": ["explain"],
    "run": ["run", "--random", "0", "--compare"],
    "bench": ["bench", "--seconds", "0.1"],
    "report": ["report", "-o", "report.html"],
}
"""The other commands that take a module."""

QUICK = ("deep attribute", "cut bytecode", "no entry")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in HOSTILE]
)
@pytest.mark.parametrize("command", READERS)
def test_every_command(command: str, name: str, folder: Path) -> None:
    source, reason = HOSTILE[name]
    path = folder / "in.mlir"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    word, *options = READERS[command]
    assert_refused(run(word, str(path), *options), reason)


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("kind", ["tensor<?x4xf32>", "tensor<*xf32>", "tensor<9223372036854775807xf32>"])
def test_what_cannot_be_run(command: str, kind: str, folder: Path) -> None:
    body = f"%a = stablehlo.add %x, %x : {kind}\nreturn %a : {kind}"
    (folder / "in.mlir").write_text(main_of(body, kind, kind))
    word, *options = READERS[command]
    assert_refused(run(word, "in.mlir", *options), "")


@pytest.mark.parametrize("command", ["opt", *READERS])
def test_what_is_no_file(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word, *options = READERS.get(command, [command])
    assert_refused(run(word, str(folder), *options), "directory")
    assert_refused(run(word, str(folder / "missing.mlir"), *options), "No such file")
    (folder / "in.mlir").write_text(TEXT)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)  # whoever runs the tests may read everything
        assert_refused(run(word, "in.mlir", *options), "Permission denied")
