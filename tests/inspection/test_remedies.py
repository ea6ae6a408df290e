"""Every rule that a pass can give has a remedy, and no other has; both are read from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jstitch
from jstitch.inspection.remedies import CALL_REMEDIES, REMEDIES, call_remedy, remedy
from jstitch.ir.ops import OpClass
from jstitch.ir.reason import Reason
from jstitch.passes.fuse.plan_layers import _KERNEL_CLASSES

ROOT = Path(jstitch.__file__).parent
ROOMS = ("codegen", "passes", "frontend", "ir")


def trees(call: str) -> Iterator[ast.Module]:
    """Of the modules that make such calls."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if call in (text := path.read_text()):
                yield ast.parse(text)


def constants(tree: ast.Module) -> dict[str, str]:
    """Names of the module that are strings."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))):
                found[name] = text
    return found


def rules() -> set[str]:
    """First arguments of `Reason(...)`, everywhere."""
    found: set[str] = set()
    for tree in trees("Reason("):
        names = constants(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name("Reason"), [first, *_]):
                    found |= set(_values(first, names))
    return found


def _values(rule: ast.expr, names: dict[str, str]) -> Iterator[str]:
    match rule:
        case ast.Constant(str(text)):
            yield text
        case ast.Name(name):
            yield names[name]
        case ast.Attribute(ast.Name("kind"), "value"):  # an op's class, where it is no kernel's
            yield from (kind.value for kind in OpClass if kind not in _KERNEL_CLASSES)
        case _:
            pytest.fail(f"a rule that this test cannot read: {ast.unparse(rule)}")


def test_every_rule_has_a_remedy() -> None:
    found = rules()
    assert len(found) > 20
    assert found == REMEDIES.keys()


def noted() -> Iterator[str]:
    """What `note(reason=...)` is given, as far as it is written down."""
    for tree in trees("note("):
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name("note"), _, keywords):
                    given = [k.value for k in keywords if k.arg == "reason"]
                    yield from (text for value in given for text in _beginnings(value))


def _beginnings(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr([ast.Constant(str(text)), *_]):
            yield text
        case ast.IfExp(_, yes, no):
            yield from _beginnings(yes)
            yield from _beginnings(no)


def test_reasons_of_whole_calls_have_remedies() -> None:
    reasons = list(noted())
    assert len(reasons) >= 5
    for reason in reasons:
        assert any(reason.startswith(start) for start in CALL_REMEDIES), reason


def test_remedies_speak_of_the_numbers() -> None:
    assert "at least 1,048,576" in remedy(Reason("arena", "", found=1 << 20, bound=4096))
    for rule in REMEDIES:
        assert "{" not in remedy(Reason(rule, "", found=2.0, bound=1.0))


def test_what_was_raised_is_a_bug() -> None:
    assert "JSTITCH_STRICT=1" in call_remedy("KeyError: 'x'")


def test_reasons_keep_braces_of_their_own() -> None:
    assert str(Reason("type", "a value of type !t<{a}>, {found} of {bound}", 3, 2.5)) == (
        "a value of type !t<{a}>, 3 of 2.50"
    )
