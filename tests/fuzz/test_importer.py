"""Damaged StableHLO: what still parses is imported, printed, taken through the passes and exported again.

The quick share runs everywhere. The sweep (`pytest -m slow tests/fuzz/test_importer.py`) lasts
JSTITCH_FUZZ_SECONDS seconds (600 unless set) from seed JSTITCH_FUZZ_SEED (0 unless set).
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.frontend.exporter import export_module
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS
from jstitch.ir.printer import print_graph
from jstitch.ir.types import TensorType
from jstitch.ir.verify import check
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.passes.pipeline import frames, run, verify_after
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE
from tests.fuzz.mutations import mutate
from tests.passes.random_graphs import arguments

QUICK, BATCH = 300, 50
SECONDS = 20  # that one input may take
SMALL = 1 << 15  # elements of all values of a graph that is interpreted
GOLDEN = Path(__file__).parents[1] / "golden"
OPTIONS = CompileOptions(target="cpu", verify=True)


@functools.cache
def texts() -> tuple[str, ...]:
    """Modules of the golden tests, and what JAX makes of some programs."""
    golden = (path.read_text().partition("// CHECK")[0] for path in sorted(GOLDEN.glob("*.mlir")))
    return (*golden, *_of_jax())


def _of_jax() -> Iterator[str]:
    x, n = jnp.ones((6, 8)), jnp.arange(6)

    def cell(c: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(c + row), c * 2

    programs = (
        (lambda x: jax.nn.softmax(jax.nn.gelu(x)), (x,)),
        (jax.grad(lambda x: (jax.nn.logsumexp(x, axis=1) ** 2).sum()), (x,)),
        (lambda x: jax.lax.scan(cell, x[0], x), (x,)),
        (jax.grad(lambda x: jax.lax.scan(cell, x[0], x)[1].sum()), (x,)),
        (lambda x, n: jax.lax.cond(n[0] > 2, jnp.sin, jnp.cos, x), (x, n)),
        (lambda x, n: x[n].at[n].add(1.0), (x, n)),
        (lambda x: (jnp.sort(x), jnp.argmax(x, 1), jnp.cumsum(x, 0), jnp.var(x, 0)), (x,)),
        (lambda x: jax.random.normal(jax.random.key(0), x.shape) + x, (x,)),
        (lambda x: jnp.einsum("ij,kj->ik", x, x).astype(jnp.bfloat16), (x,)),
    )
    for f, args in programs:
        yield jax.jit(f).lower(*args).as_text()


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in whatever takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(text: str) -> str:
    """How far a text gets: not parsed, no program, imported, or interpreted. Raises what nobody may raise."""
    try:
        module = parse_module(text)
    except ValueError:
        return "not parsed"
    try:
        graph = import_module(module)
    except ValueError as error:
        if not str(error).startswith("Expected a module with a function"):
            raise
        return "no program"
    check(graph, "import")
    print_graph(graph)
    passed = run(graph, CPU, after=verify_after)
    for frame in frames(passed):
        print_plan(plan_frame(frame, Context(OPTIONS, CPU_PROFILE)))
    exported = export_module(passed)
    again = import_module(parse_module(str(exported)))
    assert [v.type for v in again.outputs] == [v.type for v in passed.outputs]
    if not _is_small(graph):
        return "imported"
    args = arguments(graph, 0)
    with np.errstate(all="ignore"):
        try:
            interpret(graph, args)
        except NotImplementedError:
            return "imported"
        expected, found = interpret(passed, args), interpret(again, args)
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()  # the same ops, so the same bits
    return "interpreted"


def _is_small(graph: Graph) -> bool:
    """Whether the interpreter knows all of it, and takes no time."""
    total = 0
    for op in graph.walk():
        definition = OPS.get(op.name)
        if (
            definition is None
            or op.name == "stablehlo.while"
            or (definition.reference is None and not op.regions)
        ):
            return False
        if not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
            return False
        total += sum(v.tensor.size for v in (*op.operands, *op.results))
    inputs = [v.type for v in graph.inputs]
    if not all(isinstance(t, TensorType) and t.size for t in inputs):
        return False
    return total + sum(v.tensor.size for v in graph.inputs) <= SMALL


def try_seed(seed: int) -> str:
    random = Random(seed)
    text = mutate(random.choice(texts()), random)
    try:
        with at_most(SECONDS):
            return outcome(text)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error


def test_unharmed_texts() -> None:
    assert {outcome(text) for text in texts()} == {"imported", "interpreted"}


@pytest.mark.parametrize("indices", ["i4", "ui4"])
def test_a_scatter_by_numbers_of_four_bits(indices: str) -> None:
    """Their largest number once made a pass raise."""
    (text,) = (text for text in texts() if "--passes rewrite_one_hot_scatter " in text)
    assert "xi32>" in text
    assert outcome(text.replace("xi32>", f"x{indices}>")) in ("imported", "interpreted")


def test_a_remainder_of_complex_numbers() -> None:
    """It parses, and NumPy has no such function: a sweep once ended in a TypeError."""
    text = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %z = stablehlo.remainder %x, %y : tensor<4xf32>
  return %z : tensor<4xf32>
}"""
    assert outcome(text) == "interpreted"
    assert outcome(text.replace("xf32", "xcomplex<f32>")) == "imported"
    graph = import_module(parse_module(text.replace("xf32", "xcomplex<f32>")))
    known = r"stablehlo.remainder' knows, found complex64, complex64 at .*:3"
    with pytest.raises(NotImplementedError, match=known):
        interpret(graph, arguments(graph, 0))


@pytest.mark.parametrize("seeds", [range(k, k + BATCH) for k in range(0, QUICK, BATCH)], ids=str)
def test_damaged_texts(seeds: range) -> None:
    found = Counter(map(try_seed, seeds))
    assert found["not parsed"] < len(seeds)


@pytest.mark.slow
def test_damaged_texts_for_some_time() -> None:
    seconds = float(os.environ.get("JSTITCH_FUZZ_SECONDS", 600))
    seed, end = int(os.environ.get("JSTITCH_FUZZ_SEED", 0)) + QUICK, time.monotonic() + seconds
    found: Counter[str] = Counter()
    failures: list[str] = []
    while time.monotonic() < end:
        try:
            found[try_seed(seed)] += 1
        except AssertionError as error:
            failures.append(str(error))
        seed += 1
    print(f"{sum(found.values()) + len(failures)} inputs: {dict(found)}, {len(failures)} failures")
    assert not failures, "\n\n".join(failures)
