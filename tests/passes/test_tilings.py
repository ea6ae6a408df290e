"""MCFuser's search space, its pruning, its model and its search: what the paper says of them, and more."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jstitch.passes.tile.chain import Chain, Product, two_products
from jstitch.passes.tile.place_statements import Kind, Statement, blocks_of, place_statements
from jstitch.passes.tile.prune_tilings import (
    LEAST,
    PADDING,
    Tiling,
    all_sizes,
    estimated_bytes,
    tilings,
    unpadded_sizes,
)
from jstitch.passes.tile.search_tilings import search_tilings
from jstitch.passes.tile.tiling_seconds import Rates, paper_alpha, tiling_seconds
from jstitch.passes.tile.write_expressions import (
    Expression,
    block_expressions,
    in_block,
    keeps_one_tile,
    live_expressions,
    write_expressions,
)

PAPER = two_products(1024, 1024, 512, 512)
"""Section III-C's example."""
A100, H200 = 163_840, 232_448  # bytes of shared memory
H200_RATES = Rates(4.8e12, 4e14, paper_alpha(132))


def sizes_of(chain: Chain) -> dict[str, list[int]]:
    return {loop: unpadded_sizes(extent) for loop, extent in chain.extents.items()}


def expression(text: str) -> Expression:
    nested, _, apart = text.rstrip(")").partition("(")
    return Expression(tuple(nested), tuple(apart.split(",")) if apart else ())


def statements(text: str, **tiles: int) -> dict[str, Statement]:
    found = place_statements(expression(text), PAPER, {**dict.fromkeys("mnkh", 64), **tiles})
    return {f"{s.kind.value} {s.name}": s for s in found}


# -- the space (D2) -----------------------------------------------------------------------------------------


def test_the_paper_s_space() -> None:
    """26 expressions, 109,051,904 candidates."""
    found = write_expressions(PAPER)
    assert len(found) == len(set(found)) == 26
    assert {str(e) for e in found if e.apart} == {"mn(k,h)", "nm(k,h)"}
    assert len(found) * math.prod(len(all_sizes(n)) for n in PAPER.extents.values()) == 109_051_904


def test_rules_1_and_2() -> None:
    """26 expressions become 5, then 3."""
    every = {str(in_block(e, PAPER)) for e in write_expressions(PAPER)}
    assert every == {"nk", "kn", "nkh", "knh", "n(k,h)"}
    assert {str(e) for e in block_expressions(PAPER)} == {"nk", "nkh", "n(k,h)"}


def test_loops_of_one_turn_leave_one_expression() -> None:
    """With k and h whole, as kernels have them, the three are one."""
    assert live_expressions(PAPER, ("m", "n")) == [Expression(("n",))]
    dropped = {e.without(("k", "h")) for e in block_expressions(PAPER)}
    assert dropped == {Expression(("n",))}


@pytest.mark.parametrize(("room", "left"), [(A100, 747), (H200, 887)])
def test_rules_3_and_4(room: int, left: int) -> None:
    """1,764 choices of tiles are not padded; of these so many have room: times 3, not the paper's 10^4."""
    sizes = sizes_of(PAPER)
    assert math.prod(map(len, sizes.values())) == 1764
    found = list(tilings(PAPER, block_expressions(PAPER), sizes, room))
    assert len(found) == 3 * left == len({t.key for t in found})


