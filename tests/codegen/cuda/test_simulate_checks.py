"""Every check of the simulator: a defect that it must find, and a correct twin that it must let pass."""

from __future__ import annotations

import numpy as np
import pytest

from jstitch.codegen.cuda.simulate_error import SimulationError
from tests.codegen.cuda.simulated import REDUCTION, TEAMS, Array, run

BLOCK, GRID = 64, 3


def arrays() -> dict[str, tuple[str, Array]]:
    """x is read, y written, u updated; one element for each thread, and four more of each."""
    size = GRID * BLOCK + 4
    x = np.arange(size, dtype=np.float32)
    return {"x": ("read", x), "y": ("write", np.zeros_like(x)), "u": ("update", x.copy())}


def found(body: str, block: int = BLOCK, shared: int = 4 * BLOCK, grid: int = GRID) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        run(body, arrays(), grid, block, shared)  # type: ignore[arg-type]
    return caught.value


def passes(body: str, block: int = BLOCK, shared: int = 4 * BLOCK, grid: int = GRID) -> None:
    run(body, arrays(), grid, block, shared)  # type: ignore[arg-type]


I = "i = block() * 64 + thread()\n"  # noqa: E741

GLOBAL = {
    "past the end": ("store_f32(y, {i} + {d}, float32(1))", "d", 4, 5, "elements in"),
    "before the start": ("v = read_f32(x, {i} - {d})", "d", 0, 1, "elements in"),
    "a vector partly outside": ("v = read_f32x4(x, quotient({i}, 4) * 4 + {d})", "d", 4, 6, "elements in"),
    "a misaligned vector": ("v = load_f32x2(x, quotient({i}, 2) * 2 + {d})", "d", 2, 1, "multiple of 2"),
    "a wrong vector width": ("v = read_f32x{d}(x, quotient({i}, 2) * 2)", "d", 2, 4, "multiple of 4"),
    "a store to what is read": ("store_f32({d}, {i}, float32(1))", "d", "y", "x", "no store"),
    "read-only loads of what is written": ("v = read_f32({d}, {i})", "d", "x", "u", "only read"),
    "a read of unwritten results": ("v = load_f32({d}, {i})", "d", "u", "y", "that the launch wrote"),
    "two writers": ("store_f32(y, quotient({i}, {d}), float32(1))", "d", 1, 2, "one writer"),
    "two writers in two CTAs": ("store_f32(y, {d}, float32(1))", "d", "{i}", "thread()", "one writer"),
    "another dtype": ("store_f32(y, {i}, {d}(1))", "d", "float32", "float64", "matching types"),
}


@pytest.mark.parametrize("name", GLOBAL)
def test_global_memory(name: str) -> None:
    text, field, right, wrong, message = GLOBAL[name]
    for value, check in ((right, passes), (wrong, found)):
        body = text.replace(f"{{{field}}}", str(value)).replace("{i}", "(block() * 64 + thread())")
        if check is passes:
            passes(body)
        else:
            error = found(body)
            assert message in str(error)
            assert error.place.line == 2
            assert error.place.thread is not None


def test_the_error_names_the_place() -> None:
    error = found(
        I + "if i < 70:\n    store_f32(y, i, float32(1))\nelif i == 130:\n    v = read_f32(x, 999)\n"
    )
    place = error.place
    assert (place.function, place.line, place.cta, place.thread) == ("phase0", 6, 2, 2)
    assert (place.buffer, place.index, place.text) == ("x", 999, "v = read_f32(x, 999)")
    assert "line 6" in str(error)
    assert "CTA 2, thread 2; x[999]" in str(error)


