"""Races in the background: what is raced, when, who wins, and what the next compilation makes of it."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.frontend import background_race, races, rewrite
from jstitch.frontend.background_race import Due
from jstitch.frontend.measure import Measurer
from jstitch.frontend.measured_gate import Decision
from jstitch.frontend.races import RACES, Races
from jstitch.passes.fuse import gate
from jstitch.runtime.race import Race
from jstitch.runtime.tuning_session import UnmeasuredError

X = np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)
FASTER, SLOWER = (1e-3, 2e-3), (2e-3, 1e-3)  # our seconds, and XLA's


def soft(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def options(folder: Path, **more: Any) -> jstitch.CompileOptions:
    found = {"race_seconds": 3.0, "cache_dir": str(folder), "strict": True, "verify": False}
    found |= {"without": ("sorts",), **more}
    return jstitch.CompileOptions(**found)


def run(f: Callable[..., Any], *args: Any, options: jstitch.CompileOptions, **jit: Any) -> jstitch.Record:
    """The record of a function that was compiled anew, whose results are right."""
    expected = jax.jit(f)(*args)
    since = jstitch.record_count()
    found = jstitch.jit(lambda *a: f(*a), options=options, **jit)(*map(jnp.asarray, args))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-5, atol=1e-6), found, expected)
    return jstitch.last_report(since)[-1]


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And nothing runs but when a test says so."""
    monkeypatch.setattr(races, "QUIET", 1e6)
    yield
    with RACES._changed:
        RACES._ready.clear()
        RACES._lowered.clear()
        RACES._changed.notify_all()


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Programs take these times, heat by heat, whatever they do; gives how many were in each heat."""

    def arrange(*heats: tuple[float, ...]) -> list[int]:
        run: list[int] = []

        def race(steps: Any, seconds: float, stop: Any) -> Race:
            run.append(len(steps))
            times = heats[len(run) - 1]
            return Race(((*times, *times[1:2] * (len(steps) - len(times))),) * 9)

        monkeypatch.setattr(background_race, "race", race)
        return run

    return arrange


def test_who_loses_is_left_out_of_the_next_compilation(tmp_path: Path, pretend: Any) -> None:
    heats = pretend(SLOWER, SLOWER)
    assert run(soft, X, options=options(tmp_path)).kernels == 1
    (decision,) = jstitch.race_now()
    assert (decision.choice, decision.ours, decision.xla) == ("xla", 2e-3, 1e-3)
    assert heats == [2, 2]
    record = run(soft, X, options=options(tmp_path))
    assert record.kernels == 0
    assert record.reason == "raced 2,000 us, and XLA's kernels take 1,000 us"
    assert [(d.choice, d.how) for d in record.details["tuning"]] == [("xla", "raced")]
    assert jstitch.race_now() == ()


@pytest.fixture
def doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model leaves everything to XLA, and is sure of nothing."""
    monkeypatch.setattr(gate, "MARGINS", {"model": 1e-4, "measure": 1e9, "off": math.inf})
    monkeypatch.setattr(gate, "DOUBTFUL", 0.0)


@pytest.mark.usefixtures("doubtful")
def test_kernels_in_doubt_are_raced(tmp_path: Path, pretend: Any) -> None:
    """They have to win twice, and are raced like others from then on."""
    heats = pretend(SLOWER, SLOWER, FASTER)
    assert run(soft, X, options=options(tmp_path)).kernels == 0
    (decision,) = jstitch.race_now()
    assert decision.choice == "more"
    record = run(soft, X, options=options(tmp_path))
    assert record.kernels == 1
    assert [(d.choice, d.ours, d.xla) for d in record.details["tuning"]] == [("more", 1e-3, 2e-3)]
    assert [decision.choice for decision in jstitch.race_now()] == ["ours"]
    record = run(soft, X, options=options(tmp_path))
    assert (record.kernels, [d.choice for d in record.details["tuning"]]) == (1, ["more", "ours"])
    assert jstitch.race_now() == ()
    assert heats == [2, 2, 2]
    (call,) = jstitch.jit(soft, options=options(tmp_path)).explain(X).calls
    assert [p.verdict.endswith("raced: the function is faster with it") for p in call.patterns] == [True]


@pytest.mark.usefixtures("doubtful")
def test_kernels_in_doubt_that_do_not_win_stay_away(tmp_path: Path, pretend: Any) -> None:
    pretend(FASTER)
    for expected in (1, 0):
        assert run(soft, X, options=options(tmp_path)).kernels == 0
        assert len(jstitch.race_now()) == expected


