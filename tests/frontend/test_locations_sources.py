"""Generated source quotes the user's lines, and nothing that is kept or compared depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.comments import MOST, quoted, strip_comments
from jstitch.codegen.cpu import compile_kernel
from jstitch.codegen.cuda.source import CudaSource
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.dump import open_dump
from jstitch.frontend.importer import import_module
from jstitch.frontend.measured_gate import kernel_texts
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.rewrite import stitch_graph
from jstitch.ir.graph import Graph
from jstitch.passes.base.context import Context
from jstitch.passes.pipeline import run
from tests.codegen.cuda.stitched import PROFILES, stitch
from tests.contexts import CPU, CPU_PROFILE
from tests.frontend.emitting import Recorder

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X = jnp.asarray(np.random.default_rng(0).standard_normal((32, 64), np.float32))
SOFTMAX = """
def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""
TWICE = """
def both(x, y):
    x = jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True)
    y = jnp.exp(y) / jnp.exp(y).sum(-1, keepdims=True)
    return x, y
"""


def moved(source: str, lines: int) -> Any:
    """The function, so many lines further down, in a file of another name."""
    names: dict[str, Any] = {"jnp": jnp}
    exec(compile("\n" * lines + source, f"/home/user/model{lines}.py", "exec"), names)
    return list(names.values())[-1]


def imported(f: Any, *args: Any) -> Graph:
    return run(import_module(parse_module(jax.jit(f).lower(*args).as_text(debug_info=True))), CPU)


def sources(target: str, graph: Graph) -> tuple[Graph, list[tuple[Kernel, KernelSource | CudaSource]]]:
    if target == "cpu":
        recorder, context = Recorder(), Context(OPTIONS, CPU_PROFILE)
        found = stitch_graph(graph, context, "f", open_dump(context, "f"), recorder, {})
        return found, [*recorder.made]
    made = stitch(graph, PROFILES["h200"])
    return made.graph, [(kernel, emitted.source) for kernel, emitted in made.kernels.items()]


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_stages_quote_lines(target: str) -> None:
    _, [(kernel, source)] = sources(target, imported(moved(SOFTMAX, 5), X))
    text = source.text
    quotes = [line.strip() for line in text.splitlines() if line.strip().startswith("#   ")]
    assert quotes[:3] == [
        "#   reduce: model5.py:8 (softmax)",
        "#   broadcast_in_dim, subtract, exponential: model5.py:8 (softmax)",
        "#   reduce: model5.py:9 (softmax)",
    ]
    assert quotes[-1] == "#   broadcast_in_dim, divide: model5.py:9 (softmax)"
    printed = [line.strip() for line in print_kernel(kernel).splitlines()]
    assert "// reduce: model5.py:9 (softmax)" in printed
    assert "/home/user" not in text


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_keys_do_not_depend_on_lines(target: str) -> None:
    first, [(_, one)] = sources(target, imported(moved(SOFTMAX, 5), X))
    second, [(_, other)] = sources(target, imported(moved(SOFTMAX, 70), X))
    assert one.text != other.text
    assert (one.digest, one.payload) == (other.digest, other.payload)
    assert kernel_texts(first) == kernel_texts(second)
    assert "#" not in one.payload
    assert type(one).from_payload(one.payload).digest == one.digest


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_lanes_of_different_lines_share_code(target: str) -> None:
    _, [(_, source)] = sources(target, imported(moved(TWICE, 0), X, X + 1))
    assert ", 2 times" in source.text


def test_a_moved_line_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    really = compile_kernel.compile_kernel

    def counted(source: KernelSource, *others: Any) -> bytes:
        compiled.append(source.name)
        return really(source, *others)

    monkeypatch.setattr(compile_kernel, "compile_kernel", counted)
    options = OPTIONS.replace(cache_dir=str(tmp_path))
    # a shape that no other test has: kernels of this process are known by their content
    x = jnp.tile(X, (3, 7))
    programs = []
    for lines in (3, 90):
        f = jstitch.jit(moved(SOFTMAX, lines), options=options)
        np.testing.assert_allclose(f(x).sum(-1), 1.0, rtol=1e-5)
        programs.append(f.lower(x).as_text())
    assert compiled == ["softmax_row_0"]
    assert programs[0] == programs[1]  # so JAX's persistent cache has one entry


def test_names_compile_nothing(tmp_path: Path) -> None:
    """Equal kernels of functions with different names are one."""
    _, [(_, one)] = sources("cpu", imported(moved(SOFTMAX, 0), X))
    _, [(_, other)] = sources("cpu", imported(moved(SOFTMAX.replace("softmax", "weights"), 0), X))
    assert (one.name, other.name) == ("softmax_row_0", "weights_row_0")
    assert one.digest == other.digest


def test_comments_are_stripped() -> None:
    text = "import x\n\n\ndef f(a):\n    # one\n    b = a  # two\n\n    #   three\n    return b\n"
    assert strip_comments(text) == "import x\ndef f(a):\n    b = a\n    return b\n"
    assert strip_comments("\n\n# only\nx = 1\n") == "x = 1\n"


def test_few_lines_are_quoted() -> None:
    lines = [f"add: m.py:{n}" for n in range(MOST + 3)]
    assert quoted(lines) == [*lines[:MOST], "and 3 more lines"]
    assert quoted(lines[:MOST]) == lines[:MOST]