@given(st.integers(1, 5000))
def test_padding_is_little(extent: int) -> None:
    found = unpadded_sizes(extent)
    assert found
    if extent >= LEAST and extent & (extent - 1) == 0:
        assert all(extent % n == 0 for n in found)
    for n in found if len(found) > 1 else ():
        assert n % LEAST == 0
        assert -(-extent // n) * n < extent * (1 + PADDING)


def test_three_products_have_a_space_of_their_own() -> None:
    chain = _three()
    found = write_expressions(chain)
    assert len(found) == math.factorial(5) + math.factorial(3)
    assert {e.apart for e in found} == {(), ("k", "p")}
    assert all(keeps_one_tile(e, chain) for e in block_expressions(chain))


def _three() -> Chain:
    return Chain(
        (
            Product("C", ("m", "n"), ("m", "k"), ("k", "n"), kept=True),
            Product("E", ("m", "h"), ("m", "n"), ("n", "h"), made=True, kept=True),
            Product("G", ("m", "p"), ("m", "h"), ("h", "p"), made=True),
        ),
        {"m": 256, "n": 128, "k": 64, "h": 64, "p": 32},
    )


# -- statements (D3) ----------------------------------------------------------------------------------------


def test_a_store_leaves_the_loops_that_do_not_move_it() -> None:
    """Figure 4 (a): E is stored once for each of its tiles, not once for each k."""
    found = statements("mhnk")
    assert found["store E"].loops == ("m", "h")
    assert found["load C's left"].loops == ("m", "h", "n", "k")
    assert found["load E's right"].loops == ("m", "h", "n")
    assert found["compute C"].runs == 16 * 8 * 16 * 8
    assert found["compute E"].runs == 16 * 8 * 16


def test_a_loop_of_one_turn_is_none() -> None:
    """Figure 4 (b): with k whole, A is read once for each m, a factor of h n less."""
    found = statements("mhnk", k=512)
    assert found["load C's left"].loops == ("m",)
    assert found["load C's left"].runs == 16
    assert statements("mhnk")["load C's left"].runs == 16 * 8 * 16 * 8


def test_loops_apart_are_not_inside_each_other() -> None:
    found = statements("mn(k,h)")
    assert found["compute C"].loops == ("m", "n", "k")
    assert found["compute E"].loops == ("m", "n", "h")
    assert found["load E's right"].runs == 16 * 16 * 8


def test_blocks_are_what_their_loops_do_not_say() -> None:
    tiles = dict.fromkeys("mnkh", 64)
    assert blocks_of(expression("nk"), PAPER, tiles) == 16 * 8
    assert blocks_of(expression("n(k,h)"), PAPER, tiles) == 16
    inside = {s.name: s for s in place_statements(expression("nk"), PAPER, tiles) if s.kind is Kind.COMPUTE}
    assert inside["C"].runs == 16 * 8 * 16 * 8  # again for each tile of h: bound to other blocks


@given(
    st.permutations("mnkh"), st.lists(st.sampled_from([16, 32, 64, 128, 256, 512]), min_size=4, max_size=4)
)
def test_nothing_is_computed_less_often_than_it_must(order: list[str], chosen: list[int]) -> None:
    tiles = dict(zip("mnkh", chosen, strict=True))
    work = {"C": 1024 * 1024 * 512, "E": 1024 * 1024 * 512}
    for s in place_statements(Expression(tuple(order)), PAPER, tiles):
        if s.kind is Kind.COMPUTE:
            assert s.size * s.runs >= work[s.name]
        if s.kind is Kind.STORE:
            assert s.size * s.runs >= 1024 * 512


# -- the model (D5) -----------------------------------------------------------------------------------------


def test_the_model_is_equations_2_to_5() -> None:
    tiles = {"m": 64, "n": 128, "k": 512, "h": 512}
    moved = 16 * (64 * 512) + 16 * 8 * (512 * 128 + 128 * 512) + 16 * 64 * 512
    products = 2 * 1024 * 1024 * 512
    seconds = (2 * moved / 4.8e12 + products / 4e14) * (16 + 132) / 16
    tiling = Tiling(expression("n"), tiles)
    assert tiling_seconds(tiling, PAPER, H200_RATES) == pytest.approx(seconds)


def test_few_blocks_are_slower_and_more_rows_read_less() -> None:
    def seconds(rows: int, batch: int) -> float:
        chain = two_products(1024, 1024, 64, 64, batch)
        tiling = Tiling(expression("n"), {"m": rows, "n": 128, "k": 64, "h": 64})
        return tiling_seconds(tiling, chain, H200_RATES)

    assert seconds(16, 1) < seconds(128, 1)  # 8 blocks for 132 multiprocessors
    assert seconds(128, 512) < seconds(16, 512)


# -- the search (D6) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_what_is_nearly_best(seed: int) -> None:
    """With a clock that agrees with the model but for some noise, in few measurements."""
    random = Random(seed)
    extents = [random.choice((256, 512, 768, 1024, 2048)) for _ in range(2)]
    chain = two_products(*extents, *(random.choice((64, 128, 256)) for _ in range(2)), random.choice((1, 8)))
    space = list(tilings(chain, block_expressions(chain), sizes_of(chain), H200))
    noise = {t.key: random.uniform(0.8, 1.25) for t in space}
    asked: list[Tiling] = []

    def measure(t: Tiling) -> float:
        asked.append(t)
        return modelled(t) * noise[t.key]

    def modelled(t: Tiling) -> float:
        return tiling_seconds(t, chain, H200_RATES)

    found = search_tilings(space, modelled, measure)
    times = sorted(modelled(t) * noise[t.key] for t in space)
    assert found.seconds <= times[len(times) // 50]  # among the best two percent
    assert found.measured == len(asked) == len({t.key for t in asked}) <= 8 * found.generations
    again = search_tilings(space, modelled, lambda t: modelled(t) * noise[t.key])
    assert again.tiling.key == found.tiling.key


def test_tilings_that_cannot_be_had_are_passed_over() -> None:
    space = list(tilings(PAPER, block_expressions(PAPER), sizes_of(PAPER), H200))
    kept = {t.key for t in space if t.tiles["m"] == 32}

    def measure(t: Tiling) -> float:
        return tiling_seconds(t, PAPER, H200_RATES) if t.key in kept else math.inf

    found = search_tilings(space, lambda t: tiling_seconds(t, PAPER, H200_RATES), measure)
    assert found.tiling.key in kept


def test_the_estimate_of_shared_memory_is_one_tile_of_each() -> None:
    tiles = {"m": 64, "n": 128, "k": 32, "h": 16}
    assert estimated_bytes(PAPER, tiles) == 2 * (64 * 32 + 32 * 128 + 64 * 128 + 128 * 16 + 64 * 16)
