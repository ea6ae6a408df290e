"""Damaged schedules: the template parser gives a template that reads the same, or a ParseError, at once.

The quick share runs everywhere; the sweep (`pytest -m slow tests/fuzz/test_template_text.py`) lasts
JSTITCH_FUZZ_SECONDS seconds (600 unless set) from seed JSTITCH_FUZZ_SEED (0 unless set).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from random import Random

import pytest

from jstitch.errors import ParseError
from jstitch.template import OpSchedule, Scope, Template, Tile, parse_template

QUICK, BATCH = 2000, 500
SECONDS = 2.0  # that one text may take
_WORDS = (
    *(
        "GRID",
        "CTA",
        "WARP",
        "THREAD",
        "GRID_64",
        "WARP_0",
        "THREAD_",
        "CTA_9999999999999999999",
        "S",
        "[",
        "]",
    ),
    *(
        "-",
        ",",
        ";",
        "_",
        "#",
        "\n",
        " ",
        "\t",
        "\0",
        "é",
        "reduce_0",
        "stablehlo.add_1",
        "GRID_1",
        "1",
        "]S;",
    ),
)


def some_template(random: Random) -> Template:
    def tile() -> Tile:
        return Tile(random.choice(list(Scope)), random.choice((None, 1, 4, 256, 10**17)))

    def attr() -> tuple[Tile, ...]:
        return tuple(tile() for _ in range(random.choice((1, 1, 2, 3))))

    def schedule(number: int) -> OpSchedule:
        name = random.choice(("reduce", "exponential", "reduce_1.partial", "GRID", "S"))
        attrs = tuple(attr() for _ in range(random.choice((1, 2, 2, 4))))
        return OpSchedule(f"{name}_{number}", attrs, random.random() < 0.5)

    return Template(tuple(schedule(n) for n in range(random.choice((1, 2, 5, 40)))))


def damaged(text: str, random: Random) -> str:
    for _ in range(random.choice((1, 1, 2, 4))):
        start = random.randrange(len(text) + 1)
        end = start + random.choice((0, 0, 1, 1, 3, 20))
        new = random.choice(("", random.choice(_WORDS), random.choice(_WORDS), text[start:end] * 3))
        text = text[:start] + new + text[end:]
    return text


def try_seed(seed: int) -> str:
    random = Random(seed)
    template = some_template(random)
    text = str(template)
    assert parse_template(text) == template
    text = damaged(text, random)
    start = time.perf_counter()
    try:
        found = parse_template(text)
    except ParseError as error:
        return "refused" if error.where.startswith("template, line ") else f"refused without a place: {seed}"
    finally:
        assert time.perf_counter() - start < SECONDS, f"seed {seed}: {text!r}"
    assert parse_template(str(found)) == found, f"seed {seed}: {text!r}"
    return "parsed"


@pytest.mark.parametrize("seeds", [range(k, k + BATCH) for k in range(0, QUICK, BATCH)], ids=str)
def test_damaged_templates(seeds: range) -> None:
    found = Counter(map(try_seed, seeds))
    assert set(found) == {"parsed", "refused"}
    assert min(found.values()) > len(seeds) // 20


@pytest.mark.slow
def test_damaged_templates_for_some_time() -> None:
    seconds = float(os.environ.get("JSTITCH_FUZZ_SECONDS", 600))
    seed, end = int(os.environ.get("JSTITCH_FUZZ_SEED", 0)) + QUICK, time.monotonic() + seconds
    found: Counter[str] = Counter()
    while time.monotonic() < end:
        found[try_seed(seed)] += 1
        seed += 1
    print(f"{sum(found.values())} inputs: {dict(found)}")
    assert set(found) == {"parsed", "refused"}
