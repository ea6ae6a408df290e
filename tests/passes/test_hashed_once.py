"""Profiles and contexts, parts of many keys, work out their hash once."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, replace

import pytest

from jstitch.passes.base.hashed_once import KEPT, hashed_once
from tests.contexts import CPU_PROFILE, H200


class Counted:
    """A value that counts how often it is hashed."""

    def __init__(self) -> None:
        self.times = 0

    def __hash__(self) -> int:
        self.times += 1
        return 7


@hashed_once
@dataclass(frozen=True)
class Pair:
    one: Counted
    two: int = 0


def test_fields_are_hashed_once() -> None:
    pair = Pair(Counted())
    assert {hash(pair) for _ in range(9)} == {hash(pair)}
    assert pair.one.times == 1


def test_a_changed_copy_has_a_hash_of_its_own() -> None:
    pair = Pair(Counted())
    assert hash(pair) != hash(replace(pair, two=1))
    assert hash(copy.copy(pair)) == hash(pair)


@pytest.mark.parametrize("value", [CPU_PROFILE, CPU_PROFILE.machine, H200.machine])
def test_no_hash_goes_to_another_process(value: object) -> None:
    """Hashes of text differ there."""
    hash(value)
    assert KEPT in vars(value)
    other = pickle.loads(pickle.dumps(value))
    assert other == value
    assert KEPT not in vars(other)
    assert hash(other) == hash(value)
