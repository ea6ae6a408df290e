"""Pipelines as people type them: `unroll_loops{trips=4 ops=100},cse,plan_layers,gate{margin=0.8}`.

pipeline ::= pass ("," pass)*         pass  ::= name ["{" option* "}"]
option   ::= name "=" value           value ::= word ("," word)*           as in mlir-opt
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lark import Lark, Transformer
from lark.exceptions import UnexpectedInput

from jstitch.errors import ParseError
from jstitch.passes.base.named_pass import Form, NamedPass
from jstitch.passes.named_passes import find_pass

LONGEST = 1 << 16  # characters

_GRAMMAR = r"""
    pipeline: step ("," step)*
    step: NAME ["{" option* "}"]
    option: NAME "=" WORD ("," WORD)*
    NAME: /[a-z_][a-z0-9_]*(?=\s*[=,{}]|\s*$)/
    WORD: /[^\s,{}=]+/
    %import common.WS
    %ignore WS
"""


_HINTS = {
    Form.GRAPH: "put a planner (plan_layers, plan_ilp, plan_dp) before it",
    Form.PLAN: "put it before the planner",
    Form.KERNEL: "put it before the passes on kernels",
}


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="pipeline", parser="lalr")


def parse_pipeline(text: str) -> tuple[NamedPass, ...]:
    """The passes, with their options. Raises ParseError for no pipeline, or one in an impossible order."""
    if len(text) > LONGEST:
        raise ParseError(f"a pipeline of at most {LONGEST} characters", f"{len(text)} characters")
    try:
        named: list[tuple[str, Mapping[str, Sequence[str]]]] = _Build().transform(_parser().parse(text))
    except UnexpectedInput as error:
        found = text[max(0, (error.pos_in_stream or 0)) :][:20] or "the end"
        raise ParseError("passes such as cse,unroll_loops{trips=4},dce", repr(found)) from None
    passes = tuple(find_pass(name).bind(settings) for name, settings in named)
    _check_order(passes)
    return passes


class _Build(Transformer[Any, Any]):
    """Lark's tree, from the leaves up."""

    def pipeline(self, steps: Sequence[Any]) -> list[Any]:
        return list(steps)

    def step(self, parts: Sequence[Any]) -> tuple[str, dict[str, list[str]]]:
        name, *options = parts
        return str(name), dict(option for option in options if option is not None)

    def option(self, parts: Sequence[Any]) -> tuple[str, list[str]]:
        name, *words = parts
        return str(name), list(map(str, words))


def _check_order(passes: Sequence[NamedPass]) -> None:
    has = Form.GRAPH
    for p in passes:
        if (has, p.takes) == (Form.PLAN, Form.KERNEL):
            has = Form.KERNEL  # patterns become kernels by themselves
        if p.takes is not has:
            raise ParseError(f"a {p.takes.value} for {p.name}", f"a {has.value} before it", hint=_HINTS[has])
        has = p.gives