@pytest.mark.usefixtures("doubtful")
def test_kernels_won_in_doubt_can_be_lost(tmp_path: Path, pretend: Any) -> None:
    pretend(SLOWER, SLOWER, SLOWER, SLOWER)
    run(soft, X, options=options(tmp_path))
    jstitch.race_now()
    assert run(soft, X, options=options(tmp_path)).kernels == 1
    assert [decision.choice for decision in jstitch.race_now()] == ["xla"]
    assert run(soft, X, options=options(tmp_path)).kernels == 0


def test_what_is_in_doubt_and_no_kernel_either_way_is_asked_once(
    tmp_path: Path, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heats = pretend((1e-3, 1e-3))
    monkeypatch.setattr(gate, "MARGINS", {"model": 1e-4, "measure": 1e-4, "off": math.inf})
    monkeypatch.setattr(rewrite, "is_doubtful", lambda why: True)
    for expected in (1, 0):
        assert run(soft, X, options=options(tmp_path)).kernels == 0
        assert len(jstitch.race_now()) == expected
    assert heats == [2]


def test_explain_and_plan_say_so(tmp_path: Path, pretend: Any) -> None:
    pretend(SLOWER, SLOWER)
    run(soft, X, options=options(tmp_path))
    jstitch.race_now()
    jitted = jstitch.jit(soft, options=options(tmp_path))
    (call,) = jitted.explain(X).calls
    assert [str(p.refused) for p in call.patterns] == ["raced 2,000 us, and XLA's kernels take 1,000 us"]
    assert all(edge.why is not None for edge in call.edges)
    assert any("stays XLA's: measured: raced" in line for line in jitted.plan(X).notes())


def test_who_wins_stays_and_is_not_raced_again(tmp_path: Path, pretend: Any) -> None:
    heats = pretend(FASTER)
    for expected in (1, 0):
        record = run(soft, X, options=options(tmp_path))
        assert record.kernels == 1
        assert len(jstitch.race_now()) == expected
    assert [(d.choice, d.how) for d in record.details["tuning"]] == [("ours", "raced")]
    assert heats == [2]


@pytest.mark.parametrize("second", [FASTER, (1e-3, 1e-3)], ids=["faster", "same"])
def test_to_lose_takes_two_races(tmp_path: Path, pretend: Any, second: tuple[float, float]) -> None:
    pretend(SLOWER, second)
    run(soft, X, options=options(tmp_path))
    assert [decision.choice for decision in jstitch.race_now()] == ["ours"]
    assert run(soft, X, options=options(tmp_path)).kernels == 1


def attention(q: Any, k: Any, v: Any) -> Any:
    return soft(q @ k.T) @ v


@pytest.mark.parametrize(("floor", "choice"), [(0, "ours"), (1 << 25, "xla")])
def test_memory_is_not_given_for_time(
    tmp_path: Path, pretend: Any, monkeypatch: pytest.MonkeyPatch, floor: int, choice: str
) -> None:
    """XLA's version is faster, and holds all scores."""
    pretend(SLOWER, SLOWER)
    monkeypatch.setattr(background_race, "FLOOR", floor)
    qkv = np.random.default_rng(0).normal(size=(3, 512, 32)).astype(np.float32)
    assert run(attention, *qkv, options=options(tmp_path)).kernels
    assert [decision.choice for decision in jstitch.race_now()] == [choice]


def two(x: Any) -> Any:
    """Two kernels: what is sorted in between is XLA's."""
    return soft(jnp.sort(soft(x), axis=0))


def test_one_kernel_may_lose(tmp_path: Path, pretend: Any) -> None:
    """Without the first kernel it is faster; without the second one too, once it is compiled again."""
    heats = pretend((2e-3, 3e-3, 1e-3, 4e-3), (2e-3, 1e-3), (3e-3, 2e-3), (3e-3, 2e-3))
    assert run(two, X, options=options(tmp_path)).kernels == 2
    (decision,) = jstitch.race_now()
    assert (decision.choice, decision.ours, decision.xla) == ("fewer", 2e-3, 1e-3)
    assert heats == [4, 2]
    record = run(two, X, options=options(tmp_path))
    assert record.kernels == 1
    assert [d.choice for d in record.details["tuning"]] == ["fewer"]
    jitted = jstitch.jit(two, options=options(tmp_path))
    assert sum(bool(p.kernel) for p in jitted.plan(X).patterns) == 1
    (call,) = jitted.explain(X).calls
    assert len(call.patterns) == 1
    said = "raced: the function takes 2,000 us with it, and 1,000 us without"
    assert any(said in str(edge.why) for edge in call.edges)
    assert [d.choice for d in jstitch.race_now()] == ["xla"]
    assert heats[2:] == [2, 2]
    assert run(two, X, options=options(tmp_path)).kernels == 0


def test_kernels_in_loops_may_lose(tmp_path: Path, pretend: Any) -> None:
    def f(x: Any) -> Any:
        turn = lambda c, _: (jnp.sort(soft(c), axis=0), None)  # noqa: E731
        return 2 * soft(jax.lax.scan(turn, x, None, 3)[0])

    pretend((2e-3, 3e-3, 1e-3, 1.1e-3), (2e-3, 1e-3))
    x = np.tile(X, (8, 1))
    assert run(f, x, options=options(tmp_path, race_seconds=60.0)).kernels == 2
    assert [d.choice for d in jstitch.race_now()] == ["fewer"]
    assert run(f, x, options=options(tmp_path, race_seconds=60.0)).kernels == 1


def test_other_functions_options_and_donations_are_raced_on_their_own(tmp_path: Path, pretend: Any) -> None:
    pretend(*[SLOWER] * 2, *[FASTER] * 9)
    run(soft, X, options=options(tmp_path))
    jstitch.race_now()
    other = options(tmp_path, without=("nest_rows",))
    for f, x, how, donate in (
        (soft, X[:32], options(tmp_path), ()),
        (lambda x: soft(x) * 2, X, options(tmp_path), ()),
        (soft, X, other, ()),
        (soft, X, options(tmp_path), (0,)),
    ):
        assert run(f, x, options=how, donate_argnums=donate).kernels == 1
        assert [decision.choice for decision in jstitch.race_now()] == ["ours"]


def test_results_that_are_given_memory(tmp_path: Path) -> None:
    """A true race of a function that writes to its argument."""
    step = lambda p, g: (p - 0.1 * g / (1 + jnp.sqrt((g * g).mean(-1, keepdims=True))), (g * g).sum(-1))  # noqa: E731
    assert run(step, X, X, options=options(tmp_path), donate_argnums=0).kernels
    (decision,) = jstitch.race_now()
    assert decision.how == "measured"
    assert decision.ours
    assert decision.xla
    assert run(step, X, X, options=options(tmp_path), donate_argnums=0).details["tuning"]


# -- what is not raced ------------------------------------------------------------------------------------


def calls_back(x: Any) -> Any:
    jax.debug.callback(lambda _: None, x[0, 0])
    return soft(x)


def until(x: Any) -> Any:
    return jax.lax.while_loop(lambda y: y.sum() < 0, lambda y: soft(y) + 1, soft(x))


def together(x: Any) -> Any:
    return jstitch.fuse_together(soft)(x)


@pytest.mark.parametrize(
    ("f", "more"),
    [
        (soft, {"race_seconds": 0.0}),
        (soft, {"race_seconds": 1e-3}),
        (soft, {"tune": "off"}),
        (soft, {"verify": True}),
        (calls_back, {}),
        (until, {}),
        (together, {}),
        (lambda x: x + 1, {}),
    ],
    ids=["never", "no time", "off", "looked at", "effects", "open loop", "demanded", "no kernels"],
)
def test_what_is_not_raced(f: Callable[..., Any], more: dict[str, Any], tmp_path: Path) -> None:
    run(f, X, options=options(tmp_path, **more))
    assert jstitch.race_now() == ()


def test_programs_for_several_devices_are_not_raced(tmp_path: Path) -> None:
    mesh = jax.make_mesh((4,), ("d",))
    x = jax.device_put(np.tile(X, (16, 1)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    since = jstitch.record_count()
    jax.block_until_ready(jstitch.jit(soft, options=options(tmp_path))(x))
    assert jstitch.stitch_count(since) == 1
    assert jstitch.race_now() == ()


def test_calls_that_take_long_are_not_raced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_race, "_call_seconds", lambda step: 0.2)
    run(soft, X, options=options(tmp_path))
    assert jstitch.race_now() == ()


def test_failures_are_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_race, "_call_seconds", lambda step: 1 / 0)
    run(soft, X, options=options(tmp_path))
    assert jstitch.race_now() == ()
    assert run(soft, X, options=options(tmp_path)).kernels == 1


def test_what_compiles_slowly_is_raced_against_xla_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretend: Any
) -> None:
    heats = pretend(SLOWER, SLOWER)
    own = Measurer._compile

    def slow(self: Measurer, *about: Any) -> Any:
        time.sleep(1.0)
        return own(self, *about)

    monkeypatch.setattr(Measurer, "_compile", slow)
    run(two, X, options=options(tmp_path))
    assert [d.choice for d in jstitch.race_now()] == ["xla"]
    assert heats == [2, 2]


