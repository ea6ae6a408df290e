"""Lanes that read across the direction in which they write: right, whole sectors, no bank conflicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jstitch.codegen.cuda import launch_kernel, tile_shape
from jstitch.codegen.cuda.emit import Emitted
from jstitch.codegen.cuda.simulate import LaunchCounts, simulate_launch
from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.cuda.tile_shape import TileShape, choose_shape
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.index import const
from jstitch.ir.interpret import interpret
from jstitch.passes.pipeline import run
from tests.codegen.cuda.machines import RunLaunch
from tests.codegen.cuda.stitched import (
    PROFILES,
    PTX,
    WHY_NO_PTX,
    Stitched,
    interpreted,
    ptx_of,
    simulated,
    stitch,
)
from tests.codegen.cuda.warps import Access, accesses
from tests.contexts import CPU

Array = np.ndarray[Any, np.dtype[Any]]
BF16, S8 = ml_dtypes.bfloat16, np.int8
NARROW = {np.dtype(BF16): 2e-2, np.dtype(np.float16): 2e-3}


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "biu":
        return random.integers(0, 2 if dtype is bool else 50, shape).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def swapped(x: Any) -> Any:
    return jnp.exp(x).swapaxes(-1, -2) + 1


def mixed(x: Any, y: Any, column: Any, row: Any) -> Any:
    return jnp.exp(x).T * y + column[:, None] * row


def masked(x: Any, mask: Any) -> Any:
    return jnp.where(mask.T, x.T, jnp.zeros((), x.dtype)) + jnp.ones((), x.dtype)


def counted(x: Any) -> Any:
    i, j = (jax.lax.broadcasted_iota(jnp.int32, x.shape[::-1], d) for d in (0, 1))
    return x.T + i * 7 - j


def flipped(x: Any) -> Any:
    return jnp.exp(x).T[::-1, 3:] + 1


def moved(x: Any) -> Any:
    return jnp.moveaxis(jnp.exp(x), 1, -1) * 2


def rolled(x: Any) -> Any:
    return jnp.exp(jnp.transpose(x, (2, 0, 1))) + 1


def started(x: Any, start: Any) -> Any:
    """A turned read that begins where an operand says."""
    part = jax.lax.dynamic_slice(x, (start, jnp.zeros_like(start)), (20, x.shape[1]))
    return jnp.exp(part).T + 1


CASES: dict[str, tuple[Callable[..., Any], Sequence[Array]]] = {
    "even": (swapped, [values(64, 96)]),
    "odd": (swapped, [values(37, 131)]),
    "large": (swapped, [values(600, 1100)]),
    "batched": (swapped, [values(3, 70, 45)]),
    "flat": (swapped, [values(1000, 9)]),
    "tall": (swapped, [values(9, 1000)]),
    "mixed": (mixed, [values(40, 75), values(75, 40), values(75), values(40)]),
    "counted": (counted, [values(33, 40, dtype=np.int32)]),
    "flipped": (flipped, [values(50, 40)]),
    "image": (moved, [values(2, 48, 5, 7)]),
    "rolled": (rolled, [values(5, 40, 24)]),
    **{f"masked {np.dtype(d)}": (masked, [values(45, 77, dtype=d), values(45, 77, dtype=bool)])
       for d in (BF16, np.float16, np.float32, S8, np.uint16)},
}  # fmt: skip
WIDE: dict[str, tuple[Callable[..., Any], Sequence[Array]]] = {
    "even": (swapped, [values(192, 128)]),
    "cut": (mixed, [values(124, 188), values(188, 124), values(188), values(124)]),
    "batched": (swapped, [values(2, 120, 60, dtype=BF16)]),
    "counted": (counted, [values(64, 128, dtype=np.int32)]),
    "narrow results": (lambda x: jnp.exp(x).T.astype(jnp.float16), [values(64, 128)]),
    "two": (lambda x, y: (x * y).T - 2 * y.T, [values(64, 128), values(64, 128, seed=1)]),
    "odd results": (swapped, [values(63, 128)]),
    "odd operands": (swapped, [values(128, 63)]),
}
UNTILED: dict[str, tuple[Callable[..., Any], Sequence[Array]]] = {
    "tiny": (swapped, [values(5, 7)]),
    "heads": (lambda x: jnp.exp(x).transpose(0, 2, 1, 3) + 1, [values(2, 17, 4, 64)]),
    "few": (swapped, [values(40, 2)]),
    "started": (started, [values(40, 33), np.array(7, np.int32)]),
}


def graph_of(f: Callable[..., Any], args: Sequence[Array]) -> Graph:
    return run(import_module(jax.jit(f, keep_unused=True).lower(*args).compiler_ir("stablehlo")), CPU)


def stitched(f: Callable[..., Any], args: Sequence[Array]) -> tuple[Stitched, list[Array]]:
    """The function's kernels, and what they must give."""
    graph = graph_of(f, args)
    return stitch(graph, PROFILES["h200"]), [np.asarray(v) for v in interpret(graph, list(args))]


