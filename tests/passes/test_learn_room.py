"""What tilings need, learned from others: no tiling that finds room is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jstitch.passes.lower.learn_room import Room
from jstitch.passes.lower.tile_rows import StepTile

BLOCKS = (32, 48, 64, 96, 128)
ROWS = (16, 32, 48, 64)
TILINGS = [StepTile(rows, block) for rows in ROWS for block in BLOCKS]


@given(
    lines=st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 16)), min_size=1, max_size=4),
    order=st.permutations(TILINGS),
    budget=st.integers(1, 1 << 18),
)
def test_what_finds_room_is_tried(lines: list[tuple[int, int]], order: list[StepTile], budget: int) -> None:
    """Bytes of a row: the largest of some lines, as of tiles that share bytes."""

    def needed(tile: StepTile) -> int:
        return tile.rows * max(fixed + each * tile.block for fixed, each in lines)

    room = Room(budget)
    for tile in order:
        if room.is_short(tile):
            assert needed(tile) > budget
        else:
            room.learn(tile, needed(tile))


def test_two_are_enough() -> None:
    room = Room(200_000)
    assert not room.is_short(StepTile(64, 128))
    room.learn(StepTile(64, 128), 64 * (6144 + 8 * 128))
    assert room.is_short(StepTile(32, 128))
    assert not room.is_short(StepTile(32, 96))
    room.learn(StepTile(32, 96), 32 * (6144 + 8 * 96))
    assert room.is_short(StepTile(32, 64))
    assert not room.is_short(StepTile(16, 64))
