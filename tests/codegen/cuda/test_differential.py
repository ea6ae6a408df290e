"""Random programs on every machine: Graph interpreter, CPU backend, lockstep simulator, PTX interpreter.

The quick share runs 510 programs in the simulator, and a fixed part of them on the two machines that compile.
The sweep (`pytest -m slow tests/codegen/cuda`) takes JSTITCH_FUZZ_PROGRAMS programs (5,000 unless set)
through all of them, of which this process runs the share JSTITCH_FUZZ_SHARD = "k/n" (k counts from 0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from tests.codegen.cuda import stitched
from tests.codegen.cuda.large_graphs import make_columns, make_large, make_many_lanes
from tests.codegen.cuda.references import Expected
from tests.codegen.cuda.stitched import PROFILES, Stitched
from tests.fuzz.programs import make_program
from tests.passes.random_graphs import Limits, arguments

Arrays = Sequence[np.ndarray]
Machines = Mapping[str, Callable[[Arrays], Arrays]]
SWEEP = 10_000  # the sweep's first program
BATCH = 20
TRIES = 3  # sets of arguments: next to a jump (floor, a comparison) two right programs may differ


@dataclass(frozen=True)
class Kind:
    """Programs of one kind. quick: how many run everywhere; compiled: every so many is compiled, too."""

    make: Callable[[int], Graph]
    quick: int
    compiled: int


KINDS = {
    "small": Kind(make_program, 200, 4),
    "medium": Kind(lambda seed: make_program(seed, Limits(elements=4096)), 120, 4),
    "large": Kind(make_large, 120, 6),
    "columns": Kind(make_columns, 60, 4),
    "many lanes": Kind(make_many_lanes, 10, 10),
}


def machines(graph: Graph, made: Stitched, compiled: bool) -> Machines:
    """Every machine that runs the program's kernels here."""
    found: dict[str, Callable[[Arrays], Arrays]] = {
        "simulator": lambda args: made.run(args, stitched.simulated)
    }
    if compiled:
        for_cpu = stitched.stitch_for_cpu(graph)
        found["CPU"] = lambda args: stitched.execute(for_cpu, args, stitched.on_cpu)
    if compiled and stitched.WHY_NO_PTX is None:
        found["PTX interpreter"] = lambda args: made.run(args, stitched.interpreted)
    return found


def check(kind: str, seed: int, compiled: bool) -> int:
    """Run one program everywhere; how many kernels it has. Races and wild accesses raise at once."""
    graph = KINDS[kind].make(seed)
    made = stitched.stitch(graph, list(PROFILES.values())[seed % len(PROFILES)], donate=seed % 2 == 0)
    assert not made.recorder.refused
    left = machines(graph, made, compiled)
    wrong: dict[str, str] = {}
    for attempt in range(TRIES if made.kernels else 0):
        args = arguments(graph, seed + 1000 * attempt, specials=seed % 2 == 1 and attempt < TRIES - 1)
        wrong = _wrong(left, Expected(graph, args), args)
        left = {name: machine for name, machine in left.items() if name in wrong}
    assert not any(wrong.values()), f"{kind} program {seed}: {wrong}\n{print_graph(graph)}"
    return len(made.kernels)


def _wrong(left: Machines, expected: Expected, args: Arrays) -> dict[str, str]:
    """Machines that have not shown a right result yet; an empty text for a result that no rule decides."""
    found: dict[str, str] = {}
    for name, machine in left.items():
        message = expected.wrong(machine(args))
        if message is not None:
            found[name] = "" if expected.undecided else message
    return found


def batches(kind: str, first: int, count: int) -> list[tuple[str, range]]:
    return [(kind, range(k, min(k + BATCH, first + count))) for k in range(first, first + count, BATCH)]


QUICK = [batch for name, kind in KINDS.items() for batch in batches(name, 0, kind.quick)]


def test_the_quick_share_is_large_enough() -> None:
    assert sum(len(seeds) for _, seeds in QUICK) >= 500


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("small", 10196),  # a thread without a row read what another one overwrote
        ("medium", 10676),  # lanes of a warp meet after a long way round
        ("many lanes", 10174),  # an update and a gift of the same argument
        ("columns", 68),  # threads past the end of a sliced lane
        ("large", 10704),  # a factor of a sum is a sum that was taken apart itself
        ("large", 11730),  # jax.jit's NaN is an overflow of what kernels do not round
        ("columns", 10410),  # a mean in bf16 is an output, and read back for the differences from it
    ],
)
def test_programs_that_were_wrong(kind: str, seed: int) -> None:
    assert check(kind, seed, compiled=True)


@pytest.mark.parametrize(("kind", "seeds"), QUICK, ids=str)
def test_programs(kind: str, seeds: range) -> None:
    kernels = sum(check(kind, seed, seed % KINDS[kind].compiled == 0) for seed in seeds)
    assert kernels > len(seeds) // 3


def share() -> list[tuple[str, range]]:
    """This process's batches of the sweep."""
    total = int(os.environ.get("JSTITCH_FUZZ_PROGRAMS", "5000"))
    number, count = map(int, os.environ.get("JSTITCH_FUZZ_SHARD", "0/1").split("/"))
    parts = {"small": 0.35, "medium": 0.2, "large": 0.3, "columns": 0.1, "many lanes": 0.05}
    all_ = [batch for kind, part in parts.items() for batch in batches(kind, SWEEP, round(total * part))]
    return all_[number::count]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), share(), ids=str)
def test_sweep(kind: str, seeds: range) -> None:
    for seed in seeds:
        check(kind, seed, compiled=True)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
def test_a_wrong_kernel_is_found() -> None:
    """A defect in the emitted text shows on both machines, so that the comparison is no formality."""
    graph = make_large(0)
    made = stitched.stitch(graph, PROFILES["h200"])
    args = arguments(graph, 0, specials=False)
    expected = Expected(graph, args)
    for machine in (stitched.simulated, stitched.interpreted):
        assert expected.wrong(made.run(args, machine)) is None
        assert expected.wrong([_off_by_little(x) for x in made.run(args, machine)]) is not None


def _off_by_little(x: np.ndarray) -> np.ndarray:
    """One element a thousandth off."""
    changed = x.copy()
    changed.reshape(-1)[-1] = changed.reshape(-1)[-1] * 1.001 + 1
    return changed
