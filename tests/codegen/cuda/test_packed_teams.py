"""Lanes of unlike teams in one launch: a row that needs a whole CTA makes short rows' CTAs large, too."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jstitch.codegen.cuda.exchange import TEAM_BARRIERS, Team
from jstitch.codegen.print_launch import print_body
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from tests.codegen.cuda import stitched
from tests.codegen.cuda.references import Expected
from tests.codegen.cuda.stitched import PROFILES, interpreted, simulated, stitch

PAIRS = {"1024 and 64": ((8, 20000), (64, 1024)), "1024 and 64, a remainder": ((3, 32000), (37, 1000))}
NO_PTX = pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))


def both(x: Array, y: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """A softmax of long rows beside a norm of short ones."""
    centred = y - y.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    return jax.nn.softmax(x), centred * scale * gamma + beta


def graph(long: tuple[int, int], short: tuple[int, int]) -> Graph:
    args = [jax.ShapeDtypeStruct(s, np.float32) for s in (long, short, short[1:], short[1:])]
    return import_module(parse_module(jax.jit(both).lower(*args).as_text()))


def some(of: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=v.shape).astype(np.float32) for v in of.inputs]


@pytest.mark.parametrize("machine", [simulated, pytest.param(interpreted, marks=NO_PTX)])
@pytest.mark.parametrize("pair", PAIRS)
def test_unlike_teams_in_one_launch(pair: str, machine: stitched.MakeMachine) -> None:
    rows = graph(*PAIRS[pair])
    made = stitch(rows, PROFILES["h200"])
    ((launch,),) = (source.launches for source in made.sources)
    assert launch.block == 1024
    args = some(rows)
    assert Expected(rows, args).wrong(made.run(args, machine)) is None


def test_teams_of_a_large_cta_have_barriers_of_their_own() -> None:
    text = stitch(graph(*PAIRS["1024 and 64"]), PROFILES["h200"]).sources[0].text
    (threads,) = {int(n) for n in re.findall(r"barrier_team\(team \+ 1, (\d+)\)", text)}
    assert 1024 // threads <= TEAM_BARRIERS


@pytest.mark.parametrize("block", [32 << n for n in range(6)])
@pytest.mark.parametrize("threads", [1 << n for n in range(11)])
def test_a_team_is_as_small_as_barriers_allow(threads: int, block: int) -> None:
    team = Team.fitting(threads, block)
    assert team.threads >= threads
    assert team.block == max(threads, block)
    named = [int(n) for line in print_body(team.barrier("")) for n in re.findall(r"team \+ (\d+)", line)]
    assert all(team.teams - 1 + first <= TEAM_BARRIERS for first in named)
    if team.threads > threads:
        assert block // (team.threads // 2) > TEAM_BARRIERS


def test_a_barrier_that_the_hardware_lacks_is_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were teams still as small as their rows allow, the launch would fail its check."""
    monkeypatch.setattr(Team, "fitting", lambda threads, block: Team(threads, max(1, block // threads)))
    made = stitch(graph(*PAIRS["1024 and 64"]), PROFILES["h200"])
    assert not made.kernels
    (why,) = made.recorder.refused
    assert "teams of 64 in a CTA of 1024 have no barriers" in why