def test_the_end_of_the_process_stops_compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    own = Measurer._compile

    def ends(self: Measurer, *about: Any) -> Any:
        compiled.append(1)
        monkeypatch.setattr(RACES, "_closed", True)
        return own(self, *about)

    monkeypatch.setattr(Measurer, "_compile", ends)
    run(two, X, options=options(tmp_path))
    assert jstitch.race_now() == ()
    assert compiled == [1]


# -- when -------------------------------------------------------------------------------------------------


class Waiting(Due):
    """A race that only says that it was run, by whom, and how long it takes."""

    ran: list[str]
    takes = 0.0

    def __init__(self, key: str, ran: list[str]) -> None:
        super().__init__(key, key, None, (), None, 1.0, None)  # type: ignore[arg-type]
        object.__setattr__(self, "ran", ran)

    def run(self, stop: Callable[[], bool]) -> Decision | None:
        self.ran.append(f"{self.key} {threading.current_thread().name}")
        if self.key == "stopped":
            while not stop():
                time.sleep(1e-3)
            raise UnmeasuredError("the process ended")
        time.sleep(self.takes)
        return None


def wait_for(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(1e-3)


def test_a_race_waits_for_its_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "QUIET", 0.0)
    ran: list[str] = []
    own = Races()
    own.add(Waiting("a", ran))
    own.add(Waiting("a", ran))
    assert own._thread is None
    own.compiled()
    wait_for(lambda: ran == ["a jstitch-race"])
    own.add(Waiting("b", ran))
    own.compiled()
    wait_for(lambda: ran[1:] == ["b jstitch-race"])
    wait_for(lambda: own._thread is None)


