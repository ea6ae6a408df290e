"""Every kernel of a default plan is executed: packed programs in the simulator and the PTX interpreter.

The suite's programs and random ones, two or three at a time, planned with default options for an H200, on
shapes drawn so that every form, every size of team, every remainder and every two teams that can share a
launch occur: that they do is asserted, so that the sweep cannot come to cover less without anybody noticing.

All programs run in the simulator, every third one also as PTX. The quick share are 24 programs. The sweep
(`pytest -m slow tests/codegen/cuda/test_packs.py`) are JSTITCH_PACKS packed ones, 3,000 unless set; it prints
how many of each kind it met.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection

import pytest

from jstitch.codegen.cuda.exchange import Team
from jstitch.codegen.cuda.launch_kernel import BLOCK
from jstitch.options import CompileOptions
from tests.codegen.cuda import stitched
from tests.codegen.cuda.forms import FORMS, HOMES, LEFT_OVER, TEAMS, WITHOUT_STRIPS, met, packs
from tests.codegen.cuda.packs import PAIRS, pack
from tests.codegen.cuda.stitched import PROFILES, Stitched, interpreted, simulated, stitch

DEFAULT = CompileOptions(strict=True, verify=True)
QUICK = (2, 13, 15, 18, 24, 27, 33, 39, 42, 45, 48, 60)  # have every form and team, and are soon run
SWEEP = 10_000  # the sweep's first program
TRIES = 3  # sets of arguments: next to a jump (rounding, a comparison) two right programs may differ
COMPILED = 3  # one of so many programs runs as PTX, too: compiling it takes longer than all the rest


def check(seed: int) -> Counter[str]:
    """Run one program on the machines; what was met in it. Races and wild accesses raise at once."""
    found = pack(seed)
    made = stitch(found.graph, PROFILES["h200"], donate=seed % 2 == 0, options=DEFAULT)
    assert not made.recorder.refused, f"program {seed}: {found}"
    as_ptx = seed // 3 % COMPILED == 0 and stitched.WHY_NO_PTX is None
    machines = [simulated, *[interpreted] * as_ptx]
    for machine in machines:
        wrong = ""
        for attempt in range(TRIES if made.kernels else 0):
            wrong = found.wrong(made.run(found.args(attempt), machine), attempt)
            if not wrong:
                break
        assert not wrong, f"program {seed} in the machine {machine.__name__}: {wrong}"
    packed = packs(made, [part.graph.inputs for part in found.parts])
    return met(made) + _counted(made, len(machines), packed)


def _counted(made: Stitched, machines: int, packed: bool) -> Counter[str]:
    launches = sum(len(e.made.codes) for e in made.kernels.values())
    return Counter(
        {
            "programs": 1,
            "programs: packed": int(packed),
            "programs: run as PTX": int(machines > 1),
            "kernels": len(made.kernels),
            "launches": launches,
        }
    )


def missing(found: Counter[str], kinds: dict[str, Collection[object]]) -> list[str]:
    """Kinds that were never met."""
    wanted = (f"{what}: {kind}" for what, each in kinds.items() for kind in each)
    return [kind for kind in wanted if not found[kind]]


def possible_pairs() -> list[str]:
    """Teams that can be in one launch: in a CTA for the larger, the smaller may have to grow."""
    pairs = [(TEAMS[a], TEAMS[b]) for a, b in PAIRS]
    return [f"{a} + {b}" for a, b in pairs if Team.fitting(a, max(BLOCK, b)).threads == a]


def test_a_quick_share() -> None:
    found = sum((check(seed) for seed in QUICK), Counter[str]())
    assert found["programs: packed"] > found["programs"] * 2 // 3
    assert missing(found, {"form": FORMS, "team": TEAMS}) == []


@pytest.mark.slow
def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    found, seed = Counter[str](), SWEEP
    while found["programs: packed"] < int(os.environ.get("JSTITCH_PACKS", "3000")):
        found += check(seed)
        seed += 1
    with capsys.disabled():
        print("", *(f"{count:8,}  {kind}" for kind, count in sorted(found.items())), sep="\n")
    kinds = {"form": FORMS, "form among unlike": WITHOUT_STRIPS, "team": TEAMS, "kept in": HOMES}
    kinds |= {"left over": LEFT_OVER, "teams together": possible_pairs()}
    assert missing(found, kinds) == []
