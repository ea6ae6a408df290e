"""The hunter: what it draws, how it makes programs smaller, what it prints."""

from __future__ import annotations

import io
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import jstitch
from benchmarks import hunt
from benchmarks.check import WrongResultError
from benchmarks.grammar import contractions, endings, moves, norms, pieces, pointwise, sequences, spectra
from benchmarks.grammar.compare import require_right
from benchmarks.grammar.draw import programs
from benchmarks.grammar.program import WRAPPERS, Extra, Program, Step

MODULES = (contractions, endings, moves, norms, pieces, pointwise, sequences, spectra)
SMALL = 200_000  # bytes
DRAWN = list(islice(programs(7), 400))


def test_the_same_seed_draws_the_same() -> None:
    assert [str(p) for p in islice(programs(7), 50)] == [str(p) for p in DRAWN[:50]]
    assert [str(p) for p in islice(programs(8), 50)] != [str(p) for p in DRAWN[:50]]


def test_every_kind_is_drawn() -> None:
    """Each maker's steps, each wrapper, dtype and rank, odd sizes above all."""
    makers = {maker.__name__ for module in MODULES for maker in module.MAKERS}
    seen = {step.apply.__qualname__.partition(".")[0] for p in DRAWN for step in p.steps}
    assert makers <= seen
    assert {p.wrapper for p in DRAWN} == set(WRAPPERS)
    assert {p.dtype for p in DRAWN} == {"float32", "bfloat16", "float16"}
    assert {len(p.shape) for p in DRAWN} == {1, 2, 3, 4}
    sizes = [n for p in DRAWN for n in p.shape]
    assert sum(n % 8 > 0 for n in sizes) > len(sizes) / 2
    assert min(p.nbytes for p in DRAWN) < 2_000
    assert max(p.nbytes for p in DRAWN) > 20_000_000


@pytest.mark.parametrize("program", [p for p in DRAWN if p.nbytes < SMALL][:4], ids=str)
def test_results_are_right(program: Program) -> None:
    args = program.args()
    require_right(program, jstitch.jit(program)(*args), jax.jit(program)(*args))


def test_wrong_results_are_found() -> None:
    program = Program((40,), "float32", (Step("twice", lambda x: 2 * x),))
    right = program(*program.args())
    require_right(program, right, right)
    require_right(program, right * (1 + 1e-6), right)
    for wrong in (right * 1.01, right.at[3].set(np.nan), right[:3]):
        with pytest.raises(WrongResultError):
            require_right(program, wrong, right)


# -- smaller ----------------------------------------------------------------------------------------------

SLOW = Step("slow", lambda x: x + 1)
FAST = Step("fast", lambda x, w: x * w, (Extra((5, 3)),))
PROGRAM = Program((5, 3), "float32", (FAST, SLOW, FAST, SLOW, FAST), "value and gradient")


def measured(program: Program, seconds: float) -> hunt.Row:
    """One slow step makes it slow."""
    return {"ratio": 0.5 if SLOW in program.steps else 1.5, "jax": 10.0, "jstitch": 20.0}


def hunter(measure: Any) -> tuple[hunt.Hunter, io.StringIO]:
    out = io.StringIO()
    return hunt.Hunter(measure, 0.95, 0.01, Console(file=out, soft_wrap=True)), out


def test_a_slow_program_is_made_as_small_as_it_stays_slow() -> None:
    found, out = hunter(measured)
    found.look_at(12, PROGRAM)
    first, second, *_ = out.getvalue().splitlines()
    assert first.startswith("12: 0.50x  10 -> 20  float32[5,3] | fast | slow | fast | slow | fast")
    assert second.strip() == "smaller: 0.50x  10 -> 20  float32[5,3] | slow"
    assert "1 below 0.95" in found.summary()


def test_what_is_slow_once_is_measured_again() -> None:
    ratios = iter((0.5, 1.2))
    found, out = hunter(lambda program, seconds: {"ratio": next(ratios), "jax": 1.0, "jstitch": 1.0})
    found.look_at(0, PROGRAM)
    assert out.getvalue() == ""
    assert "1.20x at least, 0 below" in found.summary()


def test_what_is_left_may_be_no_program() -> None:
    """A step that takes the array in another shape."""
    flat = Step("flat", lambda x: x.reshape(-1))
    one = Step("one dimension", lambda x, w: x @ w, (Extra((15,)),))
    program = Program((5, 3), "float32", (flat, one))
    assert [p.is_valid() for p in program.smaller()] == [True, False]


def test_the_command_line() -> None:
    """By counts, without a device; a CPU's times are nobody's test."""
    result = CliRunner().invoke(hunt.hunt_command, ["--count", "2", "--seed", "3", "--target", "h200"])
    assert result.exit_code == 0, result.output
    assert "2 programs" in result.output
