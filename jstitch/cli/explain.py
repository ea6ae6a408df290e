"""`jstitch explain FILE.mlir|module:function`: why ops are not in one kernel, and what would lift it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from jstitch.cli.console import plain_console
from jstitch.cli.files import PINNED, InputError, make_options, planning_options
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, inspect_subject, read_subject
from jstitch.inspection.explain import explain_program
from jstitch.inspection.explanation import EdgeStory, Explanation
from jstitch.inspection.json_fields import json_fields

WIDTH = 140
EDGE = click.option(
    "--edge",
    nargs=2,
    metavar="A B",
    help="Only this edge: ops by printed value (%3), name (add), or source line (layer.py:12).",
)


@click.command("explain")
@SUBJECT
@ARGS
@EDGE
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@planning_options
@PINNED
def explain(
    subject: str,
    args: str | None,
    edge: tuple[str, str] | None,
    as_json: bool,
    target: str,
    planner: str,
    tune: str,
    pinned: str | None,
) -> None:
    """For every edge that is not in one kernel: the rule, its bound, the number found, and a remedy.

    SUBJECT is as for `jstitch plan`. Values have the names of `jstitch opt --emit plan`.
    """
    options = make_options(target, planner, tune, pinned)
    with progress() as step:
        step(f"reading {subject}")
        found = read_subject(subject, args)
        step("planning")
        made = explain_program(found.name, inspect_subject(found, options), step)
    shown: Explanation | Sequence[EdgeStory] = made if edge is None else _edges(made, *edge)
    if as_json:
        click.echo(json.dumps(made.to_json() if edge is None else json_fields(shown), indent=1))
    else:
        _show(shown)


def _edges(made: Explanation, producer: str, consumer: str) -> tuple[EdgeStory, ...]:
    found = made.edge(producer, consumer)
    if found:
        return found
    turned = made.edge(consumer, producer)
    hint = f"; there is one from {consumer} to {producer}" if turned else _neighbours(made, producer)
    raise InputError(f"{made.name}: expected an edge from {producer} to {consumer}, found none{hint}")


def _neighbours(made: Explanation, producer: str) -> str:
    edges = [e for call in made.calls for e in call.edges if e.producer.answers_to(producer)]
    readers = ", ".join(dict.fromkeys(str(edge.consumer) for edge in edges[:4]))
    return f"; {producer} is read by {readers}" if readers else f"; nothing that {producer} names is read"


def _show(made: Any) -> None:
    if not isinstance(made, Explanation):
        click.echo("\n".join(map(str, made)))
        return
    plain_console(WIDTH).print(made)
    for line in made.notes():
        click.echo(line)
