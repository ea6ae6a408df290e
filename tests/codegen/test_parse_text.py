"""Texts are parsed whatever other threads parse (CPython issue 106905)."""

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jstitch.codegen.parse_text import functions_of, parse_text

TEXT = "\n".join(f"def f{i}(a, b):\n    return ((((a + b) * 2) + 1) * 3)\n" for i in range(200))


@pytest.fixture
def switching() -> Iterator[None]:
    """The collector's callbacks let other threads run, as JAX's do."""

    def switch(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    gc.callbacks.append(switch)
    yield
    gc.callbacks.remove(switch)


@pytest.mark.usefixtures("switching")
def test_two_threads_parse() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(parse_text, [TEXT] * 60))
    assert all(len(tree.body) == 200 for tree in found)


def test_a_parse_that_another_thread_disturbed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, calls = ast.parse, []

    def disturbed(text: str) -> ast.Module:
        calls.append(text)
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=39, after=196)")
        return parse(text)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert list(functions_of("def f(x): pass")) == ["f"]
    assert len(calls) == 3


def test_other_errors_are_the_text_s() -> None:
    with pytest.raises(SyntaxError):
        parse_text("def f(:")