def close(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype
        tolerance = NARROW.get(x.dtype, 2e-6)
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), tolerance, tolerance)


def only_launch(made: Stitched) -> tuple[Emitted, CudaSource, Launch]:
    (emitted,) = made.kernels.values()
    (launch,) = emitted.source.launches
    return emitted, emitted.source, launch


@pytest.mark.parametrize("case", CASES)
def test_tiles_in_the_simulator(case: str) -> None:
    made, wanted = stitched(*CASES[case])
    assert "in tiles of" in made.sources[0].text
    close(made.run(CASES[case][1], simulated), wanted)


@pytest.mark.parametrize("case", UNTILED)
def test_lanes_that_need_no_tiles(case: str) -> None:
    made, wanted = stitched(*UNTILED[case])
    assert "in tiles of" not in made.sources[0].text
    close(made.run(UNTILED[case][1], simulated), wanted)


@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
@pytest.mark.parametrize(
    "case", ["odd", "batched", "mixed", "counted", "image", "masked bfloat16", "masked int8"]
)
def test_tiles_as_ptx(case: str) -> None:
    made, wanted = stitched(*CASES[case])
    close(made.run(CASES[case][1], interpreted), wanted)


def test_doubles() -> None:
    with jax.enable_x64(True):
        args = [values(45, 77, dtype=np.float64), values(45, 77, dtype=bool)]
        made, wanted = stitched(masked, args)
    _, source, launch = only_launch(made)
    close(made.run(args, simulated), wanted)
    assert "shared_load_f64" in source.text
    assert {
        a.wavefronts for a in accesses(source, launch) if a.what.startswith("shared") and a.dtype == "f64"
    } == {2}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles as large as those of large tensors."""
    monkeypatch.setattr(tile_shape, "ENOUGH_TILES", 1)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("case", WIDE)
def test_vectors(case: str) -> None:
    made, wanted = stitched(*WIDE[case])
    _, source, launch = only_launch(made)
    close(made.run(WIDE[case][1], simulated), wanted)
    found = whole(accesses(source, launch))
    assert {a.wavefronts for a in found if a.what.startswith("shared")} == {1}
    assert {a.width for a in found if a.what == "store"} == {1 if case == "odd results" else 4}
    assert (1 if case == "odd operands" else 4) in {a.width for a in found if a.what == "read"}
    if case == "even":
        assert all(a.sectors == 16 for a in found if not a.what.startswith("shared"))


@pytest.mark.usefixtures("large")
@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
@pytest.mark.parametrize("case", ["cut", "batched", "two"])
def test_vectors_as_ptx(case: str) -> None:
    made, wanted = stitched(*WIDE[case])
    close(made.run(WIDE[case][1], interpreted), wanted)
    _, source, launch = only_launch(made)
    assert "ld.global.nc.v" in ptx_of(source, launch, PTX)


@pytest.mark.parametrize("case", ["even", "odd", "tall", "flat", "masked int8"])
def test_large_ctas(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes of a launch have CTAs of one size, that of the lane which needs the most threads."""
    monkeypatch.setattr(launch_kernel, "BLOCK", 1024)
    made, wanted = stitched(*CASES[case])
    assert only_launch(made)[2].block == 1024
    close(made.run(CASES[case][1], simulated), wanted)


