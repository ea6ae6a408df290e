"""Races: how many rounds they take, and what they call less, more and a tie."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jstitch.runtime import race as racing
from jstitch.runtime.race import FEWEST_ROUNDS, MOST_ROUNDS, Race, race


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(racing, "time", made)
    return made


def lasting(clock: Clock, seconds: Callable[[int], float]) -> Callable[[], None]:
    """A step whose nth call takes so long."""
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        clock.sleep(seconds(calls))

    return step


def test_a_race_ends_when_the_order_is_clear(clock: Clock) -> None:
    quick, slow = lasting(clock, lambda n: 1e-4), lasting(clock, lambda n: 5e-4)
    found = race([quick, slow], seconds=20.0)
    assert len(found.rounds) == FEWEST_ROUNDS
    assert found.seconds(0) == pytest.approx(1e-4)
    assert found.ratio(1, 0).value == pytest.approx(5)
    assert found.ratio(1, 0).is_more
    assert found.ratio(0, 1).is_less


def test_a_race_goes_on_while_it_is_not(clock: Clock) -> None:
    steady, wild = lasting(clock, lambda n: 1e-2), lasting(clock, lambda n: 1e-2 * (0.5 + n * 0.618 % 1))
    found = race([steady, wild], seconds=1e9)
    assert len(found.rounds) == MOST_ROUNDS
    assert not found.ratio(1, 0).is_less
    assert not found.ratio(1, 0).is_more


def test_a_race_keeps_its_time(clock: Clock) -> None:
    steps = [lasting(clock, lambda n: 0.05)] * 2
    assert len(race(steps, seconds=0.0).rounds) == 1
    assert clock.now < 1


def test_a_race_outlasts_a_few_slow_rounds(clock: Clock) -> None:
    """A heap that happens to be trimmed after each of the first calls."""
    settles = lasting(clock, lambda n: 5e-3 if n < 12 else 1e-4)
    assert race([lasting(clock, lambda n: 2e-3), settles], seconds=20.0).ratio(1, 0).is_less


def test_a_tie_is_neither_less_nor_more() -> None:
    noisy = Race(((1.0, 1.2), (1.0, 0.8), (1.0, 1.1), (1.0, 0.9), (1.0, 1.01)))
    assert not noisy.ratio(1, 0).is_less
    assert not noisy.ratio(1, 0).is_more
    near = Race(((1.0, 1.005),) * 9)
    assert near.is_settled
    assert not near.ratio(1, 0).is_more