def test_races_wait_for_quiet_and_take_a_share_of_the_time() -> None:
    ran: list[str] = []
    own = Races()
    own.add(Waiting("a", ran))
    own.compiled()
    assert own._pause() > races.QUIET / 2
    own._spent, own._busy = 10.0, own._began - 2 * races.QUIET
    assert 10 / races.SHARE - 60 < own._pause() <= 10 / races.SHARE
    own.close()
    assert ran == []


def test_the_end_of_the_process_stops_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "QUIET", 0.0)
    ran: list[str] = []
    own = Races()
    for key in ("stopped", "never"):
        own.add(Waiting(key, ran))
    own.compiled()
    wait_for(lambda: bool(ran))
    own.close()
    assert ran == ["stopped jstitch-race"]


def test_those_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "MOST", 2)
    ran: list[str] = []
    own = Races()
    for key in "abc":
        own.add(Waiting(key, ran))
    own.race_now()
    assert [said[0] for said in ran] == ["a", "b"]


PROCESS = """
import sys, time
import numpy as np
import tuned
import jstitch
from jstitch.frontend import races
races.QUIET = 0.1
tuned.make_kernels_bad()
f = jstitch.jit(tuned.soft)
x = np.ones((64, 512), np.float32)
f(x)
print(jstitch.stitch_count(), end=" ")
if sys.argv[1] == "waits":
    end = time.monotonic() + 60
    while races.RACES._spent == 0:
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def test_another_process_leaves_out_what_lost(tmp_path: Path) -> None:
    """Kernels that do their work forty times over are found out in the background, by default."""
    from os import environ

    kept = {k: v for k, v in environ.items() if k not in ("JSTITCH_RACE_SECONDS", "JSTITCH_VERIFY")}
    env = {**kept, "JSTITCH_CACHE_DIR": str(tmp_path), "JSTITCH_KEEP_PLANS": "1"}

    def process(how: str) -> str:
        command = [sys.executable, "-c", PROCESS, how]
        here = Path(__file__).parent
        return subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, check=True).stdout

    assert [process("waits"), process("ends")] == ["1 ", "0 "]