@pytest.mark.parametrize("shape", [(37, 50), (64, 128)])
@pytest.mark.usefixtures("large")
def test_results_in_place(shape: tuple[int, int]) -> None:
    """y += x.T in the memory of y."""
    args = [values(*shape[::-1]), values(*shape)]
    graph = graph_of(lambda x, y: y + jnp.exp(x).T, args)
    wanted = [np.asarray(v) for v in interpret(graph, list(args))]
    made = stitch(graph, PROFILES["h200"], donate=True)
    (kernel,) = made.kernels
    assert len(kernel.aliases) == 1
    assert "in tiles of" in made.sources[0].text
    close(made.run(args, simulated), wanted)


def whole(found: list[Access]) -> list[Access]:
    return [a for a in found if len(a.at) == 32]


@pytest.mark.parametrize(
    "case", ["even", "large", "flat", "tall", "masked bfloat16", "masked int8", "masked uint16"]
)
def test_accesses_of_a_warp(case: str) -> None:
    """Memory in whole sectors, one more where a row starts inside one; shared memory in one turn."""
    _, source, launch = only_launch(stitched(*CASES[case])[0])
    found = whole(accesses(source, launch))
    assert {a.what for a in found} >= {"read", "shared_store", "shared_load"}
    for a in found:
        if a.what.startswith("shared"):
            assert a.wavefronts == 1, a
        elif case in ("even", "large"):
            assert a.sectors <= 32 * a.itemsize // 32 + 1, a


def test_what_tiles_are_for() -> None:
    """The same accesses without padding, and without tiles, as a measure of the two numbers above."""
    column = Access("shared_load", "f32", 0, 1, tuple(32 * t for t in range(32)))
    assert column.wavefronts == 32
    assert Access("read", "f32", "x", 1, tuple(3000 * t for t in range(32))).sectors == 32


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "extents", [(9, 4), (9, 5000), (5000, 4), (5000, 9), (64, 64), (33, 20), (700, 1000)]
)
@pytest.mark.parametrize("block", [256, 1024])
def test_positions_have_no_conflicts(itemsize: int, extents: tuple[int, int], block: int) -> None:
    shape = choose_shape(*extents, 1, [itemsize], block)
    assert shape.along <= block
    assert shape.across <= block
    assert shape.along * shape.across % block == 0
    dtype = {1: "u8", 2: "u16", 4: "f32", 8: "f64"}[itemsize]
    best = 2 if itemsize == 8 else 1
    seen: set[int] = set()
    for first in range(0, shape.along * shape.across, 32):
        lanes = range(first, first + 32)
        stores = [(i // shape.across, i % shape.across) for i in lanes]
        loads = [(i % shape.along, i // shape.along) for i in lanes]
        for places in (stores, loads):
            at = tuple(_position(shape, x, y, itemsize) for x, y in places)
            assert Access("", dtype, 0, 1, at).wavefronts == best, (shape, places)
            seen |= set(at)
    assert len(seen) == shape.along * shape.across
    assert (max(seen) + 1) * itemsize <= shape.nbytes(itemsize)


def _position(shape: TileShape, x: int, y: int, itemsize: int) -> int:
    found = shape.position(const(x), const(y), itemsize)
    assert found.is_const
    return found.const


@pytest.mark.parametrize("case", ["even", "odd", "batched", "mixed", "image", "masked int8"])
def test_bytes_are_those_that_are_touched(case: str) -> None:
    found: list[tuple[Launch, LaunchCounts]] = []

    def counted(emitted: Emitted) -> RunLaunch:
        source = emitted.source

        def go(n: int, arrays: list[Array]) -> None:
            found.append((source.launches[n], simulate_launch(source, source.launches[n], arrays)))

        return go

    stitched(*CASES[case])[0].run(CASES[case][1], counted)
    ((launch, counts),) = found
    sizes = {p.name: DTYPES[p.dtype].itemsize for p in launch.parameters}
    assert sum(n * sizes[name] for name, n in counts.distinct_read.items()) == launch.bytes_read
    assert sum(n * sizes[name] for name, n in counts.distinct_written.items()) == launch.bytes_written


def test_equal_lanes_share_code() -> None:
    args = [values(40, 50, seed=n) for n in range(3)]
    made, wanted = stitched(lambda *xs: [swapped(x) for x in xs], args)
    assert made.sources[0].text.count("in tiles of") == 1
    close(made.run(args, simulated), wanted)