ORDERED = """
i = block() * 64 + thread()
{first}
{wait}
{second}
"""
RACES = {
    "read after write": ("store_f32(u, i, float32(1))", "v = load_f32(u, block() * 64 + {other})"),
    "write after read": ("v = load_f32(u, block() * 64 + {other})", "store_f32(u, i, float32(1))"),
    "write after write": (
        "store_f32(u, i, float32(1))",
        "store_f32(u, block() * 64 + {other}, float32(1))",
    ),
    "shared, read after write": (
        "shared_store_f32(0, thread(), float32(1))",
        "v = shared_load_f32(0, {other})",
    ),
    "shared, write after read": (
        "shared_store_f32(0, thread(), float32(1))\nbarrier()\nv = shared_load_f32(0, {other})",
        "shared_store_f32(0, thread(), float32(2))",
    ),
    "shared, write after write": (
        "shared_store_f32(0, thread(), float32(1))",
        "shared_store_f32(0, {other}, float32(1))",
    ),
    "shared, write after many reads": (
        "shared_store_f32(0, thread(), float32(1))\nbarrier()\nv = shared_load_f32(0, 63)",
        "if thread() == 63:\n    shared_store_f32(0, 63, float32(2))",
    ),
}
# the other thread, and what orders it: of another warp, and of the same one
OTHERS = {
    "63 - thread()": ("pass", "barrier_warp()", "barrier()", "barrier_team(1, 64)"),
    "quotient(thread(), 32) * 32 + 31 - remainder_pos(thread(), 32)": (
        "pass",
        "",
        "barrier_warp()",
        "barrier()",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", RACES)
def test_a_dropped_barrier_is_a_race(name: str, other: str) -> None:
    """The first two waits are too weak for the other thread, the rest are enough."""
    first, second = (part.replace("{other}", other) for part in RACES[name])
    waits = OTHERS[other] if "many" not in name else OTHERS["63 - thread()"]
    for wait in waits:
        body = ORDERED.format(first=first, wait=wait or "pass", second=second)
        if waits.index(wait) < 2:
            assert "a barrier after" in str(found(body)) or "one writer" in str(found(body))
        else:
            passes(body)


def test_races_between_ctas_have_no_barrier() -> None:
    write = I + "store_f32(u, i, float32(1))\nbarrier()\n"
    passes(write + "v = load_f32(u, i)")
    assert "another thread's write" in str(found(write + "v = load_f32(u, thread())"))
    read = I + "v = load_f32(u, {})\nbarrier()\nstore_f32(u, i, v)\n"
    passes(read.format("block() * 64"))
    assert "another thread's read" in str(found(read.format("0")))


def test_a_thread_may_change_its_own_memory() -> None:
    passes(
        "for k in range(0, 3):\n"
        "    shared_store_f32(0, thread(), float32(1))\n"
        "    v = shared_load_f32(0, thread())\n"
        "    store_f32(u, block() * 64 + thread(), v + load_f32(u, block() * 64 + thread()))\n"
    )


@pytest.mark.parametrize("drop", range(2))
def test_dropped_barriers_of_a_reduction(drop: int) -> None:
    parts = REDUCTION.split("barrier()\n")
    body = "barrier()\n".join(
        [parts[0] + parts[1], parts[2]] if drop == 0 else [parts[0], parts[1] + parts[2]]
    )
    x, y = np.ones(256, np.float32), np.zeros(2, np.float32)
    run(REDUCTION, {"x": ("read", x), "y": ("write", y)}, 2, 128, 512)
    with pytest.raises(SimulationError, match=r"a barrier after|never wrote"):
        run(body, {"x": ("read", x), "y": ("write", y)}, 2, 128, 512)


@pytest.mark.parametrize("drop", range(2))
def test_dropped_barriers_of_teams(drop: int) -> None:
    parts = TEAMS.split("    barrier_team(team + 1, 64)\n")
    body = parts[0] + ("" if drop == 0 else "    barrier_team(team + 1, 64)\n") + parts[1]
    body += "    barrier_team(team + 1, 64)\n" if drop == 0 else ""
    x, y = np.ones(320, np.float32), np.zeros(320, np.float32)
    with pytest.raises(SimulationError, match=r"a barrier after|never wrote"):
        run(body, {"x": ("read", x), "y": ("write", y)}, 1, 128, 512)


def test_teams_do_not_wait_for_each_other() -> None:
    body = (
        "team = quotient(thread(), 32)\n"
        "shared_store_f32(0, thread(), float32(1))\n"
        "barrier_team({number}, {threads})\n"
        "v = shared_load_f32(0, 63 - thread())\n"
    )
    passes(body.format(number=1, threads=64))
    assert "another thread's write" in str(found(body.format(number="team + 1", threads=32)))


def test_an_overlap_of_tiles_in_the_arena() -> None:
    body = """
    shared_store_f32(0, thread(), float32(1))
    barrier()
    shared_store_f32({tile}, thread(), float32(2))
    barrier()
    v = shared_load_f32(0, 63 - thread()) + shared_load_f32({tile}, 63 - thread())
    """
    passes(body.replace("{tile}", "256"), shared=512)
    assert "another tile" in str(found(body.replace("{tile}", "240"), shared=512))
    race = body.replace("{tile}", "240").replace("    barrier()\n", "", 1)
    assert "another thread's write" in str(found(race, shared=512))


def test_bounds_of_the_arena() -> None:
    body = "shared_store_f32(16, thread(), float32(1))\nv = shared_load_f32(16, thread())"
    passes(body, shared=272)
    error = found(body, shared=268)
    assert "268" in str(error)
    assert (error.place.buffer, error.place.index, error.place.thread) == ("shared tile 16", 63, 63)
    assert "arena" in str(found(body.replace("thread()", "thread() - 1"), shared=272))
    assert "multiple of 16" in str(found(body.replace("16", "8"), shared=272))


def test_vectors_in_the_arena() -> None:
    body = """
    x0 = registers_f32(4)
    for k in unroll(4):
        x0[k] = float32(k)
    shared_store_f32x2(0, thread() * {a}, x0, {b})
    """.replace("float32(k)", "convert_f32(k)")
    passes(body.format(a=2, b=2), shared=512)
    assert "one of 2" in str(found(body.format(a=1, b=2), shared=512))
    assert "2 registers from 3" in str(found(body.format(a=2, b=3), shared=512))


def test_bytes_that_nobody_wrote() -> None:
    body = (
        "if thread() < {n}:\n    shared_store_f32(0, thread(), float32(1))\nv = shared_load_f32(0, thread())"
    )
    passes(body.format(n=64))
    error = found(body.format(n=63))
    assert "never wrote" in str(error)
    assert error.place.thread == 63
    half = "shared_store_u8(0, thread() * 2, uint8(1))\nv = shared_load_u16(0, thread())"
    assert "never wrote" in str(found(half))


def test_bytes_of_an_earlier_batch_are_not_there() -> None:
    """CTAs find the arena empty, also those that reuse another one's slot."""
    body = (
        "if block() < 1000:\n    shared_store_f32(0, thread(), float32(1))\nv = shared_load_f32(0, thread())"
    )
    error = found(body, grid=1100)
    assert "never wrote" in str(error)
    assert error.place.cta == 1000


def test_two_values_for_one_byte_in_a_statement() -> None:
    body = "w = quotient(thread(), 32)\nshared_store_f32(0, {place}, {value})"
    passes(body.format(place="w", value="convert_f32(w)"))
    assert "one value for a byte" in str(found(body.format(place="w", value="convert_f32(thread())")))
    assert "one warp to write" in str(found(body.format(place="0", value="float32(1)")))


DIVERGENT = {
    "barrier()": "all threads of the CTA",
    "barrier_warp()": "all lanes of the warp",
    "barrier_team(1, 64)": "all lanes of the warp",
    "v = shuffle_xor(x0, 1)": "all lanes of the warp",
    "v = shuffle(x0, 0)": "all lanes of the warp",
}


@pytest.mark.parametrize("call", DIVERGENT)
def test_divergence(call: str) -> None:
    body = "x0 = float32(1)\nif {test}:\n    {call}\n"
    passes(body.format(test="block() == 1", call=call))
    error = found(body.format(test="thread() != 40", call=call))
    assert DIVERGENT[call] in str(error)
    assert "thread 40 missing" in str(error)


def test_a_barrier_in_a_loop_that_threads_leave_early() -> None:
    body = "for r in range(0, {n}):\n    barrier()\n"
    passes(body.format(n="block() + 1"))
    assert "all threads of the CTA" in str(found(body.format(n="quotient(thread(), 32) + 1")))


def test_who_takes_part_in_a_team_barrier() -> None:
    passes("if thread() < 32:\n    barrier_team(1, 32)")
    assert "64 threads" in str(found("if thread() < 32:\n    barrier_team(1, 64)"))
    assert "32 threads" in str(found("barrier_team(1, 32)"))
    assert "one barrier number" in str(found("barrier_team(remainder_pos(thread(), 2) + 1, 32)"))
    assert "1..15" in str(found("barrier_team(16, 64)"))


def test_shuffles_stay_in_the_warp() -> None:
    assert "a lane of the warp" in str(found("v = shuffle(float32(1), thread())"))
    assert "a lane of the warp" in str(found("v = shuffle_xor(float32(1), 16)", block=40))
    assert "1, 2, 4, 8 or 16" in str(found("v = shuffle_xor(float32(1), 3)"))


ASSIGNED = """
if thread() {test}:
    v = float32(1)
x0 = registers_f32(2)
x0[0] = float32(1)
if thread() < 32:
    x0[1] = float32(1)
{use}
"""


def test_values_that_were_never_assigned() -> None:
    right = "if thread() < 32:\n    w = v + x0[1]"
    passes(ASSIGNED.format(test="< 32", use=right))
    error = found(ASSIGNED.format(test="< 31", use=right))
    assert "a value in v" in str(error)
    assert error.place.thread == 31
    error = found(ASSIGNED.format(test="< 32", use="w = x0[0] + x0[1]"))
    assert "a value in x0[1]" in str(error)
    assert error.place.thread == 32
    assert "never assigned" in str(found("w = z"))
    assert "never assigned" in str(found("for k in unroll(2):\n    pass\nw = k"))


def test_indices_that_overflow() -> None:
    body = "v = clamp_index((thread() + {n}) * 33554432, 0, 0)"
    passes(body.format(n=0))
    error = found(body.format(n=1))
    assert "indices of 32 bits" in str(error)
    assert error.place.thread == 63
    run(body.format(n=1), {}, 1, 64, bits=64)
    assert "dividend >= 0" in str(found("v = quotient(thread() - 1, 3)"))
    passes("if thread() > 0:\n    v = quotient(thread() - 1, 3)")


REFUSED = {
    "x0 = [1]": "an expression of kernel text",
    "while True:\n    pass": "a statement of kernel text",
    "v = cosine(float32(1))": "a function of kernel text",
    "v = read_f32x8(x, 0)": "a function of kernel text",
    "v = int32(1) + int32(2)": "matching types",
    "v = float32(1) + float64(2)": "matching types",
    "v = float32(1)\nv = int32(1)": "keep its type",
    "k = 1\nx0 = registers_f32(2)\nx0[k] = float32(1)": "known when loops are unrolled",
    "x0 = registers_f32(2)\nx0[2] = float32(1)": "a register in",
    "x0 = registers_f32(2)\nx0[0] = int32(1)": "float32 for x0",
    "v = read_s32(x, 0)": "accesses of f32",
    "for i in range(0, 4, 0):\n    pass": "a step > 0",
    "if thread():\n    pass": "a condition",
}


@pytest.mark.parametrize("body", REFUSED)
def test_text_that_the_compiler_would_not_take(body: str) -> None:
    assert REFUSED[body] in str(found(body))
