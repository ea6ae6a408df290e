"""`--time-passes` of `jstitch opt` and `jstitch plan`: all of the time, in a tree, with shares and a rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jstitch.__main__ import main
from jstitch.cli.pass_times import REST, Part, part_of, parts_of, time_table
from jstitch.inspection.table import Printed
from jstitch.passes.base.context import Span
from tests.cli.test_opt import MODULE


def printed(part: Part) -> list[str]:
    table = time_table(part)
    table.__class__ = Printed
    return [line.strip("│ ") for line in str(table).splitlines() if "%" in line]


def walk(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield part
    for inner in part["parts"]:
        yield from walk(inner)


def test_the_largest_part_is_first_and_the_rest_last() -> None:
    whole = part_of("all", 10.0, [Part("a", 1.0), part_of("b", 6.0, [Part("c", 2.0, "3 ops")])])
    names = [(part.name, part.seconds) for part in whole.parts]
    assert names == [("b", 6.0), ("a", 1.0), (REST, 3.0)]
    lines = [line.replace("│", "").split() for line in printed(whole)]
    assert lines == [
        ["10.0000", "100.0%", "all"],
        ["6.0000", "60.0%", "b"],
        ["2.0000", "20.0%", "c", "3", "ops"],
        ["4.0000", "40.0%", "Rest"],
        ["1.0000", "10.0%", "a"],
        ["3.0000", "30.0%", "Rest"],
    ]


def test_no_time_at_all_is_no_share() -> None:
    assert "0.0%" in printed(Part("all", 0.0))[0]


def test_passes_inside_passes_are_their_parts_and_alike_ones_are_one() -> None:
    spans = [
        Span("cse", "graph", 0.0, 1.0),
        Span("gate", "plan", 2.0, 3.0),
        Span("gate", "plan", 3.0, 4.5),
        Span("plan_dp", "plan", 1.5, 5.0),
        Span("gate", "plan", 5.0, 5.5),
    ]
    graphs, plans = parts_of(spans)
    assert (graphs.name, graphs.seconds) == ("passes on graphs", 1.0)
    planner, gate = plans.parts
    assert (planner.name, planner.seconds, gate.seconds) == ("plan_dp", 3.5, 0.5)
    assert [(p.name, p.seconds, p.note) for p in planner.parts] == [("gate", 2.5, "2 times"), (REST, 1.0, "")]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.mlir"
    path.write_text(MODULE)
    return path


def invoke(*words: object) -> Any:
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done


def test_opt_says_where_all_of_its_time_goes(module: Path) -> None:
    words = ("opt", module, "--emit", "kernels", "--tune", "off")
    whole = json.loads(invoke(*words, "--json").stdout)["times"]
    names = {part["name"] for part in walk(whole)}
    assert {"all", "read", "import", "print", "cse", "plan_layers", "tile_products", REST} <= names
    for part in walk(whole):
        if part["parts"]:
            assert sum(inner["seconds"] for inner in part["parts"]) == pytest.approx(part["seconds"])
    said = invoke(*words, "--time-passes")
    assert "100.0%" in said.stderr
    assert "1 kernels" in said.stderr
    assert "time by part" not in said.stdout


def test_plan_says_how_long_its_passes_took(module: Path) -> None:
    said = invoke("plan", module, "--planner", "dp", "--time-passes").stderr.replace("│", " ")
    lines = [line for line in said.splitlines() if "%" in line]
    depth = {line.split("%")[1].split()[0]: len(line) - len(line.split("%")[1].lstrip()) for line in lines}
    assert {"all", "trace,", "plan_dp", "merge_patterns", "cse"} <= set(depth)
    assert depth["all"] < depth["trace,"] < depth["plan_dp"] < depth["merge_patterns"]
